//! The stream engine: executors, actors, exchange and the runtime of jobs.
//!
//! Parses no SQL and knows no catalog. A job is started from its [`weir_common::plan::JobPlan`] and spoken to by messages.

pub mod align;
pub mod backfill_order;
pub mod cache;
pub mod courtesy;
pub mod delivery;
pub mod dispatch;
pub mod driver;
pub mod error;
pub mod executor;
pub mod expr;
pub mod functions;
pub mod job;
pub mod message;
pub mod rate_limit;

pub use error::{Remedy, Result, StreamError};
