//! How many rows one statement may write.
//!
//! A statement is one epoch of its table, which is in memory until it is committed: as rows, as what the table will store, as
//! its change log. One that does not fit is refused before anything of it is handed over.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, RecordBatch};

use crate::error::{Result, SqlError, SqlState};

/// What a row costs on its way into the store beside its values, measured with narrow rows.
const ROW_BYTES: usize = 400;

/// How often values are there when they are committed: as rows, as what is written, in the batch of the store, in the log.
const COPIES: usize = 4;

static BYTES_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the memory that one statement's rows may cost.
pub(super) fn limit(bytes: usize) {
    BYTES_MAX.store(bytes, Ordering::Relaxed);
}

/// Counts the rows of a statement.
#[derive(Debug, Default)]
pub struct WriteRoom {
    bytes: usize,
}

impl WriteRoom {
    /// Counts rows in, and refuses those that are too many.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let values: usize = batch.columns().iter().filter_map(|c| c.to_data().get_slice_memory_size().ok()).sum();
        self.bytes += COPIES * values + batch.num_rows() * ROW_BYTES;
        let limit = BYTES_MAX.load(Ordering::Relaxed);
        if self.bytes <= limit {
            return Ok(());
        }
        let message = "the rows of the statement do not fit into memory at once";
        let detail = format!("They would cost more than {} MB.", limit >> 20);
        let error = SqlError::new(SqlState::OUT_OF_MEMORY, message).with_detail(detail);
        Err(error.with_hint("Write them in several statements, or raise --memory-limit."))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn slices_are_counted_for_what_they_are() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
        let batch = RecordBatch::try_from_iter([("k", column)]).unwrap();
        let mut room = WriteRoom::default();
        for at in 0..10 {
            room.add(&batch.slice(at * 100, 100)).unwrap();
        }
        assert_eq!(room.bytes, 1000 * (COPIES * 8 + ROW_BYTES));
    }
}
