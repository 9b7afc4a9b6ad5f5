//! Columns that are filled value by value, from text or from JSON.
//!
//! Every push appends exactly one value, NULL when it fails. So a record that fails in one column leaves all columns
//! equally long, and its row is filtered out afterwards.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanBuilder, LargeStringBuilder, ListArray,
    NullBufferBuilder, PrimitiveBuilder, StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, FieldRef, Fields, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use weir_common::json::Json;
use weir_common::types::SqlType;

use crate::text::{self, Item, MALFORMED, OUT_OF_RANGE, Reason};

/// A column under construction.
pub enum Column {
    Boolean(BooleanBuilder),
    SmallInt(PrimitiveBuilder<Int16Type>),
    Integer(PrimitiveBuilder<Int32Type>),
    BigInt(PrimitiveBuilder<Int64Type>),
    Real(PrimitiveBuilder<Float32Type>),
    Double(PrimitiveBuilder<Float64Type>),
    Decimal128(PrimitiveBuilder<Decimal128Type>, u8, i8),
    Decimal256(PrimitiveBuilder<Decimal256Type>, u8, i8),
    Varchar(StringBuilder),
    Jsonb(LargeStringBuilder),
    Bytea(BinaryBuilder),
    Date(PrimitiveBuilder<Date32Type>),
    Time(PrimitiveBuilder<Time64MicrosecondType>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>),
    TimestampTz(PrimitiveBuilder<TimestampMicrosecondType>),
    Interval(PrimitiveBuilder<IntervalMonthDayNanoType>),
    List(Box<ListColumn>),
    Struct(StructColumn),
}

/// An array column.
pub struct ListColumn {
    field: FieldRef,
    items: Column,
    ends: Vec<i32>,
    valid: NullBufferBuilder,
}

/// A struct column.
pub struct StructColumn {
    fields: Fields,
    columns: Vec<Column>,
    valid: NullBufferBuilder,
}

/// Appends what was read, or NULL and tells why.
fn put<T: ArrowPrimitiveType>(
    builder: &mut PrimitiveBuilder<T>,
    value: Result<T::Native, Reason>,
) -> Result<(), Reason> {
    builder.append_option(value.as_ref().ok().copied());
    value.map(|_| ())
}

impl Column {
    /// An empty column, or `None` when no SQL type has this Arrow type.
    pub fn new(data_type: &DataType) -> Option<Column> {
        let utc = |zone: &Arc<str>| &**zone == weir_common::types::UTC;
        Some(match data_type {
            DataType::Boolean => Column::Boolean(BooleanBuilder::new()),
            DataType::Int16 => Column::SmallInt(PrimitiveBuilder::new()),
            DataType::Int32 => Column::Integer(PrimitiveBuilder::new()),
            DataType::Int64 => Column::BigInt(PrimitiveBuilder::new()),
            DataType::Float32 => Column::Real(PrimitiveBuilder::new()),
            DataType::Float64 => Column::Double(PrimitiveBuilder::new()),
            DataType::Decimal128(precision, scale) => {
                let builder = PrimitiveBuilder::new().with_data_type(data_type.clone());
                Column::Decimal128(builder, *precision, *scale)
            }
            DataType::Decimal256(precision, scale) => {
                let builder = PrimitiveBuilder::new().with_data_type(data_type.clone());
                Column::Decimal256(builder, *precision, *scale)
            }
            DataType::Utf8 => Column::Varchar(StringBuilder::new()),
            DataType::LargeUtf8 => Column::Jsonb(LargeStringBuilder::new()),
            DataType::Binary => Column::Bytea(BinaryBuilder::new()),
            DataType::Date32 => Column::Date(PrimitiveBuilder::new()),
            DataType::Time64(TimeUnit::Microsecond) => Column::Time(PrimitiveBuilder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => Column::Timestamp(PrimitiveBuilder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if utc(zone) => {
                Column::TimestampTz(PrimitiveBuilder::new().with_data_type(data_type.clone()))
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => Column::Interval(PrimitiveBuilder::new()),
            DataType::List(field) => Column::List(Box::new(ListColumn {
                field: field.clone(),
                items: Column::new(field.data_type())?,
                ends: vec![0],
                valid: NullBufferBuilder::new(0),
            })),
            DataType::Struct(fields) => Column::Struct(StructColumn {
                fields: fields.clone(),
                columns: fields.iter().map(|f| Column::new(f.data_type())).collect::<Option<_>>()?,
                valid: NullBufferBuilder::new(0),
            }),
            _ => return None,
        })
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        match self {
            Column::Boolean(b) => b.append_null(),
            Column::SmallInt(b) => b.append_null(),
            Column::Integer(b) => b.append_null(),
            Column::BigInt(b) => b.append_null(),
            Column::Real(b) => b.append_null(),
            Column::Double(b) => b.append_null(),
            Column::Decimal128(b, ..) => b.append_null(),
            Column::Decimal256(b, ..) => b.append_null(),
            Column::Varchar(b) => b.append_null(),
            Column::Jsonb(b) => b.append_null(),
            Column::Bytea(b) => b.append_null(),
            Column::Date(b) => b.append_null(),
            Column::Time(b) => b.append_null(),
            Column::Timestamp(b) | Column::TimestampTz(b) => b.append_null(),
            Column::Interval(b) => b.append_null(),
            Column::List(list) => list.close(false),
            Column::Struct(record) => {
                record.columns.iter_mut().for_each(Column::push_null);
                record.valid.append_null();
            }
        }
    }

    /// Appends the value that the text is, in PostgreSQL's format for the type.
    pub fn push_text(&mut self, text: &str) -> Result<(), Reason> {
        match self {
            Column::Boolean(b) => {
                let value = text::parse_boolean(text);
                b.append_option(value.ok());
                value.map(|_| ())
            }
            Column::SmallInt(b) => put(b, text::parse_integer(text)),
            Column::Integer(b) => put(b, text::parse_integer(text)),
            Column::BigInt(b) => put(b, text::parse_integer(text)),
            Column::Real(b) => put(b, text::parse_float32(text)),
            Column::Double(b) => put(b, text::parse_float64(text)),
            Column::Decimal128(b, precision, scale) => put(b, text::parse_decimal128(text, *precision, *scale)),
            Column::Decimal256(b, precision, scale) => put(b, text::parse_decimal256(text, *precision, *scale)),
            Column::Varchar(b) => {
                b.append_value(text);
                Ok(())
            }
            Column::Bytea(b) => {
                let value = text::parse_bytea(text);
                b.append_option(value.as_ref().ok());
                value.map(|_| ())
            }
            Column::Date(b) => put(b, text::parse_date(text)),
            Column::Time(b) => put(b, text::parse_time(text)),
            Column::Timestamp(b) => put(b, text::parse_timestamp(text)),
            Column::TimestampTz(b) => put(b, text::parse_timestamptz(text)),
            Column::Interval(b) => put(b, text::parse_interval(text)),
            Column::List(list) if text.trim_start().starts_with('{') => match text::parse_array(text) {
                Ok(items) => list.push_items(&items),
                Err(reason) => {
                    list.close(false);
                    Err(reason)
                }
            },
            Column::Jsonb(_) | Column::List(_) | Column::Struct(_) => match Json::parse(text) {
                Ok(json) => self.push_json(&json),
                Err(error) => {
                    self.push_null();
                    Err(error.problem)
                }
            },
        }
    }

    /// Appends a JSON value. Strings are read as text of the type; null is NULL, in a jsonb column too.
    pub fn push_json(&mut self, json: &Json<'_>) -> Result<(), Reason> {
        match (&mut *self, json) {
            (_, Json::Null) => {
                self.push_null();
                Ok(())
            }
            (Column::Jsonb(builder), _) => {
                builder.append_value(json.to_string());
                Ok(())
            }
            (Column::Boolean(builder), Json::Bool(value)) => {
                builder.append_value(*value);
                Ok(())
            }
            (Column::Varchar(builder), Json::Bool(_) | Json::Number(_)) => {
                builder.append_value(json.to_string());
                Ok(())
            }
            (Column::Timestamp(builder) | Column::TimestampTz(builder), Json::Number(number)) => {
                put(builder, text::parse_integer(number).and_then(text::timestamp_from_number))
            }
            (
                Column::SmallInt(_)
                | Column::Integer(_)
                | Column::BigInt(_)
                | Column::Real(_)
                | Column::Double(_)
                | Column::Decimal128(..)
                | Column::Decimal256(..),
                Json::Number(number),
            ) => self.push_text(number),
            (Column::List(list), Json::Array(items)) => list.push_json(items),
            (Column::Struct(record), Json::Object(_)) => record.push_json(json),
            (_, Json::String(value)) => self.push_text(value),
            _ => {
                self.push_null();
                Err(MALFORMED)
            }
        }
    }

    fn push_item(&mut self, item: &Item) -> Result<(), Reason> {
        match (&mut *self, item) {
            (_, Item::Null) => {
                self.push_null();
                Ok(())
            }
            (_, Item::Text(text)) => self.push_text(text),
            (Column::List(list), Item::Array(items)) => list.push_items(items),
            (_, Item::Array(_)) => {
                self.push_null();
                Err(MALFORMED)
            }
        }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        match self {
            Column::Boolean(b) => b.len(),
            Column::SmallInt(b) => b.len(),
            Column::Integer(b) => b.len(),
            Column::BigInt(b) => b.len(),
            Column::Real(b) => b.len(),
            Column::Double(b) => b.len(),
            Column::Decimal128(b, ..) => b.len(),
            Column::Decimal256(b, ..) => b.len(),
            Column::Varchar(b) => b.len(),
            Column::Jsonb(b) => b.len(),
            Column::Bytea(b) => b.len(),
            Column::Date(b) => b.len(),
            Column::Time(b) => b.len(),
            Column::Timestamp(b) | Column::TimestampTz(b) => b.len(),
            Column::Interval(b) => b.len(),
            Column::List(list) => list.ends.len() - 1,
            Column::Struct(record) => record.valid.len(),
        }
    }

    /// The values; the column is empty afterwards.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Column::Boolean(b) => Arc::new(b.finish()),
            Column::SmallInt(b) => Arc::new(b.finish()),
            Column::Integer(b) => Arc::new(b.finish()),
            Column::BigInt(b) => Arc::new(b.finish()),
            Column::Real(b) => Arc::new(b.finish()),
            Column::Double(b) => Arc::new(b.finish()),
            Column::Decimal128(b, ..) => Arc::new(b.finish()),
            Column::Decimal256(b, ..) => Arc::new(b.finish()),
            Column::Varchar(b) => Arc::new(b.finish()),
            Column::Jsonb(b) => Arc::new(b.finish()),
            Column::Bytea(b) => Arc::new(b.finish()),
            Column::Date(b) => Arc::new(b.finish()),
            Column::Time(b) => Arc::new(b.finish()),
            Column::Timestamp(b) | Column::TimestampTz(b) => Arc::new(b.finish()),
            Column::Interval(b) => Arc::new(b.finish()),
            Column::List(list) => {
                let offsets = OffsetBuffer::new(std::mem::replace(&mut list.ends, vec![0]).into());
                let items = list.items.finish()?;
                Arc::new(ListArray::try_new(list.field.clone(), offsets, items, list.valid.finish())?)
            }
            Column::Struct(record) => {
                let rows = record.valid.len();
                let columns = record.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>, _>>()?;
                let valid = record.valid.finish();
                Arc::new(StructArray::try_new_with_length(record.fields.clone(), columns, valid, rows)?)
            }
        })
    }
}

impl ListColumn {
    /// Ends the array whose items were pushed last.
    fn close(&mut self, valid: bool) {
        // A batch is cut long before this many items, see `files`.
        self.ends.push(i32::try_from(self.items.len()).unwrap_or(i32::MAX));
        self.valid.append(valid);
    }

    fn push_items(&mut self, items: &[Item]) -> Result<(), Reason> {
        let outcome = items.iter().map(|i| self.items.push_item(i)).fold(Ok(()), Result::and);
        self.close(outcome.is_ok());
        outcome
    }

    fn push_json(&mut self, items: &[Json<'_>]) -> Result<(), Reason> {
        let outcome = items.iter().map(|i| self.items.push_json(i)).fold(Ok(()), Result::and);
        self.close(outcome.is_ok());
        outcome
    }
}

impl StructColumn {
    fn push_json(&mut self, object: &Json<'_>) -> Result<(), Reason> {
        let mut outcome = Ok(());
        for (field, column) in self.fields.iter().zip(&mut self.columns) {
            match member(object, field.name()) {
                Some(value) => outcome = outcome.and(column.push_json(value)),
                None => column.push_null(),
            }
        }
        self.valid.append(outcome.is_ok());
        outcome
    }
}

/// The member of an object that a column is filled from: the one of its name, else of its name in other case.
pub fn member<'j, 'a>(object: &'j Json<'a>, name: &str) -> Option<&'j Json<'a>> {
    object.get(name).or_else(|| match object {
        Json::Object(members) => members.iter().rev().find(|(k, _)| k.eq_ignore_ascii_case(name)).map(|(_, v)| v),
        _ => None,
    })
}

/// What is wrong with a record, such as: column `a`: 'x' is not valid for bigint.
pub fn misfit(name: &str, data_type: &DataType, value: &str, reason: Reason) -> String {
    const VALUE_CHARS_MAX: usize = 60;
    let sql_type = SqlType::from_arrow(data_type).map_or_else(|| data_type.to_string(), |t| t.to_string());
    let value: String = value.chars().take(VALUE_CHARS_MAX).collect();
    match reason {
        MALFORMED => format!("column `{name}`: {value} is not valid for {sql_type}"),
        OUT_OF_RANGE => format!("column `{name}`: {value} is out of range for {sql_type}"),
        _ => format!("column `{name}`: {value} is not valid for {sql_type}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use weir_common::text::{TextFormat, write_value};

    use super::*;

    fn show(column: &mut Column) -> Vec<String> {
        let array = column.finish().unwrap();
        (0..array.len())
            .map(|row| {
                let mut out = String::new();
                write_value(&array, row, &TextFormat::default(), &mut out);
                if array.is_null(row) { "NULL".into() } else { out }
            })
            .collect()
    }

    /// Pushes each JSON text and shows what is in the column; `!` marks pushes that failed.
    fn from_json(sql_type: &SqlType, texts: &[&str]) -> Vec<String> {
        let mut column = Column::new(&sql_type.to_arrow()).unwrap();
        let failed: Vec<_> = texts.iter().map(|t| column.push_json(&Json::parse(t).unwrap()).is_err()).collect();
        assert_eq!(column.len(), texts.len());
        show(&mut column).into_iter().zip(failed).map(|(v, f)| if f { format!("!{v}") } else { v }).collect()
    }

    #[test]
    fn json_values_fill_columns_of_every_type() {
        let array = |t| SqlType::Array(Box::new(t));
        let record = SqlType::Struct(vec![("a".into(), SqlType::Integer), ("b".into(), array(SqlType::Varchar))]);
        let cases: [(SqlType, &[&str], &[&str]); 17] = [
            (SqlType::Boolean, &["true", "\"f\"", "null", "1"], &["t", "f", "NULL", "!NULL"]),
            (SqlType::SmallInt, &["1", "1.0", "1.5", "70000", "true"], &["1", "1", "!NULL", "!NULL", "!NULL"]),
            (SqlType::Integer, &["\"12\"", "\"x\"", "[]"], &["12", "!NULL", "!NULL"]),
            (SqlType::BigInt, &["9223372036854775807", "1e3"], &["9223372036854775807", "1000"]),
            (SqlType::Real, &["0.5", "1e39"], &["0.5", "!NULL"]),
            (SqlType::Double, &["0.1", "\"NaN\""], &["0.1", "NaN"]),
            (SqlType::Numeric(Some((5, 2))), &["1.005", "999.99", "1000"], &["1.01", "999.99", "!NULL"]),
            (SqlType::Numeric(None), &["0.1234567890123456789012345678"], &["0.1234567890123456789012345678"]),
            (SqlType::Varchar, &["\"a\\n\"", "1.50", "true", "{}"], &["a\n", "1.50", "true", "!NULL"]),
            (SqlType::Bytea, &["\"\\\\x00ff\"", "\"\\\\x0\""], &["\\x00ff", "!NULL"]),
            (SqlType::Date, &["\"2024-02-29\"", "\"2023-02-29\"", "5"], &["2024-02-29", "!NULL", "!NULL"]),
            (SqlType::Time, &["\"01:02:03.5\""], &["01:02:03.5"]),
            (
                SqlType::Timestamp,
                &["\"2024-02-29T01:02:03+05:00\"", "1709164800", "1709164800123", "1.5"],
                &["2024-02-29 01:02:03", "2024-02-29 00:00:00", "2024-02-29 00:00:00.123", "!NULL"],
            ),
            (SqlType::TimestampTz, &["\"2024-02-29 01:02:03+05\""], &["2024-02-28 20:02:03+00"]),
            (SqlType::Jsonb, &["{\"bb\":[1.0,null],\"a\":\"x\"}", "\"1\"", "null"], &[
                "{\"a\": \"x\", \"bb\": [1.0, null]}",
                "\"1\"",
                "NULL",
            ]),
            (
                array(array(SqlType::Integer)),
                &["[[1,null],[]]", "\"{{2},NULL}\"", "[[1],[\"x\"]]", "null", "[]"],
                &["{{1,NULL},{}}", "{{2},NULL}", "!NULL", "NULL", "{}"],
            ),
            (record, &["{\"A\":1}", "{\"b\":[\"x\"],\"a\":\"q\"}", "null"], &["(1,)", "!NULL", "NULL"]),
        ];
        for (sql_type, texts, values) in cases {
            assert_eq!(from_json(&sql_type, texts), values, "{sql_type}");
        }
    }

    #[test]
    fn text_fills_nested_columns() {
        let mut column = Column::new(&SqlType::Array(Box::new(SqlType::Double)).to_arrow()).unwrap();
        assert_eq!(column.push_text("{1.5,NULL}"), Ok(()));
        assert_eq!(column.push_text("[2]"), Ok(()));
        assert_eq!(column.push_text("{a}"), Err(MALFORMED));
        assert!(column.push_text("1").is_err());
        assert_eq!(show(&mut column), ["{1.5,NULL}", "{2}", "NULL", "NULL"]);
        assert_eq!(column.len(), 0);
    }

    #[test]
    fn messages_name_column_value_and_type() {
        let message = misfit("a", &DataType::Int64, "'x'", MALFORMED);
        assert_eq!(message, "column `a`: 'x' is not valid for bigint");
    }
}
