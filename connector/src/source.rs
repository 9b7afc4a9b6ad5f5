//! The contract of a source.

use arrow::array::RecordBatch;
use async_trait::async_trait;

use crate::error::Result;

/// The name of a split, unique in its source and the same for ever.
pub type SplitId = String;

/// Rows of the outside world, divided into splits.
#[async_trait]
pub trait Source: Send {
    /// The splits known now, in a fixed order. Called again from time to time, as there may be new ones.
    async fn splits(&mut self) -> Result<Vec<SplitId>>;

    /// A reader of one split, from an offset that a reader of it has given, or from the start.
    fn reader(&mut self, split: &str, offset: Option<&str>) -> Result<Box<dyn SplitReader>>;
}

/// Reads one split.
#[async_trait]
pub trait SplitReader: Send {
    /// The next batch, with at most `max_rows` records, good and bad together. `None`: there is nothing now. A batch may
    /// have no row, when all its records were bad.
    ///
    /// Dropping the future loses nothing: the next call gives what this one would have given.
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>>;

    /// Whether it can never give more rows.
    fn is_finished(&self) -> bool;
}

/// Rows of a split, and where they end.
#[derive(Clone, Debug)]
pub struct SourceBatch {
    /// The rows, in the columns that the source was opened with.
    pub batch: RecordBatch,
    /// Where a reader goes on after these rows.
    pub offset: String,
    /// The records that were met between these rows and could not be read.
    pub bad: Vec<BadRecord>,
}

/// A record that could not be read, and was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// What is wrong with it.
    pub message: String,
    /// Its text, cut at [`BadRecord::RAW_CHARS_MAX`]; empty when it is not text.
    pub raw: String,
    /// Where it is, such as `orders.csv, byte 1024`.
    pub position: String,
}

impl BadRecord {
    /// Characters of a record that are kept.
    pub const RAW_CHARS_MAX: usize = 200;

    /// Of a record's bytes, the start is kept as text.
    pub(crate) fn new(message: impl Into<String>, raw: &[u8], position: String) -> BadRecord {
        let head = &raw[..raw.len().min(4 * Self::RAW_CHARS_MAX)];
        let raw = String::from_utf8_lossy(head).chars().take(Self::RAW_CHARS_MAX).collect();
        BadRecord { message: message.into(), raw, position }
    }
}
