//! From messages to rows.
//!
//! Columns are filled from the value of a message, as ENCODE says, or from what surrounds it, as `include.*` says. A
//! message that does not fit gives no row.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rdkafka::message::Message;
use weir_common::text::write_timestamp;

use super::config::{Encode, Include, SourceColumns};
use crate::column::Column;
use crate::error::{ConnectorError, Result};
use crate::files::csv::Csv;
use crate::files::json::JsonLines;
use crate::files::records::{RecordFormat, trim_line_end};
use crate::files::rows::{Cell, Rows};

/// Rows under construction.
pub struct Decoder {
    schema: SchemaRef,
    format: Box<dyn RecordFormat>,
    /// The value of a message must be there.
    needs_value: bool,
    rows: Rows,
    parts: Vec<PartColumn>,
    /// For each column of the schema, where it comes from.
    places: Vec<Place>,
    /// For each row in `rows`, whether the parts fit as well.
    good: Vec<bool>,
}

#[derive(Clone, Copy)]
enum Place {
    Value(usize),
    Part(usize),
}

/// A column that is filled with a part of a message as it is.
struct PartColumn {
    part: Include,
    name: String,
    nullable: bool,
    /// Times are milliseconds since 1970.
    millis: bool,
    values: PartValues,
}

enum PartValues {
    Bytes(BinaryBuilder),
    Text(Column),
}

/// ENCODE BYTES: everything there is to fill is a part.
struct Nothing;

impl RecordFormat for Nothing {
    fn record_end(&self, _bytes: &[u8], line: usize) -> Option<usize> {
        Some(line)
    }

    fn push(&mut self, _record: &[u8], rows: &mut Rows) -> std::result::Result<(), String> {
        rows.push(|_| Cell::Null)
    }
}

impl Decoder {
    pub fn new(columns: &SourceColumns, encode: Encode, schema: SchemaRef) -> Result<Decoder> {
        let mut values = vec![];
        let mut parts = vec![];
        let mut places = vec![];
        for field in schema.fields() {
            match columns.part(field.name(), encode) {
                Some(part) => {
                    places.push(Place::Part(parts.len()));
                    parts.push(PartColumn::new(part, field)?);
                }
                None => {
                    places.push(Place::Value(values.len()));
                    values.push(field.clone());
                }
            }
        }
        let values = Arc::new(Schema::new(values));
        let format: Box<dyn RecordFormat> = match encode {
            Encode::Json => Box::new(JsonLines),
            Encode::Csv(dialect) => Box::new(Csv::new(dialect, values.clone())),
            Encode::Bytes => Box::new(Nothing),
        };
        let needs_value = !matches!(encode, Encode::Bytes);
        Ok(Decoder { schema, format, needs_value, rows: Rows::new(values)?, parts, places, good: vec![] })
    }

    /// Appends the row of a message, or tells what is wrong with it.
    pub fn push(&mut self, message: &impl Message) -> std::result::Result<(), String> {
        let value = match message.payload() {
            None if self.needs_value => return Err("the message has no value".into()),
            value => value.unwrap_or_default(),
        };
        self.format.push(trim_line_end(value), &mut self.rows)?;
        let mut outcome = Ok(());
        for part in &mut self.parts {
            // All of them, so that they stay equally long.
            let pushed = part.push(message).map_err(|misfit| format!("column `{}`: {misfit}", part.name));
            outcome = outcome.and(pushed);
        }
        self.good.push(outcome.is_ok());
        outcome
    }

    /// The rows; there are none afterwards.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let good = std::mem::take(&mut self.good);
        let values = self.rows.finish()?;
        let mut parts = self.parts.iter_mut().map(PartColumn::finish).collect::<Result<Vec<_>>>()?;
        let mut values = values.columns().to_vec();
        let rows = good.iter().filter(|g| **g).count();
        if rows < good.len() {
            let mask = BooleanArray::from(good);
            for column in values.iter_mut().chain(&mut parts) {
                *column = filter(column, &mask)?;
            }
        }
        let column = |place: &Place| match place {
            Place::Value(i) => values[*i].clone(),
            Place::Part(i) => parts[*i].clone(),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns = self.places.iter().map(column).collect();
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

impl PartColumn {
    fn new(part: Include, field: &Field) -> Result<PartColumn> {
        let unsupported = || ConnectorError::UnsupportedType {
            what: part.what(),
            column: field.name().clone(),
            data_type: field.data_type().to_string(),
        };
        let values = match field.data_type() {
            DataType::Binary if part.is_bytes() => PartValues::Bytes(BinaryBuilder::new()),
            data_type if part.fits(data_type) => PartValues::Text(Column::new(data_type).ok_or_else(unsupported)?),
            _ => return Err(unsupported()),
        };
        let millis = *field.data_type() == DataType::Int64;
        Ok(PartColumn { part, name: field.name().clone(), nullable: field.is_nullable(), millis, values })
    }

    fn push(&mut self, message: &impl Message) -> std::result::Result<(), String> {
        let number;
        let bytes = match self.part {
            Include::Key => message.key(),
            Include::Value => message.payload(),
            Include::Offset => {
                number = message.offset().to_string();
                Some(number.as_bytes())
            }
            Include::Partition => {
                number = message.partition().to_string();
                Some(number.as_bytes())
            }
            Include::Timestamp => match message.timestamp().to_millis() {
                Some(millis) => {
                    number = self.timestamp(millis);
                    Some(number.as_bytes())
                }
                None => None,
            },
        };
        match (&mut self.values, bytes) {
            (PartValues::Bytes(builder), Some(bytes)) => builder.append_value(bytes),
            (PartValues::Bytes(builder), None) => builder.append_null(),
            (PartValues::Text(column), None) => column.push_null(),
            (PartValues::Text(column), Some(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => return column.push_text(text),
                Err(_) => {
                    column.push_null();
                    return Err("not UTF-8".into());
                }
            },
        }
        if bytes.is_none() && !self.nullable { Err("NULL, which the column forbids".into()) } else { Ok(()) }
    }

    /// The time of a message as text for the column.
    fn timestamp(&self, millis: i64) -> String {
        let mut text = String::new();
        match self.millis {
            true => text = millis.to_string(),
            false => write_timestamp(millis.saturating_mul(1000), &mut text),
        }
        text
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        Ok(match &mut self.values {
            PartValues::Bytes(builder) => Arc::new(builder.finish()),
            PartValues::Text(column) => column.finish()?,
        })
    }
}
