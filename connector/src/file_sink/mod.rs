//! Files in a directory as a destination: Parquet, JSON lines or CSV, append-only.
//!
//! ```text
//! <root>/[column=value/]weir-<sink>-<generation>-<writer>-<unique>-<n>.parquet    visible, whole, never changed again
//! <root>/.weir/<id>/staged/<generation>/….part                                    written, seen by nobody
//! <root>/.weir/<id>/log/<number>.entry                                            the commits, in order
//! ```
//!
//! # Exactly once
//!
//! The *log* of a sink is a row of numbered entries. An entry is a commit with its files, or a take-over by a generation. It
//! is added by a hard link, which fails when the number is taken: so entries have one order, whoever adds them.
//!
//! - A commit is visible from the moment that its entry is there; its files are durable by then. Its files move to their
//!   places after that, and whoever comes next (the same committer, the next generation) moves what was left.
//! - Generations never decrease along the log. A committer adds an entry only after it has read all entries before it; one
//!   that was taken over finds the number taken, reads the newer generation, and is refused.
//! - A commit is looked up in the log by its id, from the end.
//!
//! A reader of the directory sees whole files only, though the files of one commit appear one after the other. A reader that
//! follows the log sees each commit whole: a file of an entry is at `path`, or else still at `staged`.
//!
//! # Options
//!
//! | option | |
//! |---|---|
//! | `fs.path` | the directory; made if it is not there |
//! | `partition_by` | columns whose values become directories, as Hive has them; these columns are not in the files |
//! | `target_file_size_mb` | a file is ended at this size; 128 |
//! | `open_files_max` | open files of a writer; the one not written to for longest is ended for another; 100 |
//! | `compression` | Parquet: `zstd`, `snappy`, `lz4`, `gzip` or `none`; `zstd` |
//! | `delimiter` | CSV: the character between fields; `,` |
//! | `without_header` | CSV: no names of columns in the first line; `false` |
//! | `sink_id` | name below `.weir`, where several clusters write to one directory; the id of the sink, since names change |
//!
//! Values: JSON as in [`crate::json`]; CSV in PostgreSQL's formats, NULL as an empty field and the empty string as `""`;
//! Parquet in its own types, with interval and numeric without precision as strings, because Parquet has no such types.

mod commit_log;
mod committer;
mod config;
mod disk;
mod encode;
mod layout;
mod partition;
mod plain;
mod sink;
mod writer;

pub use sink::open;

#[cfg(test)]
mod tests;
