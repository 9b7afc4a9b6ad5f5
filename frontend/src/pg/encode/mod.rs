//! Columns of Arrow as values of PostgreSQL.
//!
//! A batch is taken apart once: each column becomes a [`Cells`], which knows its Arrow type and the format that the client
//! asked for. Then a row is a walk over its cells. Text goes the way of [`weir_common::text`]; [`binary`] has the layouts
//! that PostgreSQL's `*_send` functions write.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, LargeStringArray, ListArray, RecordBatch,
    StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use bytes::{BufMut, BytesMut};
use weir_common::SqlType;
use weir_common::text::{
    TextFormat, write_bytea, write_date, write_decimal, write_float4, write_float8, write_interval, write_time,
    write_timestamp, write_timestamptz, write_value,
};

use super::oid;
use crate::error::{Result, SqlError, SqlState};

mod binary;

pub use binary::{EPOCH_DAYS, EPOCH_MICROS};

/// How a value travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Binary,
}

impl Format {
    /// The format with this code of the protocol.
    pub fn from_code(code: i16) -> Result<Format> {
        match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            _ => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unsupported format code: {code}"))),
        }
    }

    pub fn code(self) -> i16 {
        match self {
            Format::Text => 0,
            Format::Binary => 1,
        }
    }
}

/// One column of one batch, ready to be written value by value.
pub struct Cells {
    nulls: Option<NullBuffer>,
    values: Values,
    format: Format,
    /// For text; with the scale that the column was declared with.
    text: TextFormat,
}

/// The values by type. Types that only text output has are left to `write_value`.
enum Values {
    Boolean(BooleanArray),
    SmallInt(Int16Array),
    Integer(Int32Array),
    BigInt(Int64Array),
    Real(Float32Array),
    Double(Float64Array),
    Decimal(Decimal128Array, i8),
    Varchar(StringArray),
    Jsonb(LargeStringArray),
    Bytea(BinaryArray),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    TimestampTz(TimestampMicrosecondArray),
    Interval(IntervalMonthDayNanoArray),
    List(ListArray, Box<Cells>, u32),
    Record(Vec<(Cells, u32)>),
    Other(ArrayRef),
}

impl Cells {
    /// The columns of a batch whose results are announced as `types`.
    pub fn of_batch(batch: &RecordBatch, types: &[(SqlType, Format, TextFormat)]) -> Result<Vec<Cells>> {
        if batch.num_columns() != types.len() {
            return Err(SqlError::internal(format!(
                "a batch has {} columns and its description has {}",
                batch.num_columns(),
                types.len()
            )));
        }
        let columns = batch.columns().iter().zip(types);
        columns.map(|(array, (sql_type, format, text))| Cells::new(array, sql_type, *format, text.clone())).collect()
    }

    /// A column whose values are announced as `sql_type`. Arrays of other Arrow types are cast.
    pub fn new(array: &ArrayRef, sql_type: &SqlType, format: Format, text: TextFormat) -> Result<Cells> {
        let nulls = array.logical_nulls();
        let values = match Values::of(array) {
            // No value of it will ever be written.
            _ if *array.data_type() == DataType::Null => Values::Other(array.clone()),
            Some(values) if values.carry(sql_type) => values,
            // The text of a nested value needs no layout, only its items.
            _ if format == Format::Text && matches!(sql_type, SqlType::Array(_) | SqlType::Struct(_)) => {
                Values::Other(array.clone())
            }
            _ => Values::cast(array, sql_type, format)?,
        };
        Ok(Cells { nulls, values, format, text })
    }

    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the length of a value and the value, the way rows and arrays have them. NULL has length -1.
    pub fn write_sized(&self, row: usize, scratch: &mut String, out: &mut BytesMut) -> Result<()> {
        if self.is_null(row) {
            out.put_i32(-1);
            return Ok(());
        }
        let start = out.len();
        out.put_i32(0);
        self.write(row, scratch, out)?;
        let length = i32::try_from(out.len() - start - 4)
            .map_err(|_| SqlError::new(SqlState("54000"), "a value is larger than 2 GB"))?;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Appends a value that is not NULL. `scratch` is room to write text in.
    pub fn write(&self, row: usize, scratch: &mut String, out: &mut BytesMut) -> Result<()> {
        match self.format {
            Format::Binary => binary::write(self, row, scratch, out),
            Format::Text => {
                self.write_text(row, scratch, out);
                Ok(())
            }
        }
    }

    fn write_text(&self, row: usize, scratch: &mut String, out: &mut BytesMut) {
        let float_digits = self.text.extra_float_digits;
        scratch.clear();
        match &self.values {
            Values::Boolean(array) => return out.put_u8(if array.value(row) { b't' } else { b'f' }),
            Values::SmallInt(array) => return put_int(array.value(row).into(), out),
            Values::Integer(array) => return put_int(array.value(row).into(), out),
            Values::BigInt(array) => return put_int(array.value(row), out),
            Values::Varchar(array) => return out.put_slice(array.value(row).as_bytes()),
            Values::Jsonb(array) => return out.put_slice(array.value(row).as_bytes()),
            Values::Real(array) => write_float4(array.value(row), float_digits, scratch),
            Values::Double(array) => write_float8(array.value(row), float_digits, scratch),
            Values::Decimal(array, scale) => write_decimal(array.value(row), *scale, self.text.declared_scale, scratch),
            Values::Bytea(array) => write_bytea(array.value(row), scratch),
            Values::Date(array) => write_date(array.value(row), scratch),
            Values::Time(array) => write_time(array.value(row), scratch),
            Values::Timestamp(array) => write_timestamp(array.value(row), scratch),
            Values::TimestampTz(array) => write_timestamptz(array.value(row), self.text.time_zone, scratch),
            Values::Interval(array) => {
                let value = array.value(row);
                write_interval(value.months, value.days, value.nanoseconds / 1000, scratch);
            }
            Values::Other(array) => write_value(array, row, &self.text, scratch),
            Values::List(..) | Values::Record(_) => unreachable!("nested values have a layout in binary alone"),
        }
        out.put_slice(scratch.as_bytes());
    }
}

impl Values {
    /// The values of an array of one of the types that columns are declared with, nested ones excepted.
    fn of(array: &ArrayRef) -> Option<Values> {
        use arrow::datatypes::{IntervalUnit, TimeUnit};
        Some(match array.data_type() {
            DataType::Boolean => Values::Boolean(array.as_boolean().clone()),
            DataType::Int16 => Values::SmallInt(array.as_primitive().clone()),
            DataType::Int32 => Values::Integer(array.as_primitive().clone()),
            DataType::Int64 => Values::BigInt(array.as_primitive().clone()),
            DataType::Float32 => Values::Real(array.as_primitive().clone()),
            DataType::Float64 => Values::Double(array.as_primitive().clone()),
            DataType::Decimal128(_, scale) => Values::Decimal(array.as_primitive().clone(), *scale),
            DataType::Decimal256(..) => Values::Other(array.clone()),
            DataType::Utf8 => Values::Varchar(array.as_string().clone()),
            DataType::LargeUtf8 => Values::Jsonb(array.as_string().clone()),
            DataType::Binary => Values::Bytea(array.as_binary().clone()),
            DataType::Date32 => Values::Date(array.as_primitive().clone()),
            DataType::Time64(TimeUnit::Microsecond) => Values::Time(array.as_primitive().clone()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => Values::Timestamp(array.as_primitive().clone()),
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Values::TimestampTz(array.as_primitive().clone()),
            DataType::Interval(IntervalUnit::MonthDayNano) => Values::Interval(array.as_primitive().clone()),
            _ => return None,
        })
    }

    /// Whether values of this kind are what a client expects of the type.
    fn carry(&self, sql_type: &SqlType) -> bool {
        match self {
            Values::Boolean(_) => *sql_type == SqlType::Boolean,
            Values::SmallInt(_) => *sql_type == SqlType::SmallInt,
            Values::Integer(_) => *sql_type == SqlType::Integer,
            Values::BigInt(_) => *sql_type == SqlType::BigInt,
            Values::Real(_) => *sql_type == SqlType::Real,
            Values::Double(_) => *sql_type == SqlType::Double,
            Values::Decimal(..) | Values::Other(_) => matches!(sql_type, SqlType::Numeric(_)),
            Values::Varchar(_) => *sql_type == SqlType::Varchar,
            Values::Jsonb(_) => *sql_type == SqlType::Jsonb,
            Values::Bytea(_) => *sql_type == SqlType::Bytea,
            Values::Date(_) => *sql_type == SqlType::Date,
            Values::Time(_) => *sql_type == SqlType::Time,
            Values::Timestamp(_) => *sql_type == SqlType::Timestamp,
            Values::TimestampTz(_) => *sql_type == SqlType::TimestampTz,
            Values::Interval(_) => *sql_type == SqlType::Interval,
            Values::List(..) | Values::Record(_) => false,
        }
    }

    /// The values of an array of any type, cast to the type that carries `sql_type`.
    fn cast(array: &ArrayRef, sql_type: &SqlType, format: Format) -> Result<Values> {
        match sql_type {
            SqlType::Array(item) => Values::list(array, item),
            SqlType::Struct(fields) if array.data_type().is_nested() => {
                let array = array.as_struct_opt().filter(|array| array.num_columns() == fields.len());
                let array = array.ok_or_else(|| SqlError::internal("a row value has other fields than its type"))?;
                let fields = array.columns().iter().zip(fields).map(|(column, (_, sql_type))| {
                    // What is NULL in the whole is NULL in its parts; nobody asks for them then.
                    Ok((Cells::new(column, sql_type, format, TextFormat::default())?, oid::of(sql_type)))
                });
                Ok(Values::Record(fields.collect::<Result<_>>()?))
            }
            _ => {
                let array = cast(array, &sql_type.to_arrow())?;
                Values::of(&array)
                    .ok_or_else(|| SqlError::internal(format!("values of type {sql_type} have no layout")))
            }
        }
    }

    fn list(array: &ArrayRef, item: &SqlType) -> Result<Values> {
        let array = match array.data_type() {
            DataType::List(_) => array.clone(),
            DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _) => cast(array, &DataType::List(field.clone()))?,
            other => return Err(SqlError::internal(format!("values of type {other} are no arrays"))),
        };
        let list = array.as_list::<i32>().clone();
        let items = Cells::new(list.values(), item, Format::Binary, TextFormat::default())?;
        Ok(Values::List(list, Box::new(items), oid::of(oid::element(item))))
    }
}

fn cast(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if array.data_type() == data_type {
        return Ok(array.clone());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(array, data_type, &strict)?)
}

/// Appends an integer as text.
fn put_int(value: i64, out: &mut BytesMut) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        start -= 1;
        digits[start] = b'-';
    }
    out.put_slice(&digits[start..]);
}

#[cfg(test)]
mod tests;
