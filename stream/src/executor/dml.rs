//! Where the rows of INSERT, UPDATE and DELETE enter a table.
//!
//! State     `row_ids`: `id smallint | next bigint`, one row: the next row id of a table without a primary key.
//! Invariant the rows of one statement are in one epoch; a statement that was handed over before a barrier was injected is
//!           in the epoch of that barrier or an earlier one.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int16Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use tokio::sync::{mpsc, oneshot};
use weir_common::{Chunk, Epoch, TableDef, TableId};
use weir_storage::StateTable;

use crate::Result;
use crate::courtesy::Courtesy;
use crate::driver::{Backfill, Reader};
use crate::message::{Barrier, Output};

/// The changes of one statement, or of one transaction.
pub struct Statement {
    /// Columns of the table, in order.
    pub chunks: Vec<Chunk>,
    /// Told the epoch that the changes are in, when its barrier passes. Dropped if the job stops before.
    pub epoch: oneshot::Sender<Epoch>,
}

/// See the module.
pub struct Dml {
    statements: mpsc::UnboundedReceiver<Statement>,
    /// The rest of the statement that is being emitted.
    chunks: VecDeque<Chunk>,
    /// Statements whose rows were emitted in this epoch.
    emitted: Vec<oneshot::Sender<Epoch>>,
    /// The hidden column to fill, and the next id; read from the table at the first use.
    row_id: Option<usize>,
    next_id: Option<i64>,
    next_id_stored: i64,
    row_ids: StateTable,
    courtesy: Arc<Courtesy>,
}

/// The table of the next row id.
pub fn row_ids_table(id: TableId) -> TableDef {
    let schema =
        Schema::new(vec![Field::new("id", DataType::Int16, false), Field::new("next", DataType::Int64, false)]);
    TableDef::ascending(id, schema, &[0], &[])
}

impl Dml {
    /// `row_id` is the column that gets a new id where it is NULL.
    pub fn new(
        statements: mpsc::UnboundedReceiver<Statement>,
        row_id: Option<usize>,
        row_ids: StateTable,
        courtesy: Arc<Courtesy>,
    ) -> Dml {
        Dml {
            statements,
            chunks: VecDeque::new(),
            emitted: Vec::new(),
            row_id,
            next_id: None,
            next_id_stored: 0,
            row_ids,
            courtesy,
        }
    }

    fn begin(&mut self, statement: Statement) {
        self.courtesy.rows_came();
        self.chunks.extend(statement.chunks);
        self.emitted.push(statement.epoch);
    }

    /// Gives ids to rows that have none.
    async fn identify(&mut self, chunk: Chunk) -> Result<Chunk> {
        let Some(column) = self.row_id else { return Ok(chunk) };
        let ids = chunk.column(column);
        if ids.null_count() == 0 {
            return Ok(chunk);
        }
        let mut next = match self.next_id {
            Some(next) => next,
            None => self.stored_next_id().await?,
        };
        let ids: Int64Array = ids
            .as_primitive::<Int64Type>()
            .iter()
            .map(|id| {
                id.unwrap_or_else(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        self.next_id = Some(next);
        let mut columns = chunk.batch().columns().to_vec();
        columns[column] = Arc::new(ids);
        Ok(chunk.with_batch(RecordBatch::try_new(chunk.schema(), columns)?))
    }

    async fn stored_next_id(&mut self) -> Result<i64> {
        let keys = self.row_ids.keys(&[Arc::new(Int16Array::from(vec![0])) as ArrayRef])?;
        let found = self.row_ids.get_many(&keys).await?;
        let next = found.index[0].map_or(0, |at| found.rows.column(1).as_primitive::<Int64Type>().value(at as usize));
        self.next_id_stored = next;
        Ok(next)
    }
}

impl Reader for Dml {
    async fn next(&mut self) -> Result<Chunk> {
        loop {
            if let Some(chunk) = self.chunks.front().cloned() {
                // Taken off the queue only when nothing is awaited any more: dropped before, it is still there.
                let chunk = self.identify(chunk).await?;
                self.chunks.pop_front();
                return Ok(chunk);
            }
            match self.statements.recv().await {
                Some(statement) => self.begin(statement),
                None => std::future::pending().await,
            }
        }
    }

    async fn finish(&mut self, barrier: Barrier, out: &mut Output) -> Result<()> {
        loop {
            while let Some(chunk) = self.chunks.pop_front() {
                let chunk = self.identify(chunk).await?;
                out.push(chunk).await?;
            }
            match self.statements.try_recv() {
                Ok(statement) => self.begin(statement),
                Err(_) => break,
            }
        }
        if let Some(next) = self.next_id.filter(|next| *next != self.next_id_stored) {
            let columns = [Arc::new(Int16Array::from(vec![0])) as ArrayRef, Arc::new(Int64Array::from(vec![next]))];
            let row = RecordBatch::try_new(self.row_ids.def().schema.clone(), columns.to_vec())?;
            self.row_ids.write(&Chunk::inserts(row))?;
            self.next_id_stored = next;
        }
        for epoch in self.emitted.drain(..) {
            // A session that is gone does not want to know.
            let _ = epoch.send(barrier.epoch);
        }
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![&mut self.row_ids]
    }

    fn backfill(&self) -> Option<Backfill> {
        None
    }
}
