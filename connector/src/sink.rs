//! The contract of a destination.
//!
//! What a sink delivers is a change log. It is delivered in *commits*: the changes of some epochs, which become visible
//! outside together. The engine keeps the log until a commit is acknowledged, and reads it again from there after a crash;
//! how nothing is doubled by that is the [`Protocol`] of a destination:
//!
//! | protocol | what a writer does | what makes it visible | after a crash |
//! |---|---|---|---|
//! | [`TwoPhase`](Protocol::TwoPhase) | writes what nobody sees yet | a [`Committer`], once for all writers | the commit is looked up outside by its id |
//! | [`Transactional`](Protocol::Transactional) | writes within a transaction | the writer, with the commit's stamp in the same transaction | the writer finds the newest stamp outside |
//! | [`AtLeastOnce`](Protocol::AtLeastOnce) | writes what is seen at once | | what was not acknowledged is written again |
//!
//! A commit carries a generation: every start of a delivery takes a new one. A destination that has seen a newer generation
//! refuses an older one ([`ConnectorError::Fenced`]), so that a process that has lost its place can do no harm.
//!
//! [`ConnectorError::Fenced`]: crate::ConnectorError::Fenced

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use weir_common::{Chunk, Epoch, Generation, JobId};

use crate::error::Result;

/// What is delivered, and where to.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    pub sink: JobId,
    /// Of the sink, for messages and for names outside.
    pub name: String,
    /// The columns that are delivered.
    pub columns: SchemaRef,
    /// Columns that identify a row outside, by index. Empty: none.
    pub primary_key: Vec<usize>,
    /// Only inserts are delivered.
    pub append_only: bool,
    /// The options of WITH, keys in lower case, secrets filled in.
    pub options: BTreeMap<String, String>,
    /// `FORMAT … ENCODE …`.
    pub format: Option<(String, String)>,
}

/// How a destination makes rows visible once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    TwoPhase,
    /// Has one writer.
    Transactional,
    AtLeastOnce,
}

/// What identifies a commit, inside and outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub sink: JobId,
    /// Unique for ever: a UUID.
    pub commit: String,
    pub generation: Generation,
    /// The commit holds the changes up to this epoch that no earlier one holds.
    pub epoch: Epoch,
}

/// A commit of all writers, durable before it is carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    pub stamp: Stamp,
    /// What the writers reported, such as files with their statistics: enough to commit in another process, later.
    pub parts: Vec<serde_json::Value>,
}

/// A destination.
#[async_trait]
pub trait Sink: Send + Sync {
    fn protocol(&self) -> Protocol;

    /// Checks what only the destination knows: that it is there, that its columns fit. Makes it, if that was asked for.
    async fn prepare(&self) -> Result<()>;

    /// A writer; `index` tells apart the writers of a generation.
    async fn writer(&self, generation: Generation, index: usize) -> Result<Box<dyn SinkWriter>>;

    /// Of a [`Protocol::TwoPhase`] destination: its committer.
    async fn committer(&self) -> Result<Box<dyn Committer>>;
}

/// Writes a share of the rows. Dropped without [`SinkWriter::flush`], what it has written never becomes visible (unless the
/// protocol is [`Protocol::AtLeastOnce`]).
#[async_trait]
pub trait SinkWriter: Send {
    /// Of a [`Protocol::Transactional`] destination: takes the place of older generations and gives the stamp of the newest
    /// commit that is visible, if there is one.
    async fn resume(&mut self) -> Result<Option<Stamp>> {
        Ok(None)
    }

    /// Takes changes in order. An update is a delete followed by an insert, side by side.
    async fn write(&mut self, chunk: Chunk) -> Result<()>;

    /// Ends a commit. Of a [`Protocol::TwoPhase`] destination: everything is durable outside, and the value tells the
    /// committer what to make visible; `None`: nothing was written. Of others: everything is visible.
    async fn flush(&mut self, stamp: &Stamp) -> Result<Option<serde_json::Value>>;

    /// Bytes of memory that open files and buffers take.
    fn memory_bytes(&self) -> usize;
}

/// Makes commits visible, one after the other.
#[async_trait]
pub trait Committer: Send {
    /// Takes the place of older generations, outside: from here on their commits are refused.
    async fn fence(&mut self, sink: JobId, generation: Generation) -> Result<()>;

    /// Makes a commit visible, whole or not at all. After an error it may be either: look it up.
    async fn commit(&mut self, commit: &Commit) -> Result<()>;

    /// Whether the commit is visible.
    async fn is_committed(&mut self, commit: &Commit) -> Result<bool>;

    /// Whether everything that the commit refers to is still there.
    async fn is_intact(&mut self, commit: &Commit) -> Result<bool>;

    /// Deletes what a commit refers to that will never be carried out.
    async fn discard(&mut self, commit: &Commit) -> Result<()>;

    /// Deletes what earlier generations of the sink have written that nothing refers to. How much that was.
    async fn clean(&mut self, sink: JobId, generation: Generation) -> Result<u64>;
}
