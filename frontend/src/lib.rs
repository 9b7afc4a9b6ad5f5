//! SQL text in, plans and rows out: the PostgreSQL protocol, sessions, planning, batch reads and system catalogs.
//!
//! Keeps no state of its own beyond a session, and calls no actor: everything that lasts is asked of [`weir_meta`].

pub mod batch;
pub mod error;
pub mod pg;
pub mod planner;
pub mod session;
pub mod statement;
pub mod system;

pub use error::SqlError;
pub use session::Session;
