//! What the encodings of keys and of rows have in common: fixed-width values as bytes, and reading bytes off a row.

#[cfg(test)]
pub(crate) mod test_arrays;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, NullBufferBuilder, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute;
use arrow::datatypes::{
    ArrowNativeType, ByteArrayType, DataType, GenericBinaryType, GenericStringType, IntervalMonthDayNano, i256,
};
use arrow::error::ArrowError;

use crate::error::CodecError;
use crate::row::ByteRows;

/// A value of fixed width, as bytes of a key (sorting as the values do) and of a row (little-endian, exact).
pub(crate) trait Fixed: ArrowNativeType {
    /// As many bytes as the value has.
    type Bytes: AsRef<[u8]> + AsMut<[u8]> + Copy + Default;

    /// Bytes that compare as the values do. Values that are equal in SQL have equal bytes.
    fn to_key(self) -> Self::Bytes;
    /// The value of such bytes, up to SQL equality.
    fn from_key(bytes: Self::Bytes) -> Self;
    /// Bytes that hold the value exactly, least significant first.
    fn to_row(self) -> Self::Bytes;
    /// The value of such bytes.
    fn from_row(bytes: Self::Bytes) -> Self;
}

/// Bytes that a value of this type takes.
pub(crate) fn width<T: Fixed>() -> usize {
    size_of::<T::Bytes>()
}

macro_rules! fixed_integers {
    ($($native:ident $sign_bit:expr),*) => {
        $(impl Fixed for $native {
            type Bytes = [u8; size_of::<$native>()];

            fn to_key(self) -> Self::Bytes {
                (self ^ $sign_bit).to_be_bytes()
            }
            fn from_key(bytes: Self::Bytes) -> Self {
                $native::from_be_bytes(bytes) ^ $sign_bit
            }
            fn to_row(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            fn from_row(bytes: Self::Bytes) -> Self {
                $native::from_le_bytes(bytes)
            }
        })*
    };
}
fixed_integers!(i8 i8::MIN, i16 i16::MIN, i32 i32::MIN, i64 i64::MIN, i128 i128::MIN, u8 0, u16 0, u32 0, u64 0);

/// IEEE floats in a total order: negative ones have all bits flipped, others the sign bit. Zeros are one value, NaNs are
/// one value after infinity.
macro_rules! fixed_floats {
    ($($native:ident $bits:ident),*) => {
        $(impl Fixed for $native {
            type Bytes = [u8; size_of::<$native>()];

            fn to_key(self) -> Self::Bytes {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let bits = if self.is_nan() {
                    $native::NAN.to_bits() & !SIGN
                } else if self == 0.0 {
                    0
                } else {
                    self.to_bits()
                };
                (if bits & SIGN == 0 { bits ^ SIGN } else { !bits }).to_be_bytes()
            }
            fn from_key(bytes: Self::Bytes) -> Self {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let bits = $bits::from_be_bytes(bytes);
                $native::from_bits(if bits & SIGN == 0 { !bits } else { bits ^ SIGN })
            }
            fn to_row(self) -> Self::Bytes {
                self.to_bits().to_le_bytes()
            }
            fn from_row(bytes: Self::Bytes) -> Self {
                $native::from_bits($bits::from_le_bytes(bytes))
            }
        })*
    };
}
fixed_floats!(f32 u32, f64 u64);

impl Fixed for i256 {
    type Bytes = [u8; 32];

    fn to_key(self) -> [u8; 32] {
        let mut bytes = self.to_be_bytes();
        bytes[0] ^= 0x80;
        bytes
    }

    fn from_key(mut bytes: [u8; 32]) -> i256 {
        bytes[0] ^= 0x80;
        i256::from_be_bytes(bytes)
    }

    fn to_row(self) -> [u8; 32] {
        self.to_le_bytes()
    }

    fn from_row(bytes: [u8; 32]) -> i256 {
        i256::from_le_bytes(bytes)
    }
}

const DAYS_PER_MONTH: i128 = 30;
const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// As in PostgreSQL, intervals compare by their length, with months of 30 days and days of 24 hours. A key holds that
/// length; the interval that comes back has as many months, and then as many days, as fit.
impl Fixed for IntervalMonthDayNano {
    type Bytes = [u8; 16];

    fn to_key(self) -> [u8; 16] {
        let days = self.months as i128 * DAYS_PER_MONTH + self.days as i128;
        (days * NANOS_PER_DAY + self.nanoseconds as i128).to_key()
    }

    fn from_key(bytes: [u8; 16]) -> IntervalMonthDayNano {
        // Limits are met only by lengths that no interval has: what months can't hold, days can, and then nanoseconds.
        let clamp = |v: i128| v.clamp(i32::MIN as i128, i32::MAX as i128);
        let length = i128::from_key(bytes);
        let months = clamp(length / NANOS_PER_DAY / DAYS_PER_MONTH);
        let rest = length.wrapping_sub(months * DAYS_PER_MONTH * NANOS_PER_DAY);
        let days = clamp(rest / NANOS_PER_DAY);
        let nanoseconds = rest.wrapping_sub(days * NANOS_PER_DAY);
        IntervalMonthDayNano::new(months as i32, days as i32, nanoseconds as i64)
    }

    fn to_row(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.months.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.days.to_le_bytes());
        bytes[8..].copy_from_slice(&self.nanoseconds.to_le_bytes());
        bytes
    }

    fn from_row(bytes: [u8; 16]) -> IntervalMonthDayNano {
        let all = u128::from_le_bytes(bytes);
        IntervalMonthDayNano::new(all as i32, (all >> 32) as i32, (all >> 64) as i64)
    }
}

/// Evaluates the body with `$native` as the native type of an Arrow type of fixed width, or else the other expression.
macro_rules! match_fixed {
    ($data_type:expr, $native:ident => $body:expr, _ => $other:expr) => {{
        use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, i256};
        match $data_type {
            DataType::Int8 => {
                type $native = i8;
                $body
            }
            DataType::Int16 => {
                type $native = i16;
                $body
            }
            DataType::Int32
            | DataType::Date32
            | DataType::Time32(_)
            | DataType::Decimal32(_, _)
            | DataType::Interval(IntervalUnit::YearMonth) => {
                type $native = i32;
                $body
            }
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(_, _)
            | DataType::Duration(_)
            | DataType::Decimal64(_, _) => {
                type $native = i64;
                $body
            }
            DataType::UInt8 => {
                type $native = u8;
                $body
            }
            DataType::UInt16 => {
                type $native = u16;
                $body
            }
            DataType::UInt32 => {
                type $native = u32;
                $body
            }
            DataType::UInt64 => {
                type $native = u64;
                $body
            }
            DataType::Float32 => {
                type $native = f32;
                $body
            }
            DataType::Float64 => {
                type $native = f64;
                $body
            }
            DataType::Decimal128(_, _) => {
                type $native = i128;
                $body
            }
            DataType::Decimal256(_, _) => {
                type $native = i256;
                $body
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                type $native = IntervalMonthDayNano;
                $body
            }
            _ => $other,
        }
    }};
}
pub(crate) use match_fixed;

/// The type that values of a type are encoded as: views, dictionaries and the kinds of lists are only other layouts of
/// the same values.
pub(crate) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::RunEndEncoded(_, value) => plain_type(value.data_type()),
        DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => DataType::List(item.clone()),
        other => other.clone(),
    }
}

/// The same values in another layout.
pub(crate) fn cast(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, CodecError> {
    if array.data_type() == data_type { Ok(array.clone()) } else { Ok(compute::cast(array, data_type)?) }
}

/// The values of a column, ready to be encoded.
pub(crate) enum Values {
    /// All null.
    Null,
    Booleans(BooleanBuffer),
    /// An array of a type of [`match_fixed`].
    Fixed(ArrayData),
    /// Text and bytes: value `i` is `data[offsets[i] .. offsets[i + 1]]`.
    Strings {
        offsets: Vec<usize>,
        data: Buffer,
    },
    /// Bytes to be taken as they are.
    Encoded(ByteRows),
}

impl Values {
    /// The values of an array of a plain type that is neither a list nor a struct.
    pub fn of(array: &ArrayRef) -> Result<Values, CodecError> {
        Ok(match array.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Booleans(array.as_boolean().values().clone()),
            DataType::Utf8 => Values::strings::<GenericStringType<i32>>(array),
            DataType::LargeUtf8 => Values::strings::<GenericStringType<i64>>(array),
            DataType::Binary => Values::strings::<GenericBinaryType<i32>>(array),
            DataType::LargeBinary => Values::strings::<GenericBinaryType<i64>>(array),
            DataType::FixedSizeBinary(_) => {
                let array = array.as_fixed_size_binary();
                Values::Encoded((0..array.len()).map(|i| array.value(i)).collect())
            }
            other => match_fixed!(
                other,
                T => {
                    debug_assert!(width::<T>() > 0);
                    Values::Fixed(array.to_data())
                },
                _ => return Err(CodecError::UnsupportedType(other.clone()))
            ),
        })
    }

    fn strings<T: ByteArrayType>(array: &ArrayRef) -> Values {
        let array = array.as_bytes::<T>();
        let offsets = array.offsets().iter().map(|o| o.as_usize()).collect();
        Values::Strings { offsets, data: array.values().clone() }
    }
}

/// Takes `n` bytes off the front of a row.
#[inline]
pub(crate) fn take<'a>(row: &mut &'a [u8], n: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
    // Errors are built only where they are returned: these are the innermost steps of decoding.
    let Some((head, rest)) = row.split_at_checked(n) else { return Err(CodecError::Truncated { what }) };
    *row = rest;
    Ok(head)
}

/// Takes one byte off the front of a row.
#[inline]
pub(crate) fn take_byte(row: &mut &[u8], what: &'static str) -> Result<u8, CodecError> {
    let Some((first, rest)) = row.split_first() else { return Err(CodecError::Truncated { what }) };
    *row = rest;
    Ok(*first)
}

/// Takes a value of fixed width off the front of a row.
#[inline]
pub(crate) fn take_fixed<T: Fixed>(row: &mut &[u8], what: &'static str) -> Result<T::Bytes, CodecError> {
    let mut bytes = T::Bytes::default();
    bytes.as_mut().copy_from_slice(take(row, width::<T>(), what)?);
    Ok(bytes)
}

/// An array of values of fixed width.
pub(crate) fn fixed_array<T: ArrowNativeType>(
    data_type: &DataType,
    values: Vec<T>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, CodecError> {
    let data = ArrayData::builder(data_type.clone())
        .len(values.len())
        .add_buffer(Buffer::from_vec(values))
        .nulls(nulls)
        .build()?;
    Ok(make_array(data))
}

/// Strings or byte strings while they are decoded: `data` holds them one after the other, a null is an empty one.
pub(crate) struct Strings {
    pub data: Vec<u8>,
    offsets: Vec<usize>,
    nulls: NullBufferBuilder,
}

impl Strings {
    /// No string yet.
    pub fn with_capacity(rows: usize) -> Strings {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Strings { data: Vec::with_capacity(rows * 16), offsets, nulls: NullBufferBuilder::new(rows) }
    }

    /// What was appended to `data` since the last row is the next row.
    pub fn end_row(&mut self, valid: bool) {
        self.offsets.push(self.data.len());
        self.nulls.append(valid);
    }

    /// The array. Text is checked to be UTF-8.
    pub fn finish(mut self, data_type: &DataType) -> Result<ArrayRef, CodecError> {
        let builder = ArrayData::builder(data_type.clone()).len(self.offsets.len() - 1).nulls(self.nulls.finish());
        let builder = match data_type {
            DataType::FixedSizeBinary(_) => builder,
            DataType::LargeUtf8 | DataType::LargeBinary => {
                builder.add_buffer(Buffer::from_iter(self.offsets.iter().map(|o| *o as i64)))
            }
            _ if self.data.len() > i32::MAX as usize => {
                return Err(ArrowError::OffsetOverflowError(self.data.len()).into());
            }
            _ => builder.add_buffer(Buffer::from_iter(self.offsets.iter().map(|o| *o as i32))),
        };
        Ok(make_array(builder.add_buffer(Buffer::from_vec(self.data)).build()?))
    }
}
