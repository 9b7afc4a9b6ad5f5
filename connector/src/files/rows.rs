//! Rows under construction, from records of text.

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use weir_common::json::Json;

use crate::column::Column;
use crate::error::{ConnectorError, Result};

/// A value of a record.
pub enum Cell<'a> {
    Null,
    Text(&'a str),
    Json(&'a Json<'a>),
}

/// Rows under construction.
pub struct Rows {
    schema: SchemaRef,
    columns: Vec<Column>,
    /// One per row that was pushed, failed ones included.
    good: Vec<bool>,
}

impl Rows {
    /// No row, in these columns.
    pub fn new(schema: SchemaRef) -> Result<Rows> {
        let column = |field: &arrow::datatypes::FieldRef| {
            Column::new(field.data_type()).ok_or_else(|| ConnectorError::UnsupportedType {
                what: "a file",
                column: field.name().clone(),
                data_type: field.data_type().to_string(),
            })
        };
        let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
        Ok(Rows { schema, columns, good: vec![] })
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends a row, `cell(i)` being its value in column `i`; or nothing, when a value does not fit.
    pub fn push<'a>(&mut self, cell: impl Fn(usize) -> Cell<'a>) -> std::result::Result<(), String> {
        let mut outcome = Ok(());
        for (i, (field, column)) in self.schema.fields().iter().zip(&mut self.columns).enumerate() {
            let pushed = match cell(i) {
                Cell::Null | Cell::Json(Json::Null) => {
                    column.push_null();
                    if field.is_nullable() { Ok(()) } else { Err("NULL, which the column forbids".into()) }
                }
                Cell::Text(text) => column.push_text(text),
                Cell::Json(json) => column.push_json(json),
            };
            outcome = outcome.and(pushed.map_err(|misfit| format!("column `{}`: {misfit}", field.name())));
        }
        self.good.push(outcome.is_ok());
        outcome
    }

    /// The rows; there are none afterwards.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let good = std::mem::take(&mut self.good);
        let columns = self.columns.iter_mut().map(Column::finish).collect::<std::result::Result<Vec<_>, _>>()?;
        let rows = good.iter().filter(|g| **g).count();
        if columns.is_empty() || rows == good.len() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            return Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?);
        }
        // Until failed rows are gone, a NOT NULL column may hold NULL.
        let fields = self.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let nullable = arrow::datatypes::Schema::new(fields.collect::<Vec<_>>());
        let all = RecordBatch::try_new(nullable.into(), columns)?;
        let kept = filter_record_batch(&all, &BooleanArray::from(good))?;
        Ok(RecordBatch::try_new(self.schema.clone(), kept.columns().to_vec())?)
    }
}
