//! A table of a PostgreSQL database as a destination.
//!
//! ```text
//! BEGIN
//!   COPY … FROM STDIN                   append-only: into the table; else into a temporary table, with order and sign
//!   UPDATE weir_sink_offsets …          the stamp, if no newer generation has the sink
//!   DELETE, INSERT … ON CONFLICT        not append-only: the last change of each key
//! COMMIT
//! ```
//!
//! # Exactly once
//!
//! The rows of a commit and its stamp are in one transaction, so the stamp tells after a crash which rows are there.
//! `weir_sink_offsets`, in the schema of the table, has a row for each sink: the newest generation that has taken it over,
//! and the newest commit. A writer of an older generation finds a newer one in the row and rolls back. A take-over also ends
//! the sessions of older generations, so that one that has stopped in the middle of a transaction holds no locks for ever;
//! they are known by their `application_name`.
//!
//! Rows stream to the server while the transaction is open: memory does not grow with the size of a commit.
//!
//! # Options
//!
//! | option | |
//! |---|---|
//! | `host`, `port` | the server; `port` is 5432 |
//! | `user`, `password` | |
//! | `database` | the name of the user, where not given |
//! | `schema`, `table` | the table, which must exist; `schema` is `public` |
//! | `sink_id` | the name of the sink in `weir_sink_offsets`; made of the id of the sink, since names change. No two sinks may share one |
//!
//! A sink that is not append-only needs a primary key, and the table a unique index on just these columns, none of which
//! may be NULL. Connections are not encrypted.

mod config;
mod offsets;
mod rows;
mod session;
mod sink;
mod statements;
mod target;
mod writer;

pub use sink::open;
