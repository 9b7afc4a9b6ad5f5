//! Iceberg tables as a destination.
//!
//! ```text
//! SinkWriter --> data/<partition>/weir-<sink>-<generation>-<writer>-…parquet     seen by nobody
//!     | flush: the files with their statistics (Part)
//! Committer --> metadata/weir-…avro: manifests and their list = a snapshot       seen by nobody
//!     | Catalog::swap: table metadata with the snapshot in the place of the one it was made from
//!     v
//! the catalog: SQL (one row of `iceberg_tables`) or REST
//! ```
//!
//! Files and manifests are made with the `iceberg` crate; the commit is our own, because one commit must hold the
//! snapshot *and* what the table says about the sink, and because a snapshot with deletes is not to be had otherwise.
//!
//! # Exactly once
//!
//! What a table says about a sink, its [`Ledger`](ledger::Ledger), is in table properties: the newest generation that
//! has taken the sink over, and the newest commit with its epoch. It is written by the same swap as the snapshot. So
//!
//! - a commit is either in the table and in the ledger or in neither, and is found there also after its snapshot has
//!   expired;
//! - a commit is made from metadata whose ledger has no newer generation, and the swap fails when the metadata is
//!   another one by then: a process that has lost its place cannot commit. (A REST catalog compares the current
//!   snapshot, not all metadata; there a take-over makes an empty snapshot.)
//!
//! # Types
//!
//! | Weir | Iceberg, in a table that the sink makes |
//! |---|---|
//! | boolean, smallint, integer, bigint | boolean, int, int, long |
//! | real, double precision | float, double |
//! | numeric(p, s) | decimal(p, s) |
//! | numeric | string: no decimal holds all its digits |
//! | varchar, jsonb | string |
//! | bytea | binary |
//! | date, time, timestamp, timestamptz | date, time, timestamp, timestamptz |
//! | T\[\], struct | list, struct |
//! | interval | refused |
//!
//! A table that exists may have a wider type, or decimal(p, s) for numeric, uuid or a fixed length; a value that does
//! not fit exactly is an error, nothing is rounded.

mod catalog;
mod clean;
mod columns;
mod committer;
mod config;
mod convert;
mod data_file;
mod files;
mod keys;
mod ledger;
mod part;
mod partition;
mod routes;
mod schema;
mod sink;
mod snapshot;
mod statistics;
mod storage;
mod target;
mod writer;

pub use sink::open;
