//! PostgreSQL's wire protocol, version 3.0.
//!
//! ```text
//! server      accepts connections, ends them at shutdown
//!   startup     a client says who it is
//!   connection  messages in, answers out, in order         extended   Parse, Bind, Describe, Execute
//!     message     frames and their contents                rows       a result on its way to the client
//!     copy        rows as a stream of bytes, both ways
//!     wire        the socket, and what waits to be sent
//!   cancel      how other connections are interrupted
//! encode      Arrow columns as text or binary              decode     parameters as values              oid
//! ```
//!
//! The layer knows nothing of SQL: it hands text and values to a session through [`Backend`] and sends what it answers.
//! Nothing a client sends may harm another one: frames are bounded, every read in them is checked, a panic is caught
//! where it happens, and results are held back while the client does not read.

mod backend;
mod cancel;
mod connection;
mod copy;
mod decode;
mod encode;
mod extended;
mod message;
pub mod oid;
mod rows;
mod server;
mod startup;
mod wire;

pub use backend::Backend;
pub use cancel::Registry;
pub use copy::{CopyFormat, CopyOptions, CopyTarget};
pub use server::serve;

#[cfg(test)]
mod tests;
