//! Rows as compact bytes: the values of state tables.
//!
//! ```text
//! row       version 01, then columns; or nothing at all, if the row was written without columns
//! columns   how many, as varint | for each column a bit, 1 if it is not null | the values of those that are not null
//!
//! boolean, number, date, …     little-endian; boolean as one byte, interval as months, days, nanoseconds
//! decimal of 128, 256 bits     length as a byte, then as many bytes of the little-endian two's complement as matter
//! text, bytes                  length as varint, then the bytes
//! bytes of fixed size          as they are
//! list                         as columns, one per element
//! struct                       as columns, one per field
//! ```
//!
//! Bit `i` is bit `i % 8` of byte `i / 8`. A varint has seven bits in a byte, least significant first; the high bit tells
//! that more follow. Values come back exactly as they went in.
//!
//! A row may be read with more columns at the end than it was written with: they are null. So a column can be added to
//! a table without touching its rows. This layout is on disk; a change of it needs a new version, and the old one stays
//! readable.

mod byte_rows;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use crate::error::CodecError;

pub use byte_rows::ByteRows;

/// The first byte of a row.
const ROW_VERSION: u8 = 1;

/// Encodes `rows` rows that are given as columns.
///
/// Panics when a column has another length.
pub fn encode_rows(columns: &[ArrayRef], rows: usize) -> Result<ByteRows, CodecError> {
    encode::encode_rows(columns, rows)
}

/// The first columns of rows; those that a row was not written with are null.
pub fn decode_rows<'a>(
    rows: impl Iterator<Item = &'a [u8]> + Clone,
    types: &[DataType],
) -> Result<Vec<ArrayRef>, CodecError> {
    decode::decode_rows(rows, types)
}

/// Whether numbers of this type are written without their leading bytes: those that are wide and mostly small.
fn is_trimmed(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(_, _) | DataType::Decimal256(_, _))
}
