//! The binary format: what PostgreSQL's `*_send` functions write.
//!
//! ```text
//! numeric    groups i16 | weight i16 | sign u16 | scale i16 | groups of four decimal digits, i16 each
//! array      dimensions i32 | has nulls i32 | item oid | (size i32 | first index i32 = 1)* | (length i32 | item)*
//! record     fields i32 | (oid | length i32 | value)*
//! interval   microseconds i64 | days i32 | months i32
//! jsonb      1 | text
//! ```
//!
//! Dates and timestamps count from 2000-01-01; the largest and the smallest number are the infinities, as in Arrow here.

use std::ops::Range;

use arrow::array::ListArray;
use bytes::{BufMut, BytesMut};
use weir_common::text::{write_decimal, write_value};

use super::{Cells, Values};
use crate::error::{Result, SqlError, SqlState};

/// Days from 1970-01-01 to 2000-01-01.
pub const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// Appends a value that is not NULL.
pub fn write(cells: &Cells, row: usize, scratch: &mut String, out: &mut BytesMut) -> Result<()> {
    match &cells.values {
        Values::Boolean(array) => out.put_u8(array.value(row).into()),
        Values::SmallInt(array) => out.put_i16(array.value(row)),
        Values::Integer(array) => out.put_i32(array.value(row)),
        Values::BigInt(array) => out.put_i64(array.value(row)),
        Values::Real(array) => out.put_f32(array.value(row)),
        Values::Double(array) => out.put_f64(array.value(row)),
        Values::Decimal(array, scale) => {
            scratch.clear();
            write_decimal(array.value(row), *scale, cells.text.declared_scale, scratch);
            write_numeric(scratch, out);
        }
        Values::Varchar(array) => out.put_slice(array.value(row).as_bytes()),
        Values::Jsonb(array) => {
            out.put_u8(1);
            out.put_slice(array.value(row).as_bytes());
        }
        Values::Bytea(array) => out.put_slice(array.value(row)),
        Values::Date(array) => out.put_i32(days_since_2000(array.value(row))?),
        Values::Time(array) => out.put_i64(array.value(row)),
        Values::Timestamp(array) | Values::TimestampTz(array) => out.put_i64(micros_since_2000(array.value(row))?),
        Values::Interval(array) => {
            let value = array.value(row);
            out.put_i64(value.nanoseconds / 1000);
            out.put_i32(value.days);
            out.put_i32(value.months);
        }
        Values::List(list, items, item_oid) => write_array(list, items, *item_oid, row, scratch, out)?,
        Values::Record(fields) => {
            out.put_i32(fields.len() as i32);
            for (field, oid) in fields {
                out.put_u32(*oid);
                field.write_sized(row, scratch, out)?;
            }
        }
        // Numerics of more than 38 digits.
        Values::Other(array) => {
            scratch.clear();
            write_value(array, row, &cells.text, scratch);
            write_numeric(scratch, out);
        }
    }
    Ok(())
}

fn days_since_2000(days: i32) -> Result<i32> {
    match days {
        i32::MAX | i32::MIN => Ok(days),
        _ => {
            days.checked_sub(EPOCH_DAYS).ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range"))
        }
    }
}

fn micros_since_2000(micros: i64) -> Result<i64> {
    match micros {
        i64::MAX | i64::MIN => Ok(micros),
        _ => micros
            .checked_sub(EPOCH_MICROS)
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range")),
    }
}

/// Appends a numeric that is given as text: `-12.340`. So text and binary cannot differ in value, rounding or scale.
pub fn write_numeric(text: &str, out: &mut BytesMut) {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (0x4000, digits),
        None => (0, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // Groups stand at multiples of four digits from the point, on both sides.
    let whole = whole.trim_start_matches('0').as_bytes();
    let first = whole.len() % 4;
    let head = (first > 0).then(|| &whole[..first]);
    let groups = head.into_iter().chain(whole[first..].chunks(4)).map(|group| (group, 0));
    let groups = groups.chain(fraction.as_bytes().chunks(4).map(|group| (group, 4 - group.len())));
    let start = out.len();
    out.put_slice(&[0; 8]);
    let mut weight = whole.len().div_ceil(4) as i16 - 1;
    let mut end = out.len();
    for (group, zeros) in groups {
        let digits = group.iter().fold(0, |number, digit| number * 10 + i16::from(digit - b'0'));
        let value = digits * [1, 10, 100, 1000][zeros];
        if value == 0 && end == start + 8 {
            weight -= 1; // Zeros in front are not stored,
            continue;
        }
        out.put_i16(value);
        if value != 0 {
            end = out.len();
        }
    }
    out.truncate(end); // and those at the end neither.
    let count = ((end - start - 8) / 2) as i16;
    let (weight, sign) = if count == 0 { (0, 0) } else { (weight, sign) };
    let header = [count, weight, sign, fraction.len() as i16];
    for (i, part) in header.into_iter().enumerate() {
        out[start + 2 * i..start + 2 * i + 2].copy_from_slice(&part.to_be_bytes());
    }
}

/// Appends an array of any number of dimensions.
fn write_array(
    list: &ListArray,
    items: &Cells,
    item_oid: u32,
    row: usize,
    scratch: &mut String,
    out: &mut BytesMut,
) -> Result<()> {
    let offsets = list.value_offsets();
    let mut range = offsets[row] as usize..offsets[row + 1] as usize;
    let mut sizes = vec![range.len()];
    let mut items = items;
    while let Values::List(inner, inner_items, _) = &items.values {
        let (size, inner_range) = inner_size(inner, items, range)?;
        sizes.push(size);
        (items, range) = (&**inner_items, inner_range);
    }
    if range.is_empty() {
        sizes.clear(); // PostgreSQL knows but one empty array.
    }
    out.put_i32(sizes.len() as i32);
    out.put_i32(range.clone().any(|i| items.is_null(i)).into());
    out.put_u32(item_oid);
    for size in sizes {
        out.put_i32(i32::try_from(size).map_err(|_| SqlError::internal("an array is too large"))?);
        out.put_i32(1);
    }
    range.into_iter().try_for_each(|i| items.write_sized(i, scratch, out))
}

/// The one size that the lists in `range` have, and where the items of all of them are.
fn inner_size(lists: &ListArray, cells: &Cells, range: Range<usize>) -> Result<(usize, Range<usize>)> {
    let offsets = lists.value_offsets();
    let size = |i: usize| (offsets[i + 1] - offsets[i]) as usize;
    let first = range.clone().next().map_or(0, size);
    if range.clone().any(|i| cells.is_null(i) || size(i) != first) {
        return Err(SqlError::new(
            SqlState("2202E"),
            "multidimensional arrays must have array expressions with matching dimensions",
        ));
    }
    Ok((first, offsets[range.start] as usize..offsets[range.end] as usize))
}
