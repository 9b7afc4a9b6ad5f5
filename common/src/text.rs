//! Values as text, exactly as PostgreSQL prints them.
//!
//! Results on the wire, `COPY`, casts to text and jsonb's scalars all come from [`write_value`].

use std::fmt::Write;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType,
    IntervalUnit, IntervalYearMonthType, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use chrono_tz::Tz;

mod datetime;
mod number;

pub use datetime::{write_date, write_interval, write_time, write_timestamp, write_timestamptz};
pub use number::{write_decimal, write_float4, write_float8};

/// The settings of a session that output depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFormat {
    /// timestamptz is shown in this time zone.
    pub time_zone: Tz,
    /// Above 0: floats are written with the fewest digits that read back as the same number. Else with 15 (real: 6)
    /// digits plus this many.
    pub extra_float_digits: i32,
    /// Numerics are written with exactly this many digits after the point; `None`: without zeros at the end.
    pub declared_scale: Option<i8>,
}

impl Default for TextFormat {
    fn default() -> TextFormat {
        TextFormat { time_zone: Tz::UTC, extra_float_digits: 1, declared_scale: None }
    }
}

/// Appends a value. NULL appends nothing: whoever calls says what NULL looks like in its place. booleans are `t` and `f`;
/// only a cast writes them in full, see [`write_cast`].
///
/// Panics when `row` is not a row of the array.
pub fn write_value(array: &dyn Array, row: usize, format: &TextFormat, out: &mut String) {
    if array.is_null(row) {
        return;
    }
    match array.data_type() {
        DataType::Null => {}
        DataType::Boolean => out.push(if array.as_boolean().value(row) { 't' } else { 'f' }),
        DataType::Int8 => number::write_int(array.as_primitive::<Int8Type>().value(row).into(), out),
        DataType::Int16 => number::write_int(array.as_primitive::<Int16Type>().value(row).into(), out),
        DataType::Int32 => number::write_int(array.as_primitive::<Int32Type>().value(row).into(), out),
        DataType::Int64 => number::write_int(array.as_primitive::<Int64Type>().value(row), out),
        DataType::UInt8 => number::write_int(array.as_primitive::<UInt8Type>().value(row).into(), out),
        DataType::UInt16 => number::write_int(array.as_primitive::<UInt16Type>().value(row).into(), out),
        DataType::UInt32 => number::write_int(array.as_primitive::<UInt32Type>().value(row).into(), out),
        DataType::UInt64 => put(out, array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float16 => {
            write_float4(array.as_primitive::<Float16Type>().value(row).to_f32(), format.extra_float_digits, out)
        }
        DataType::Float32 => {
            write_float4(array.as_primitive::<Float32Type>().value(row), format.extra_float_digits, out)
        }
        DataType::Float64 => {
            write_float8(array.as_primitive::<Float64Type>().value(row), format.extra_float_digits, out)
        }
        DataType::Decimal32(_, scale) => {
            let value = array.as_primitive::<Decimal32Type>().value(row);
            write_decimal(value.into(), *scale, format.declared_scale, out)
        }
        DataType::Decimal64(_, scale) => {
            let value = array.as_primitive::<Decimal64Type>().value(row);
            write_decimal(value.into(), *scale, format.declared_scale, out)
        }
        DataType::Decimal128(_, scale) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            write_decimal(value, *scale, format.declared_scale, out)
        }
        DataType::Decimal256(_, scale) => {
            let value = array.as_primitive::<Decimal256Type>().value(row);
            number::write_decimal256(value, *scale, format.declared_scale, out)
        }
        DataType::Utf8 => out.push_str(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => out.push_str(array.as_string::<i64>().value(row)),
        DataType::Utf8View => out.push_str(array.as_string_view().value(row)),
        DataType::Binary => write_bytea(array.as_binary::<i32>().value(row), out),
        DataType::LargeBinary => write_bytea(array.as_binary::<i64>().value(row), out),
        DataType::BinaryView => write_bytea(array.as_binary_view().value(row), out),
        DataType::FixedSizeBinary(_) => write_bytea(array.as_fixed_size_binary().value(row), out),
        DataType::Date32 => write_date(array.as_primitive::<Date32Type>().value(row), out),
        DataType::Date64 => {
            let days = array.as_primitive::<Date64Type>().value(row).div_euclid(86_400_000);
            write_date(i32::try_from(days).unwrap_or(if days < 0 { i32::MIN } else { i32::MAX }), out)
        }
        DataType::Time32(unit) | DataType::Time64(unit) => write_time(time_micros(array, row, *unit), out),
        DataType::Timestamp(unit, None) => write_timestamp(timestamp_micros(array, row, *unit), out),
        DataType::Timestamp(unit, Some(_)) => {
            write_timestamptz(timestamp_micros(array, row, *unit), format.time_zone, out)
        }
        DataType::Interval(unit) => write_interval_value(array, row, *unit, out),
        DataType::Duration(unit) => write_duration(duration_micros(array, row, *unit), out),
        DataType::List(_) => write_array(&*array.as_list::<i32>().value(row), format, out),
        DataType::LargeList(_) => write_array(&*array.as_list::<i64>().value(row), format, out),
        DataType::ListView(_) => write_array(&*array.as_list_view::<i32>().value(row), format, out),
        DataType::LargeListView(_) => write_array(&*array.as_list_view::<i64>().value(row), format, out),
        DataType::FixedSizeList(..) => write_array(&*array.as_fixed_size_list().value(row), format, out),
        DataType::Struct(_) => write_record(array, row, format, out),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            write_value(dictionary.values(), dictionary.normalized_keys()[row], format, out)
        }
        // No SQL type has these; see `SqlType::from_arrow`.
        DataType::Union(..) | DataType::Map(..) | DataType::RunEndEncoded(..) => {}
    }
}

/// Appends a value as a cast to text gives it: like [`write_value`], but booleans are `true` and `false`.
pub fn write_cast(array: &dyn Array, row: usize, format: &TextFormat, out: &mut String) {
    match array.data_type() {
        DataType::Boolean if array.is_valid(row) => {
            out.push_str(if array.as_boolean().value(row) { "true" } else { "false" });
        }
        _ => write_value(array, row, format, out),
    }
}

/// Appends bytes in the hex format.
pub fn write_bytea(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + 2 * bytes.len());
    out.push_str("\\x");
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)].into());
        out.push(DIGITS[usize::from(byte & 15)].into());
    }
}

/// Appends anything that formats itself; a string takes all of it.
fn put(out: &mut String, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

/// Appends an array, `{1,2,NULL}`.
fn write_array(items: &dyn Array, format: &TextFormat, out: &mut String) {
    let nested = matches!(
        items.data_type(),
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
            | DataType::FixedSizeList(..)
    );
    out.push('{');
    let mut item = String::new();
    for i in 0..items.len() {
        if i > 0 {
            out.push(',');
        }
        if items.is_null(i) {
            out.push_str("NULL");
        } else if nested {
            write_value(items, i, format, out);
        } else {
            item.clear();
            write_value(items, i, format, &mut item);
            quote_item(&item, out);
        }
    }
    out.push('}');
}

/// Appends an element of an array, in quotes where it could be read as something else.
fn quote_item(item: &str, out: &mut String) {
    let special = |c: char| matches!(c, '"' | '\\' | '{' | '}' | ',') || is_space(c);
    if !item.is_empty() && !item.eq_ignore_ascii_case("null") && !item.contains(special) {
        return out.push_str(item);
    }
    out.push('"');
    for c in item.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// Appends a record, `(1,"a b",)`.
fn write_record(array: &dyn Array, row: usize, format: &TextFormat, out: &mut String) {
    out.push('(');
    let mut field = String::new();
    for (i, column) in array.as_struct().columns().iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if column.is_null(row) {
            continue;
        }
        field.clear();
        write_value(column, row, format, &mut field);
        let special = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',') || is_space(c);
        if !field.is_empty() && !field.contains(special) {
            out.push_str(&field);
            continue;
        }
        out.push('"');
        for c in field.chars() {
            if matches!(c, '"' | '\\') {
                out.push(c);
            }
            out.push(c);
        }
        out.push('"');
    }
    out.push(')');
}

/// What the C library calls a space.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

fn time_micros(array: &dyn Array, row: usize, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => i64::from(array.as_primitive::<Time32SecondType>().value(row)) * 1_000_000,
        TimeUnit::Millisecond => i64::from(array.as_primitive::<Time32MillisecondType>().value(row)) * 1_000,
        TimeUnit::Microsecond => array.as_primitive::<Time64MicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<Time64NanosecondType>().value(row) / 1_000,
    }
}

fn timestamp_micros(array: &dyn Array, row: usize, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row).saturating_mul(1_000_000),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row).saturating_mul(1_000),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1_000),
    }
}

fn duration_micros(array: &dyn Array, row: usize, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => array.as_primitive::<DurationSecondType>().value(row).saturating_mul(1_000_000),
        TimeUnit::Millisecond => array.as_primitive::<DurationMillisecondType>().value(row).saturating_mul(1_000),
        TimeUnit::Microsecond => array.as_primitive::<DurationMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<DurationNanosecondType>().value(row) / 1_000,
    }
}

fn write_interval_value(array: &dyn Array, row: usize, unit: IntervalUnit, out: &mut String) {
    match unit {
        IntervalUnit::YearMonth => {
            write_interval(array.as_primitive::<IntervalYearMonthType>().value(row), 0, 0, out);
        }
        IntervalUnit::DayTime => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(row);
            write_interval(0, value.days, i64::from(value.milliseconds) * 1_000, out);
        }
        IntervalUnit::MonthDayNano => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            write_interval(value.months, value.days, value.nanoseconds / 1_000, out);
        }
    }
}

/// A difference of two timestamps: PostgreSQL's is an interval of days and a time.
fn write_duration(micros: i64, out: &mut String) {
    let day = crate::calendar::MICROS_PER_DAY;
    write_interval(0, (micros / day) as i32, micros % day, out);
}

#[cfg(test)]
mod tests;
