//! Where rows enter: relations, sources, constants.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{EmptyRelation, TableScan, Values};
use weir_common::catalog::{ColumnDef, Object, ObjectKind, ROW_ID};
use weir_common::plan::{self, Node, StreamPlan};
use weir_stream::executor::scan::progress_table;
use weir_stream::executor::source::offsets_table;
use weir_stream::executor::values::{emitted_table, encode_rows_hex};

use super::super::relation::{RelationTable, relation_schema};
use super::rel::Rel;
use super::{Builder, physical, unsupported};
use crate::error::{Result, SqlError};

/// The column of [`plan::Values`] that numbers the rows.
const ROW_NUMBER: &str = "_row";

impl Builder {
    pub(super) fn scan(&mut self, scan: &TableScan) -> Result<Rel> {
        let provider = source_as_provider(&scan.source)?;
        let any: &dyn std::any::Any = provider.as_ref();
        let Some(table) = any.downcast_ref::<RelationTable>() else {
            return Err(unsupported(format!("reading \"{}\"", scan.table_name.table()))
                .with_hint("Read tables, sources and materialized views; functions in FROM only with unnest(array)."));
        };
        if !scan.filters.is_empty() || scan.fetch.is_some() {
            return Err(SqlError::internal("a kept query was bound with readers"));
        }
        let all: Vec<usize> = (0..table.columns().len()).collect();
        let wanted = scan.projection.as_ref().unwrap_or(&all).iter().map(|i| table.columns()[*i]).collect::<Vec<_>>();
        if table.object().kind == ObjectKind::Source {
            return self.source(table.object(), &wanted);
        }
        let plan = self.relation(table.object(), &wanted)?;
        Ok(Rel::first(plan, wanted.len()))
    }

    /// A scan of a relation: the wanted columns, then the rest of its key.
    pub(in crate::planner) fn relation(&mut self, object: &Object, wanted: &[usize]) -> Result<StreamPlan> {
        let table = object.plan.as_ref().and_then(|p| p.relation.clone());
        let table = table.ok_or_else(|| unsupported(format!("reading \"{}\"", object.name)))?;
        let mut columns = wanted.to_vec();
        for key in &table.key {
            if !columns.contains(&key.column) {
                columns.push(key.column);
            }
        }
        let schema = pick(&relation_schema(object), &columns);
        let progress = progress_table(self.table_id());
        let node = plan::Scan {
            job: object.id,
            table,
            columns,
            append_only: object.append_only,
            from_now: false,
            after: vec![],
            progress,
        };
        Ok(StreamPlan { schema, node: Node::Scan(node) })
    }

    /// A source, which each job reads for itself.
    fn source(&mut self, object: &Object, wanted: &[usize]) -> Result<Rel> {
        // Only what is wanted is read, unless the connector finds columns by their place.
        let by_position = weir_connector::reads_by_position(&object.options, object.format.as_ref()).unwrap_or(true);
        let read = |i: &usize| by_position || wanted.contains(i);
        let (plan, places) = self.connector(&object.columns, &object.options, object.format.as_ref(), read);
        let place = |column: &usize| {
            places[*column].ok_or_else(|| {
                unsupported(format!("reading the generated column \"{}\" of a source", object.columns[*column].name))
                    .with_hint("Write the expression in the query.")
            })
        };
        let indices = wanted.iter().map(place).collect::<Result<Vec<_>>>()?;
        Ok(Rel::pick(plan, indices))
    }

    /// What a connector reads, and where the object's columns are among it: the wanted columns, as far as the connector
    /// fills them, then a row id.
    pub(in crate::planner) fn connector(
        &mut self,
        columns: &[ColumnDef],
        options: &BTreeMap<String, String>,
        format: Option<&(String, String)>,
        wanted: impl Fn(&usize) -> bool,
    ) -> (StreamPlan, Vec<Option<usize>>) {
        let filled: Vec<usize> = (0..columns.len())
            .filter(|i| !columns[*i].hidden && columns[*i].generated.is_none() && wanted(i))
            .collect();
        // A record without a value where there must be one is a bad record.
        let field = |i: &usize| Field::new(&columns[*i].name, columns[*i].sql_type.to_arrow(), !columns[*i].not_null);
        let place = |i: usize| match filled.iter().position(|f| *f == i) {
            Some(at) => Some(at),
            None if columns[i].hidden => Some(filled.len()),
            None => None,
        };
        let places = (0..columns.len()).map(place).collect();
        let read: SchemaRef = Arc::new(Schema::new(filled.iter().map(field).collect::<Vec<_>>()));
        let mut fields = read.fields().to_vec();
        fields.push(Arc::new(Field::new(ROW_ID, DataType::Int64, false)));
        let offsets = offsets_table(self.table_id());
        let node = plan::Source { options: options.clone(), format: format.cloned(), columns: read, offsets };
        (StreamPlan { schema: Arc::new(Schema::new(fields)), node: Node::Source(node) }, places)
    }

    pub(super) fn values(&mut self, values: &Values) -> Result<Rel> {
        let no_columns = datafusion::common::DFSchema::empty();
        let row = RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            vec![],
            &RecordBatchOptions::new().with_row_count(Some(1)),
        )?;
        let mut columns: Vec<Vec<ScalarValue>> = vec![Vec::new(); values.schema.fields().len()];
        for exprs in &values.values {
            for ((column, expr), field) in columns.iter_mut().zip(exprs).zip(values.schema.fields()) {
                let value = physical(expr, &no_columns)?.evaluate(&row)?.into_array(1)?;
                column.push(ScalarValue::try_from_array(&value, 0)?.cast_to(field.data_type())?);
            }
        }
        let mut arrays = Vec::with_capacity(columns.len());
        for (column, field) in columns.into_iter().zip(values.schema.fields()) {
            arrays.push(match column.is_empty() {
                true => arrow::array::new_empty_array(field.data_type()),
                false => ScalarValue::iter_to_array(column)?,
            });
        }
        self.rows(values.schema.inner(), arrays, values.values.len())
    }

    pub(super) fn empty(&mut self, empty: &EmptyRelation) -> Result<Rel> {
        let rows = usize::from(empty.produce_one_row);
        let arrays = empty.schema.fields().iter().map(|f| arrow::array::new_null_array(f.data_type(), rows)).collect();
        self.rows(empty.schema.inner(), arrays, rows)
    }

    fn rows(&mut self, schema: &SchemaRef, mut arrays: Vec<ArrayRef>, rows: usize) -> Result<Rel> {
        let width = arrays.len();
        let nullable = |f: &Arc<Field>| Arc::new(f.as_ref().clone().with_nullable(true));
        let mut fields: Vec<_> = schema.fields().iter().map(nullable).collect();
        fields.push(Arc::new(Field::new(ROW_NUMBER, DataType::Int64, false)));
        arrays.push(Arc::new(Int64Array::from_iter_values(0..rows as i64)));
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), arrays)?;
        let node = plan::Values { rows: encode_rows_hex(&batch)?, emitted: emitted_table(self.table_id()) };
        Ok(Rel::first(StreamPlan { schema, node: Node::Values(node) }, width))
    }
}

/// The columns with these indices.
pub(super) fn pick(schema: &SchemaRef, columns: &[usize]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|i| schema.fields()[*i].clone()).collect::<Vec<_>>()))
}
