//! Keeps the relation of a job and its change log.
//!
//! State     `table`: the relation itself.
//! Output    the change log of the relation, with exact old rows; an update is a delete and an insert side by side.
//! Invariant the log, applied to the relation as of the last epoch, gives the relation as of this one.
//!
//! With [`Conflict::Checked`] the input already is such a log. Otherwise rows of the input name a key and may collide with
//! what is there; then the old rows are read, in one batch a chunk, and the log is made from both.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::interleave;
use weir_common::{Chunk, Vnode};

use weir_common::plan::Conflict;
use weir_storage::{Found, StateTable};

use crate::Result;
use crate::executor::Executor;
use crate::message::Output;

/// See the module.
pub struct Materialize {
    table: StateTable,
    conflict: Conflict,
}

/// Where a row is that a key has at some point within a chunk.
#[derive(Clone, Copy)]
enum Row {
    Stored(usize),
    InChunk(usize),
}

impl Row {
    /// Array and index for `interleave` over (stored rows, rows of the chunk).
    fn at(self) -> (usize, usize) {
        match self {
            Row::Stored(row) => (0, row),
            Row::InChunk(row) => (1, row),
        }
    }
}

impl Materialize {
    /// Over the relation's table.
    pub fn new(table: StateTable, conflict: Conflict) -> Materialize {
        Materialize { table, conflict }
    }

    async fn resolve(&mut self, chunk: Chunk) -> Result<Chunk> {
        let keys = self.table.keys(&chunk.columns(&self.table.def().key_indices()))?;
        let found = self.table.get_many(&keys).await?;
        let mut current: HashMap<&[u8], Option<Row>> = HashMap::with_capacity(chunk.len());
        let mut rows = Vec::with_capacity(chunk.len());
        let mut signs = Vec::with_capacity(chunk.len());
        for (row, key) in keys.iter().enumerate() {
            let now = current.entry(key).or_insert_with(|| found.index[row].map(|at| Row::Stored(at as usize)));
            let inserted = chunk.sign(row) > 0;
            if inserted && now.is_some() && self.conflict == Conflict::DoNothing {
                continue;
            }
            if let Some(old) = now.take() {
                rows.push(old.at());
                signs.push(-1);
            }
            if inserted {
                *now = Some(Row::InChunk(row));
                rows.push((1, row));
                signs.push(1);
            }
        }
        self.gather(&found, &chunk, &rows, signs)
    }

    fn gather(&self, found: &Found, chunk: &Chunk, rows: &[(usize, usize)], signs: Vec<i8>) -> Result<Chunk> {
        let schema = self.table.def().schema.clone();
        if rows.is_empty() {
            return Ok(Chunk::inserts(RecordBatch::new_empty(schema)));
        }
        let columns = (0..schema.fields().len())
            .map(|i| interleave(&[found.rows.column(i) as &dyn Array, chunk.column(i)], rows))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Chunk::new(RecordBatch::try_new(schema, columns)?, signs))
    }
}

impl Executor for Materialize {
    async fn apply(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        let changes = match self.conflict {
            Conflict::Checked => chunk,
            Conflict::Overwrite | Conflict::DoNothing => self.resolve(chunk).await?,
        };
        self.table.write(&changes)?;
        let distribution = changes.columns(&self.table.def().distribution);
        let vnodes = Vnode::of_columns(&distribution, changes.len())?;
        let vnodes: Arc<[u8]> = vnodes.iter().map(|v| v.0).collect();
        out.push_log(self.table.def().id, changes, vnodes);
        Ok(())
    }

    async fn flush(&mut self, _out: &mut Output) -> Result<()> {
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![&mut self.table]
    }
}
