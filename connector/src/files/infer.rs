//! Columns from the first file, when none are declared.
//!
//! | in the file | column |
//! |---|---|
//! | JSON: true and false · whole numbers · numbers · strings | boolean · bigint · double precision · varchar |
//! | JSON: arrays, objects, a mixture | jsonb |
//! | CSV: true and false · whole numbers · numbers · dates · timestamps · anything else | boolean · bigint · double precision · date · timestamp · varchar |
//! | Parquet | the type of the column |
//!
//! The first megabyte decides. A later value that does not fit makes its row a bad record; so declare the columns when
//! it matters.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use weir_common::json::Json;
use weir_common::parse::{parse_date, parse_timestamp};

use super::convert::declared_type;
use super::csv::{CsvDialect, CsvField};
use super::parquet::file_schema;
use super::records::line_end;

/// Bytes of the file that are looked at.
const SAMPLE_BYTES: u64 = 1 << 20;

type Inferred = Result<SchemaRef, String>;

/// The start of a file.
fn sample(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = vec![];
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(SAMPLE_BYTES).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    if (bytes.len() as u64) < SAMPLE_BYTES && bytes.last().is_some_and(|b| *b != b'\n') {
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// The whole records at the start, as text.
fn records(mut bytes: &[u8], end: impl Fn(&[u8], usize) -> Option<usize>) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (record, rest) = bytes.split_at(end(bytes, line_end(bytes)?)?);
        bytes = rest;
        Some(str::from_utf8(record).unwrap_or_default().trim_end_matches(['\n', '\r']))
    })
    .filter(|record| !record.trim().is_empty())
}

/// The columns of a Parquet file; those of a type that SQL does not have are left out.
pub fn parquet(path: &Path) -> Inferred {
    let file = file_schema(path)?;
    let field = |f: &Arc<Field>| Some(Field::new(f.name(), declared_type(f.data_type())?, true));
    Ok(Arc::new(Schema::new(file.fields().iter().filter_map(field).collect::<Vec<_>>())))
}

/// The columns of a file of JSON lines, in the order in which they first appear.
pub fn json(path: &Path) -> Inferred {
    let bytes = sample(path)?;
    let mut columns: Vec<(String, Option<DataType>)> = vec![];
    for record in records(&bytes, |_, line| Some(line)) {
        let Ok(Json::Object(members)) = Json::parse(record) else { continue };
        for (key, value) in &members {
            let at = columns.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
                columns.push((key.to_string(), None));
                columns.len() - 1
            });
            let seen = &mut columns[at].1;
            *seen = merge(seen.take(), json_type(value), DataType::LargeUtf8);
        }
    }
    schema(columns, DataType::LargeUtf8)
}

/// The columns of a CSV file.
pub fn csv(path: &Path, dialect: CsvDialect) -> Inferred {
    let bytes = sample(path)?;
    let mut records = records(&bytes, |bytes, line| dialect.record_end(bytes, line));
    let header = records.next().ok_or("the file is empty")?;
    let header = dialect.fields(header)?;
    let name = |f: &CsvField<'_>| (f.text.trim().to_owned(), None);
    let mut columns: Vec<(String, Option<DataType>)> = header.iter().map(name).collect();
    for record in records {
        let Ok(fields) = dialect.fields(record) else { continue };
        for ((_, seen), field) in columns.iter_mut().zip(&fields) {
            *seen = merge(seen.take(), csv_type(field), DataType::Utf8);
        }
    }
    schema(columns, DataType::Utf8)
}

/// Columns that never had a value get the fallback.
fn schema(columns: Vec<(String, Option<DataType>)>, fallback: DataType) -> Inferred {
    if columns.is_empty() {
        return Err("there is no record in the file".into());
    }
    let field = |(name, t): (String, Option<DataType>)| Field::new(name, t.unwrap_or(fallback.clone()), true);
    Ok(Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>())))
}

/// The type that values of both types fit; `None` is NULL.
fn merge(seen: Option<DataType>, new: Option<DataType>, any: DataType) -> Option<DataType> {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    match (seen, new) {
        (None, other) | (other, None) => other,
        (Some(a), Some(b)) if a == b => Some(a),
        (Some(DataType::Int64), Some(DataType::Float64)) | (Some(DataType::Float64), Some(DataType::Int64)) => {
            Some(DataType::Float64)
        }
        (Some(DataType::Date32), Some(other)) | (Some(other), Some(DataType::Date32)) if other == timestamp => {
            Some(other)
        }
        _ => Some(any),
    }
}

fn json_type(value: &Json<'_>) -> Option<DataType> {
    match value {
        Json::Null => None,
        Json::Bool(_) => Some(DataType::Boolean),
        Json::Number(number) if number.parse::<i64>().is_ok() => Some(DataType::Int64),
        Json::Number(_) => Some(DataType::Float64),
        Json::String(_) => Some(DataType::Utf8),
        Json::Array(_) | Json::Object(_) => Some(DataType::LargeUtf8),
    }
}

fn csv_type(field: &CsvField<'_>) -> Option<DataType> {
    let text = &*field.text;
    Some(match text {
        "" if !field.quoted => return None,
        // A leading zero is of a code, not of a number.
        _ if text.parse::<i64>().is_ok() && (text.len() == 1 || !text.starts_with(['0', '+'])) => DataType::Int64,
        _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.'))
            && text.parse::<f64>().is_ok_and(f64::is_finite)
            && text.contains(['.', 'e', 'E']) =>
        {
            DataType::Float64
        }
        _ if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") => DataType::Boolean,
        _ if text.len() == 10 && text.contains('-') && parse_date(text).is_ok() => DataType::Date32,
        _ if text.len() > 10 && text.contains('-') && parse_timestamp(text).is_ok() && !has_zone(text) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        _ => DataType::Utf8,
    })
}

/// Whether a timestamp says how far from UTC it is.
fn has_zone(timestamp: &str) -> bool {
    timestamp.ends_with(|c: char| c.is_ascii_alphabetic()) || timestamp[10..].contains(['+', '-'])
}
