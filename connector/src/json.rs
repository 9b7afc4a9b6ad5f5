//! Rows as JSON objects.
//!
//! | type | JSON |
//! |---|---|
//! | boolean, integers | as they are |
//! | real, double precision | the shortest number that reads back as the same; NaN and infinities as strings |
//! | numeric | a string, so that no digit is lost |
//! | date, time | a string, as in ISO 8601 |
//! | timestamp, timestamptz | a string, as in ISO 8601, with `T`; timestamptz in UTC, with `Z` |
//! | interval | a string, as PostgreSQL prints it |
//! | bytea | a string, base64 |
//! | jsonb | the value itself |
//! | array, struct | an array, an object |

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use weir_common::json::write_string;
use weir_common::text::{TextFormat, write_value};

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the object of a row with these columns.
pub fn write_row(batch: &RecordBatch, columns: impl IntoIterator<Item = usize>, row: usize, out: &mut String) {
    let schema = batch.schema_ref();
    write_object(columns.into_iter().map(|c| (schema.field(c).name().as_str(), batch.column(c).as_ref())), row, out);
}

fn write_object<'a>(members: impl Iterator<Item = (&'a str, &'a dyn Array)>, row: usize, out: &mut String) {
    out.push('{');
    for (i, (name, array)) in members.enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        write_json(array, row, out);
    }
    out.push('}');
}

/// Appends a value.
fn write_json(array: &dyn Array, row: usize, out: &mut String) {
    if array.is_null(row) {
        return out.push_str("null");
    }
    match array.data_type() {
        DataType::Null => out.push_str("null"),
        DataType::Boolean => out.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        DataType::Utf8 => write_string(array.as_string::<i32>().value(row), out),
        DataType::LargeUtf8 => out.push_str(array.as_string::<i64>().value(row)),
        DataType::Binary => write_base64(array.as_binary::<i32>().value(row), out),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            out.push('[');
            for item in 0..items.len() {
                if item > 0 {
                    out.push(',');
                }
                write_json(&items, item, out);
            }
            out.push(']');
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().map(AsRef::as_ref);
            write_object(fields.iter().map(|f| f.name().as_str()).zip(columns), row, out);
        }
        data_type => write_text(array, data_type, row, out),
    }
}

/// Appends a value whose text is a number, or else goes into quotes.
fn write_text(array: &dyn Array, data_type: &DataType, row: usize, out: &mut String) {
    let declared_scale = match data_type {
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    };
    let mut text = String::new();
    write_value(array, row, &TextFormat { declared_scale, ..TextFormat::default() }, &mut text);
    match data_type {
        t if t.is_integer() => out.push_str(&text),
        t if t.is_floating() && text.bytes().any(|b| b.is_ascii_digit()) => out.push_str(&text),
        DataType::Timestamp(_, zone) => {
            let utc = if zone.is_some() { "Z" } else { "" };
            let text = text.replacen(' ', "T", 1);
            // A year before Christ has its mark at the end, behind the zone.
            write_string(&text.replacen("+00", utc, usize::from(zone.is_some())), out);
        }
        _ => write_string(&text, out),
    }
}

fn write_base64(bytes: &[u8], out: &mut String) {
    out.push('"');
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place > three.len() { '=' } else { char::from(digit) });
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use weir_common::types::SqlType;

    use super::*;
    use crate::column::Column;

    fn json(sql_type: &SqlType, texts: &[&str]) -> Vec<String> {
        let mut column = Column::new(&sql_type.to_arrow()).unwrap();
        column.push_null();
        texts.iter().for_each(|t| column.push_text(t).unwrap());
        let array = column.finish().unwrap();
        let write = |row| {
            let mut out = String::new();
            write_json(&array, row, &mut out);
            out
        };
        assert_eq!(write(0), "null");
        (1..array.len()).map(write).collect()
    }

    #[test]
    fn values_of_every_type() {
        let record = SqlType::Struct(vec![("a".into(), SqlType::Integer), ("b\"".into(), SqlType::Varchar)]);
        let cases: [(SqlType, &[&str], &[&str]); 15] = [
            (SqlType::Boolean, &["t", "f"], &["true", "false"]),
            (SqlType::SmallInt, &["-1"], &["-1"]),
            (SqlType::BigInt, &["9223372036854775807"], &["9223372036854775807"]),
            (SqlType::Real, &["0.1"], &["0.1"]),
            (SqlType::Double, &["1e300", "NaN", "-Infinity"], &["1e+300", "\"NaN\"", "\"-Infinity\""]),
            (SqlType::Numeric(Some((5, 2))), &["1.5"], &["\"1.50\""]),
            (SqlType::Numeric(None), &["1.5"], &["\"1.5\""]),
            (SqlType::Varchar, &["a\n\"é"], &["\"a\\n\\\"é\""]),
            (SqlType::Bytea, &["\\x", "\\x00", "\\x00ff", "\\x4d616e"], &["\"\"", "\"AA==\"", "\"AP8=\"", "\"TWFu\""]),
            (SqlType::Date, &["2024-02-29"], &["\"2024-02-29\""]),
            (SqlType::Timestamp, &["2024-02-29 01:02:03.5"], &["\"2024-02-29T01:02:03.5\""]),
            (SqlType::TimestampTz, &["2024-02-29 01:02:03+01"], &["\"2024-02-29T00:02:03Z\""]),
            (SqlType::Jsonb, &["{\"a\": [1.0]}"], &["{\"a\": [1.0]}"]),
            (SqlType::Array(Box::new(SqlType::Varchar)), &["{x,NULL}", "{}"], &["[\"x\",null]", "[]"]),
            (record, &["{\"a\":1}"], &["{\"a\":1,\"b\\\"\":null}"]),
        ];
        for (sql_type, texts, expected) in cases {
            assert_eq!(json(&sql_type, texts), expected, "{sql_type}");
        }
    }

    #[test]
    fn some_columns_of_a_row() {
        let schema = Schema::new(vec![Field::new("x", DataType::Utf8, true), Field::new("y", DataType::Utf8, true)]);
        let column = |text: &str| Arc::new(arrow::array::StringArray::from(vec![text])) as _;
        let batch = RecordBatch::try_new(Arc::new(schema), vec![column("1"), column("2")]).unwrap();
        let mut out = String::new();
        write_row(&batch, [1, 0], 0, &mut out);
        assert_eq!(out, "{\"y\":\"2\",\"x\":\"1\"}");
    }
}
