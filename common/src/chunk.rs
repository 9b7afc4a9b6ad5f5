//! A batch of changes: Arrow columns and a sign for each row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

/// Rows of a chunk that a reader or executor aims for; larger ones are allowed.
pub const CHUNK_ROWS: usize = 4096;

/// A batch of changes. Row `i` of the columns is inserted (+1) or deleted (-1). The order of rows matters: a chunk is a
/// piece of a change log, applied from the first row to the last. An update is a delete followed by an insert.
#[derive(Clone, Debug)]
pub struct Chunk {
    batch: RecordBatch,
    /// One per row, `1` or `-1`. `None`: every row is an insert.
    signs: Option<Arc<[i8]>>,
}

impl Chunk {
    /// Every row of the batch is inserted.
    pub fn inserts(batch: RecordBatch) -> Chunk {
        Chunk { batch, signs: None }
    }

    /// Row `i` has sign `signs[i]`.
    ///
    /// Panics when the lengths differ.
    pub fn new(batch: RecordBatch, signs: Vec<i8>) -> Chunk {
        assert_eq!(batch.num_rows(), signs.len(), "a chunk has one sign per row");
        debug_assert!(signs.iter().all(|s| *s == 1 || *s == -1));
        let signs = signs.contains(&-1).then(|| Arc::from(signs));
        Chunk { batch, signs }
    }

    /// The columns.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Column `i`.
    pub fn column(&self, i: usize) -> &ArrayRef {
        self.batch.column(i)
    }

    /// The columns with these indices, in this order.
    pub fn columns(&self, indices: &[usize]) -> Vec<ArrayRef> {
        indices.iter().map(|i| self.batch.column(*i).clone()).collect()
    }

    /// The names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sign of row `i`: `1` inserted, `-1` deleted.
    pub fn sign(&self, i: usize) -> i8 {
        self.signs.as_ref().map_or(1, |s| s[i])
    }

    /// The signs, or `None` when every row is inserted.
    pub fn signs(&self) -> Option<&[i8]> {
        self.signs.as_deref()
    }

    /// Whether every row is inserted.
    pub fn is_append_only(&self) -> bool {
        self.signs.is_none()
    }

    /// Other columns for the same rows.
    ///
    /// Panics when the number of rows differs.
    pub fn with_batch(&self, batch: RecordBatch) -> Chunk {
        assert_eq!(batch.num_rows(), self.len(), "with_batch keeps the rows of the chunk");
        Chunk { batch, signs: self.signs.clone() }
    }

    /// The same rows with opposite signs.
    pub fn negated(&self) -> Chunk {
        let signs = (0..self.len()).map(|i| -self.sign(i)).collect();
        Chunk::new(self.batch.clone(), signs)
    }

    /// The rows where the mask is true (null counts as false), in order.
    pub fn filter(&self, mask: &BooleanArray) -> Result<Chunk, ArrowError> {
        let batch = compute::filter_record_batch(&self.batch, mask)?;
        let signs = self.signs.as_ref().map(|signs| {
            let keep = |i: &usize| mask.is_valid(*i) && mask.value(*i);
            (0..self.len()).filter(keep).map(|i| signs[i]).collect::<Vec<_>>()
        });
        Ok(match signs {
            Some(signs) => Chunk::new(batch, signs),
            None => Chunk::inserts(batch),
        })
    }

    /// The rows with these indices, in this order.
    pub fn take(&self, rows: &UInt32Array) -> Result<Chunk, ArrowError> {
        let batch = compute::take_record_batch(&self.batch, rows)?;
        Ok(match &self.signs {
            Some(signs) => Chunk::new(batch, rows.values().iter().map(|r| signs[*r as usize]).collect()),
            None => Chunk::inserts(batch),
        })
    }

    /// Rows `offset .. offset + len`.
    pub fn slice(&self, offset: usize, len: usize) -> Chunk {
        let batch = self.batch.slice(offset, len);
        match &self.signs {
            Some(signs) => Chunk::new(batch, signs[offset..offset + len].to_vec()),
            None => Chunk::inserts(batch),
        }
    }

    /// All chunks one after the other.
    pub fn concat(schema: &SchemaRef, chunks: &[Chunk]) -> Result<Chunk, ArrowError> {
        let batch = compute::concat_batches(schema, chunks.iter().map(Chunk::batch))?;
        if chunks.iter().all(Chunk::is_append_only) {
            return Ok(Chunk::inserts(batch));
        }
        let signs = chunks.iter().flat_map(|c| (0..c.len()).map(|i| c.sign(i))).collect();
        Ok(Chunk::new(batch, signs))
    }

    /// Bytes that the columns and signs take in memory (shared buffers count in full).
    pub fn memory_bytes(&self) -> usize {
        self.batch.get_array_memory_size() + self.signs.as_ref().map_or(0, |s| s.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use arrow::array::Int32Array;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn chunk(values: &[i32], signs: &[i8]) -> Chunk {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int32, true)]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from(values.to_vec()))]).unwrap();
        Chunk::new(batch, signs.to_vec())
    }

    #[test]
    fn rows_keep_their_signs() {
        let c = chunk(&[1, 2, 3], &[1, -1, 1]);
        let filtered = c.filter(&BooleanArray::from(vec![Some(false), Some(true), None])).unwrap();
        assert_eq!((filtered.len(), filtered.sign(0)), (1, -1));
        let taken = c.take(&UInt32Array::from(vec![2, 1])).unwrap();
        assert_eq!((taken.sign(0), taken.sign(1)), (1, -1));
        assert_eq!(c.negated().signs(), Some(&[-1i8, 1, -1][..]));
        let all = Chunk::concat(&c.schema(), &[c.slice(0, 1), c.slice(1, 2)]).unwrap();
        assert_eq!(all.signs(), c.signs());
        assert!(chunk(&[1, 2], &[1, 1]).is_append_only());
    }
}
