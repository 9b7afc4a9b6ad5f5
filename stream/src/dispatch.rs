//! The sending side of an exchange: rows go to the owner of their vnode.

use arrow::array::UInt32Array;
use tokio::sync::mpsc;

use weir_common::plan::Distribution;
use weir_common::{Chunk, Vnode, VnodeSet};

use crate::Result;
use crate::error::StreamError;
use crate::message::{Barrier, Message};

/// Sends the rows of one actor to the actors of another fragment.
pub struct Dispatcher {
    targets: Vec<mpsc::Sender<Message>>,
    /// Columns that the vnode is hashed from. Empty: everything goes to the only target.
    columns: Vec<usize>,
    /// Vnode -> index of the target that owns it.
    owner: Vec<usize>,
}

impl Dispatcher {
    /// Target `i` owns the vnodes `owned[i]`.
    pub fn new(distribution: &Distribution, targets: Vec<mpsc::Sender<Message>>, owned: &[VnodeSet]) -> Dispatcher {
        assert_eq!(targets.len(), owned.len(), "each target of an exchange owns vnodes");
        let columns = match distribution {
            Distribution::Single => Vec::new(),
            Distribution::Hash(columns) => columns.clone(),
        };
        assert!(targets.len() == 1 || !columns.is_empty(), "an exchange to several actors needs hash columns");
        let owner =
            Vnode::all().map(|v| owned.iter().position(|o| o.contains(v)).expect("every vnode has an owner")).collect();
        Dispatcher { targets, columns, owner }
    }

    /// Sends each row to its target. The order of rows with the same hash columns is kept.
    pub async fn push(&mut self, chunk: Chunk) -> Result<()> {
        if self.targets.len() == 1 {
            return send(&self.targets[0], Message::Chunk(chunk)).await;
        }
        let vnodes = Vnode::of_columns(&chunk.columns(&self.columns), chunk.len())?;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.targets.len()];
        for (row, vnode) in vnodes.iter().enumerate() {
            rows[self.owner[vnode.0 as usize]].push(row as u32);
        }
        for (target, rows) in self.targets.iter().zip(rows) {
            if rows.len() == chunk.len() {
                return send(target, Message::Chunk(chunk)).await;
            }
            if !rows.is_empty() {
                send(target, Message::Chunk(chunk.take(&UInt32Array::from(rows))?)).await?;
            }
        }
        Ok(())
    }

    /// Sends the barrier to every target.
    pub async fn barrier(&mut self, barrier: Barrier) -> Result<()> {
        for target in &self.targets {
            send(target, Message::Barrier(barrier)).await?;
        }
        Ok(())
    }
}

async fn send(target: &mpsc::Sender<Message>, message: Message) -> Result<()> {
    target.send(message).await.map_err(|_| StreamError::DownstreamGone)
}
