//! Columns in types that Parquet has: interval, and numeric without precision, become strings, inside arrays and structs
//! too. Nothing else changes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StringBuilder, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use weir_common::text::{TextFormat, write_value};

/// The schema that [`plain_batch`] gives.
pub fn plain_schema(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(plain_field).collect::<Fields>())
}

/// The rows in types that Parquet has.
pub fn plain_batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(plain_array).collect::<Result<_, _>>()?;
    RecordBatch::try_new(Arc::new(plain_schema(batch.schema_ref())), columns)
}

fn plain_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), plain_type(field.data_type()), true))
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal256(..) | DataType::Interval(_) => DataType::Utf8,
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => other.clone(),
    }
}

fn plain_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match array.data_type() {
        DataType::Decimal256(..) | DataType::Interval(_) => Arc::new(texts(array)),
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let items = plain_array(list.values())?;
            Arc::new(ListArray::try_new(plain_field(item), list.offsets().clone(), items, list.nulls().cloned())?)
        }
        DataType::Struct(fields) => {
            let record = array.as_struct();
            let columns = record.columns().iter().map(plain_array).collect::<Result<_, _>>()?;
            let fields = fields.iter().map(plain_field).collect();
            Arc::new(StructArray::try_new_with_length(fields, columns, record.nulls().cloned(), record.len())?)
        }
        _ => array.clone(),
    })
}

fn texts(array: &dyn Array) -> arrow::array::StringArray {
    let format = TextFormat::default();
    let (mut builder, mut text) = (StringBuilder::new(), String::new());
    for row in 0..array.len() {
        text.clear();
        write_value(array, row, &format, &mut text);
        builder.append_option(array.is_valid(row).then_some(&text));
    }
    builder.finish()
}
