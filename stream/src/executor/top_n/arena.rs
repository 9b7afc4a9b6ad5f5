//! Rows of many batches, each found by where it is.

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

/// Rows that compacting puts into one batch.
const SEGMENT_ROWS: usize = 1 << 16;
/// Rows, and batches, below which compacting is not worth it.
const COMPACT_ROWS_MIN: usize = 1 << 14;
const COMPACT_SEGMENTS_MIN: usize = 1 << 10;

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    pub segment: u32,
    pub row: u32,
}

/// Batches of rows. A row stays where it is until [`Arena::compact`].
pub struct Arena {
    schema: SchemaRef,
    segments: Vec<RecordBatch>,
    rows: usize,
    /// When it holds this many rows or batches, it is time to see how many rows are still used.
    rows_due: usize,
    segments_due: usize,
}

impl Arena {
    /// For rows with these columns.
    pub fn new(schema: SchemaRef) -> Arena {
        Arena { schema, segments: Vec::new(), rows: 0, rows_due: COMPACT_ROWS_MIN, segments_due: COMPACT_SEGMENTS_MIN }
    }

    /// The segment that the next [`Arena::push`] makes.
    pub fn next_segment(&self) -> u32 {
        u32::try_from(self.segments.len()).expect("memory ends before there are 2^32 batches in it")
    }

    /// Adds a batch as the next segment.
    pub fn push(&mut self, batch: RecordBatch) {
        self.rows += batch.num_rows();
        self.segments.push(batch);
    }

    /// These rows, in this order, as columns.
    pub fn gather(&self, rows: &[At]) -> Result<Vec<ArrayRef>, ArrowError> {
        // Of many segments, few have a row here.
        let mut used = vec![None; self.segments.len()];
        let mut segments: Vec<&RecordBatch> = Vec::new();
        let mut places = Vec::with_capacity(rows.len());
        for at in rows {
            let segment = *used[at.segment as usize].get_or_insert_with(|| {
                segments.push(&self.segments[at.segment as usize]);
                segments.len() - 1
            });
            places.push((segment, at.row as usize));
        }
        let column = |i: usize| {
            let arrays: Vec<&dyn Array> = segments.iter().map(|s| s.column(i).as_ref()).collect();
            interleave(&arrays, &places)
        };
        (0..self.schema.fields().len()).map(column).collect()
    }

    /// Whether most rows may be unused by now, so that they should be counted.
    pub fn is_due(&self) -> bool {
        self.rows >= self.rows_due || self.segments.len() >= self.segments_due
    }

    /// Keeps these rows only, if that saves much, and tells each where it is then.
    pub fn compact<'a>(&mut self, used: impl Iterator<Item = &'a mut At>) -> Result<(), ArrowError> {
        let mut used: Vec<&mut At> = used.collect();
        if self.rows > 2 * used.len() || self.segments.len() >= self.segments_due {
            let mut segments = Vec::new();
            for (segment, part) in used.chunks_mut(SEGMENT_ROWS).enumerate() {
                let rows: Vec<At> = part.iter().map(|at| **at).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
                segments.push(RecordBatch::try_new_with_options(self.schema.clone(), self.gather(&rows)?, &options)?);
                for (row, at) in part.iter_mut().enumerate() {
                    **at = At { segment: segment as u32, row: row as u32 };
                }
            }
            // Only now: until all are gathered, rows that are yet to be moved are found in the old segments.
            self.segments = segments;
            self.rows = used.len();
        }
        self.rows_due = 2 * self.rows + COMPACT_ROWS_MIN;
        self.segments_due = 2 * self.segments.len() + COMPACT_SEGMENTS_MIN;
        Ok(())
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(RecordBatch::get_array_memory_size).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    #[test]
    fn used_rows_survive_compacting() {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        let mut arena = Arena::new(schema.clone());
        let mut used = Vec::new();
        for segment in 0..40 {
            let values = Int64Array::from_iter_values((0..1000).map(|i| segment * 1000 + i));
            assert_eq!(i64::from(arena.next_segment()), segment);
            arena.push(RecordBatch::try_new(schema.clone(), vec![Arc::new(values)]).unwrap());
            used.push(At { segment: segment as u32, row: 7 });
        }
        assert!(arena.is_due());
        let before = arena.gather(&used).unwrap();
        arena.compact(used.iter_mut()).unwrap();
        assert_eq!((arena.rows, arena.segments.len(), arena.is_due()), (40, 1, false));
        let after = arena.gather(&used).unwrap();
        assert_eq!(before[0].as_primitive::<Int64Type>(), after[0].as_primitive::<Int64Type>());
    }
}
