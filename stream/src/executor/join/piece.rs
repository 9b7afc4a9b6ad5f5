//! A piece of the output: which rows of both sides stand side by side.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use weir_common::Chunk;

use super::arena::RowId;
use super::side::Side;
use crate::Result;

/// No row of the chunk.
const NONE: u32 = u32::MAX;

/// Changes of the output in their order, as pairs of a row of the chunk and a row of the other side.
#[derive(Default)]
pub(super) struct Piece {
    own: Vec<u32>,
    other: Vec<RowId>,
    signs: Vec<i8>,
}

/// Which columns the output has, seen from a port.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub schema: SchemaRef,
    /// The columns of the chunk's side come first.
    pub own_first: bool,
    pub own: bool,
    pub other: bool,
}

impl Piece {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// A row of the chunk beside one of the other side.
    pub fn pair(&mut self, own: usize, other: RowId, sign: i8) {
        self.push(own as u32, other, sign);
    }

    /// A row of the chunk beside each of these rows.
    pub fn pairs(&mut self, own: usize, others: &[RowId], sign: i8) {
        self.own.resize(self.own.len() + others.len(), own as u32);
        self.other.extend_from_slice(others);
        self.signs.resize(self.own.len(), sign);
    }

    /// A row of the chunk alone.
    pub fn own(&mut self, own: usize, sign: i8) {
        self.push(own as u32, RowId::NONE, sign);
    }

    /// A row of the other side alone.
    pub fn other(&mut self, other: RowId, sign: i8) {
        self.push(NONE, other, sign);
    }

    /// Forgets the rows.
    pub fn clear(&mut self) {
        self.own.clear();
        self.other.clear();
        self.signs.clear();
    }

    /// The rows as columns, with NULLs for the side that is missing.
    pub fn build(&self, columns: &Columns, chunk: &Chunk, other: &mut Side) -> Result<RecordBatch> {
        let own = if columns.own { self.own_columns(chunk)? } else { Vec::new() };
        let other = if columns.other { other.gather(&self.other)? } else { Vec::new() };
        let all = if columns.own_first { [own, other].concat() } else { [other, own].concat() };
        let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
        Ok(RecordBatch::try_new_with_options(columns.schema.clone(), all, &options)?)
    }

    /// The rows as changes; nothing is left here.
    pub fn take_chunk(&mut self, columns: &Columns, chunk: &Chunk, other: &mut Side) -> Result<Chunk> {
        let batch = self.build(columns, chunk, other)?;
        let changes = Chunk::new(batch, std::mem::take(&mut self.signs));
        self.clear();
        Ok(changes)
    }

    fn own_columns(&self, chunk: &Chunk) -> Result<Vec<ArrayRef>> {
        let every_row = self.len() == chunk.len() && self.own.iter().enumerate().all(|(i, own)| i as u32 == *own);
        if every_row {
            return Ok(chunk.batch().columns().iter().map(Arc::clone).collect());
        }
        let rows: UInt32Array = if self.own.contains(&NONE) {
            self.own.iter().map(|own| (*own != NONE).then_some(*own)).collect()
        } else {
            UInt32Array::from(self.own.clone())
        };
        let columns = chunk.batch().columns().iter().map(|c| take(c as &dyn Array, &rows, None));
        Ok(columns.collect::<std::result::Result<_, _>>()?)
    }

    fn push(&mut self, own: u32, other: RowId, sign: i8) {
        self.own.push(own);
        self.other.push(other);
        self.signs.push(sign);
    }
}
