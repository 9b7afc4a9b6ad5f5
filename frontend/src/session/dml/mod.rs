//! INSERT, UPDATE and DELETE.
//!
//! Each is a query that computes rows, and a chunk of changes made of them, which the table's job applies in one epoch:
//!
//! ```text
//! lock the table ──> read (a moment after the lock) ──> check rows ──> RETURNING ──> hand over ──> durable ──> unlock
//! ```
//!
//! INSERTs share the lock; UPDATE and DELETE have it for themselves, since what they write is computed from what they
//! read. From the hand-over on the write goes on by itself, lock included, also when the client goes away. In a
//! transaction block the lock stays until the block ends, and the changes wait there.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast;
use weir_common::catalog::Object;
use weir_common::text::write_value;
use weir_common::types::SqlType;
use weir_common::{Chunk, Epoch, JobId};
use weir_meta::DmlGuard;

use super::build;
use super::moment::with_values;
use super::pending::{Pending, WrittenTable};
use super::query::output_columns;
use super::transaction::{Block, Transaction, Write};
use super::{Moment, OutputColumn, Params, Reply, Session};
use crate::batch;
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{Bound, relation_schema};
use crate::statement::Name;

pub(super) mod assign;
mod delete;
mod insert;
mod literals;
mod update;

/// How long a block that already holds a table waits for another: two blocks may wait for each other.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The changes of a statement, and what it answers.
pub(super) struct Changes {
    pub chunk: Option<Chunk>,
    /// The rows that RETURNING is about, all columns of the table.
    pub rows: Vec<RecordBatch>,
    pub count: usize,
}

/// A table that is going to be written to, locked.
struct Locked<'s> {
    moment: Moment<'s>,
    object: Arc<Object>,
    table: WrittenTable,
    /// `None`: the block has the lock already.
    lock: Option<DmlGuard>,
}

impl Session {
    /// Locks a table and looks at it afterwards.
    async fn lock_table(&self, statement: &str, name: &Name, exclusive: bool) -> Result<Locked<'_>> {
        let object = self.moment()?.writable(name)?;
        let lock = self.lock(statement, object.id, exclusive).await?;
        let moment = self.moment()?;
        let now = moment.writable(name)?;
        if now.id != object.id {
            return Err(name.mark(SqlError::undefined_table(&name.to_string())));
        }
        Ok(Locked { moment, table: WrittenTable::new(&now)?, object: now, lock })
    }

    async fn lock(&self, statement: &str, table: JobId, exclusive: bool) -> Result<Option<DmlGuard>> {
        let (in_block, holds_others, limit) = {
            let state = self.state();
            let limit = state.settings.milliseconds("lock_timeout").map(Duration::from_millis);
            match &state.transaction {
                Transaction::Active(block) if block.read_only => {
                    let message = format!("cannot execute {statement} in a read-only transaction");
                    return Err(SqlError::new(SqlState("25006"), message));
                }
                Transaction::Active(block) if block.writes.contains_key(&table) => return Ok(None),
                Transaction::Active(block) => (true, !block.writes.is_empty(), limit),
                _ => (false, false, limit),
            }
        };
        let lock = self.meta.lock_dml(table, exclusive || in_block);
        let timed_out = |state, message: &str| SqlError::new(SqlState(state), message);
        Ok(Some(match (holds_others, limit) {
            (_, Some(limit)) => tokio::time::timeout(limit, lock)
                .await
                .map_err(|_| timed_out("55P03", "canceling statement due to lock timeout"))?,
            (true, None) => tokio::time::timeout(DEADLOCK_TIMEOUT, lock).await.map_err(|_| {
                timed_out("40P01", "deadlock detected").with_hint("Another transaction block holds the table.")
            })?,
            (false, None) => lock.await,
        }))
    }

    /// Hands the changes of a statement over, or keeps them in the open block; and answers.
    async fn finish(
        &self,
        locked: Locked<'_>,
        changes: Changes,
        returning: Option<(&[ast::SelectItem], &str)>,
        params: Params<'_>,
        tag: &'static str,
    ) -> Result<Reply> {
        let Locked { mut moment, object, table, lock } = locked;
        let returned = match returning {
            Some((items, alias)) => Some(returned_rows(&mut moment, &object, items, alias, changes.rows, params).await?),
            None => None,
        };
        if let Some(chunk) = changes.chunk.filter(|c| !c.is_empty()) {
            self.write(&object, table, chunk, lock).await?;
        }
        Ok(match returned {
            Some((columns, batches)) => Reply::batches(columns, batches, tag),
            None => Reply::command(format!("{tag} {}", changes.count)),
        })
    }

    async fn write(&self, object: &Object, table: WrittenTable, chunk: Chunk, lock: Option<DmlGuard>) -> Result<()> {
        let lock = {
            let mut state = self.state();
            match (&mut state.transaction, lock) {
                (Transaction::Active(block), lock) => {
                    if let Some(lock) = lock {
                        block.writes.insert(object.id, Write { pending: Pending::new(table), lock });
                    }
                    let missing = || SqlError::internal("the block does not hold the table that it writes to");
                    return block.writes.get_mut(&object.id).ok_or_else(missing)?.pending.add(chunk);
                }
                (_, Some(lock)) => lock,
                (_, None) => return Err(super::transaction::aborted()),
            }
        };
        self.hand_over(object.id, vec![chunk], lock).await
    }

    /// Hands changes to the table's job and waits until they are durable.
    pub(super) async fn hand_over(&self, table: JobId, chunks: Vec<Chunk>, lock: DmlGuard) -> Result<()> {
        self.hand_over_all(vec![(table, chunks, lock)]).await
    }

    /// Hands over what a block has written.
    pub(super) async fn hand_over_block(&self, block: Block) -> Result<()> {
        let mut writes = Vec::with_capacity(block.writes.len());
        for (table, write) in block.writes {
            writes.push((table, write.pending.into_chunks()?, write.lock));
        }
        self.hand_over_all(writes).await
    }

    /// A task of its own does it, so that all of it goes on when this future is dropped.
    async fn hand_over_all(&self, writes: Vec<(JobId, Vec<Chunk>, DmlGuard)>) -> Result<()> {
        let (meta, state) = (self.meta.clone(), self.state.clone());
        let written = tokio::spawn(async move {
            for (table, chunks, lock) in writes {
                if chunks.is_empty() {
                    continue;
                }
                let epoch: Epoch = meta.dml(table, chunks).await?;
                drop(lock);
                let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let newest = state.written.entry(table).or_default();
                *newest = epoch.max(*newest);
            }
            Ok(())
        });
        written.await.unwrap_or_else(|e| Err(SqlError::internal(format!("the write failed: {e}"))))
    }
}

/// Binds RETURNING over the rows of a statement.
fn bind_returning(
    moment: &Moment<'_>,
    object: &Object,
    items: &[ast::SelectItem],
    alias: &str,
    declared: &[Option<SqlType>],
) -> Result<Bound> {
    let from = build::table(&object.schema, &object.name, alias);
    moment.plan(&build::select(items.to_vec(), vec![from], None), declared)
}

async fn returned_rows(
    moment: &mut Moment<'_>,
    object: &Arc<Object>,
    items: &[ast::SelectItem],
    alias: &str,
    rows: Vec<RecordBatch>,
    params: Params<'_>,
) -> Result<(Vec<OutputColumn>, Vec<RecordBatch>)> {
    let schema = relation_schema(object);
    let rows = rows.into_iter().map(|batch| RecordBatch::try_new(schema.clone(), batch.columns().to_vec()));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    moment.replace(object.id, Arc::new(MemTable::try_new(schema, vec![rows])?));
    let bound = bind_returning(moment, object, items, alias, params.declared)?;
    let columns = output_columns(&bound);
    let others: Vec<_> = bound.relations.iter().filter(|o| o.id != object.id).cloned().collect();
    moment.settle(&others).await?;
    let state = batch::state(moment.config.clone())?;
    let plan = with_values(bound.plan, params)?;
    Ok((columns, batch::collect(&state, &plan).await?))
}

/// A name that a DML statement gives its table.
fn table_name(name: &ast::ObjectName) -> Result<Name> {
    Name::from_ast(name)
}

/// `null value in column …` for the first row that has one where none may be.
fn check_not_null(object: &Object, batch: &RecordBatch) -> Result<()> {
    for (i, column) in object.columns.iter().enumerate() {
        let required = (column.not_null || object.primary_key.contains(&i)) && !column.hidden;
        if !required || batch.column(i).null_count() == 0 {
            continue;
        }
        let row = (0..batch.num_rows()).find(|r| batch.column(i).is_null(*r)).unwrap_or(0);
        let message = format!(
            "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
            column.name, object.name
        );
        let detail = format!("Failing row contains ({}).", show_row(object, batch, row));
        return Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, message).with_detail(detail));
    }
    Ok(())
}

/// The visible values of a row.
fn show_row(object: &Object, batch: &RecordBatch, row: usize) -> String {
    let visible = object.columns.iter().enumerate().filter(|(_, c)| !c.hidden);
    let values = visible.map(|(i, _)| show_value(batch.column(i), row));
    values.collect::<Vec<_>>().join(", ")
}

/// A value as text.
fn show_value(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "null".to_string();
    }
    let mut text = String::new();
    write_value(column, row, &Default::default(), &mut text);
    text
}

/// Columns of a chunk of changes, under the schema that the table's job expects.
fn chunk_batch(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(schema.clone(), batch.columns().to_vec())?)
}

/// The types of the parameters of a statement and of its RETURNING.
fn merged(source: Vec<SqlType>, returning: Option<&Bound>) -> Vec<SqlType> {
    let mut params = source;
    let more = returning.map_or(&[][..], |b| &b.params);
    params.extend(more.iter().skip(params.len()).cloned());
    params
}
