//! SQL types and the Arrow types that carry them.
//!
//! | SQL | Arrow |
//! |---|---|
//! | boolean | Boolean |
//! | smallint, integer, bigint | Int16, Int32, Int64 |
//! | real, double precision | Float32, Float64 |
//! | numeric(p, s), p <= 38 | Decimal128(p, s) |
//! | numeric | Decimal256(76, 28): 48 digits before the point, 28 after it |
//! | varchar, text | Utf8 |
//! | bytea | Binary |
//! | date | Date32 |
//! | time | Time64(us) |
//! | timestamp | Timestamp(us) |
//! | timestamptz | Timestamp(us, "UTC") |
//! | interval | Interval(MonthDayNano) |
//! | jsonb | LargeUtf8, the text in jsonb's normal form |
//! | T[] | List(T) |
//! | struct | Struct |
//!
//! jsonb and unconstrained numeric have Arrow types of their own, so that a type is known from the Arrow type alone and
//! no field metadata can be lost on the way through a plan.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, TimeUnit};
use serde::{Deserialize, Serialize};

/// Digits of an unconstrained numeric.
pub const NUMERIC_PRECISION: u8 = 76;
/// Digits after the point of an unconstrained numeric.
pub const NUMERIC_SCALE: i8 = 28;
/// The time zone that every timestamptz carries in its Arrow type. Sessions convert when they show it.
pub const UTC: &str = "UTC";

/// A type as users name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SqlType {
    Boolean,
    SmallInt,
    Integer,
    BigInt,
    Real,
    Double,
    /// Without precision and scale: unconstrained.
    Numeric(Option<(u8, i8)>),
    Varchar,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    Jsonb,
    Array(Box<SqlType>),
    Struct(Vec<(String, SqlType)>),
}

impl SqlType {
    /// The Arrow type that carries values of this type.
    pub fn to_arrow(&self) -> DataType {
        match self {
            SqlType::Boolean => DataType::Boolean,
            SqlType::SmallInt => DataType::Int16,
            SqlType::Integer => DataType::Int32,
            SqlType::BigInt => DataType::Int64,
            SqlType::Real => DataType::Float32,
            SqlType::Double => DataType::Float64,
            SqlType::Numeric(Some((precision, scale))) => DataType::Decimal128(*precision, *scale),
            SqlType::Numeric(None) => DataType::Decimal256(NUMERIC_PRECISION, NUMERIC_SCALE),
            SqlType::Varchar => DataType::Utf8,
            SqlType::Bytea => DataType::Binary,
            SqlType::Date => DataType::Date32,
            SqlType::Time => DataType::Time64(TimeUnit::Microsecond),
            SqlType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            SqlType::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            SqlType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            SqlType::Jsonb => DataType::LargeUtf8,
            SqlType::Array(item) => DataType::List(Arc::new(Field::new("item", item.to_arrow(), true))),
            SqlType::Struct(fields) => DataType::Struct(
                fields.iter().map(|(name, t)| Field::new(name, t.to_arrow(), true)).collect::<Fields>(),
            ),
        }
    }

    /// The SQL type to show values of an Arrow type as, also for those Arrow types that no column is declared with
    /// (results of functions: unsigned integers, nanoseconds, views). `None` where there is none.
    pub fn from_arrow(data_type: &DataType) -> Option<SqlType> {
        Some(match data_type {
            DataType::Boolean => SqlType::Boolean,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => SqlType::SmallInt,
            DataType::Int32 | DataType::UInt16 => SqlType::Integer,
            DataType::Int64 | DataType::UInt32 | DataType::UInt64 => SqlType::BigInt,
            DataType::Float16 | DataType::Float32 => SqlType::Real,
            DataType::Float64 => SqlType::Double,
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
                SqlType::Numeric(Some((*p, *s)))
            }
            DataType::Decimal256(_, _) => SqlType::Numeric(None),
            DataType::Utf8 | DataType::Utf8View | DataType::Null => SqlType::Varchar,
            DataType::LargeUtf8 => SqlType::Jsonb,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                SqlType::Bytea
            }
            DataType::Date32 | DataType::Date64 => SqlType::Date,
            DataType::Time32(_) | DataType::Time64(_) => SqlType::Time,
            DataType::Timestamp(_, None) => SqlType::Timestamp,
            DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
            DataType::Interval(_) | DataType::Duration(_) => SqlType::Interval,
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => SqlType::Array(Box::new(SqlType::from_arrow(item.data_type())?)),
            DataType::Dictionary(_, value) => SqlType::from_arrow(value)?,
            DataType::Struct(fields) => SqlType::Struct(
                fields
                    .iter()
                    .map(|f| Some((f.name().clone(), SqlType::from_arrow(f.data_type())?)))
                    .collect::<Option<_>>()?,
            ),
            DataType::Union(..) | DataType::Map(..) | DataType::RunEndEncoded(..) => return None,
        })
    }
}

impl fmt::Display for SqlType {
    /// The name that `format_type` of PostgreSQL gives.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SqlType::Boolean => f.write_str("boolean"),
            SqlType::SmallInt => f.write_str("smallint"),
            SqlType::Integer => f.write_str("integer"),
            SqlType::BigInt => f.write_str("bigint"),
            SqlType::Real => f.write_str("real"),
            SqlType::Double => f.write_str("double precision"),
            SqlType::Numeric(None) => f.write_str("numeric"),
            SqlType::Numeric(Some((precision, scale))) => write!(f, "numeric({precision},{scale})"),
            SqlType::Varchar => f.write_str("character varying"),
            SqlType::Bytea => f.write_str("bytea"),
            SqlType::Date => f.write_str("date"),
            SqlType::Time => f.write_str("time without time zone"),
            SqlType::Timestamp => f.write_str("timestamp without time zone"),
            SqlType::TimestampTz => f.write_str("timestamp with time zone"),
            SqlType::Interval => f.write_str("interval"),
            SqlType::Jsonb => f.write_str("jsonb"),
            SqlType::Array(item) => write!(f, "{item}[]"),
            SqlType::Struct(fields) => {
                f.write_str("struct<")?;
                for (i, (name, field_type)) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{name} {field_type}")?;
                }
                f.write_str(">")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sql_type_comes_back_from_its_arrow_type() {
        let types = [
            SqlType::Boolean,
            SqlType::SmallInt,
            SqlType::Integer,
            SqlType::BigInt,
            SqlType::Real,
            SqlType::Double,
            SqlType::Numeric(Some((10, 2))),
            SqlType::Numeric(None),
            SqlType::Varchar,
            SqlType::Bytea,
            SqlType::Date,
            SqlType::Time,
            SqlType::Timestamp,
            SqlType::TimestampTz,
            SqlType::Interval,
            SqlType::Jsonb,
            SqlType::Array(Box::new(SqlType::Array(Box::new(SqlType::Varchar)))),
            SqlType::Struct(vec![("a".into(), SqlType::Integer), ("b".into(), SqlType::Jsonb)]),
        ];
        for sql_type in types {
            assert_eq!(SqlType::from_arrow(&sql_type.to_arrow()), Some(sql_type));
        }
    }
}
