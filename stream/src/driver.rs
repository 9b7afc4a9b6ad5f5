//! The barrier protocol of the engine, written once for executors and once for readers.
//!
//! Every executor and every reader is a task of its own; edges are bounded channels. At a barrier:
//!
//! ```text
//! 1. the results of the epoch leave      executor.flush / reader.finish
//! 2. the state joins the job's commit    table.seal, reported as [`Sealed`]
//! 3. the barrier follows the results
//! ```
//!
//! The job may commit an epoch once every task has reported it.

use std::future::Future;

use tokio::sync::mpsc;
use weir_common::{Chunk, Epoch, JobId};
use weir_storage::{LogChunk, SealedTable, StateTable};

use crate::Result;
use crate::align::{Align, Aligned};
use crate::executor::Executor;
use crate::message::{Barrier, Output};

/// What a task reports when a barrier has passed it.
pub struct Sealed {
    /// Index of the task within its job.
    pub task: usize,
    pub epoch: Epoch,
    /// The state that belongs to the commit of the epoch.
    pub tables: Vec<SealedTable>,
    /// Changes of the job's relation in the epoch.
    pub log: Vec<LogChunk>,
    /// Rows that left the task in the epoch.
    pub rows: u64,
    /// How far a reader of another job's relation is; `None` for all other tasks.
    pub backfill: Option<Backfill>,
}

/// How far a reader of a relation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backfill {
    /// The job whose relation is read.
    pub input: JobId,
    /// The changes of the input up to here are applied.
    pub offset: Epoch,
    /// Vnodes that have been read to their end, of how many.
    pub vnodes_finished: usize,
    pub vnodes: usize,
    /// Rows read from the snapshot so far.
    pub rows: u64,
}

impl Backfill {
    /// Everything that existed has been read.
    pub fn finished(&self) -> bool {
        self.vnodes_finished == self.vnodes
    }
}

/// The reporting side of a task.
#[derive(Clone)]
pub struct Reporter {
    pub task: usize,
    pub sealed: mpsc::UnboundedSender<Sealed>,
}

impl Reporter {
    fn report(&self, epoch: Epoch, tables: Vec<SealedTable>, left: (Vec<LogChunk>, u64), backfill: Option<Backfill>) {
        let (log, rows) = left;
        // Nobody listens any more when the job is being stopped; then the report does not matter.
        let _ = self.sealed.send(Sealed { task: self.task, epoch, tables, log, rows, backfill });
    }
}

/// Where rows enter a job.
pub trait Reader: Send + 'static {
    /// Waits for the next changes. Cancel-safe: dropped between two polls, it has lost nothing.
    fn next(&mut self) -> impl Future<Output = Result<Chunk>> + Send;

    /// Emits what still belongs to the epoch that this barrier ends, and writes the state.
    fn finish(&mut self, barrier: Barrier, out: &mut Output) -> impl Future<Output = Result<()>> + Send;

    /// The state tables, to be sealed after [`Reader::finish`].
    fn tables(&mut self) -> Vec<&mut StateTable>;

    /// How far a reader of a relation is.
    fn backfill(&self) -> Option<Backfill>;
}

/// Runs an executor until its inputs end or it fails.
pub async fn drive<E: Executor>(mut executor: E, mut inputs: Align, mut out: Output, reporter: Reporter) -> Result<()> {
    loop {
        match inputs.next().await? {
            Aligned::Chunk { port, chunk } => executor.apply(port, chunk, &mut out).await?,
            Aligned::Barrier(barrier) => {
                executor.flush(&mut out).await?;
                let tables = seal(executor.tables(), barrier.epoch);
                let left = out.barrier(barrier).await?;
                reporter.report(barrier.epoch, tables, left, None);
            }
        }
    }
}

/// Runs a reader until its barriers end or it fails. A barrier goes before rows that are waiting.
pub async fn read<R: Reader>(
    mut reader: R,
    mut barriers: mpsc::UnboundedReceiver<Barrier>,
    mut out: Output,
    reporter: Reporter,
) -> Result<()> {
    loop {
        tokio::select! {
            biased;
            barrier = barriers.recv() => {
                let Some(barrier) = barrier else { return Ok(()) };
                reader.finish(barrier, &mut out).await?;
                let backfill = reader.backfill();
                let tables = seal(reader.tables(), barrier.epoch);
                let left = out.barrier(barrier).await?;
                reporter.report(barrier.epoch, tables, left, backfill);
            }
            chunk = reader.next() => out.push(chunk?).await?,
        }
    }
}

fn seal(tables: Vec<&mut StateTable>, epoch: Epoch) -> Vec<SealedTable> {
    tables.into_iter().map(|table| table.seal(epoch)).collect()
}
