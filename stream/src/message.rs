//! What flows between executors, and the output side of an edge.

use std::sync::Arc;

use tokio::sync::mpsc;
use weir_common::{Chunk, Epoch, TableId};
use weir_storage::LogChunk;

use crate::Result;
use crate::dispatch::Dispatcher;
use crate::error::StreamError;

/// Messages that an edge holds before its sender waits.
pub const EDGE_CAPACITY: usize = 8;

/// The mark that ends an epoch in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    pub epoch: Epoch,
    /// Every backfill of the job is finished, and readers take from each log exactly what belongs to `epoch`. Until then
    /// each reader follows its own input by itself.
    pub aligned: bool,
}

/// An element of the ordered sequence on an edge.
#[derive(Clone, Debug)]
pub enum Message {
    Chunk(Chunk),
    Barrier(Barrier),
}

/// Where the results of an executor go.
pub struct Output {
    target: Target,
    /// Rows pushed since the last barrier.
    rows: u64,
}

enum Target {
    /// The next executor of the actor.
    Edge(mpsc::Sender<Message>),
    /// The actors of other fragments, all of it to each.
    Exchanges(Vec<Dispatcher>),
    /// The end of the job: what is pushed is the change log of the epoch, and leaves with the sealed state.
    Log(Vec<LogChunk>),
    /// The end of a job without a relation.
    Nowhere,
}

impl Output {
    /// To the next executor.
    pub fn edge(sender: mpsc::Sender<Message>) -> Output {
        Output { target: Target::Edge(sender), rows: 0 }
    }

    /// To the actors of other fragments. Every dispatcher gets everything.
    pub fn exchanges(dispatchers: Vec<Dispatcher>) -> Output {
        Output { target: Target::Exchanges(dispatchers), rows: 0 }
    }

    /// To the change log of the job.
    pub fn log() -> Output {
        Output { target: Target::Log(Vec::new()), rows: 0 }
    }

    /// Dropped.
    pub fn nowhere() -> Output {
        Output { target: Target::Nowhere, rows: 0 }
    }

    /// Sends changes on, and waits while the receiver is behind. Empty chunks are dropped.
    pub async fn push(&mut self, chunk: Chunk) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.rows += chunk.len() as u64;
        match &mut self.target {
            Target::Edge(sender) => sender.send(Message::Chunk(chunk)).await.map_err(|_| StreamError::DownstreamGone),
            Target::Exchanges(dispatchers) => {
                let (last, others) = dispatchers.split_last_mut().ok_or(StreamError::Plan("no exchange to send to"))?;
                for dispatcher in others {
                    dispatcher.push(chunk.clone()).await?;
                }
                last.push(chunk).await
            }
            Target::Log(_) => unreachable!("only Materialize ends a job with a log, through push_log"),
            Target::Nowhere => Ok(()),
        }
    }

    /// Adds to the change log of the job. Only the executor that keeps the relation does.
    ///
    /// The epoch of the chunk is known when its barrier comes, and filled in then.
    pub fn push_log(&mut self, table: TableId, chunk: Chunk, vnodes: Arc<[u8]>) {
        if chunk.is_empty() {
            return;
        }
        self.rows += chunk.len() as u64;
        match &mut self.target {
            Target::Log(chunks) => chunks.push(LogChunk { table, epoch: Epoch::ZERO, chunk, vnodes }),
            _ => unreachable!("push_log is for the root of a job"),
        }
    }

    /// Sends the barrier on, behind the results of its epoch. Returns the log of the epoch and how many rows left in it.
    pub(crate) async fn barrier(&mut self, barrier: Barrier) -> Result<(Vec<LogChunk>, u64)> {
        let rows = std::mem::take(&mut self.rows);
        let log = match &mut self.target {
            Target::Edge(sender) => {
                sender.send(Message::Barrier(barrier)).await.map_err(|_| StreamError::DownstreamGone)?;
                Vec::new()
            }
            Target::Exchanges(dispatchers) => {
                for dispatcher in dispatchers {
                    dispatcher.barrier(barrier).await?;
                }
                Vec::new()
            }
            Target::Log(chunks) => {
                let mut chunks = std::mem::take(chunks);
                chunks.iter_mut().for_each(|c| c.epoch = barrier.epoch);
                chunks
            }
            Target::Nowhere => Vec::new(),
        };
        Ok((log, rows))
    }
}
