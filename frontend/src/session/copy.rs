//! COPY: the rows of a relation or query to the client, or the client's rows into a table.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{Field, Schema};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast;
use futures::FutureExt;
use futures::future::BoxFuture;
use weir_common::Chunk;
use weir_common::catalog::{ColumnDef, Object};
use weir_meta::DmlGuard;

use super::dml::assign::{generated, stored_default, target};
use super::dml::writer::Writer;
use super::dml::{Locked, check_not_null, chunk_batch, nullable};
use super::pending::WrittenTable;
use super::{Moment, OutputColumn, Params, Reply, Session, build};
use crate::batch::{self, WriteRoom};
use crate::error::{Result, SqlError};
use crate::pg::{CopyOptions, CopyTarget};
use crate::statement::{Copied, Copy, Ident, Name};

impl Session {
    pub(super) async fn copy(&self, copy: &Copy) -> Result<Reply> {
        let options = copy.options.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
        let options = CopyOptions::new(options)?;
        match &copy.what {
            Copied::Relation { name, columns } if copy.from_client => self.copy_in(name, columns, options).await,
            Copied::Relation { name, columns } => {
                let moment = self.moment()?;
                let query = select(&*moment.get(name)?, columns)?;
                self.copy_out(moment, &query, options).await
            }
            Copied::Query(query) => self.copy_out(self.moment()?, query, options).await,
        }
    }

    async fn copy_out(&self, moment: Moment<'_>, query: &ast::Query, options: CopyOptions) -> Result<Reply> {
        let (columns, batches) = moment.rows(query, Params::NONE).await?;
        Ok(Reply::CopyOut { columns, batches, options })
    }

    async fn copy_in(&self, name: &Name, columns: &[Ident], options: CopyOptions) -> Result<Reply> {
        let Locked { moment, object, table, lock } = self.lock_table("COPY", name, false).await?;
        let given: Vec<usize> = match columns {
            [] => stored(&object).collect(),
            names => names.iter().map(|name| target(&object, name)).collect::<Result<_>>()?,
        };
        let output = |i: &usize| {
            let column = &object.columns[*i];
            OutputColumn::new(&column.name, column.sql_type.clone())
        };
        let columns = given.iter().map(output).collect();
        let computed = computed(&moment, &object, &given)?;
        let writer = self.writer();
        let target =
            CopyRows { object, table, given, computed, chunks: vec![], room: WriteRoom::default(), lock, writer };
        Ok(Reply::CopyIn { columns, options, target: Box::new(target) })
    }
}

/// The columns that are neither hidden nor generated.
fn stored(object: &Object) -> impl Iterator<Item = usize> {
    let is_stored = |(_, c): &(usize, &ColumnDef)| !c.hidden && c.generated.is_none();
    object.columns.iter().enumerate().filter(is_stored).map(|(i, _)| i)
}

/// The query of a relation's rows.
fn select(object: &Object, columns: &[Ident]) -> Result<ast::Query> {
    let named = |i: usize| build::named(build::column(&object.name, &object.columns[i].name), &object.columns[i].name);
    let visible = (0..object.columns.len()).filter(|i| !object.columns[*i].hidden);
    let position = |name: &Ident| {
        let found = object.columns.iter().position(|c| c.name == name.value && !c.hidden);
        found.ok_or_else(|| name.mark(SqlError::undefined_column(&name.value)))
    };
    let columns: Vec<usize> = match columns {
        [] => visible.collect(),
        names => names.iter().map(position).collect::<Result<_>>()?,
    };
    let from = build::table(&object.schema, &object.name, &object.name);
    Ok(build::select(columns.into_iter().map(named).collect(), vec![from], None))
}

/// A column that the client does not send.
struct Computed {
    column: usize,
    expr: Arc<dyn PhysicalExpr>,
}

/// Defaults, which have no columns, and then generated columns, which are computed from all that is stored.
fn computed(moment: &Moment<'_>, object: &Object, given: &[usize]) -> Result<Vec<Computed>> {
    let state = batch::state(moment.config.clone())?;
    let schema = DFSchema::try_from(stored_schema(object))?;
    let mut exprs = Vec::new();
    for i in stored(object).filter(|i| !given.contains(i)) {
        exprs.extend(stored_default(&object.columns[i])?.map(|expr| (i, expr)));
    }
    exprs.extend(generated(object)?);
    let computed = exprs.into_iter().map(|(column, expr)| {
        let expr = moment.plan_expr(&expr, &schema, Some(&object.columns[column].sql_type))?;
        Ok(Computed { column, expr: state.create_physical_expr(expr, &schema)? })
    });
    computed.collect()
}

fn stored_schema(object: &Object) -> Schema {
    let field = |i: usize| Field::new(&object.columns[i].name, object.columns[i].sql_type.to_arrow(), true);
    Schema::new(stored(object).map(field).collect::<Vec<_>>())
}

/// Rows on their way from the client into a table. All of them are one write.
struct CopyRows {
    object: Arc<Object>,
    table: WrittenTable,
    /// The table's column that each column of the client is for.
    given: Vec<usize>,
    computed: Vec<Computed>,
    chunks: Vec<Chunk>,
    room: WriteRoom,
    lock: Option<DmlGuard>,
    writer: Writer,
}

impl CopyRows {
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = &self.table.schema;
        let rows = batch.num_rows();
        let given = |i: usize| self.given.iter().position(|g| *g == i).map(|at| batch.column(at).clone());
        let null = |i: usize| new_null_array(schema.field(i).data_type(), rows);
        let mut columns: Vec<ArrayRef> =
            (0..schema.fields().len()).map(|i| given(i).unwrap_or_else(|| null(i))).collect();
        let stored_columns: Vec<usize> = stored(&self.object).collect();
        let stored_schema = Arc::new(stored_schema(&self.object));
        for Computed { column, expr } in &self.computed {
            let known = stored_columns.iter().map(|i| columns[*i].clone()).collect();
            let known = RecordBatch::try_new(stored_schema.clone(), known)?;
            columns[*column] = expr.evaluate(&known)?.into_array(rows)?;
        }
        let batch = RecordBatch::try_new(nullable(schema), columns)?;
        self.room.add(&batch)?;
        check_not_null(&self.object, &batch)?;
        self.chunks.push(Chunk::inserts(chunk_batch(schema, &batch)?));
        Ok(())
    }
}

impl CopyTarget for CopyRows {
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>> {
        let added = self.add(&batch);
        async { added }.boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        async move {
            let chunk = Chunk::concat(&self.table.schema, &self.chunks)?;
            let count = chunk.len() as u64;
            if count > 0 {
                self.writer.write(self.object.id, self.table, chunk, self.lock).await?;
            }
            Ok(count)
        }
        .boxed()
    }
}
