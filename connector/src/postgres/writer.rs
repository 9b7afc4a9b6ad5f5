//! Writes the rows of a commit within a transaction.

use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::{Client, CopyInSink};
use weir_common::{Chunk, Generation};

use super::config::PostgresConfig;
use super::offsets::Offsets;
use super::rows::CopyRows;
use super::session::{connect, failed};
use super::statements::Statements;
use crate::error::{ConnectorError, Result};
use crate::sink::{SinkSpec, SinkWriter, Stamp};

/// Rows are sent in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// The writer of a sink.
pub struct PostgresWriter {
    config: PostgresConfig,
    generation: Generation,
    offsets: Offsets,
    statements: Statements,
    rows: CopyRows,
    /// `None` before the take-over, and after an error: the transaction is rolled back with its connection.
    session: Option<Session>,
}

struct Session {
    client: Client,
    /// The COPY of the open transaction. `None`: none is open.
    copy: Option<Pin<Box<CopyInSink<Bytes>>>>,
    /// Rows that were not sent yet.
    buffer: String,
    /// Changes in the transaction.
    changes: u64,
    /// Whether there are deletes among them.
    deletes: bool,
}

impl PostgresWriter {
    pub fn new(config: PostgresConfig, spec: &SinkSpec, generation: Generation) -> PostgresWriter {
        let (offsets, statements) = (Offsets::new(&config, spec.sink), Statements::new(&config, spec));
        PostgresWriter { config, generation, offsets, statements, rows: CopyRows::default(), session: None }
    }

    fn take_session(&mut self) -> Result<Session> {
        self.session.take().ok_or_else(|| ConnectorError::Unavailable {
            what: "PostgreSQL".into(),
            reason: "the writer has no connection: it was not resumed after it was made or has failed".into(),
        })
    }

    async fn write_with(&mut self, session: &mut Session, chunk: &Chunk) -> Result<()> {
        if session.copy.is_none() {
            session.begin(&self.statements.copy).await?;
        }
        let with_changes = self.statements.changes.is_some();
        for row in 0..chunk.len() {
            let insert = chunk.sign(row) > 0;
            if !insert && !with_changes {
                let reason = "the sink is append-only, and a row was deleted".into();
                return Err(ConnectorError::Mismatch { reason });
            }
            let change = with_changes.then_some((session.changes, insert));
            self.rows.write(chunk.batch(), row, change, &mut session.buffer);
            session.changes += 1;
            session.deletes |= !insert;
            if session.buffer.len() >= PIECE_BYTES {
                session.send().await?;
            }
        }
        Ok(())
    }

    async fn flush_with(&self, session: &mut Session, stamp: &Stamp) -> Result<()> {
        if session.copy.is_none() {
            session.begin(&self.statements.copy).await?;
        }
        session.end_copy().await?;
        self.offsets.write(&session.client, self.generation, stamp).await?;
        if let Some(changes) = self.statements.changes.as_ref().filter(|_| session.changes > 0) {
            if session.deletes {
                session.execute("delete rows", &changes.delete).await?;
            }
            session.execute("insert rows", &changes.upsert).await?;
        }
        session.execute("commit", "COMMIT").await?;
        (session.changes, session.deletes) = (0, false);
        Ok(())
    }
}

impl Session {
    async fn execute(&self, act: &str, statement: &str) -> Result<()> {
        self.client.batch_execute(statement).await.map_err(|e| failed(act, &e))
    }

    async fn begin(&mut self, copy: &str) -> Result<()> {
        self.execute("begin a transaction", "BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let copy = self.client.copy_in(copy).await.map_err(|e| failed("take rows", &e))?;
        self.copy = Some(Box::pin(copy));
        Ok(())
    }

    async fn send(&mut self) -> Result<()> {
        let Some(copy) = &mut self.copy else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::replace(&mut self.buffer, String::with_capacity(PIECE_BYTES * 5 / 4)));
        copy.send(piece).await.map_err(|e| failed("take rows", &e))
    }

    async fn end_copy(&mut self) -> Result<()> {
        self.send().await?;
        match self.copy.take() {
            Some(mut copy) => copy.as_mut().finish().await.map(|_| ()).map_err(|e| failed("take rows", &e)),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl SinkWriter for PostgresWriter {
    async fn resume(&mut self) -> Result<Option<Stamp>> {
        self.session = None;
        let client = connect(&self.config, Some(self.generation)).await?;
        self.offsets.create(&client).await?;
        let newest = self.offsets.take_over(&client, self.generation).await?;
        let session = Session { client, copy: None, buffer: String::new(), changes: 0, deletes: false };
        if let Some(changes) = &self.statements.changes {
            session.execute("make a temporary table", &changes.create).await?;
        }
        self.session = Some(session);
        Ok(newest)
    }

    async fn write(&mut self, chunk: Chunk) -> Result<()> {
        let mut session = self.take_session()?;
        self.write_with(&mut session, &chunk).await?;
        self.session = Some(session);
        Ok(())
    }

    async fn flush(&mut self, stamp: &Stamp) -> Result<Option<serde_json::Value>> {
        let mut session = self.take_session()?;
        self.flush_with(&mut session, stamp).await?;
        self.session = Some(session);
        Ok(None)
    }

    fn memory_bytes(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.buffer.capacity())
    }
}
