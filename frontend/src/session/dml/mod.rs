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
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast;
use weir_common::catalog::Object;
use weir_common::text::write_value;
use weir_common::types::SqlType;
use weir_common::{Chunk, JobId};
use weir_meta::DmlGuard;

use super::build;
use super::moment::with_values;
use super::pending::WrittenTable;
use super::query::output_columns;
use super::transaction::Transaction;
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
pub(super) mod writer;

pub(super) use insert::query_into;

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
pub(super) struct Locked<'s> {
    pub moment: Moment<'s>,
    pub object: Arc<Object>,
    pub table: WrittenTable,
    /// `None`: the block has the lock already.
    pub lock: Option<DmlGuard>,
}

impl Session {
    /// Locks a table and looks at it afterwards.
    pub(super) async fn lock_table(&self, statement: &str, name: &Name, exclusive: bool) -> Result<Locked<'_>> {
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
            Some((items, alias)) => {
                Some(returned_rows(&mut moment, &object, items, alias, changes.rows, params).await?)
            }
            None => None,
        };
        if let Some(chunk) = changes.chunk.filter(|c| !c.is_empty()) {
            self.writer().write(object.id, table, chunk, lock).await?;
        }
        Ok(match returned {
            Some((columns, batches)) => Reply::batches(columns, batches, tag),
            None => Reply::command(format!("{tag} {}", changes.count)),
        })
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
pub(super) fn check_not_null(object: &Object, batch: &RecordBatch) -> Result<()> {
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
pub(super) fn chunk_batch(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(schema.clone(), batch.columns().to_vec())?)
}

/// The same columns, all of them nullable: so that NULLs can be looked for with better words than Arrow's.
pub(super) fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    Arc::new(Schema::new(fields))
}

/// The types of the parameters of a statement and of its RETURNING.
fn merged(source: Vec<SqlType>, returning: Option<&Bound>) -> Vec<SqlType> {
    let mut params = source;
    let more = returning.map_or(&[][..], |b| &b.params);
    params.extend(more.iter().skip(params.len()).cloned());
    params
}
