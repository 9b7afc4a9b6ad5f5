//! A session: what one client said and asked so far, and what its statements do.
//!
//! ```text
//! Statement ──┬── query.rs    SELECT …                 bound, run over one snapshot
//!             ├── dml/        INSERT, UPDATE, DELETE   rows computed by a query, handed to the table's job
//!             ├── ddl/        CREATE, DROP             planned, handed to meta
//!             ├── show.rs, explain.rs                  answered from the catalog
//!             └── settings.rs, transaction.rs          kept here
//! ```
//!
//! A session keeps settings, the open transaction block and, per table, the epoch of its last write; everything else is
//! asked of meta or the store. Statements run one at a time. A statement's future may be dropped at any moment: a write is
//! either not handed over yet, or goes on by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono_tz::Tz;
use datafusion::common::ScalarValue;
use weir_common::text::TextFormat;
use weir_common::types::SqlType;
use weir_common::{Epoch, JobId};
use weir_meta::Meta;

use crate::error::{Result, SqlError, SqlState};
use crate::planner::FunctionSet;
use crate::statement::{Body, Declared, Reset, Set, Statement, TransactionModes};

mod build;
mod consistency;
mod copy;
mod cursor;
mod ddl;
mod dml;
mod explain;
mod moment;
mod origin;
mod pending;
mod query;
mod reply;
mod settings;
mod show;
mod timeout;
mod transaction;
mod variables;

pub(crate) use moment::Moment;
pub use reply::{OutputColumn, Reply};
pub use settings::Settings;
pub use transaction::TransactionStatus;

use transaction::{Block, Transaction, aborted};

/// The version of PostgreSQL that clients are told, since many do things by it.
pub const SERVER_VERSION: &str = "15.0";
/// The same as a number.
pub const SERVER_VERSION_NUM: &str = "150000";
/// The only database.
pub const DATABASE: &str = "dev";
/// The user of clients that name none.
const DEFAULT_USER: &str = "root";

/// One client's session.
pub struct Session {
    meta: Arc<Meta>,
    user: String,
    functions: Arc<FunctionSet>,
    state: Arc<Mutex<State>>,
}

/// What changes during a session.
pub(crate) struct State {
    pub settings: Settings,
    transaction: Transaction,
    /// The epoch of the last write to each table.
    written: BTreeMap<JobId, Epoch>,
    cursors: cursor::Cursors,
}

/// A statement that was planned once, to be run many times.
pub struct Prepared {
    /// The types of `$1`, `$2` …
    pub params: Vec<SqlType>,
    /// `None`: returns no rows.
    pub columns: Option<Vec<OutputColumn>>,
    statement: Statement,
}

/// Values of parameters, or only their types.
#[derive(Clone, Copy)]
pub(crate) struct Params<'a> {
    pub declared: &'a [Option<SqlType>],
    pub values: &'a [ScalarValue],
}

impl Params<'_> {
    const NONE: Params<'static> = Params { declared: &[], values: &[] };
}

impl Session {
    /// A session for a client that connected with these parameters (`user`, `database` and settings).
    pub fn new(meta: Arc<Meta>, startup: &BTreeMap<String, String>) -> Result<Arc<Session>> {
        let user = startup.get("user").cloned().unwrap_or_else(|| DEFAULT_USER.to_string());
        let database = startup.get("database").map_or(DATABASE, String::as_str);
        if database != DATABASE {
            let message = format!("database \"{database}\" does not exist");
            let hint = format!("There is one database, \"{DATABASE}\".");
            return Err(SqlError::new(SqlState::INVALID_DATABASE_NAME, message).with_hint(hint));
        }
        let settings = Settings::new(startup)?;
        let state =
            State { settings, transaction: Transaction::Idle, written: BTreeMap::new(), cursors: Default::default() };
        let state = Arc::new(Mutex::new(state));
        let functions = Arc::new(crate::system::functions(&user, state.clone(), meta.clone()));
        Ok(Arc::new(Session { meta, user, functions, state }))
    }

    /// The statements of a string.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>> {
        Statement::parse(sql)
    }

    /// Runs a statement without parameters.
    pub async fn run(&self, statement: &Statement) -> Result<Reply> {
        self.guard(statement, self.dispatch(statement, Params::NONE)).await
    }

    /// Plans a statement: what parameters it takes and what columns it returns. `declared` are the types of parameters
    /// that the client knows.
    pub async fn prepare(&self, statement: Statement, declared: &[Option<SqlType>]) -> Result<Prepared> {
        let (params, columns) = self.guard(&statement, self.describe(&statement, declared)).await?;
        Ok(Prepared { params, columns, statement })
    }

    /// Runs a prepared statement.
    pub async fn execute(&self, prepared: &Prepared, values: Vec<ScalarValue>) -> Result<Reply> {
        if values.len() != prepared.params.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement requires {}",
                values.len(),
                prepared.params.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        let declared: Vec<_> = prepared.params.iter().cloned().map(Some).collect();
        let params = Params { declared: &declared, values: &values };
        let reply = self.guard(&prepared.statement, self.dispatch(&prepared.statement, params)).await?;
        if let (Reply::Rows { columns, .. }, Some(planned)) = (&reply, &prepared.columns) {
            let types = |columns: &[OutputColumn]| columns.iter().map(|c| c.sql_type.clone()).collect::<Vec<_>>();
            if types(columns) != types(planned) {
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"));
            }
        }
        Ok(reply)
    }

    /// Whether a transaction block is open, or failed.
    pub fn status(&self) -> TransactionStatus {
        self.state().transaction.status()
    }

    /// An error outside of the session (while rows were sent, or in the protocol) fails an open block.
    pub fn abort(&self) {
        self.state().transaction.fail();
    }

    /// The settings that clients are told, under the names that they know them by.
    pub fn parameter_statuses(&self) -> Vec<(&'static str, String)> {
        self.state().settings.reported()
    }

    /// The time zone that timestamps with time zone are shown in.
    pub fn time_zone(&self) -> Tz {
        self.state().settings.time_zone()
    }

    /// How values are shown as text.
    pub fn text_format(&self) -> TextFormat {
        let state = self.state();
        let extra_float_digits = state.settings.get("extra_float_digits").ok().and_then(|d| d.parse().ok());
        TextFormat {
            time_zone: state.settings.time_zone(),
            extra_float_digits: extra_float_digits.unwrap_or(1),
            declared_scale: None,
        }
    }

    /// The meta service.
    pub(crate) fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// The name of the client's user.
    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is behind the lock is valid at any moment, also when a holder panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all statements have in common: a failed block refuses them, an error fails the block and says where it is, and
    /// there may be a time limit.
    async fn guard<T: timeout::Limited>(
        &self,
        statement: &Statement,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let ends_block = matches!(statement.body, Body::Commit | Body::Rollback);
        if self.status() == TransactionStatus::Failed && !ends_block {
            return Err(aborted());
        }
        let limit = self.state().settings.milliseconds("statement_timeout").map(Duration::from_millis);
        timeout::limit(limit, work).await.map_err(|error| {
            self.state().transaction.fail();
            statement.locate(error)
        })
    }

    /// Parameters and columns of a statement.
    async fn describe(
        &self,
        statement: &Statement,
        declared: &[Option<SqlType>],
    ) -> Result<(Vec<SqlType>, Option<Vec<OutputColumn>>)> {
        let known = || declared.iter().map(|d| d.clone().unwrap_or(SqlType::Varchar)).collect();
        match &statement.body {
            Body::Query(query) => self.describe_query(query, declared),
            Body::Insert(insert) => self.describe_insert(insert, declared),
            Body::Update(update) => self.describe_update(update, declared),
            Body::Delete(delete) => self.describe_delete(delete, declared),
            Body::Show(show) => Ok((known(), Some(show::columns(show)))),
            Body::Explain(_) => Ok((known(), Some(explain::columns()))),
            Body::Fetch(fetch) if !fetch.moves => Ok((known(), Some(self.cursor_columns(&fetch.cursor)?))),
            Body::Declare(declare) => match &declare.what {
                Declared::Query { query, .. } => Ok((self.describe_query(query, declared)?.0, None)),
                Declared::Subscription { .. } => Ok((known(), None)),
            },
            _ => Ok((known(), None)),
        }
    }

    async fn dispatch(&self, statement: &Statement, params: Params<'_>) -> Result<Reply> {
        match &statement.body {
            Body::Query(query) => self.query(query, params).await,
            Body::Insert(insert) => self.insert(insert, params).await,
            Body::Update(update) => self.update(update, params).await,
            Body::Delete(delete) => self.delete(delete, params).await,
            Body::CreateTable(table) => self.create_table(&self.with_secrets(table)?, statement).await,
            Body::CreateSource(source) => self.create_source(&self.with_secrets(source)?, statement).await,
            Body::CreateView(view) => self.create_view(view, statement).await,
            Body::CreateIndex(index) => self.create_index(index, statement).await,
            Body::CreateSink(sink) => self.create_sink(sink, statement).await,
            Body::CreateSecret(secret) => self.create_secret(secret, statement).await,
            Body::CreateSubscription(create) => self.create_subscription(create, statement).await,
            Body::Declare(declare) => self.declare(declare, params).await,
            Body::Fetch(fetch) => self.fetch(fetch).await,
            Body::Close(cursor) => self.close(cursor),
            Body::CreateSchema { name, if_not_exists } => self.create_schema(name, *if_not_exists).await,
            Body::Drop(drop) => self.drop_relations(drop).await,
            Body::DropSchema { names, if_exists, cascade } => self.drop_schemas(names, *if_exists, *cascade).await,
            Body::Copy(copy) => self.copy(copy).await,
            Body::Set(set) => self.set(set),
            Body::Show(show) => self.show(show),
            Body::Explain(explain) => self.explain(explain).await,
            Body::Begin(modes) => Ok(self.begin(modes)),
            Body::Commit => self.commit().await,
            Body::Rollback => Ok(self.rollback()),
            Body::Flush => {
                self.meta.flush().await?;
                Ok(Reply::command("FLUSH"))
            }
            Body::Wait => {
                self.meta.wait_created().await?;
                Ok(Reply::command("WAIT"))
            }
            Body::CancelJobs(jobs) => self.cancel_jobs(jobs).await,
            Body::Alter(alter) => self.alter(alter).await,
            Body::Reset(reset) => self.reset(*reset),
            Body::Unsupported(what) => Err(SqlError::unsupported(what)),
        }
    }

    fn set(&self, set: &Set) -> Result<Reply> {
        let mut state = self.state();
        match set {
            Set::Variable { local, name, value } => {
                if *local && state.transaction.status() == TransactionStatus::Idle {
                    let warning = "SET LOCAL can only be used in transaction blocks";
                    return Ok(Reply::noticed("SET", vec![SqlError::warning(SqlState("25P01"), warning)]));
                }
                state.settings.set(name, value.as_deref(), *local)?;
                Ok(Reply::command(if value.is_some() { "SET" } else { "RESET" }))
            }
            Set::ResetAll => {
                state.settings.reset_all();
                Ok(Reply::command("RESET"))
            }
            Set::Transaction { session, modes } => {
                if *session {
                    if let Some(isolation) = &modes.isolation {
                        state.settings.set(
                            "default_transaction_isolation",
                            Some(std::slice::from_ref(isolation)),
                            false,
                        )?;
                    }
                    if modes.read_only == Some(true) {
                        return Err(SqlError::unsupported("a read-only session"));
                    }
                } else if let Transaction::Active(block) = &mut state.transaction {
                    block.read_only = modes.read_only.unwrap_or(block.read_only);
                    block.isolation = modes.isolation.clone().or(block.isolation.take());
                }
                Ok(Reply::command("SET"))
            }
        }
    }

    fn reset(&self, reset: Reset) -> Result<Reply> {
        Ok(Reply::command(match reset {
            Reset::DiscardAll => {
                let mut state = self.state();
                if state.transaction.status() != TransactionStatus::Idle {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
                }
                state.settings.reset_all();
                state.cursors.clear();
                "DISCARD ALL"
            }
            Reset::Discard(tag) => tag,
            Reset::DeallocateAll => "DEALLOCATE ALL",
            Reset::CloseAll => {
                self.state().cursors.clear();
                "CLOSE CURSOR ALL"
            }
            Reset::Unlisten => "UNLISTEN",
        }))
    }

    fn begin(&self, modes: &TransactionModes) -> Reply {
        let mut state = self.state();
        if state.transaction.status() != TransactionStatus::Idle {
            let warning = "there is already a transaction in progress";
            return Reply::noticed("BEGIN", vec![SqlError::warning(SqlState::ACTIVE_TRANSACTION, warning)]);
        }
        state.settings.begin();
        state.transaction = Transaction::Active(Block::new(modes));
        Reply::command("BEGIN")
    }

    async fn commit(&self) -> Result<Reply> {
        let block = {
            let mut state = self.state();
            state.cursors.end_block();
            match std::mem::replace(&mut state.transaction, Transaction::Idle) {
                Transaction::Idle => return Ok(Reply::noticed("COMMIT", vec![no_transaction()])),
                Transaction::Failed => {
                    state.settings.end(false);
                    return Ok(Reply::command("ROLLBACK"));
                }
                Transaction::Active(block) => {
                    state.settings.end(true);
                    block
                }
            }
        };
        self.writer().hand_over_block(block).await?;
        Ok(Reply::command("COMMIT"))
    }

    fn rollback(&self) -> Reply {
        let mut state = self.state();
        let idle = state.transaction.status() == TransactionStatus::Idle;
        state.transaction = Transaction::Idle;
        state.cursors.end_block();
        state.settings.end(false);
        Reply::noticed("ROLLBACK", if idle { vec![no_transaction()] } else { vec![] })
    }
}

fn no_transaction() -> SqlError {
    SqlError::warning(SqlState("25P01"), "there is no transaction in progress")
}

#[cfg(test)]
mod tests;
