//! Columns that are filled value by value, from text or from JSON.
//!
//! Every push appends exactly one value, NULL when it fails. So a record that fails in one column leaves all columns
//! equally long, and its row is filtered out afterwards.

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeStringBuilder, ListArray, NullBufferBuilder, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::error::ArrowError;
use chrono_tz::Tz;
use weir_common::error::ValueError;
use weir_common::json::Json;
use weir_common::parse::{TextColumn, split_array};
use weir_common::text::write_timestamp;
use weir_common::types::SqlType;

/// What is wrong with a value, as a sentence that names it.
pub type Misfit = String;

/// A column under construction.
pub enum Column {
    Scalar(ScalarColumn),
    Jsonb(LargeStringBuilder, usize),
    List(Box<ListColumn>),
    Struct(StructColumn),
}

/// A column of a type without parts.
pub struct ScalarColumn {
    sql_type: SqlType,
    values: TextColumn,
    len: usize,
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

impl Column {
    /// An empty column, or `None` when no SQL type is carried by this Arrow type.
    pub fn new(data_type: &DataType) -> Option<Column> {
        Some(match data_type {
            DataType::LargeUtf8 => Column::Jsonb(LargeStringBuilder::new(), 0),
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
            _ => {
                let sql_type = SqlType::from_arrow(data_type).filter(|t| t.to_arrow() == *data_type)?;
                // There is no session whose time zone a timestamptz without one could be in.
                let values = TextColumn::new(&sql_type, Tz::UTC);
                Column::Scalar(ScalarColumn { sql_type, values, len: 0 })
            }
        })
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        match self {
            Column::Scalar(scalar) => scalar.push_null(),
            Column::Jsonb(builder, len) => {
                builder.append_null();
                *len += 1;
            }
            Column::List(list) => list.close(false),
            Column::Struct(record) => {
                record.columns.iter_mut().for_each(Column::push_null);
                record.valid.append_null();
            }
        }
    }

    /// Appends the value that the text is, in PostgreSQL's format for the type; arrays may be JSON too, and structs are.
    pub fn push_text(&mut self, text: &str) -> Result<(), Misfit> {
        match self {
            Column::Scalar(scalar) => scalar.push(text),
            Column::List(list) if !text.trim_start().starts_with('[') => list.push_text(text),
            Column::Jsonb(..) | Column::List(_) | Column::Struct(_) => match Json::parse(text) {
                Ok(json) => self.push_json(&json),
                Err(error) => {
                    self.push_null();
                    Err(format!("invalid JSON: {error}"))
                }
            },
        }
    }

    /// Appends a JSON value. Strings are read as text of the type; null is NULL, in a jsonb column too.
    pub fn push_json(&mut self, json: &Json<'_>) -> Result<(), Misfit> {
        match (&mut *self, json) {
            (_, Json::Null) => {
                self.push_null();
                Ok(())
            }
            (Column::Jsonb(builder, len), _) => {
                builder.append_value(json.to_string());
                *len += 1;
                Ok(())
            }
            (Column::Scalar(scalar), _) => scalar.push_json(json),
            (Column::List(list), Json::Array(items)) => list.push_json(items),
            (Column::Struct(record), Json::Object(_)) => record.push_json(json),
            (_, Json::String(text)) => self.push_text(text),
            (Column::List(_), _) => {
                self.push_null();
                Err(format!("{} is not an array", excerpt(json)))
            }
            (Column::Struct(_), _) => {
                self.push_null();
                Err(format!("{} is not an object", excerpt(json)))
            }
        }
    }

    /// How many values there are.
    fn len(&self) -> usize {
        match self {
            Column::Scalar(scalar) => scalar.len,
            Column::Jsonb(_, len) => *len,
            Column::List(list) => list.ends.len() - 1,
            Column::Struct(record) => record.valid.len(),
        }
    }

    /// The values; the column is empty afterwards.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Column::Scalar(scalar) => {
                scalar.len = 0;
                scalar.values.finish()
            }
            Column::Jsonb(builder, len) => {
                *len = 0;
                Arc::new(builder.finish())
            }
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

impl ScalarColumn {
    fn push_null(&mut self) {
        self.values.append_null();
        self.len += 1;
    }

    fn push(&mut self, text: &str) -> Result<(), Misfit> {
        let outcome = self.values.append(text);
        match outcome {
            Ok(()) => {
                self.len += 1;
                Ok(())
            }
            Err(ValueError { message, .. }) => {
                self.push_null();
                Err(message)
            }
        }
    }

    fn push_json(&mut self, json: &Json<'_>) -> Result<(), Misfit> {
        match (&self.sql_type, json) {
            (_, Json::String(text)) => self.push(text),
            (SqlType::Boolean | SqlType::Varchar, Json::Bool(value)) => {
                self.push(if *value { "true" } else { "false" })
            }
            (SqlType::Varchar | SqlType::Real | SqlType::Double | SqlType::Numeric(_), Json::Number(number)) => {
                self.push(number)
            }
            (SqlType::SmallInt | SqlType::Integer | SqlType::BigInt, Json::Number(number)) => {
                // `1.0` and `1e3` are whole numbers too.
                if number.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
                    return self.push(number);
                }
                let plain = json.to_string();
                let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
                self.push(if fraction.bytes().all(|b| b == b'0') { whole } else { &plain })
            }
            (SqlType::Timestamp | SqlType::TimestampTz, Json::Number(number)) => match unix_micros(number) {
                Some(micros) => {
                    let mut text = String::new();
                    write_timestamp(micros, &mut text);
                    self.push(&text)
                }
                None => self.refuse(json),
            },
            _ => self.refuse(json),
        }
    }

    fn refuse(&mut self, json: &Json<'_>) -> Result<(), Misfit> {
        self.push_null();
        Err(format!("{} is no {}", excerpt(json), self.sql_type))
    }
}

/// A time given as a number, by its size: below 10^11 seconds since 1970, below 10^14 milliseconds, else microseconds.
/// Each of them reaches from 1973 to 5138 at least.
fn unix_micros(number: &str) -> Option<i64> {
    let number: i64 = number.parse().ok()?;
    match number.unsigned_abs() {
        0..100_000_000_000 => Some(number * 1_000_000),
        100_000_000_000..100_000_000_000_000 => Some(number * 1_000),
        100_000_000_000_000..100_000_000_000_000_000 => Some(number),
        _ => None,
    }
}

impl ListColumn {
    /// Ends the array whose items were pushed last.
    fn close(&mut self, valid: bool) {
        // A batch has fewer bytes than this, and so fewer items.
        self.ends.push(i32::try_from(self.items.len()).unwrap_or(i32::MAX));
        self.valid.append(valid);
    }

    fn push_text(&mut self, text: &str) -> Result<(), Misfit> {
        let items = &mut self.items;
        let nested = matches!(items, Column::List(_));
        let outcome = split_array(text, nested).map_err(|e| e.message).and_then(|texts| {
            let push = |text: &Option<String>| match text {
                Some(text) => items.push_text(text),
                None => {
                    items.push_null();
                    Ok(())
                }
            };
            texts.iter().map(push).fold(Ok(()), Result::and)
        });
        self.close(outcome.is_ok());
        outcome
    }

    fn push_json(&mut self, items: &[Json<'_>]) -> Result<(), Misfit> {
        let outcome = items.iter().map(|i| self.items.push_json(i)).fold(Ok(()), Result::and);
        self.close(outcome.is_ok());
        outcome
    }
}

impl StructColumn {
    fn push_json(&mut self, object: &Json<'_>) -> Result<(), Misfit> {
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

/// A JSON value for a message.
fn excerpt(json: &Json<'_>) -> String {
    const CHARS_MAX: usize = 40;
    let text = json.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use arrow::array::Array;
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
            (
                SqlType::Jsonb,
                &["{\"bb\":[1.0,null],\"a\":\"x\"}", "\"1\"", "null"],
                &["{\"a\": \"x\", \"bb\": [1.0, null]}", "\"1\"", "NULL"],
            ),
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
        assert!(column.push_text("{a}").is_err());
        assert!(column.push_text("1").is_err());
        assert_eq!(show(&mut column), ["{1.5,NULL}", "{2}", "NULL", "NULL"]);
        assert_eq!(column.len(), 0);
    }
}
