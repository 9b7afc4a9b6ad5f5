//! Where the rows of INSERT, UPDATE and DELETE enter a table, and those of sinks into it.
//!
//! State     `marks`: `id bigint | value bigint`: under 0 the next row id of a table without a primary key, under the id of a
//!           sink the epoch up to which its log is applied.
//! Invariant the rows of one statement are in one epoch; a statement that was handed over before a barrier was injected is
//!           in the epoch of that barrier or an earlier one. What a sink delivers is in the epoch of its mark, and is taken only
//!           on top of the mark before it: however often it is handed over, it is applied once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use tokio::sync::{mpsc, oneshot};
use weir_common::{Chunk, Epoch, JobId, TableDef, TableId};
use weir_storage::StateTable;

use crate::Result;
use crate::courtesy::Courtesy;
use crate::driver::{Backfill, Reader};
use crate::message::{Barrier, Output};

/// The changes of one statement, or of one transaction.
pub struct Statement {
    /// Columns of the table, in order.
    pub chunks: Vec<Chunk>,
    /// A sink delivers them.
    pub mark: Option<Mark>,
    /// Told the epoch that the changes are in, when its barrier passes. Dropped if the job stops before.
    pub epoch: oneshot::Sender<Epoch>,
}

/// The part of a sink's log that a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub sink: JobId,
    /// All changes after this epoch ...
    pub after: Epoch,
    /// ... and up to this one.
    pub up_to: Epoch,
}

/// The id of the mark that is the next row id; no sink has it.
const NEXT_ROW_ID: i64 = 0;

/// See the module.
pub struct Dml {
    statements: mpsc::UnboundedReceiver<Statement>,
    /// A statement that was not begun yet.
    received: Option<Statement>,
    /// The rest of the statement that is being emitted.
    chunks: VecDeque<Chunk>,
    /// Statements whose rows were emitted in this epoch.
    emitted: Vec<oneshot::Sender<Epoch>>,
    /// The hidden column to fill.
    row_id: Option<usize>,
    /// The marks that were used, as they are now; read from the table at the first use.
    known: BTreeMap<i64, i64>,
    /// Those that the table does not have yet.
    changed: BTreeSet<i64>,
    marks: StateTable,
    courtesy: Arc<Courtesy>,
}

/// The table of marks.
pub fn marks_table(id: TableId) -> TableDef {
    let schema =
        Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("value", DataType::Int64, false)]);
    TableDef::ascending(id, schema, &[0], &[])
}

/// The mark of a sink in the rows of a table of marks.
pub fn mark_of(marks: &RecordBatch, sink: JobId) -> Epoch {
    let (ids, values) = (marks.column(0).as_primitive::<Int64Type>(), marks.column(1).as_primitive::<Int64Type>());
    let at = ids.values().iter().position(|id| *id == i64::from(sink.0));
    at.map_or(Epoch::ZERO, |at| Epoch(values.value(at) as u64))
}

impl Dml {
    /// `row_id` is the column that gets a new id where it is NULL.
    pub fn new(
        statements: mpsc::UnboundedReceiver<Statement>,
        row_id: Option<usize>,
        marks: StateTable,
        courtesy: Arc<Courtesy>,
    ) -> Dml {
        Dml {
            statements,
            received: None,
            chunks: VecDeque::new(),
            emitted: Vec::new(),
            row_id,
            known: BTreeMap::new(),
            changed: BTreeSet::new(),
            marks,
            courtesy,
        }
    }

    fn begin(&mut self, statement: Statement) {
        self.courtesy.rows_came();
        self.chunks.extend(statement.chunks);
        self.emitted.push(statement.epoch);
    }

    /// Begins the statement that was received; one of a sink only on top of its mark. Whoever handed over another one learns
    /// it, as it is dropped.
    async fn begin_received(&mut self) -> Result<()> {
        if let Some(mark) = self.received.as_ref().and_then(|s| s.mark) {
            let id = i64::from(mark.sink.0);
            if self.mark(id).await? != mark.after.0 as i64 {
                self.received = None;
                return Ok(());
            }
            self.set(id, mark.up_to.0 as i64);
        }
        if let Some(statement) = self.received.take() {
            self.begin(statement);
        }
        Ok(())
    }

    async fn mark(&mut self, id: i64) -> Result<i64> {
        if let Some(value) = self.known.get(&id) {
            return Ok(*value);
        }
        let keys = self.marks.keys(&[Arc::new(Int64Array::from(vec![id])) as ArrayRef])?;
        let found = self.marks.get_many(&keys).await?;
        let value = found.index[0].map_or(0, |at| found.rows.column(1).as_primitive::<Int64Type>().value(at as usize));
        self.known.insert(id, value);
        Ok(value)
    }

    fn set(&mut self, id: i64, value: i64) {
        self.known.insert(id, value);
        self.changed.insert(id);
    }

    /// Gives ids to rows that have none.
    async fn identify(&mut self, chunk: Chunk) -> Result<Chunk> {
        let Some(column) = self.row_id else { return Ok(chunk) };
        let ids = chunk.column(column);
        if ids.null_count() == 0 {
            return Ok(chunk);
        }
        let mut next = self.mark(NEXT_ROW_ID).await?;
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
        self.set(NEXT_ROW_ID, next);
        let mut columns = chunk.batch().columns().to_vec();
        columns[column] = Arc::new(ids);
        Ok(chunk.with_batch(RecordBatch::try_new(chunk.schema(), columns)?))
    }

    fn save(&mut self) -> Result<()> {
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() {
            return Ok(());
        }
        let values = Int64Array::from_iter_values(changed.iter().map(|id| self.known[id]));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(changed)), Arc::new(values)];
        let rows = RecordBatch::try_new(self.marks.def().schema.clone(), columns)?;
        Ok(self.marks.write(&Chunk::inserts(rows))?)
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
            if self.received.is_none() {
                match self.statements.recv().await {
                    Some(statement) => self.received = Some(statement),
                    None => std::future::pending().await,
                }
            }
            self.begin_received().await?;
        }
    }

    async fn finish(&mut self, barrier: Barrier, out: &mut Output) -> Result<()> {
        loop {
            while let Some(chunk) = self.chunks.pop_front() {
                let chunk = self.identify(chunk).await?;
                out.push(chunk).await?;
            }
            if self.received.is_none() {
                self.received = self.statements.try_recv().ok();
            }
            if self.received.is_none() {
                break;
            }
            self.begin_received().await?;
        }
        self.save()?;
        for epoch in self.emitted.drain(..) {
            // A session that is gone does not want to know.
            let _ = epoch.send(barrier.epoch);
        }
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![&mut self.marks]
    }

    fn backfill(&self) -> Option<Backfill> {
        None
    }
}
