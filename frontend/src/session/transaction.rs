//! Transaction blocks.
//!
//! First form: reads see what is committed, as of each statement, with the block's own writes on top for the tables
//! themselves (not for views on them). Writes wait in the block, with their tables locked, and are handed over at COMMIT:
//! one unit, in one epoch, per table. DDL takes effect at once, inside a block too.

use std::collections::BTreeMap;

use weir_common::JobId;
use weir_meta::DmlGuard;

use super::pending::Pending;
use crate::batch::WriteRoom;
use crate::error::{SqlError, SqlState};
use crate::statement::TransactionModes;

/// What the protocol shows in ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    Idle,
    Active,
    /// Everything is refused until ROLLBACK.
    Failed,
}

/// The block that a session is in.
pub(super) enum Transaction {
    Idle,
    Active(Block),
    Failed,
}

/// An open block.
#[derive(Default)]
pub(super) struct Block {
    pub read_only: bool,
    pub isolation: Option<String>,
    /// The writes, by table, with the locks that keep others from writing in between.
    pub writes: BTreeMap<JobId, Write>,
    pub room: WriteRoom,
}

/// The writes of a block on a table.
pub(super) struct Write {
    pub pending: Pending,
    pub lock: DmlGuard,
}

impl Transaction {
    pub fn status(&self) -> TransactionStatus {
        match self {
            Transaction::Idle => TransactionStatus::Idle,
            Transaction::Active(_) => TransactionStatus::Active,
            Transaction::Failed => TransactionStatus::Failed,
        }
    }

    /// An error in a block fails it; its writes are gone and its locks free.
    pub fn fail(&mut self) {
        if matches!(self, Transaction::Active(_)) {
            *self = Transaction::Failed;
        }
    }
}

impl Block {
    pub fn new(modes: &TransactionModes) -> Block {
        Block { read_only: modes.read_only.unwrap_or(false), isolation: modes.isolation.clone(), ..Block::default() }
    }
}

/// `current transaction is aborted, …`.
pub(super) fn aborted() -> SqlError {
    SqlError::new(
        SqlState::FAILED_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}
