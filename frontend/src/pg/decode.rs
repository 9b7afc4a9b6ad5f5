//! Parameters of clients, text or binary, as values of their type.
//!
//! A parameter has two types: the one that the client was told or has declared decides what the bytes mean; the one that
//! the statement needs decides what comes out. They differ where Weir has no type of its own for an oid.

use arrow::datatypes::IntervalMonthDayNano;
use datafusion::scalar::ScalarValue;
use weir_common::SqlType;
use weir_common::parse::parse_text;
use weir_common::text::TextFormat;

use super::encode::{EPOCH_DAYS, EPOCH_MICROS, Format};
use super::message::utf8;
use super::oid;
use crate::error::{Result, SqlError, SqlState};

const INVALID_BINARY: SqlState = SqlState("22P03");
/// Dimensions of an array, as in PostgreSQL.
const DIMENSIONS_MAX: usize = 6;

/// A parameter of a prepared statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The type that the client knows it by.
    pub oid: u32,
    /// The type that the statement needs.
    pub sql_type: SqlType,
}

impl Parameter {
    /// The value that a client sent for it; `None` is NULL.
    pub fn decode(&self, bytes: Option<&[u8]>, format: Format, settings: &TextFormat) -> Result<ScalarValue> {
        let arrow_type = self.sql_type.to_arrow();
        let Some(bytes) = bytes else {
            return Ok(ScalarValue::try_from(&arrow_type)?);
        };
        let sent = match oid::sql_type(self.oid) {
            Some(sent) if self.oid != oid::of(&self.sql_type) => sent,
            _ => self.sql_type.clone(),
        };
        let value = match format {
            // What is declared as text may stand for a value of any type, as a literal does.
            Format::Text if sent == SqlType::Varchar => text(utf8(bytes)?, &self.sql_type, settings)?,
            Format::Text => text(utf8(bytes)?, &sent, settings)?,
            Format::Binary => binary(bytes, self.oid, &sent, settings)?,
        };
        if value.data_type() == arrow_type { Ok(value) } else { Ok(value.cast_to(&arrow_type)?) }
    }
}

/// A value as PostgreSQL's input function of the type reads it.
fn text(text: &str, sql_type: &SqlType, settings: &TextFormat) -> Result<ScalarValue> {
    let values =
        parse_text(text, sql_type, settings.time_zone).map_err(|error| SqlError::new(error.state, error.message))?;
    Ok(ScalarValue::try_from_array(&values, 0)?)
}

/// A value as PostgreSQL's `*_recv` function of the type reads it.
fn binary(bytes: &[u8], type_oid: u32, sql_type: &SqlType, settings: &TextFormat) -> Result<ScalarValue> {
    let mut rest = bytes;
    let value = match sql_type {
        SqlType::Boolean => ScalarValue::Boolean(Some(fixed::<1>(&mut rest)?[0] != 0)),
        SqlType::SmallInt => ScalarValue::Int16(Some(i16::from_be_bytes(fixed(&mut rest)?))),
        SqlType::Integer => ScalarValue::Int32(Some(i32::from_be_bytes(fixed(&mut rest)?))),
        SqlType::BigInt if type_oid == oid::OID => {
            ScalarValue::Int64(Some(u32::from_be_bytes(fixed(&mut rest)?).into()))
        }
        SqlType::BigInt => ScalarValue::Int64(Some(i64::from_be_bytes(fixed(&mut rest)?))),
        SqlType::Real => ScalarValue::Float32(Some(f32::from_be_bytes(fixed(&mut rest)?))),
        SqlType::Double => ScalarValue::Float64(Some(f64::from_be_bytes(fixed(&mut rest)?))),
        SqlType::Numeric(_) => text(&numeric(&mut rest)?, sql_type, settings)?,
        SqlType::Varchar if type_oid == oid::UUID => ScalarValue::Utf8(Some(uuid(fixed(&mut rest)?))),
        SqlType::Varchar => ScalarValue::Utf8(Some(utf8(std::mem::take(&mut rest))?.to_string())),
        SqlType::Bytea => ScalarValue::Binary(Some(std::mem::take(&mut rest).to_vec())),
        SqlType::Date => ScalarValue::Date32(Some(date(i32::from_be_bytes(fixed(&mut rest)?))?)),
        SqlType::Time => ScalarValue::Time64Microsecond(Some(time(i64::from_be_bytes(fixed(&mut rest)?))?)),
        SqlType::Timestamp => {
            ScalarValue::TimestampMicrosecond(Some(timestamp(i64::from_be_bytes(fixed(&mut rest)?))?), None)
        }
        SqlType::TimestampTz => ScalarValue::TimestampMicrosecond(
            Some(timestamp(i64::from_be_bytes(fixed(&mut rest)?))?),
            Some(weir_common::types::UTC.into()),
        ),
        SqlType::Interval => {
            let micros = i64::from_be_bytes(fixed(&mut rest)?);
            let days = i32::from_be_bytes(fixed(&mut rest)?);
            let months = i32::from_be_bytes(fixed(&mut rest)?);
            let nanos = micros.checked_mul(1000);
            let nanos = nanos.ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range"))?;
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, nanos)))
        }
        SqlType::Jsonb => {
            if type_oid != oid::JSON && fixed::<1>(&mut rest)? != [1] {
                return Err(SqlError::new(INVALID_BINARY, format!("unsupported jsonb version number {}", bytes[0])));
            }
            text(utf8(std::mem::take(&mut rest))?, sql_type, settings)?
        }
        SqlType::Array(_) => array(&mut rest, sql_type, settings)?,
        SqlType::Struct(_) => return Err(SqlError::unsupported("a parameter of a row type")),
    };
    if rest.is_empty() { Ok(value) } else { Err(malformed()) }
}

fn malformed() -> SqlError {
    SqlError::new(INVALID_BINARY, "incorrect binary data format in bind parameter")
}

/// The next bytes.
fn fixed<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>().ok_or_else(malformed)?;
    *bytes = rest;
    Ok(*taken)
}

fn date(days: i32) -> Result<i32> {
    match days {
        i32::MAX | i32::MIN => Ok(days),
        _ => {
            days.checked_add(EPOCH_DAYS).ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range"))
        }
    }
}

fn time(micros: i64) -> Result<i64> {
    if (0..=86_400_000_000).contains(&micros) {
        Ok(micros)
    } else {
        Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "time out of range"))
    }
}

fn timestamp(micros: i64) -> Result<i64> {
    match micros {
        i64::MAX | i64::MIN => Ok(micros),
        _ => micros
            .checked_add(EPOCH_MICROS)
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range")),
    }
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The text of a binary numeric; [`super::encode`] describes the layout.
fn numeric(bytes: &mut &[u8]) -> Result<String> {
    const NEGATIVE: u16 = 0x4000;
    let (count, weight) = (i16::from_be_bytes(fixed(bytes)?), i16::from_be_bytes(fixed(bytes)?));
    let (sign, scale) = (u16::from_be_bytes(fixed(bytes)?), i16::from_be_bytes(fixed(bytes)?));
    let groups = (0..count).map(|_| match i16::from_be_bytes(fixed(bytes)?) {
        group @ 0..=9999 => Ok(group),
        _ => Err(SqlError::new(INVALID_BINARY, "invalid digit in external \"numeric\" value")),
    });
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let sign = match sign {
        0 => "",
        NEGATIVE => "-",
        0xc000 => return Ok("NaN".to_string()),
        0xd000 => return Ok("Infinity".to_string()),
        0xf000 => return Ok("-Infinity".to_string()),
        _ => return Err(SqlError::new(INVALID_BINARY, "invalid sign in external \"numeric\" value")),
    };
    let scale = usize::try_from(scale)
        .map_err(|_| SqlError::new(INVALID_BINARY, "invalid scale in external \"numeric\" value"))?;
    // Far more groups than any numeric of Weir has: no need to spell them out to see that it does not fit.
    if weight > 32 {
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format"));
    }
    let group = |position: i32| {
        let index = i32::from(weight) - position;
        usize::try_from(index).ok().and_then(|index| groups.get(index)).copied().unwrap_or(0)
    };
    let whole: String = (0..=i32::from(weight).max(0)).rev().map(|p| format!("{:04}", group(p))).collect();
    let places = scale.min(100).div_ceil(4) as i32;
    let mut fraction: String = (1..=places).map(|p| format!("{:04}", group(-p))).collect();
    fraction.truncate(scale);
    let point = if fraction.is_empty() { "" } else { "." };
    Ok(format!("{sign}{whole}{point}{fraction}"))
}

/// An array of any number of dimensions, which must be that of the type.
fn array(bytes: &mut &[u8], sql_type: &SqlType, settings: &TextFormat) -> Result<ScalarValue> {
    let dimensions = usize::try_from(i32::from_be_bytes(fixed(bytes)?)).map_err(|_| malformed())?;
    let _has_nulls = fixed::<4>(bytes)?;
    let item_oid = u32::from_be_bytes(fixed(bytes)?);
    if dimensions > DIMENSIONS_MAX {
        return Err(SqlError::new(
            SqlState("54000"),
            format!("number of array dimensions ({dimensions}) exceeds the maximum allowed ({DIMENSIONS_MAX})"),
        ));
    }
    let item = oid::element(sql_type);
    let sent = oid::sql_type(item_oid).filter(|sent| !matches!(sent, SqlType::Array(_)));
    let sent = sent.ok_or_else(|| {
        let expected = oid::of(item);
        SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!("binary data has array element type {item_oid} instead of expected {expected}"),
        )
    })?;
    let mut sizes = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        sizes.push(usize::try_from(i32::from_be_bytes(fixed(bytes)?)).map_err(|_| malformed())?);
        let _first_index = fixed::<4>(bytes)?;
    }
    if dimensions == 0 {
        sizes.push(0);
    } else if depth(sql_type) != dimensions {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("an array of {dimensions} dimensions cannot be a value of type {sql_type}"),
        ));
    }
    let item_type = item.to_arrow();
    let mut next = |bytes: &mut &[u8]| {
        let length = i32::from_be_bytes(fixed(bytes)?);
        if length == -1 {
            return Ok(ScalarValue::try_from(&item_type)?);
        }
        let length = usize::try_from(length).map_err(|_| malformed())?;
        let (value, rest) = bytes.split_at_checked(length).ok_or_else(malformed)?;
        *bytes = rest;
        let value = binary(value, item_oid, &sent, settings)?;
        if value.data_type() == item_type { Ok(value) } else { Ok(value.cast_to(&item_type)?) }
    };
    nested(bytes, &sizes, sql_type, &mut next)
}

/// How many dimensions the values of a type have.
fn depth(sql_type: &SqlType) -> usize {
    match sql_type {
        SqlType::Array(item) => 1 + depth(item),
        _ => 0,
    }
}

/// The list of the first size, whose items are lists of the other sizes, or values.
fn nested(
    bytes: &mut &[u8],
    sizes: &[usize],
    sql_type: &SqlType,
    next: &mut impl FnMut(&mut &[u8]) -> Result<ScalarValue>,
) -> Result<ScalarValue> {
    let (Some((size, inner)), SqlType::Array(item)) = (sizes.split_first(), sql_type) else {
        return next(bytes);
    };
    // Every item of an innermost list takes four bytes at least, so a size cannot promise more than there is.
    if *size > bytes.len() {
        return Err(malformed());
    }
    let items = (0..*size).map(|_| nested(bytes, inner, item, next)).collect::<Result<Vec<_>>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&items, &item.to_arrow())))
}

#[cfg(test)]
mod tests;
