//! Changes as JSON.

use arrow::array::{Array, RecordBatch};
use weir_common::Chunk;
use weir_common::text::{TextFormat, write_value};

use crate::json;

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Insert,
    Delete,
    /// The old row of an update; the new one follows.
    UpdateBefore,
    UpdateAfter,
}

/// The changes of a request, as far as it is filled.
#[derive(Default)]
pub struct Batch {
    text: String,
    rows: usize,
}

impl Batch {
    pub fn push(&mut self, op: Op, batch: &RecordBatch, row: usize) {
        self.text.push_str(if self.rows == 0 { "[" } else { ",\n" });
        let op = match op {
            Op::Insert => "insert",
            Op::Delete => "delete",
            Op::UpdateBefore => "update_before",
            Op::UpdateAfter => "update_after",
        };
        self.text.push_str("{\"op\":\"");
        self.text.push_str(op);
        self.text.push_str("\",\"row\":");
        json::write_row(batch, 0..batch.num_columns(), row, &mut self.text);
        self.text.push('}');
        self.rows += 1;
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the request so far.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.text.capacity()
    }

    /// The array; the batch is empty after that.
    pub fn take(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        text.push_str(if self.rows == 0 { "[]" } else { "]" });
        self.rows = 0;
        text
    }
}

/// What each row of a chunk is. Without a key there are no updates.
pub fn ops(chunk: &Chunk, key: &[usize]) -> Vec<Op> {
    let mut ops: Vec<Op> = vec![];
    for row in 0..chunk.len() {
        if chunk.sign(row) < 0 {
            ops.push(Op::Delete);
        } else if ops.last() == Some(&Op::Delete) && same_key(chunk, key, row - 1, row) {
            ops[row - 1] = Op::UpdateBefore;
            ops.push(Op::UpdateAfter);
        } else {
            ops.push(Op::Insert);
        }
    }
    ops
}

fn same_key(chunk: &Chunk, key: &[usize], a: usize, b: usize) -> bool {
    let text = |array: &dyn Array, row| {
        let mut text = String::new();
        write_value(array, row, &TextFormat::default(), &mut text);
        array.is_valid(row).then_some(text)
    };
    !key.is_empty() && key.iter().map(|k| chunk.column(*k)).all(|column| text(column, a) == text(column, b))
}
