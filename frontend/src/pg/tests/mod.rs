//! The protocol over real sockets, against a session that answers without a database.
#![allow(clippy::unwrap_used)]

mod clients;
mod fake;
mod raw;
