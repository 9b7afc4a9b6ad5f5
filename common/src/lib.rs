//! The words that all parts of Weir speak: epochs, ids, vnodes, chunks, key and row encodings, plans, catalog entries.
//!
//! Nothing here does I/O, knows SQL text or holds state. A file per noun.

pub mod calendar;
pub mod catalog;
pub mod chunk;
mod codec;
pub mod epoch;
pub mod error;
pub mod id;
pub mod json;
pub mod key;
pub mod parse;
pub mod plan;
pub mod row;
pub mod table;
pub mod text;
pub mod types;
pub mod vnode;

pub use chunk::Chunk;
pub use epoch::Epoch;
pub use error::{CodecError, Remedy, SqlState, ValueError};
pub use id::{ActorId, FragmentId, Generation, JobId, TableId};
pub use table::TableDef;
pub use types::SqlType;
pub use vnode::{VNODE_COUNT, Vnode, VnodeSet};
