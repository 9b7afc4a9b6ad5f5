//! Rows to columns: each column takes its value off the front of every row.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, BooleanBufferBuilder, ListArray, NullArray, NullBufferBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::error::ArrowError;

use crate::codec::{Fixed, Strings, cast, fixed_array, match_fixed, plain_type, take, take_byte, take_fixed, width};
use crate::error::CodecError;
use crate::row::{ROW_VERSION, is_trimmed};

const WHAT: &str = "row";

/// See [`super::decode_rows`].
pub(super) fn decode_rows<'a>(
    rows: impl Iterator<Item = &'a [u8]>,
    types: &[DataType],
) -> Result<Vec<ArrayRef>, CodecError> {
    let mut rows = rows.map(Row::of).collect::<Result<Vec<_>, _>>()?;
    types.iter().map(|t| column(&mut rows, t)).collect()
}

/// What is left of a row: its columns from `next` on.
#[derive(Clone, Copy)]
struct Row<'a> {
    columns: usize,
    next: usize,
    /// A bit per column, whether it has a value.
    bits: &'a [u8],
    /// The values of the columns from `next` on.
    values: &'a [u8],
}

impl<'a> Row<'a> {
    /// A whole row.
    fn of(mut bytes: &'a [u8]) -> Result<Row<'a>, CodecError> {
        if bytes.is_empty() {
            return Ok(Row { columns: 0, next: 0, bits: &[], values: &[] });
        }
        match take_byte(&mut bytes, WHAT)? {
            ROW_VERSION => Row::of_columns(bytes),
            byte => Err(CodecError::InvalidByte { what: "version of a row", byte }),
        }
    }

    /// The columns of a row or struct, or the elements of a list, with whatever comes after them.
    fn of_columns(mut bytes: &'a [u8]) -> Result<Row<'a>, CodecError> {
        let columns = take_varint(&mut bytes)?;
        let bits = take(&mut bytes, columns.div_ceil(8), WHAT)?;
        Ok(Row { columns, next: 0, bits, values: bytes })
    }

    /// Goes on to the next column. Whether it has a value; if so, `values` starts with it.
    fn has_next(&mut self) -> bool {
        let i = self.next;
        self.next += 1;
        i < self.columns && self.bits[i / 8] >> (i % 8) & 1 == 1
    }
}

/// Takes the next column of every row.
fn column(rows: &mut [Row<'_>], data_type: &DataType) -> Result<ArrayRef, CodecError> {
    let plain = plain_type(data_type);
    let array = match &plain {
        DataType::Null => {
            rows.iter_mut().for_each(|row| row.next += 1);
            Arc::new(NullArray::new(rows.len()))
        }
        DataType::Boolean => booleans(rows)?,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => strings(rows, &plain)?,
        DataType::FixedSizeBinary(size) => fixed_bytes(rows, &plain, *size as usize)?,
        DataType::List(item) => lists(rows, item)?,
        DataType::Struct(fields) => structs(rows, fields)?,
        other => match_fixed!(
            other,
            T => fixed::<T>(rows, other)?,
            _ => return Err(CodecError::UnsupportedType(other.clone()))
        ),
    };
    cast(&array, data_type)
}

fn booleans(rows: &mut [Row<'_>]) -> Result<ArrayRef, CodecError> {
    let mut values = BooleanBufferBuilder::new(rows.len());
    let mut nulls = NullBufferBuilder::new(rows.len());
    for row in rows {
        let valid = row.has_next();
        nulls.append(valid);
        values.append(valid && take_byte(&mut row.values, WHAT)? != 0);
    }
    Ok(Arc::new(BooleanArray::new(values.finish(), nulls.finish())))
}

fn fixed<T: Fixed>(rows: &mut [Row<'_>], data_type: &DataType) -> Result<ArrayRef, CodecError> {
    let trimmed = is_trimmed(data_type);
    let mut values = Vec::with_capacity(rows.len());
    let mut nulls = NullBufferBuilder::new(rows.len());
    for row in rows {
        let valid = row.has_next();
        nulls.append(valid);
        values.push(match valid {
            false => T::default(),
            true if trimmed => T::from_row(take_trimmed::<T>(&mut row.values)?),
            true => T::from_row(take_fixed::<T>(&mut row.values, WHAT)?),
        });
    }
    fixed_array(data_type, values, nulls.finish())
}

fn strings(rows: &mut [Row<'_>], data_type: &DataType) -> Result<ArrayRef, CodecError> {
    let mut strings = Strings::with_capacity(rows.len());
    for row in rows {
        let valid = row.has_next();
        if valid {
            let length = take_varint(&mut row.values)?;
            strings.data.extend_from_slice(take(&mut row.values, length, WHAT)?);
        }
        strings.end_row(valid);
    }
    strings.finish(data_type)
}

fn fixed_bytes(rows: &mut [Row<'_>], data_type: &DataType, size: usize) -> Result<ArrayRef, CodecError> {
    let mut strings = Strings::with_capacity(rows.len());
    for row in rows {
        let valid = row.has_next();
        if valid {
            strings.data.extend_from_slice(take(&mut row.values, size, WHAT)?);
        } else {
            strings.data.extend(std::iter::repeat_n(0, size));
        }
        strings.end_row(valid);
    }
    strings.finish(data_type)
}

fn lists(rows: &mut [Row<'_>], item: &FieldRef) -> Result<ArrayRef, CodecError> {
    let mut offsets = vec![0i32];
    let mut nulls = NullBufferBuilder::new(rows.len());
    let mut elements = Vec::new();
    for row in rows {
        let valid = row.has_next();
        nulls.append(valid);
        if valid {
            let mut list = Row::of_columns(row.values)?;
            for _ in 0..list.columns {
                // An element is a row of which one column is left.
                elements.push(Row { columns: list.next + 1, ..list });
                if list.has_next() {
                    skip(&mut list.values, item.data_type())?;
                }
            }
            row.values = list.values;
        }
        let end = elements.len();
        offsets.push(i32::try_from(end).map_err(|_| ArrowError::OffsetOverflowError(end))?);
    }
    let elements = column(&mut elements, item.data_type())?;
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(Arc::new(ListArray::try_new(item.clone(), offsets, elements, nulls.finish())?))
}

fn structs(rows: &mut [Row<'_>], fields: &Fields) -> Result<ArrayRef, CodecError> {
    let mut nulls = NullBufferBuilder::new(rows.len());
    let mut structs = Vec::with_capacity(rows.len());
    for row in rows.iter_mut() {
        let valid = row.has_next();
        nulls.append(valid);
        structs.push(if valid { Row::of_columns(row.values)? } else { Row::of(&[])? });
    }
    let columns = fields.iter().map(|f| column(&mut structs, f.data_type())).collect::<Result<Vec<_>, _>>()?;
    let nulls = nulls.finish();
    for (i, row) in rows.iter_mut().enumerate() {
        if nulls.as_ref().is_none_or(|n| n.is_valid(i)) {
            row.values = &row.values[row.values.len() - structs[i].values.len()..];
        }
    }
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows.len())?))
}

/// Takes a value off the front of one row, and forgets it.
fn skip(values: &mut &[u8], data_type: &DataType) -> Result<(), CodecError> {
    match &plain_type(data_type) {
        DataType::Null => {}
        DataType::Boolean => {
            take_byte(values, WHAT)?;
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            let length = take_varint(values)?;
            take(values, length, WHAT)?;
        }
        DataType::FixedSizeBinary(size) => {
            take(values, *size as usize, WHAT)?;
        }
        DataType::List(item) => {
            let mut list = Row::of_columns(values)?;
            for _ in 0..list.columns {
                if list.has_next() {
                    skip(&mut list.values, item.data_type())?;
                }
            }
            *values = list.values;
        }
        DataType::Struct(fields) => {
            let mut fields_left = Row::of_columns(values)?;
            for field in fields {
                if fields_left.has_next() {
                    skip(&mut fields_left.values, field.data_type())?;
                }
            }
            *values = fields_left.values;
        }
        other => match_fixed!(
            other,
            T => {
                let length = if is_trimmed(other) { take_byte(values, WHAT)? as usize } else { width::<T>() };
                take(values, length, WHAT)?;
            },
            _ => return Err(CodecError::UnsupportedType(other.clone()))
        ),
    }
    Ok(())
}

/// Takes a number that was written without its leading bytes, and gives it all of them.
fn take_trimmed<T: Fixed>(values: &mut &[u8]) -> Result<T::Bytes, CodecError> {
    let length = take_byte(values, WHAT)?;
    let given = take(values, length as usize, WHAT)?;
    let negative = given.last().is_some_and(|last| last & 0x80 != 0);
    let mut bytes = T::Bytes::default();
    let all = bytes.as_mut();
    let Some((low, high)) = all.split_at_mut_checked(given.len()) else {
        return Err(CodecError::InvalidByte { what: "length of a decimal", byte: length });
    };
    low.copy_from_slice(given);
    high.fill(if negative { 0xff } else { 0 });
    Ok(bytes)
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Result<usize, CodecError> {
    let mut n = 0usize;
    for shift in (0..usize::BITS).step_by(7) {
        let byte = take_byte(bytes, WHAT)?;
        n |= ((byte & 0x7f) as usize) << shift;
        if byte & 0x80 == 0 {
            return Ok(n);
        }
    }
    Err(CodecError::InvalidByte { what: "varint", byte: 0x80 })
}
