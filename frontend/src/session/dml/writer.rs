//! Hands changes to the jobs of tables, or keeps them in the open block.

use std::sync::{Arc, Mutex, PoisonError};

use weir_common::{Chunk, Epoch, JobId};
use weir_meta::{DmlGuard, Meta};

use crate::error::{Result, SqlError};
use crate::session::pending::{Pending, WrittenTable};
use crate::session::transaction::{Block, Transaction, Write, aborted};
use crate::session::{Session, State};

/// Writes for a session.
pub(in crate::session) struct Writer {
    meta: Arc<Meta>,
    state: Arc<Mutex<State>>,
}

impl Session {
    pub(in crate::session) fn writer(&self) -> Writer {
        Writer { meta: self.meta.clone(), state: self.state.clone() }
    }
}

impl Writer {
    /// Writes the changes of a statement. Without a lock the block has it.
    pub async fn write(&self, table: JobId, written: WrittenTable, chunk: Chunk, lock: Option<DmlGuard>) -> Result<()> {
        let lock = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut state.transaction, lock) {
                (Transaction::Active(block), lock) => {
                    block.room.add(chunk.batch())?;
                    if let Some(lock) = lock {
                        block.writes.insert(table, Write { pending: Pending::new(written), lock });
                    }
                    let missing = || SqlError::internal("the block does not hold the table that it writes to");
                    return block.writes.get_mut(&table).ok_or_else(missing)?.pending.add(chunk);
                }
                (_, Some(lock)) => lock,
                (_, None) => return Err(aborted()),
            }
        };
        self.hand_over(table, vec![chunk], lock).await
    }

    /// Hands changes to the table's job and waits until they are durable.
    pub async fn hand_over(&self, table: JobId, chunks: Vec<Chunk>, lock: DmlGuard) -> Result<()> {
        self.hand_over_all(vec![(table, chunks, lock)]).await
    }

    /// Hands over what a block has written.
    pub async fn hand_over_block(&self, block: Block) -> Result<()> {
        let mut writes = Vec::with_capacity(block.writes.len());
        for (table, write) in block.writes {
            writes.push((table, write.pending.into_chunks()?, write.lock));
        }
        self.hand_over_all(writes).await
    }

    /// A task of its own does it, so that all of it goes on when this future is dropped.
    async fn hand_over_all(&self, writes: Vec<(JobId, Vec<Chunk>, DmlGuard)>) -> Result<()> {
        let (meta, state) = (self.meta.clone(), self.state.clone());
        let written = tokio::spawn(async move {
            for (table, chunks, lock) in writes {
                if chunks.is_empty() {
                    continue;
                }
                let epoch: Epoch = meta.dml(table, chunks).await?;
                drop(lock);
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let newest = state.written.entry(table).or_default();
                *newest = epoch.max(*newest);
            }
            Ok(())
        });
        written.await.unwrap_or_else(|e| Err(SqlError::internal(format!("the write failed: {e}"))))
    }
}
