//! Columns to rows, in two passes over the columns: how long each row is, then the bytes.

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::codec::{Fixed, Values, cast, match_fixed, plain_type, width};
use crate::error::CodecError;
use crate::row::{ByteRows, ROW_VERSION, is_trimmed};

/// See [`super::encode_rows`].
pub(super) fn encode_rows(columns: &[ArrayRef], rows: usize) -> Result<ByteRows, CodecError> {
    if columns.is_empty() {
        return Ok(ByteRows::from_parts(vec![], vec![0; rows]));
    }
    let mut head = vec![ROW_VERSION];
    push_varint(&mut head, columns.len());
    encode(&head, columns, rows)
}

/// Encodes rows of which each starts with `head`, then has the bits and the values of its columns.
fn encode(head: &[u8], columns: &[ArrayRef], rows: usize) -> Result<ByteRows, CodecError> {
    let columns = columns.iter().map(Column::new).collect::<Result<Vec<_>, _>>()?;
    let bits = columns.len().div_ceil(8);
    let mut lengths = vec![head.len() + bits; rows];
    for column in &columns {
        assert_eq!(column.rows, rows, "the columns of rows are equally long");
        column.add_lengths(&mut lengths);
    }

    let mut data = vec![0; lengths.iter().sum()];
    let mut start = 0;
    // From here on `ends[i]` is where the next value of row i goes; when all columns are in, it is the end of the row.
    let mut ends = lengths;
    for end in &mut ends {
        let length = std::mem::replace(end, start + head.len() + bits);
        data[start..start + head.len()].copy_from_slice(head);
        start += length;
    }
    let values_start = ends.clone();
    for (i, column) in columns.iter().enumerate() {
        for (row, start) in values_start.iter().enumerate() {
            data[start - bits + i / 8] |= (column.is_valid(row) as u8) << (i % 8);
        }
        column.fill(&mut data, &mut ends);
    }
    Ok(ByteRows::from_parts(data, ends))
}

/// A column that is ready to be encoded.
struct Column {
    rows: usize,
    nulls: Option<NullBuffer>,
    values: Values,
}

impl Column {
    fn new(array: &ArrayRef) -> Result<Column, CodecError> {
        let array = &cast(array, &plain_type(array.data_type()))?;
        let values = match array.data_type() {
            DataType::List(_) => Values::Encoded(lists(array.as_list())?),
            DataType::Struct(_) => Values::Encoded(structs(array.as_struct())?),
            _ => Values::of(array)?,
        };
        Ok(Column { rows: array.len(), nulls: array.logical_nulls(), values })
    }

    fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|n| n.is_valid(row))
    }

    /// Adds the bytes that the column takes to the length of each row.
    fn add_lengths(&self, lengths: &mut [usize]) {
        match &self.values {
            Values::Null => {}
            Values::Booleans(_) => self.add(lengths, |_| 1),
            Values::Fixed(data) => match_fixed!(
                data.data_type(),
                T => {
                    let values = data.buffer::<T>(0);
                    if is_trimmed(data.data_type()) {
                        self.add(lengths, |i| 1 + trimmed(values[i].to_row().as_ref()).len());
                    } else {
                        self.add(lengths, |_| width::<T>());
                    }
                },
                _ => unreachable!("Values::Fixed is of such a type")
            ),
            Values::Strings { offsets, .. } => self.add(lengths, |i| {
                let length = offsets[i + 1] - offsets[i];
                varint_length(length) + length
            }),
            Values::Encoded(rows) => self.add(lengths, |i| rows.get(i).len()),
        }
    }

    fn add(&self, lengths: &mut [usize], value_length: impl Fn(usize) -> usize) {
        for (i, length) in lengths.iter_mut().enumerate() {
            if self.is_valid(i) {
                *length += value_length(i);
            }
        }
    }

    /// Writes the values at `ends[i]` of each row, and moves it on.
    fn fill(&self, data: &mut [u8], ends: &mut [usize]) {
        match &self.values {
            Values::Null => {}
            Values::Booleans(values) => self.put(data, ends, |i, out| {
                out[0] = values.value(i) as u8;
                1
            }),
            Values::Fixed(array) => match_fixed!(
                array.data_type(),
                T => {
                    let values = array.buffer::<T>(0);
                    if is_trimmed(array.data_type()) {
                        self.put(data, ends, |i, out| {
                            let bytes = values[i].to_row();
                            let bytes = trimmed(bytes.as_ref());
                            out[0] = bytes.len() as u8;
                            put_bytes(bytes, &mut out[1..]) + 1
                        });
                    } else {
                        self.put(data, ends, |i, out| put_bytes(values[i].to_row().as_ref(), out));
                    }
                },
                _ => unreachable!("Values::Fixed is of such a type")
            ),
            Values::Strings { offsets, data: text } => self.put(data, ends, |i, out| {
                let text = &text[offsets[i]..offsets[i + 1]];
                let head = put_varint(text.len(), out);
                head + put_bytes(text, &mut out[head..])
            }),
            Values::Encoded(rows) => self.put(data, ends, |i, out| put_bytes(rows.get(i), out)),
        }
    }

    /// `value` writes value `i` to the front of the bytes it is given and tells its length.
    fn put(&self, data: &mut [u8], ends: &mut [usize], value: impl Fn(usize, &mut [u8]) -> usize) {
        for (i, end) in ends.iter_mut().enumerate() {
            if self.is_valid(i) {
                *end += value(i, &mut data[*end..]);
            }
        }
    }
}

/// The values of lists: the columns of a row that has a column per element.
fn lists(lists: &ListArray) -> Result<ByteRows, CodecError> {
    let offsets = lists.offsets();
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let elements = lists.values().slice(first, last - first);
    let nulls = elements.logical_nulls();
    // Each element as the only column of a row, of which only the value is wanted: it comes after the byte of bits.
    let values = encode(&[], &[elements], last - first)?;
    let mut rows = ByteRows::with_capacity(lists.len(), values.bytes() + lists.len());
    let mut list = Vec::new();
    for range in offsets.windows(2) {
        let range = range[0] as usize - first..range[1] as usize - first;
        list.clear();
        push_varint(&mut list, range.len());
        let bits = list.len();
        list.resize(bits + range.len().div_ceil(8), 0);
        for (i, element) in range.enumerate() {
            list[bits + i / 8] |= (nulls.as_ref().is_none_or(|n| n.is_valid(element)) as u8) << (i % 8);
            list.extend_from_slice(&values.get(element)[1..]);
        }
        rows.push(&list);
    }
    Ok(rows)
}

/// The values of structs: the columns of a row that has a column per field.
fn structs(structs: &StructArray) -> Result<ByteRows, CodecError> {
    let mut head = Vec::new();
    push_varint(&mut head, structs.num_columns());
    encode(&head, structs.columns(), structs.len())
}

/// The bytes of a little-endian number up to the last one that is more than the repeated sign.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let sign = if bytes[bytes.len() - 1] & 0x80 == 0 { 0 } else { 0xff };
    let mut length = bytes.len();
    while length > 1 && bytes[length - 1] == sign && (bytes[length - 2] ^ sign) & 0x80 == 0 {
        length -= 1;
    }
    &bytes[..length]
}

fn put_bytes(bytes: &[u8], out: &mut [u8]) -> usize {
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// How many bytes a varint takes.
fn varint_length(n: usize) -> usize {
    ((usize::BITS - (n | 1).leading_zeros()) as usize).div_ceil(7)
}

fn put_varint(mut n: usize, out: &mut [u8]) -> usize {
    let mut at = 0;
    while n >= 0x80 {
        out[at] = n as u8 | 0x80;
        n >>= 7;
        at += 1;
    }
    out[at] = n as u8;
    at + 1
}

fn push_varint(out: &mut Vec<u8>, n: usize) {
    let start = out.len();
    out.resize(start + varint_length(n), 0);
    put_varint(n, &mut out[start..]);
}
