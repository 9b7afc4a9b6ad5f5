//! A system relation: columns and a function that makes the rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int16Array, Int32Array, Int64Array, ListBuilder, PrimitiveBuilder,
    RecordBatch, RecordBatchOptions, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int16Type, Int32Type, Schema, TimeUnit};
use weir_common::types::UTC;

use super::SystemRelations;
use crate::error::Result;

/// A system relation.
pub(super) struct Relation {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Type)],
    pub rows: fn(&SystemRelations<'_>) -> Result<Vec<Vec<Value>>>,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int2,
    Int4,
    Int8,
    Float8,
    Text,
    TimestampTz,
    Int2Array,
    Int4Array,
    TextArray,
}

/// A value in a row.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Of any of the integer types; of a timestamp, Unix time in microseconds.
    Int(i64),
    Float(f64),
    Text(String),
    Ints(Vec<i64>),
}

/// No rows.
pub(super) fn none(_: &SystemRelations<'_>) -> Result<Vec<Vec<Value>>> {
    Ok(vec![])
}

impl Relation {
    /// The rows as one batch.
    pub fn batch(&self, source: &SystemRelations<'_>) -> Result<RecordBatch> {
        let rows = (self.rows)(source)?;
        let fields: Vec<_> = self.columns.iter().map(|(name, t)| Field::new(*name, t.arrow(), true)).collect();
        let columns = self.columns.iter().enumerate().map(|(i, (_, t))| t.array(&rows, i)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }
}

impl Type {
    fn arrow(self) -> DataType {
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        match self {
            Type::Bool => DataType::Boolean,
            Type::Int2 => DataType::Int16,
            Type::Int4 => DataType::Int32,
            Type::Int8 => DataType::Int64,
            Type::Float8 => DataType::Float64,
            Type::Text => DataType::Utf8,
            Type::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            Type::Int2Array => list(DataType::Int16),
            Type::Int4Array => list(DataType::Int32),
            Type::TextArray => list(DataType::Utf8),
        }
    }

    /// Column `i` of the rows. A value that does not fit the type is NULL.
    fn array(self, rows: &[Vec<Value>], i: usize) -> ArrayRef {
        let values = || rows.iter().map(move |row| row.get(i).unwrap_or(&Value::Null));
        let int = |value: &Value| match value {
            Value::Int(v) => Some(*v),
            _ => None,
        };
        match self {
            Type::Bool => {
                let bool = |value: &Value| match value {
                    Value::Bool(v) => Some(*v),
                    _ => None,
                };
                Arc::new(values().map(bool).collect::<BooleanArray>())
            }
            Type::Int2 => {
                Arc::new(values().map(|v| int(v).and_then(|v| i16::try_from(v).ok())).collect::<Int16Array>())
            }
            // Oids above the largest integer wrap, as they do where PostgreSQL casts them.
            Type::Int4 => Arc::new(values().map(|v| int(v).map(|v| v as i32)).collect::<Int32Array>()),
            Type::Int8 => Arc::new(values().map(int).collect::<Int64Array>()),
            Type::Float8 => {
                let float = |value: &Value| match value {
                    Value::Float(v) => Some(*v),
                    Value::Int(v) => Some(*v as f64),
                    _ => None,
                };
                Arc::new(values().map(float).collect::<Float64Array>())
            }
            Type::Text => {
                fn text(value: &Value) -> Option<&str> {
                    match value {
                        Value::Text(v) => Some(v),
                        _ => None,
                    }
                }
                Arc::new(values().map(text).collect::<StringArray>())
            }
            Type::TimestampTz => Arc::new(values().map(int).collect::<TimestampMicrosecondArray>().with_timezone(UTC)),
            Type::Int2Array => {
                let mut list = ListBuilder::new(PrimitiveBuilder::<Int16Type>::new());
                for value in values() {
                    if let Value::Ints(items) = value {
                        items.iter().for_each(|v| list.values().append_option(i16::try_from(*v).ok()));
                    }
                    list.append(matches!(value, Value::Ints(_)));
                }
                Arc::new(list.finish())
            }
            Type::Int4Array => {
                let mut list = ListBuilder::new(PrimitiveBuilder::<Int32Type>::new());
                for value in values() {
                    if let Value::Ints(items) = value {
                        items.iter().for_each(|v| list.values().append_value(*v as i32));
                    }
                    list.append(matches!(value, Value::Ints(_)));
                }
                Arc::new(list.finish())
            }
            Type::TextArray => {
                // Options and access lists: nothing has any.
                let mut list = ListBuilder::new(StringBuilder::new());
                values().for_each(|_| list.append_null());
                Arc::new(list.finish())
            }
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::Int(value.into())
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Int(value.into())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Value {
        Value::from(value as u64)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_string())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Value {
        Value::Text(value.clone())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}
