//! Rows to keys, in two passes over the columns: how long each key is, then the bytes.

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::codec::{Fixed, Values, cast, match_fixed, plain_type, width};
use crate::error::CodecError;
use crate::key::{END, ESCAPE, KeyOrder, VALUE};
use crate::row::ByteRows;

/// See [`super::encode_keys`].
pub(super) fn encode(columns: &[ArrayRef], orders: &[KeyOrder]) -> Result<ByteRows, CodecError> {
    assert_eq!(columns.len(), orders.len(), "a key has one order per column");
    let rows = columns.first().map_or(0, |c| c.len());
    let columns = columns.iter().zip(orders).map(|(c, o)| Column::new(c, *o)).collect::<Result<Vec<_>, _>>()?;

    let mut lengths = vec![0; rows];
    for column in &columns {
        assert_eq!(column.rows, rows, "key columns are equally long");
        column.add_lengths(&mut lengths);
    }

    // From here on `ends[i]` is where the next byte of key i goes; when all columns are in, it is the end of the key.
    let mut total = 0;
    let mut ends = lengths;
    for end in &mut ends {
        let length = std::mem::replace(end, total);
        total += length;
    }
    let mut data = vec![0; total];
    for column in &columns {
        column.fill(&mut data, &mut ends);
    }
    Ok(ByteRows::from_parts(data, ends))
}

/// A column that is ready to be encoded.
struct Column {
    rows: usize,
    nulls: Option<NullBuffer>,
    order: KeyOrder,
    values: Values,
}

impl Column {
    fn new(array: &ArrayRef, order: KeyOrder) -> Result<Column, CodecError> {
        let array = &cast(array, &plain_type(array.data_type()))?;
        let values = match array.data_type() {
            DataType::List(_) => Values::Encoded(lists(array.as_list())?),
            DataType::Struct(fields) if fields.is_empty() => {
                Values::Encoded(ByteRows::from_parts(vec![], vec![0; array.len()]))
            }
            DataType::Struct(fields) => {
                Values::Encoded(encode(array.as_struct().columns(), &vec![KeyOrder::ASC; fields.len()])?)
            }
            _ => Values::of(array)?,
        };
        Ok(Column { rows: array.len(), nulls: array.logical_nulls(), order, values })
    }

    /// Adds the bytes that the column takes to the length of each key.
    fn add_lengths(&self, lengths: &mut [usize]) {
        match &self.values {
            Values::Null => self.add(lengths, |_| 0),
            Values::Booleans(_) => self.add(lengths, |_| 1),
            Values::Fixed(data) => {
                let width = match_fixed!(data.data_type(), T => width::<T>(), _ => unreachable!("Values::Fixed is of such a type"));
                self.add(lengths, |_| width);
            }
            Values::Strings { offsets, data } => self.add(lengths, |i| {
                let text = &data[offsets[i]..offsets[i + 1]];
                text.len() + escapes(text) + 1
            }),
            Values::Encoded(rows) => self.add(lengths, |i| rows.get(i).len()),
        }
    }

    fn add(&self, lengths: &mut [usize], value_length: impl Fn(usize) -> usize) {
        for (i, length) in lengths.iter_mut().enumerate() {
            let valid = self.nulls.as_ref().is_none_or(|n| n.is_valid(i));
            *length += 1 + if valid { value_length(i) } else { 0 };
        }
    }

    /// Writes the column at `ends[i]` of each key, and moves it on.
    fn fill(&self, data: &mut [u8], ends: &mut [usize]) {
        match &self.values {
            Values::Null => self.put(data, ends, |_, _| unreachable!("all are null")),
            Values::Booleans(values) => self.put(data, ends, |i, out| {
                out[0] = values.value(i) as u8;
                1
            }),
            Values::Fixed(array) => {
                match_fixed!(array.data_type(), T => self.fill_fixed(array.buffer::<T>(0), data, ends), _ => unreachable!("Values::Fixed is of such a type"))
            }
            Values::Strings { offsets, data: text } => {
                self.put(data, ends, |i, out| escape(&text[offsets[i]..offsets[i + 1]], out))
            }
            Values::Encoded(rows) => self.put(data, ends, |i, out| {
                let row = rows.get(i);
                out[..row.len()].copy_from_slice(row);
                row.len()
            }),
        }
    }

    fn fill_fixed<T: Fixed>(&self, values: &[T], data: &mut [u8], ends: &mut [usize]) {
        self.put(data, ends, |i, out| {
            out[..width::<T>()].copy_from_slice(values[i].to_key().as_ref());
            width::<T>()
        });
    }

    /// Writes markers and values. `value` writes value `i` to the front of the bytes it is given and tells its length.
    fn put(&self, data: &mut [u8], ends: &mut [usize], value: impl Fn(usize, &mut [u8]) -> usize) {
        let (null_marker, descending) = (self.order.null_marker(), self.order.descending);
        for (i, end) in ends.iter_mut().enumerate() {
            let out = &mut data[*end..];
            if self.nulls.as_ref().is_some_and(|n| n.is_null(i)) {
                out[0] = null_marker;
                *end += 1;
                continue;
            }
            out[0] = VALUE;
            let length = value(i, &mut out[1..]);
            if descending {
                out[1..=length].iter_mut().for_each(|byte| *byte = !*byte);
            }
            *end += 1 + length;
        }
    }
}

/// The values of lists, but for the order.
fn lists(lists: &ListArray) -> Result<ByteRows, CodecError> {
    let offsets = lists.offsets();
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    // An element is a column of which nulls sort last.
    let elements = encode(&[lists.values().slice(first, last - first)], &[KeyOrder::ASC])?;
    let mut rows = ByteRows::with_capacity(lists.len(), elements.bytes() + lists.len());
    let mut list = Vec::new();
    for range in offsets.windows(2) {
        list.clear();
        (range[0]..range[1]).for_each(|i| list.extend_from_slice(elements.get(i as usize - first)));
        list.push(END);
        rows.push(&list);
    }
    Ok(rows)
}

/// How many bytes of a text are escaped.
fn escapes(text: &[u8]) -> usize {
    // Counted in bytes as far as they hold, which vectorizes best.
    let count = |bytes: &[u8]| bytes.iter().map(|byte| (*byte <= ESCAPE) as u8).sum::<u8>() as usize;
    text.chunks(u8::MAX as usize).map(count).sum()
}

/// Writes a text, escaped, and its end. Returns how many bytes were written.
fn escape(text: &[u8], out: &mut [u8]) -> usize {
    if escapes(text) == 0 {
        out[..text.len()].copy_from_slice(text);
        out[text.len()] = END;
        return text.len() + 1;
    }
    let mut at = 0;
    for byte in text {
        if *byte <= ESCAPE {
            out[at] = ESCAPE;
            out[at + 1] = byte + 1;
            at += 2;
        } else {
            out[at] = *byte;
            at += 1;
        }
    }
    out[at] = END;
    at + 1
}
