//! The storage of Weir: one RocksDB that holds the state, the change logs and the frontiers of all jobs.
//!
//! ```text
//! state      table_id u32 | vnode u16 | key columns, memcomparable   ->  the other columns, compact
//! changelog  table_id u32 | epoch u64 | part u32                     ->  changes of the epoch, as an Arrow IPC stream
//! progress   frontiers of jobs; what the change logs hold and how far they are truncated
//! default    the version of this layout
//! ```
//!
//! All integers in keys are big-endian. Three views of it:
//!
//! - [`StateTable`]: one actor's part of a state table, with the writes that are not committed yet.
//! - [`Snapshot`]: everything that was committed when it was taken, for queries and backfill.
//! - [`Store::read_log`]: the changes of a relation between two epochs.
//!
//! Invariants
//!
//! - A commit is one atomic write: the state, the log and the new frontier of *one* job. Nothing is ever written over two
//!   jobs at once, so that a job's state can move to a store of its own.
//! - The frontier of a job only grows; a commit at or below it is refused ([`StorageError::Fenced`]).
//! - Only the job that owns a table writes to it.
//!
//! Deliberately absent: SQL, the catalog, tasks, and any decision when to commit or truncate. Calls block, except those
//! of [`StateTable`], which move the other tasks of their thread away before they block.

mod buffer;
mod change_log;
mod error;
mod layout;
mod memory;
mod open;
mod row_codec;
mod snapshot;
mod state_table;
mod store;
mod tail;
#[cfg(test)]
mod tests;
mod uncommitted;

pub use change_log::{LogChunk, LogReader, LogStats};
pub use error::{Remedy, StorageError};
pub use memory::MemoryLimit;
pub use row_codec::Found;
pub use snapshot::Snapshot;
pub use state_table::{ScanRange, Scanned, StateTable};
pub use store::{JobCommit, SealedTable, Store, StoreOptions};
pub use uncommitted::Uncommitted;
