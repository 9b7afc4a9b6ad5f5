//! Where rows enter from the outside world, and where they leave to it ([`Sink`]).
//!
//! A [`Source`] is divided into *splits*: a file, a partition, a share of a generator. A [`SplitReader`] gives the rows
//! of one split in batches, each with the offset after it. The engine keeps that offset in the same commit as the
//! effects of the rows; after a crash it makes a reader at the kept offset and reads on. Exactly once rests on one
//! promise, which every connector keeps:
//!
//! > From an offset, a reader gives the same rows in the same order, however often and in whatever batch sizes.
//!
//! A record that cannot be read is data, not an error: it is skipped, and comes with the batch as a [`BadRecord`].
//!
//! | connector | splits | offset |
//! |---|---|---|
//! | [`nexmark`] | shares of one event sequence | rows given |
//! | [`files`], JSON lines and CSV | files | byte after the last record |
//! | [`files`], Parquet | files | rows read |
//! | [`kafka`] | partitions | offset of the next message |

mod column;
mod connect;
mod error;
pub mod file_sink;
pub mod files;
pub mod iceberg;
mod json;
pub mod kafka;
pub mod nexmark;
mod options;
pub mod postgres;
mod sink;
mod sink_settings;
mod source;
pub mod webhook;

pub use connect::{open, open_sink, reads_by_position, validate};
pub use error::{ConnectorError, Result};
pub use sink::{Commit, Committer, Protocol, Sink, SinkSpec, SinkWriter, Stamp};
pub use sink_settings::{SINK_OPTIONS, SinkKind, SinkSettings};
pub use source::{BadRecord, Source, SourceBatch, SplitId, SplitReader};
