//! The catalog, the epoch clock, and a controller for each job. Sees no row.
//!
//! ```text
//! meta.rs         what the frontend calls: create, alter, drop, DML
//! wait.rs         ... and to wait for jobs
//! replace.rs      an object in the place of another
//! catalog.rs      the objects, as an immutable snapshot
//! meta_store.rs   the objects, durably
//! clock.rs        epochs: by interval and on demand
//! controller.rs   decides for one job: a pure machine
//! log_readers.rs  decides what becomes of a change log: pure
//! logs.rs         keeps, truncates and limits change logs
//! job.rs          carries out what the controller decides: one task per job
//! delivery        what leaves a sink's log for a table or the outside
//! ```

pub mod catalog;
pub mod clock;
pub mod controller;
pub mod delivery;
pub mod error;
pub mod job;
pub mod log_readers;
pub mod logs;
pub mod meta;
pub mod meta_store;
mod replace;
mod wait;

pub use catalog::Catalog;
pub use clock::now_ms;
pub use delivery::{DeliveryState, PendingCommit, SinkStatus, uuid};
pub use error::{MetaError, Result};
pub use job::{JobState, JobStatus, Phase};
pub use meta::{DmlGuard, Meta, MetaOptions, actors};
