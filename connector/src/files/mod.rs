//! Files in a directory: JSON lines, CSV and Parquet. What is there is read once; then the directory is watched.
//!
//! A split is a file, named by its path below the directory; its offset says how far it was read. Files are read in the
//! order of their names. New files become new splits. A text file that has grown is read on from the byte where it
//! ended; so writers may append, and must not change what they have written. Parquet files are complete when they
//! appear under their name.
//!
//! - A record ends with its line. The last line of a file may lack its end: it is read once the file has stayed the same
//!   for a second (see `records.rs`).
//! - A record that does not fit is skipped and reported. So is, once, a file that is gone, has become shorter, or is not
//!   of the format; the other files go on.
//! - Directories are searched to the bottom, files and directories whose names start with `.` are left out. A
//!   `match_pattern` without `/` is matched against the name of a file, one with `/` against its path below the
//!   directory. `*` and `?` stop at `/`, `**` does not; `[a-z]` and `[!a-z]` are sets.
//!
//! | option | |
//! |---|---|
//! | `posix_fs.root` | the directory |
//! | `match_pattern` | which files; `*` |
//! | `path` | instead of both: a directory, a file, or a path with wildcards |
//! | `without_header` | CSV: the first line is a record already, and columns go by position; `false` |
//! | `delimiter` | CSV: the byte between fields; `,` |
//!
//! How values are read, for all of SQL's types: strings and CSV fields in PostgreSQL's formats for the type; numbers
//! digit by digit, never through a float; a JSON number for a timestamp by its size as seconds, milliseconds or
//! microseconds since 1970. A JSON member that is missing is NULL, and so is a CSV field that is empty and not quoted.
//! Columns are found by name, by the same name in other case if need be. CSV and Parquet files must have every column.
//!
//! Reading blocks the thread for the time of a bounded read, which is short for files in a local directory; so a reader
//! has no state between two threads and can be dropped at any point.

mod config;
mod convert;
pub(crate) mod csv;
mod directory;
mod glob;
mod infer;
pub(crate) mod json;
mod parquet;
pub(crate) mod records;
pub(crate) mod rows;
mod watch;

pub use config::FilesConfig;

#[cfg(test)]
mod tests;
