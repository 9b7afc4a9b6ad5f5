//! Text as values, exactly as PostgreSQL reads it.
//!
//! Casts from text, parameters, `COPY` and connectors read through [`TextColumn`], which builds a column of any type; the
//! functions for single types are there for those who have a builder of their own. What [`crate::text`] writes, this
//! reads back.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder,
    LargeStringBuilder, StringBuilder, StructArray, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
    new_empty_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use chrono_tz::Tz;

use crate::error::{SqlState, ValueError};
use crate::types::{NUMERIC_PRECISION, NUMERIC_SCALE, SqlType, UTC};

mod datetime;
mod interval;
mod list;
mod number;

pub use datetime::{parse_date, parse_time, parse_timestamp, parse_timestamptz};
pub use interval::parse_interval;
pub use list::split_array;
pub use number::{Integer, parse_decimal128, parse_decimal256, parse_float4, parse_float8, parse_integer};

/// `Result` of this module.
pub type Result<T> = std::result::Result<T, ValueError>;

/// Reads one value; it is the only row of the array.
pub fn parse_text(text: &str, sql_type: &SqlType, zone: Tz) -> Result<ArrayRef> {
    let mut column = TextColumn::new(sql_type, zone);
    column.append(text)?;
    Ok(column.finish())
}

/// A boolean.
pub fn parse_boolean(text: &str) -> Result<bool> {
    let word = trim(text).to_ascii_lowercase();
    let short_for = |full: &str, min: usize| word.len() >= min && full.starts_with(&word);
    match word.as_str() {
        "1" => Ok(true),
        "0" => Ok(false),
        _ if short_for("true", 1) || short_for("yes", 1) || short_for("on", 2) => Ok(true),
        _ if short_for("false", 1) || short_for("no", 1) || short_for("off", 2) => Ok(false),
        _ => Err(ValueError::syntax("boolean", text)),
    }
}

/// Bytes, in the hex or the escape format.
pub fn parse_bytea(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(hex) => bytes_from_hex(hex),
        None => bytes_from_escapes(text),
    }
}

fn bytes_from_hex(hex: &str) -> Result<Vec<u8>> {
    let refuse = |message: String| ValueError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let mut bytes = Vec::with_capacity(hex.len() / 2);
    let mut digits = hex.chars();
    while let Some(high) = digits.next() {
        if is_space(high) {
            continue;
        }
        let digit = |c: char| c.to_digit(16).ok_or_else(|| refuse(format!("invalid hexadecimal digit: \"{c}\"")));
        let high = digit(high)?;
        let low = digits.next().ok_or_else(|| refuse("invalid hexadecimal data: odd number of digits".into()))?;
        bytes.push((high << 4 | digit(low)?) as u8);
    }
    Ok(bytes)
}

fn bytes_from_escapes(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        match *rest {
            [] => return Ok(bytes),
            [b'\\', b'\\', ..] => {
                bytes.push(b'\\');
                rest = &rest[2..];
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &rest[4..];
            }
            [b'\\', ..] => {
                return Err(ValueError::new(SqlState::INVALID_TEXT, "invalid input syntax for type bytea"));
            }
            [byte, ..] => {
                bytes.push(byte);
                rest = &rest[1..];
            }
        }
    }
}

/// A column of values that come as text.
pub struct TextColumn {
    builder: Builder,
    zone: Tz,
}

enum Builder {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Integer(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Decimal128(Decimal128Builder, u8, i8),
    Decimal256(Decimal256Builder),
    Varchar(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    TimestampTz(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Jsonb(LargeStringBuilder),
    Array { item: Box<TextColumn>, item_type: DataType, lengths: Vec<usize>, valid: Vec<bool> },
    Struct { fields: Vec<(String, TextColumn)>, valid: Vec<bool> },
}

impl TextColumn {
    /// An empty column. Times without a zone of their own are in `zone`, where the type has one.
    pub fn new(sql_type: &SqlType, zone: Tz) -> TextColumn {
        let builder = match sql_type {
            SqlType::Boolean => Builder::Boolean(BooleanBuilder::new()),
            SqlType::SmallInt => Builder::SmallInt(Int16Builder::new()),
            SqlType::Integer => Builder::Integer(Int32Builder::new()),
            SqlType::BigInt => Builder::BigInt(Int64Builder::new()),
            SqlType::Real => Builder::Real(Float32Builder::new()),
            SqlType::Double => Builder::Double(Float64Builder::new()),
            SqlType::Numeric(Some((precision, scale))) => Builder::Decimal128(
                Decimal128Builder::new().with_data_type(DataType::Decimal128(*precision, *scale)),
                *precision,
                *scale,
            ),
            SqlType::Numeric(None) => {
                let data_type = DataType::Decimal256(NUMERIC_PRECISION, NUMERIC_SCALE);
                Builder::Decimal256(Decimal256Builder::new().with_data_type(data_type))
            }
            SqlType::Varchar => Builder::Varchar(StringBuilder::new()),
            SqlType::Bytea => Builder::Bytea(BinaryBuilder::new()),
            SqlType::Date => Builder::Date(Date32Builder::new()),
            SqlType::Time => Builder::Time(Time64MicrosecondBuilder::new()),
            SqlType::Timestamp => Builder::Timestamp(TimestampMicrosecondBuilder::new()),
            SqlType::TimestampTz => Builder::TimestampTz(TimestampMicrosecondBuilder::new().with_timezone(UTC)),
            SqlType::Interval => Builder::Interval(IntervalMonthDayNanoBuilder::new()),
            SqlType::Jsonb => Builder::Jsonb(LargeStringBuilder::new()),
            SqlType::Array(item) => Builder::Array {
                item: Box::new(TextColumn::new(item, zone)),
                item_type: item.to_arrow(),
                lengths: Vec::new(),
                valid: Vec::new(),
            },
            SqlType::Struct(fields) => Builder::Struct {
                fields: fields.iter().map(|(name, t)| (name.clone(), TextColumn::new(t, zone))).collect(),
                valid: Vec::new(),
            },
        };
        TextColumn { builder, zone }
    }

    /// Reads a value and appends it. After an error the column is as it was, but must not be used any more if its type is
    /// an array or a struct.
    pub fn append(&mut self, text: &str) -> Result<()> {
        let zone = self.zone;
        match &mut self.builder {
            Builder::Boolean(b) => b.append_value(parse_boolean(text)?),
            Builder::SmallInt(b) => b.append_value(parse_integer(text)?),
            Builder::Integer(b) => b.append_value(parse_integer(text)?),
            Builder::BigInt(b) => b.append_value(parse_integer(text)?),
            Builder::Real(b) => b.append_value(parse_float4(text)?),
            Builder::Double(b) => b.append_value(parse_float8(text)?),
            Builder::Decimal128(b, precision, scale) => b.append_value(parse_decimal128(text, *precision, *scale)?),
            Builder::Decimal256(b) => {
                b.append_value(parse_decimal256(text, NUMERIC_PRECISION, NUMERIC_SCALE)?);
            }
            Builder::Varchar(b) => b.append_value(text),
            Builder::Bytea(b) => b.append_value(parse_bytea(text)?),
            Builder::Date(b) => b.append_value(parse_date(text)?),
            Builder::Time(b) => b.append_value(parse_time(text)?),
            Builder::Timestamp(b) => b.append_value(parse_timestamp(text)?),
            Builder::TimestampTz(b) => b.append_value(parse_timestamptz(text, zone)?),
            Builder::Interval(b) => b.append_value(parse_interval(text)?),
            Builder::Jsonb(b) => b.append_value(parse_jsonb(text)?),
            Builder::Array { item, lengths, valid, .. } => {
                lengths.push(list::append_items(text, item)?);
                valid.push(true);
            }
            Builder::Struct { fields, valid } => {
                list::append_fields(text, fields)?;
                valid.push(true);
            }
        }
        Ok(())
    }

    /// Appends NULL.
    pub fn append_null(&mut self) {
        match &mut self.builder {
            Builder::Boolean(b) => b.append_null(),
            Builder::SmallInt(b) => b.append_null(),
            Builder::Integer(b) => b.append_null(),
            Builder::BigInt(b) => b.append_null(),
            Builder::Real(b) => b.append_null(),
            Builder::Double(b) => b.append_null(),
            Builder::Decimal128(b, ..) => b.append_null(),
            Builder::Decimal256(b) => b.append_null(),
            Builder::Varchar(b) => b.append_null(),
            Builder::Bytea(b) => b.append_null(),
            Builder::Date(b) => b.append_null(),
            Builder::Time(b) => b.append_null(),
            Builder::Timestamp(b) => b.append_null(),
            Builder::TimestampTz(b) => b.append_null(),
            Builder::Interval(b) => b.append_null(),
            Builder::Jsonb(b) => b.append_null(),
            Builder::Array { lengths, valid, .. } => {
                lengths.push(0);
                valid.push(false);
            }
            Builder::Struct { fields, valid } => {
                fields.iter_mut().for_each(|(_, column)| column.append_null());
                valid.push(false);
            }
        }
    }

    /// The column, which is empty afterwards.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.builder {
            Builder::Boolean(b) => ArrayBuilder::finish(b),
            Builder::SmallInt(b) => ArrayBuilder::finish(b),
            Builder::Integer(b) => ArrayBuilder::finish(b),
            Builder::BigInt(b) => ArrayBuilder::finish(b),
            Builder::Real(b) => ArrayBuilder::finish(b),
            Builder::Double(b) => ArrayBuilder::finish(b),
            Builder::Decimal128(b, ..) => ArrayBuilder::finish(b),
            Builder::Decimal256(b) => ArrayBuilder::finish(b),
            Builder::Varchar(b) => ArrayBuilder::finish(b),
            Builder::Bytea(b) => ArrayBuilder::finish(b),
            Builder::Date(b) => ArrayBuilder::finish(b),
            Builder::Time(b) => ArrayBuilder::finish(b),
            Builder::Timestamp(b) => ArrayBuilder::finish(b),
            Builder::TimestampTz(b) => ArrayBuilder::finish(b),
            Builder::Interval(b) => ArrayBuilder::finish(b),
            Builder::Jsonb(b) => ArrayBuilder::finish(b),
            Builder::Array { item, item_type, lengths, valid } => {
                let items = item.finish();
                let offsets = OffsetBuffer::from_lengths(std::mem::take(lengths));
                let field = Arc::new(Field::new("item", item_type.clone(), true));
                let nulls = NullBuffer::from(std::mem::take(valid));
                match arrow::array::ListArray::try_new(field, offsets, items, Some(nulls)) {
                    Ok(lists) => Arc::new(lists),
                    // Only after a failed append, which forbids further use.
                    Err(_) => new_empty_array(&SqlType::Array(Box::new(SqlType::Varchar)).to_arrow()),
                }
            }
            Builder::Struct { fields, valid } => {
                let columns: Vec<ArrayRef> = fields.iter_mut().map(|(_, c)| c.finish()).collect();
                let names = fields.iter().zip(&columns);
                let names = names.map(|((name, _), c)| Field::new(name, c.data_type().clone(), true)).collect();
                let nulls = NullBuffer::from(std::mem::take(valid));
                match StructArray::try_new(names, columns, Some(nulls)) {
                    Ok(records) => Arc::new(records),
                    Err(_) => new_empty_array(&SqlType::Varchar.to_arrow()),
                }
            }
        }
    }
}

/// A jsonb, in its normal form.
pub fn parse_jsonb(text: &str) -> Result<String> {
    crate::json::normalize(text)
        .map_err(|e| ValueError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type json: {e}")))
}

/// Without the spaces around it.
fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests;
