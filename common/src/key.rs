//! Memcomparable keys: rows as bytes that sort as the rows do.
//!
//! The bytes of a key are those of its columns, one after the other. Each column delimits itself, so the key of the first
//! few columns is a prefix of the whole key. This layout is on disk; it never changes for a type.
//!
//! ```text
//! column    marker, then the value unless null
//! marker    00 null that sorts first | 01 value | 02 null that sorts last
//!
//! boolean                      00 false | 01 true
//! integer, date, time,
//!   timestamp, decimal         big-endian two's complement with the sign bit flipped (unsigned: big-endian)
//! float                        IEEE bits, big-endian; negative: all bits flipped, else: the sign bit flipped.
//!                              -0 is 0; every NaN is the same, after infinity
//! interval                     its length in nanoseconds, a month being 30 days and a day 24 hours, as i128
//! text, bytes                  byte 00 as 01 01, byte 01 as 01 02, others as they are; then the end, 00
//! bytes of fixed size          as they are
//! list                         for each element: 01 and the value, or 02 for null; then the end, 00
//! struct                       each field as a column whose nulls sort last
//! ```
//!
//! A descending column has every bit of its value flipped; its marker stays. Rows are equal in SQL if and only if their
//! keys are equal, so the hash of a key is a hash of the row (see [`crate::vnode`]). What comes back from a key is therefore
//! equal to what went in, but need not be identical: see [`is_exact`].
//!
//! Encoding and decoding go column by column, each in a loop over one type.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, IntervalUnit};
use serde::{Deserialize, Serialize};

use crate::codec::plain_type;
use crate::error::CodecError;
use crate::row::ByteRows;

/// A marker: null, sorting before all values.
const NULL_FIRST: u8 = 0;
/// A marker: a value follows.
const VALUE: u8 = 1;
/// A marker: null, sorting after all values.
const NULL_LAST: u8 = 2;
/// Ends a list, text or bytes. No element starts with it and no text contains it.
const END: u8 = 0;
/// Starts the two bytes that stand for a byte 00 or 01 of a text.
const ESCAPE: u8 = 1;

/// How a key column sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyOrder {
    pub descending: bool,
    pub nulls_first: bool,
}

impl KeyOrder {
    /// Ascending, nulls last: PostgreSQL's default.
    pub const ASC: KeyOrder = KeyOrder { descending: false, nulls_first: false };
    /// Descending, nulls first: PostgreSQL's default for DESC.
    pub const DESC: KeyOrder = KeyOrder { descending: true, nulls_first: true };

    fn null_marker(self) -> u8 {
        if self.nulls_first { NULL_FIRST } else { NULL_LAST }
    }

    /// What the bytes of a value are XORed with.
    fn mask(self) -> u8 {
        if self.descending { 0xff } else { 0 }
    }
}

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SortColumn {
    pub column: usize,
    pub order: KeyOrder,
}

/// The keys of rows that are given as columns. Without columns there are no keys.
///
/// Panics when there is not one order per column, or when columns differ in length.
pub fn encode_keys(columns: &[ArrayRef], orders: &[KeyOrder]) -> Result<ByteRows, CodecError> {
    encode::encode(columns, orders)
}

/// The columns of keys. Bytes after the last of these columns are ignored, so the first columns of longer keys can be
/// read.
///
/// Panics when there is not one order per type.
pub fn decode_keys<'a>(
    keys: impl Iterator<Item = &'a [u8]> + Clone,
    types: &[DataType],
    orders: &[KeyOrder],
) -> Result<Vec<ArrayRef>, CodecError> {
    assert_eq!(types.len(), orders.len(), "a key has one order per column");
    decode::decode(keys.collect(), types, orders)
}

/// Whether values of this type come back from a key exactly as they went in. Floats do not (`-0`), nor do intervals
/// (`30 days` and `1 mon` are equal), nor what contains them.
pub fn is_exact(data_type: &DataType) -> bool {
    match &plain_type(data_type) {
        DataType::Float32 | DataType::Float64 => false,
        DataType::Interval(IntervalUnit::MonthDayNano) => false,
        DataType::List(item) => is_exact(item.data_type()),
        DataType::Struct(fields) => fields.iter().all(|f| is_exact(f.data_type())),
        _ => true,
    }
}
