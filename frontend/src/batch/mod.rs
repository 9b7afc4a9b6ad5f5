//! Queries that run once: DataFusion over one snapshot of the store.
//!
//! ```text
//! Bound plan ──optimize, plan──> ExecutionPlan ──execute──> batches
//!                                     │ leaves
//!                        RelationScan │ (all rows, by vnode)      one [`ReadPoint`] for all relations
//!                        MemTable     ┘ (looked-up rows, system relations)
//! ```
//!
//! A session's [`state`] knows no catalog, no object store, no file format and no factory: a plan reaches nothing but the
//! table providers that were bound into it.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use weir_common::TableDef;

mod keys;
mod lookup;
mod overlay;
mod readers;
mod relation;
mod room;
mod run;
mod scan;
mod zeros;

pub(crate) use keys::relation_keys;
pub use overlay::Overlay;
pub(crate) use overlay::existing;
pub use readers::{ReadPoint, StoreReaders};
pub use room::WriteRoom;
pub use run::{collect, config, configure, execute, physical_plan, state};

/// The committed rows of a job's state table.
pub(crate) fn state_table(name: String, def: TableDef, point: ReadPoint) -> Arc<dyn TableProvider> {
    Arc::new(relation::RelationReader::of_state(name, def, point))
}
