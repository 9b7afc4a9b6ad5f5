//! Keys to columns: each column takes its bytes off the front of every key.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, BooleanBufferBuilder, ListArray, NullArray, NullBufferBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::error::ArrowError;

use crate::codec::{Fixed, Strings, cast, fixed_array, match_fixed, plain_type, take, take_byte, take_fixed, width};
use crate::error::CodecError;
use crate::key::{END, ESCAPE, KeyOrder, VALUE};

const WHAT: &str = "key";

/// See [`super::decode_keys`].
pub(super) fn decode(
    mut keys: Vec<&[u8]>,
    types: &[DataType],
    orders: &[KeyOrder],
) -> Result<Vec<ArrayRef>, CodecError> {
    let layouts = orders.iter().map(|o| Layout { null_marker: o.null_marker(), value_marker: VALUE, mask: o.mask() });
    types.iter().zip(layouts).map(|(t, layout)| layout.column(&mut keys, t)).collect()
}

/// How the bytes of a column are turned about.
#[derive(Clone, Copy)]
struct Layout {
    null_marker: u8,
    value_marker: u8,
    /// What the bytes of values are XORed with. Inside of lists and structs markers are part of the value.
    mask: u8,
}

impl Layout {
    /// The layout of elements and fields.
    fn inner(self) -> Layout {
        let order = KeyOrder::ASC;
        Layout { null_marker: order.null_marker() ^ self.mask, value_marker: VALUE ^ self.mask, mask: self.mask }
    }

    /// Takes a column off the front of every key.
    fn column(self, keys: &mut [&[u8]], data_type: &DataType) -> Result<ArrayRef, CodecError> {
        let plain = plain_type(data_type);
        let array = match &plain {
            DataType::Null => self.nulls(keys)?,
            DataType::Boolean => self.booleans(keys)?,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                self.strings(keys, &plain)?
            }
            DataType::FixedSizeBinary(size) => self.fixed_bytes(keys, &plain, *size as usize)?,
            DataType::List(item) => self.lists(keys, item)?,
            DataType::Struct(fields) => self.structs(keys, fields)?,
            other => match_fixed!(
                other,
                T => self.fixed::<T>(keys, other)?,
                _ => return Err(CodecError::UnsupportedType(other.clone()))
            ),
        };
        cast(&array, data_type)
    }

    /// Takes a marker. Whether a value follows it.
    fn marker(self, key: &mut &[u8]) -> Result<bool, CodecError> {
        match take_byte(key, WHAT)? {
            byte if byte == self.value_marker => Ok(true),
            byte if byte == self.null_marker => Ok(false),
            byte => Err(CodecError::InvalidByte { what: "marker of a key column", byte }),
        }
    }

    fn nulls(self, keys: &mut [&[u8]]) -> Result<ArrayRef, CodecError> {
        for key in keys.iter_mut() {
            if self.marker(key)? {
                return Err(CodecError::InvalidByte { what: "marker of a key column", byte: self.value_marker });
            }
        }
        Ok(Arc::new(NullArray::new(keys.len())))
    }

    fn booleans(self, keys: &mut [&[u8]]) -> Result<ArrayRef, CodecError> {
        let mut values = BooleanBufferBuilder::new(keys.len());
        let mut nulls = NullBufferBuilder::new(keys.len());
        for key in keys {
            let valid = self.marker(key)?;
            nulls.append(valid);
            values.append(valid && take_byte(key, WHAT)? ^ self.mask != 0);
        }
        Ok(Arc::new(BooleanArray::new(values.finish(), nulls.finish())))
    }

    fn fixed<T: Fixed>(self, keys: &mut [&[u8]], data_type: &DataType) -> Result<ArrayRef, CodecError> {
        let mut values = Vec::with_capacity(keys.len());
        let mut nulls = NullBufferBuilder::new(keys.len());
        for key in keys {
            let valid = self.marker(key)?;
            nulls.append(valid);
            if !valid {
                values.push(T::default());
                continue;
            }
            let mut bytes = take_fixed::<T>(key, WHAT)?;
            bytes.as_mut().iter_mut().for_each(|byte| *byte ^= self.mask);
            values.push(T::from_key(bytes));
        }
        fixed_array(data_type, values, nulls.finish())
    }

    fn strings(self, keys: &mut [&[u8]], data_type: &DataType) -> Result<ArrayRef, CodecError> {
        let mut strings = Strings::with_capacity(keys.len());
        for key in keys {
            let valid = self.marker(key)?;
            if valid {
                self.unescape(key, &mut strings.data)?;
            }
            strings.end_row(valid);
        }
        strings.finish(data_type)
    }

    /// Where the first byte is that is at most `max`.
    fn position(self, bytes: &[u8], max: u8) -> Option<usize> {
        const STEP: usize = 16;
        let special = |byte: &u8| byte ^ self.mask <= max;
        // A fixed number of bytes at a time, without a way out in between, becomes a few vector instructions.
        let skip = bytes.chunks_exact(STEP).take_while(|chunk| !chunk.iter().fold(false, |any, b| any | special(b)));
        let start = skip.count() * STEP;
        bytes[start..].iter().position(special).map(|at| start + at)
    }

    /// Takes a text and its end, and appends the text.
    fn unescape(self, key: &mut &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        loop {
            let special = self.position(key, ESCAPE);
            let plain = take(key, special.ok_or_else(truncated)?, WHAT)?;
            let start = out.len();
            out.extend_from_slice(plain);
            if self.mask != 0 {
                out[start..].iter_mut().for_each(|byte| *byte ^= self.mask);
            }
            if take_byte(key, WHAT)? ^ self.mask == END {
                return Ok(());
            }
            match take_byte(key, WHAT)? ^ self.mask {
                escaped @ (1 | 2) => out.push(escaped - 1),
                byte => return Err(CodecError::InvalidByte { what: "escaped byte of a key", byte }),
            }
        }
    }

    fn fixed_bytes(self, keys: &mut [&[u8]], data_type: &DataType, size: usize) -> Result<ArrayRef, CodecError> {
        let mut strings = Strings::with_capacity(keys.len());
        for key in keys {
            let valid = self.marker(key)?;
            if valid {
                strings.data.extend(take(key, size, WHAT)?.iter().map(|byte| byte ^ self.mask));
            } else {
                strings.data.extend(std::iter::repeat_n(0, size));
            }
            strings.end_row(valid);
        }
        strings.finish(data_type)
    }

    fn lists(self, keys: &mut [&[u8]], item: &FieldRef) -> Result<ArrayRef, CodecError> {
        let mut offsets = vec![0i32];
        let mut nulls = NullBufferBuilder::new(keys.len());
        let mut elements = Vec::new();
        for key in keys {
            let valid = self.marker(key)?;
            nulls.append(valid);
            while valid && key.first().copied().ok_or_else(truncated)? ^ self.mask != END {
                let start = *key;
                self.inner().skip(key, item.data_type())?;
                elements.push(&start[..start.len() - key.len()]);
            }
            if valid {
                take_byte(key, WHAT)?;
            }
            let end = elements.len();
            offsets.push(i32::try_from(end).map_err(|_| ArrowError::OffsetOverflowError(end))?);
        }
        let elements = self.inner().column(&mut elements, item.data_type())?;
        let offsets = OffsetBuffer::new(offsets.into());
        Ok(Arc::new(ListArray::try_new(item.clone(), offsets, elements, nulls.finish())?))
    }

    fn structs(self, keys: &mut [&[u8]], fields: &Fields) -> Result<ArrayRef, CodecError> {
        let mut nulls = NullBufferBuilder::new(keys.len());
        // The fields of a null struct are null; their bytes are nowhere, so they are given some.
        let null_fields = vec![self.inner().null_marker; fields.len()];
        let mut valid_keys = Vec::with_capacity(keys.len());
        for key in keys.iter_mut() {
            let valid = self.marker(key)?;
            nulls.append(valid);
            valid_keys.push(if valid { *key } else { &null_fields });
        }
        let columns = fields
            .iter()
            .map(|field| self.inner().column(&mut valid_keys, field.data_type()))
            .collect::<Result<Vec<_>, _>>()?;
        let nulls = nulls.finish();
        for (i, key) in keys.iter_mut().enumerate() {
            if nulls.as_ref().is_none_or(|n| n.is_valid(i)) {
                *key = &key[key.len() - valid_keys[i].len()..];
            }
        }
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, keys.len())?))
    }

    /// Takes a column off the front of one key, and forgets it.
    fn skip(self, key: &mut &[u8], data_type: &DataType) -> Result<(), CodecError> {
        if !self.marker(key)? {
            return Ok(());
        }
        match &plain_type(data_type) {
            DataType::Null => {}
            DataType::Boolean => {
                take_byte(key, WHAT)?;
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                let end = self.position(key, END).ok_or_else(truncated)?;
                take(key, end + 1, WHAT)?;
            }
            DataType::FixedSizeBinary(size) => {
                take(key, *size as usize, WHAT)?;
            }
            DataType::List(item) => {
                while key.first().copied().ok_or_else(truncated)? ^ self.mask != END {
                    self.inner().skip(key, item.data_type())?;
                }
                take_byte(key, WHAT)?;
            }
            DataType::Struct(fields) => {
                for field in fields {
                    self.inner().skip(key, field.data_type())?;
                }
            }
            other => match_fixed!(
                other,
                T => {
                take(key, width::<T>(), WHAT)?;
            },
                _ => return Err(CodecError::UnsupportedType(other.clone()))
            ),
        }
        Ok(())
    }
}

fn truncated() -> CodecError {
    CodecError::Truncated { what: WHAT }
}
