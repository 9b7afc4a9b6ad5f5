//! Tests of what a user sees: SQL in, rows out, through restarts and crashes of the real binary. Calls no internals.
//!
//! ```text
//! rows.rs     the rows of a query, each with its count, and how two such sets differ
//! server.rs   the binary as a process: start, stop, kill, wait until it answers
//! slt.rs      runs a sqllogictest file against it, with restarts and waits as markers in comments
//! traffic.rs  writes for the tests of sinks
//! ```

pub mod rows;
pub mod server;
pub mod slt;
pub mod traffic;

pub use server::Server;
