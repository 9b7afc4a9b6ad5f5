//! One connection after its start-up: messages in, answers out, in order.
//!
//! ```text
//! Query      statements of one string, run one after the other until one fails      then ReadyForQuery
//! Parse …    see `extended`
//! Sync       the end of a batch of those                                            then ReadyForQuery
//! ```
//!
//! - Whatever runs is raced against [`Signals`]: cancelling or ending it is dropping its future. A panic in it is an error
//!   of the statement.
//! - After an error in a message of the extended protocol, everything up to the next Sync is skipped.
//! - Settings that have changed are told before ReadyForQuery.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use pgwire::messages::response::{self, CommandComplete, EmptyQueryResponse, ReadyForQuery};
use pgwire::messages::startup::{BackendKeyData, ParameterStatus, SecretKey};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tracing::debug;

use super::backend::Backend;
use super::cancel::{Registration, Signals};
use super::encode::Format;
use super::extended::{Portal, Statement};
use super::message;
use super::rows::{Progress, Rows, row_description};
use super::wire::{Failure, Wire};
use crate::error::{Result, Severity, SqlError, SqlState};
use crate::session::{Reply, TransactionStatus};

/// A connection.
pub struct Connection<B: Backend> {
    pub(super) wire: Wire,
    pub(super) session: Arc<B>,
    registration: Registration,
    /// By name; the unnamed one has the empty name.
    pub(super) statements: HashMap<String, Arc<Statement<B>>>,
    pub(super) portals: HashMap<String, Portal<B>>,
    /// The settings as the client knows them.
    reported: Vec<(&'static str, String)>,
    /// A message failed: everything up to the next Sync is skipped.
    skipping: bool,
}

impl<B: Backend> Connection<B> {
    /// A connection whose client has been let in, and knows nothing but that.
    pub fn new(wire: Wire, session: Arc<B>, registration: Registration) -> Connection<B> {
        Connection {
            wire,
            session,
            registration,
            statements: HashMap::new(),
            portals: HashMap::new(),
            reported: vec![],
            skipping: false,
        }
    }

    /// Serves the client until it leaves or is told to.
    pub async fn serve(mut self) {
        let outcome = async {
            self.greet()?;
            self.ready().await?;
            while self.step().await? {}
            Ok(())
        };
        let last = match outcome.await {
            Ok(()) => None,
            Err(Failure::Sql(error)) => Some(error),
            Err(Failure::Io(error)) => {
                debug!(%error, "a client has gone");
                None
            }
        };
        self.wire.close(last).await;
    }

    /// Tells a new client the settings, and how to cancel what it will run.
    fn greet(&mut self) -> Result<()> {
        self.report_settings()?;
        let key = BackendKeyData::new(self.registration.pid, SecretKey::I32(self.registration.secret));
        self.wire.put(PgWireBackendMessage::BackendKeyData(key))
    }

    /// Takes the next message. False: there are no more. An error ends the connection.
    async fn step(&mut self) -> Result<bool, Failure> {
        let signals = self.registration.signals.clone();
        let frame = tokio::select! {
            biased;
            () = signals.terminated() => return Err(terminated()),
            frame = self.wire.read() => frame?,
        };
        let Some((tag, body)) = frame else { return Ok(false) };
        // PostgreSQL too looks for these two alone.
        if self.skipping && !matches!(tag, b'S' | b'X') {
            return Ok(true);
        }
        let message = match message::decode(tag, body) {
            Err(error) if error.state == SqlState::PROTOCOL_VIOLATION => return Err(Failure::fatal(error)),
            decoded => decoded,
        };
        if matches!(message, Ok(PgWireFrontendMessage::Terminate(_))) {
            return Ok(false);
        }
        let outcome = match message {
            Ok(message) => interruptible(&signals, self.handle(message)).await,
            Err(error) => Err(error.into()),
        };
        if let Err(failure) = outcome {
            self.fail(failure)?;
            // What began with Query ends here, the other messages with Sync.
            self.skipping = !matches!(tag, b'Q' | b'F' | b'S');
        }
        match tag {
            b'Q' | b'F' | b'S' => {
                self.skipping = false;
                self.ready().await?;
            }
            b'H' => self.wire.flush().await?,
            _ if self.skipping => self.wire.flush().await?,
            _ => self.wire.relieve().await?,
        }
        Ok(true)
    }

    async fn handle(&mut self, message: PgWireFrontendMessage) -> Result<(), Failure> {
        match message {
            PgWireFrontendMessage::Query(query) => self.query(&query.query).await,
            PgWireFrontendMessage::Parse(parse) => self.parse(parse).await,
            PgWireFrontendMessage::Bind(bind) => Ok(self.bind(bind)?),
            PgWireFrontendMessage::Describe(describe) => Ok(self.describe(&describe)?),
            PgWireFrontendMessage::Execute(execute) => self.execute(execute).await,
            PgWireFrontendMessage::Close(close) => Ok(self.close(&close)?),
            // Data of a copy that has failed may still be on its way. The others mean nothing by themselves.
            _ => Ok(()),
        }
    }

    /// Runs the statements of a string.
    async fn query(&mut self, sql: &str) -> Result<(), Failure> {
        self.statements.remove("");
        self.portals.remove("");
        let session = self.session.clone();
        let statements = session.parse(sql)?;
        if statements.is_empty() {
            self.wire.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?;
        }
        for statement in &statements {
            match session.run(statement).await? {
                Reply::Rows { columns, batches, tag, notices } => {
                    self.notices(&notices)?;
                    let formats = vec![Format::Text; columns.len()];
                    self.wire.put(row_description(&columns, &formats)?)?;
                    let mut rows = Rows::new(&columns, &formats, &session.text_format(), batches, tag);
                    if let Progress::Done(count) = rows.send(&mut self.wire, u64::MAX).await? {
                        self.complete(rows.tag(count))?;
                    }
                }
                reply => self.command(reply).await?,
            }
        }
        Ok(())
    }

    /// Tells of a statement that has no rows, or sends and takes them as data.
    pub(super) async fn command(&mut self, reply: Reply) -> Result<(), Failure> {
        match reply {
            Reply::Command { tag, notices } => {
                self.notices(&notices)?;
                if matches!(tag.as_str(), "DISCARD ALL" | "DEALLOCATE ALL") {
                    self.statements.clear();
                }
                self.complete(tag)?;
            }
            Reply::Empty => self.wire.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?,
            Reply::CopyOut { columns, batches, options } => self.copy_out(&columns, options, batches).await?,
            Reply::CopyIn { columns, options, target } => self.copy_in(&columns, options, target).await?,
            Reply::Rows { .. } => {
                return Err(SqlError::internal("the statement returned rows that were not announced").into());
            }
        }
        Ok(())
    }

    /// Tells that a statement is done.
    pub(super) fn complete(&mut self, tag: String) -> Result<()> {
        self.wire.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag)))
    }

    pub(super) fn notices(&mut self, notices: &[SqlError]) -> Result<()> {
        notices.iter().try_for_each(|notice| self.wire.put(message::report(notice)))
    }

    /// Tells of an error after which the connection goes on; gives back any other.
    fn fail(&mut self, failure: Failure) -> Result<(), Failure> {
        self.wire.discard_open();
        self.portals.clear();
        match failure {
            Failure::Sql(error) if error.severity != Severity::Fatal => {
                self.session.abort();
                // Whatever a failed statement says, it must not look like a notice.
                let error = SqlError { severity: Severity::Error, ..error };
                Ok(self.wire.put(message::report(&error))?)
            }
            fatal => Err(fatal),
        }
    }

    /// Tells the settings that the client does not know, or not as they are now.
    fn report_settings(&mut self) -> Result<()> {
        let settings = self.session.parameter_statuses();
        for (name, value) in settings.iter().filter(|setting| !self.reported.contains(setting)) {
            let status = ParameterStatus::new(name.to_string(), value.replace('\0', ""));
            self.wire.put(PgWireBackendMessage::ParameterStatus(status))?;
        }
        self.reported = settings;
        Ok(())
    }

    /// Lets the client go on.
    async fn ready(&mut self) -> Result<(), Failure> {
        let status = match self.session.status() {
            TransactionStatus::Idle => response::TransactionStatus::Idle,
            TransactionStatus::Active => response::TransactionStatus::Transaction,
            TransactionStatus::Failed => response::TransactionStatus::Error,
        };
        if status == response::TransactionStatus::Idle {
            self.portals.clear();
        }
        self.report_settings()?;
        self.wire.put(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status)))?;
        let signals = self.registration.signals.clone();
        tokio::select! {
            biased;
            () = signals.terminated() => Err(terminated()),
            flushed = self.wire.flush() => Ok(flushed?),
        }
    }
}

/// Does work until it is done, or someone outside wants it to end.
async fn interruptible(signals: &Signals, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let cancelled = signals.cancelled();
    tokio::select! {
        biased;
        () = signals.terminated() => Err(terminated()),
        () = cancelled => {
            Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request").into())
        }
        outcome = AssertUnwindSafe(work).catch_unwind() => outcome.unwrap_or_else(|panic| Err(panicked(&*panic).into())),
    }
}

/// The last words to a client when the server, or someone with the right to it, ends the connection.
pub(super) fn terminated() -> Failure {
    let message = "terminating connection due to administrator command";
    Failure::fatal(SqlError::new(SqlState::ADMIN_SHUTDOWN, message))
}

/// The error that a panic is to the client. It is a bug; the panic itself has been logged where it happened.
fn panicked(panic: &(dyn Any + Send)) -> SqlError {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    let error = SqlError::internal("the statement failed because of a bug in the server");
    match text {
        Some(text) => error.with_detail(text),
        None => error,
    }
}
