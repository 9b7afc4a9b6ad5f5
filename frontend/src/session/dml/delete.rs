//! DELETE.

use std::collections::HashSet;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use datafusion::sql::sqlparser::ast::{self, FromTable, SelectItem, TableWithJoins};
use weir_common::catalog::Object;
use weir_common::types::SqlType;
use weir_common::{Chunk, TableDef};

use super::assign::{refuse_if, target_table};
use super::{Changes, bind_returning, chunk_batch, merged};
use crate::batch::{self, relation_keys};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::Bound;
use crate::session::build;
use crate::session::moment::with_values;
use crate::session::query::output_columns;
use crate::session::{Moment, OutputColumn, Params, Reply, Session};
use crate::statement::Name;

impl Session {
    pub(in crate::session) async fn delete(&self, delete: &ast::Delete, params: Params<'_>) -> Result<Reply> {
        let (name, alias) = target_of(delete)?;
        let locked = self.lock_table("DELETE", &name, true).await?;
        refuse_append_only(&locked.object, "delete from")?;
        let bound = locked.moment.plan(&rows_to_delete(&locked.object, delete, &alias), params.declared)?;
        let plan = with_values(bound.plan, params)?;
        locked.moment.settle(&bound.relations).await?;
        let state = batch::state(locked.moment.config.clone())?;
        let mut once = Once::new(&locked.table.def);
        let mut rows = Vec::new();
        for batch in batch::collect(&state, &plan).await? {
            rows.push(chunk_batch(&locked.table.schema, &once.filter(batch)?)?);
        }
        let count = rows.iter().map(RecordBatch::num_rows).sum();
        let chunks: Vec<_> = rows.iter().map(|b| Chunk::new(b.clone(), vec![-1; b.num_rows()])).collect();
        let chunk = if count == 0 { None } else { Some(Chunk::concat(&locked.table.schema, &chunks)?) };
        let returning = delete.returning.as_ref().map(|items| (items.as_slice(), alias.as_str()));
        self.finish(locked, Changes { chunk, rows, count }, returning, params, "DELETE").await
    }

    /// The query that computes the rows.
    pub(in crate::session) fn bind_delete(&self, moment: &Moment<'_>, delete: &ast::Delete) -> Result<Bound> {
        let (name, alias) = target_of(delete)?;
        moment.plan(&rows_to_delete(&*moment.writable(&name)?, delete, &alias), &[])
    }

    pub(in crate::session) fn describe_delete(
        &self,
        delete: &ast::Delete,
        declared: &[Option<SqlType>],
    ) -> Result<(Vec<SqlType>, Option<Vec<OutputColumn>>)> {
        let (name, alias) = target_of(delete)?;
        let moment = self.moment()?;
        let object = moment.writable(&name)?;
        let bound = moment.plan(&rows_to_delete(&object, delete, &alias), declared)?;
        let returning = match &delete.returning {
            Some(items) => Some(bind_returning(&moment, &object, items, &alias, declared)?),
            None => None,
        };
        Ok((merged(bound.params, returning.as_ref()), returning.as_ref().map(output_columns)))
    }
}

/// The table that is deleted from, and its alias.
fn target_of(delete: &ast::Delete) -> Result<(Name, String)> {
    refuse_if(!delete.tables.is_empty(), "a list of tables in DELETE")?;
    refuse_if(delete.output.is_some(), "OUTPUT")?;
    refuse_if(!delete.order_by.is_empty() || delete.limit.is_some(), "ORDER BY and LIMIT in DELETE")?;
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
    match tables.as_slice() {
        [table] => target_table(table),
        _ => Err(SqlError::syntax("DELETE must name one table")),
    }
}

/// The query of all rows that go, all columns of the table.
fn rows_to_delete(object: &Object, delete: &ast::Delete, alias: &str) -> ast::Query {
    let mut from = vec![build::table(&object.schema, &object.name, alias)];
    from.extend(delete.using.iter().flatten().cloned());
    build::select(all_columns(object, alias), from, delete.selection.clone())
}

/// Every column of a table, hidden ones included, under names of their own.
pub(super) fn all_columns(object: &Object, alias: &str) -> Vec<SelectItem> {
    let columns = object.columns.iter().enumerate();
    columns.map(|(i, c)| build::named(build::column(alias, &c.name), &format!("o{i}"))).collect()
}

/// Tables that are only added to.
pub(super) fn refuse_append_only(object: &Object, act: &str) -> Result<()> {
    if object.append_only {
        let message = format!("cannot {act} table \"{}\" because it is append only", object.name);
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
    }
    Ok(())
}

/// Lets each row of a table through once, though a join may find it several times.
pub(super) struct Once<'a> {
    def: &'a TableDef,
    seen: HashSet<Box<[u8]>>,
}

impl Once<'_> {
    pub fn new(def: &TableDef) -> Once<'_> {
        Once { def, seen: HashSet::new() }
    }

    /// The rows that were not seen before. The first columns of the batch are those of the table.
    pub fn filter(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let keys = relation_keys(self.def, |i| batch.column(i))?;
        let mask: BooleanArray = keys.iter().map(|key| Some(self.seen.insert(key.into()))).collect();
        Ok(filter_record_batch(&batch, &mask)?)
    }
}

/// Other relations of a statement, as `FROM` or `USING` names them.
pub(super) fn others(from: Option<&ast::UpdateTableFromKind>) -> Vec<TableWithJoins> {
    match from {
        Some(ast::UpdateTableFromKind::AfterSet(tables) | ast::UpdateTableFromKind::BeforeSet(tables)) => {
            tables.clone()
        }
        None => vec![],
    }
}
