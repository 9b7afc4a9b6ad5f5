//! Casts as PostgreSQL does them, where Arrow does them otherwise: it cuts off where PostgreSQL rounds, and writes and
//! reads text in its own ways.
//!
//! `pg_cast(value, 'type' [, 'time zone'])` gives the value as the type that is named as `format_type` names it, and
//! `pg_text(value [, 'time zone'])` as text. Without a time zone it is UTC.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float32Array, LargeStringArray, ListArray, PrimitiveArray,
    StringArray, StringBuilder, new_null_array,
};
use arrow::compute::kernels::cast::can_cast_types;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType,
    TimestampMicrosecondType, i256,
};
use chrono_tz::Tz;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, lit};
use weir_common::calendar::{MICROS_PER_DAY, instant_to_local, local_to_instant};
use weir_common::json::Json;
use weir_common::parse::{TextColumn, parse_decimal128, parse_decimal256};
use weir_common::text::{TextFormat, write_cast, write_decimal, write_float4, write_float8, write_value};
use weir_common::types::UTC;
use weir_common::{SqlState, SqlType};

use super::arithmetic::out_of_range;
use super::function::{Arguments, Call, Function, IntoError, argument, convert, refuse};
use super::numeric::{NUMERIC, array_of, numerics, shift_right};

/// Between types that have no cast.
const CANNOT_COERCE: SqlState = SqlState("42846");

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("pg_cast", &[2, 3], cast_type, |call| {
            let to = SqlType::from_arrow(call.result_type()).unwrap_or(SqlType::Varchar);
            cast(&call.array(0)?, &to, zone(call, 2)?)
        }),
        Function::new(
            "pg_text",
            &[1, 2],
            |_| Ok(DataType::Utf8),
            |call| cast(&call.array(0)?, &SqlType::Varchar, zone(call, 1)?),
        ),
        Function::new(
            "cast_to_jsonb",
            &[1],
            |_| Ok(DataType::LargeUtf8),
            |call| cast(&call.array_as(0, &DataType::Utf8)?, &SqlType::Jsonb, Tz::UTC),
        ),
    ]
}

/// The expression that casts to a type as PostgreSQL does, in a session with this time zone.
pub fn cast_to(expr: Expr, to: &SqlType, zone: Tz) -> Expr {
    let mut args = vec![expr, lit(to.to_string())];
    if zone != Tz::UTC {
        args.push(lit(zone.name()));
    }
    let function = super::registry().scalars().find(|f| f.name() == "pg_cast").cloned();
    function.expect("pg_cast is among the functions").call(args)
}

/// The type of that name, as [`SqlType`] displays it. `None`: there is none, or it is a struct.
pub fn parse_type(name: &str) -> Option<SqlType> {
    if let Some(item) = name.strip_suffix("[]") {
        return Some(SqlType::Array(Box::new(parse_type(item)?)));
    }
    if let Some(numbers) = name.strip_prefix("numeric(") {
        let (precision, scale) = numbers.strip_suffix(')')?.split_once(',')?;
        return Some(SqlType::Numeric(Some((precision.parse().ok()?, scale.parse().ok()?))));
    }
    Some(match name {
        "boolean" => SqlType::Boolean,
        "smallint" => SqlType::SmallInt,
        "integer" => SqlType::Integer,
        "bigint" => SqlType::BigInt,
        "real" => SqlType::Real,
        "double precision" => SqlType::Double,
        "numeric" => SqlType::Numeric(None),
        "character varying" | "text" => SqlType::Varchar,
        "bytea" => SqlType::Bytea,
        "date" => SqlType::Date,
        "time without time zone" => SqlType::Time,
        "timestamp without time zone" => SqlType::Timestamp,
        "timestamp with time zone" => SqlType::TimestampTz,
        "interval" => SqlType::Interval,
        "jsonb" => SqlType::Jsonb,
        _ => return None,
    })
}

fn cast_type(args: &Arguments<'_>) -> Result<DataType> {
    let name = args.scalar_arguments[1].and_then(|v| v.try_as_str().flatten()).unwrap_or_default();
    let Some(to) = parse_type(name) else {
        return Err(refuse(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")));
    };
    let from = argument(args, 0);
    if !is_castable(from, &to) {
        let from = SqlType::from_arrow(from).map_or_else(|| from.to_string(), |t| t.to_string());
        return Err(refuse(CANNOT_COERCE, format!("cannot cast type {from} to {to}")));
    }
    Ok(to.to_arrow())
}

fn is_castable(from: &DataType, to: &SqlType) -> bool {
    use SqlType::{
        Array, BigInt, Boolean, Bytea, Date, Double, Integer, Interval, Jsonb, Numeric, Real, SmallInt, Time,
        Timestamp, TimestampTz, Varchar,
    };
    if matches!(from, DataType::Null) {
        return true;
    }
    let Some(from) = SqlType::from_arrow(from) else { return false };
    match (&from, to) {
        (from, to) if from == to => true,
        (Varchar, _) | (_, Varchar) => true,
        (Array(from), Array(to)) => is_castable(&from.to_arrow(), to),
        (
            SmallInt | Integer | BigInt | Real | Double | Numeric(_),
            SmallInt | Integer | BigInt | Real | Double | Numeric(_),
        ) => true,
        (Boolean, Integer | SmallInt | BigInt) | (Integer | SmallInt | BigInt, Boolean) => true,
        (Jsonb, Boolean | SmallInt | Integer | BigInt | Real | Double | Numeric(_)) => true,
        (Date, Timestamp | TimestampTz) => true,
        (Timestamp, Date | Time | TimestampTz) => true,
        (TimestampTz, Date | Time | Timestamp) => true,
        (Time, Interval) | (Interval, Time) => true,
        (SmallInt | Integer | BigInt, Bytea) | (Bytea, SmallInt | Integer | BigInt) => false,
        (SqlType::Struct(_), SqlType::Struct(_)) => can_cast_types(&from.to_arrow(), &to.to_arrow()),
        _ => false,
    }
}

/// The time zone that argument `i` names.
pub(super) fn zone(call: &Call<'_>, i: usize) -> Result<Tz> {
    if call.len() <= i {
        return Ok(Tz::UTC);
    }
    let name = call.constant(i).and_then(|v| v.try_as_str().flatten()).unwrap_or_default();
    zone_named(name)
}

/// The time zone of that name.
pub(super) fn zone_named(name: &str) -> Result<Tz> {
    let known = name.parse::<Tz>().ok();
    let known = known.or_else(|| chrono_tz::TZ_VARIANTS.iter().find(|z| z.name().eq_ignore_ascii_case(name)).copied());
    known.ok_or_else(|| refuse(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized")))
}

/// The values as another type.
pub(super) fn cast(array: &ArrayRef, to: &SqlType, zone: Tz) -> Result<ArrayRef> {
    let target = to.to_arrow();
    if *array.data_type() == target {
        return Ok(array.clone());
    }
    if *array.data_type() == DataType::Null {
        return Ok(new_null_array(&target, array.len()));
    }
    let Some(from) = SqlType::from_arrow(array.data_type()) else {
        return Err(refuse(CANNOT_COERCE, format!("cannot cast to {to}")));
    };
    if let DataType::Duration(_) = array.data_type() {
        return cast(&from_duration(array)?, to, zone);
    }
    // Types that no column has, as those of DataFusion's functions, become the one that SQL knows.
    let array = &convert(array, &from.to_arrow())?;
    use SqlType::{
        Array as List, BigInt, Boolean, Date, Double, Integer, Interval, Jsonb, Numeric, Real, SmallInt, Time,
        Timestamp, TimestampTz, Varchar,
    };
    match (&from, to) {
        _ if from == *to => Ok(array.clone()),
        (Jsonb, Varchar) => convert(array, &target),
        (_, Varchar) => Ok(text(array, zone)),
        (Varchar, _) => from_text(array.as_string(), to, zone),
        (Jsonb, _) => from_jsonb(array.as_string(), to),
        (List(_), List(item)) => lists(array.as_list(), item, zone),
        (Real | Double, SmallInt | Integer | BigInt) => from_float(array, to),
        (Numeric(_), SmallInt | Integer | BigInt) => from_numeric(array, to),
        (SmallInt | Integer | BigInt, SmallInt | Integer | BigInt) => {
            convert(array, &target).map_err(|_| out_of_range(&target))
        }
        (Double, Real) => to_real(array),
        (Real | Double, Numeric(_)) => float_to_numeric(array, to),
        (Numeric(_), Real | Double) => convert(&numeric_to_double(array)?, &target),
        (Numeric(_) | SmallInt | Integer | BigInt, Numeric(_)) => {
            convert(array, &target).map_err(|_| refuse(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow"))
        }
        (SmallInt | Integer | BigInt, Boolean) => {
            let array = convert(array, &DataType::Int64)?;
            let array = array.as_primitive::<Int64Type>();
            Ok(Arc::new(array.iter().map(|v| v.map(|v| v != 0)).collect::<BooleanArray>()))
        }
        (Date | Timestamp | TimestampTz, Date | Time | Timestamp | TimestampTz) => times(array, &from, to, zone),
        (Time, Interval) => {
            let of = |micros: i64| IntervalMonthDayNano::new(0, 0, micros * 1_000);
            Ok(Arc::new(array.as_primitive::<Time64MicrosecondType>().unary::<_, IntervalMonthDayNanoType>(of)))
        }
        (Interval, Time) => {
            let of = |i: IntervalMonthDayNano| (i.nanoseconds / 1_000).rem_euclid(MICROS_PER_DAY);
            Ok(Arc::new(array.as_primitive::<IntervalMonthDayNanoType>().unary::<_, Time64MicrosecondType>(of)))
        }
        _ => convert(array, &target),
    }
}

/// The values as text.
pub(super) fn text(array: &ArrayRef, zone: Tz) -> ArrayRef {
    let format = TextFormat { time_zone: zone, ..TextFormat::default() };
    let mut builder = StringBuilder::with_capacity(array.len(), array.len() * 8);
    let mut out = String::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            builder.append_null();
        } else {
            out.clear();
            write_cast(array, row, &format, &mut out);
            builder.append_value(&out);
        }
    }
    Arc::new(builder.finish())
}

fn from_text(array: &StringArray, to: &SqlType, zone: Tz) -> Result<ArrayRef> {
    let mut column = TextColumn::new(to, zone);
    for value in array {
        match value {
            Some(text) => column.append(text).map_err(IntoError::into_error)?,
            None => column.append_null(),
        }
    }
    Ok(column.finish())
}

fn from_jsonb(array: &LargeStringArray, to: &SqlType) -> Result<ArrayRef> {
    let mut texts = StringBuilder::new();
    for value in array {
        let Some(text) = value else {
            texts.append_null();
            continue;
        };
        let kind = match Json::parse(text).map_err(|e| refuse(SqlState::INVALID_TEXT, e.to_string()))? {
            Json::Null => {
                texts.append_null();
                continue;
            }
            Json::Bool(_) if *to == SqlType::Boolean => None,
            Json::Number(_) if *to != SqlType::Boolean => None,
            Json::Bool(_) => Some("boolean"),
            Json::Number(_) => Some("numeric"),
            Json::String(_) => Some("string"),
            Json::Array(_) => Some("array"),
            Json::Object(_) => Some("object"),
        };
        if let Some(kind) = kind {
            let message = format!("cannot cast jsonb {kind} to type {to}");
            return Err(refuse(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        texts.append_value(text);
    }
    let texts: ArrayRef = Arc::new(texts.finish());
    // Numbers are rounded as numerics are.
    match to {
        SqlType::Boolean | SqlType::Numeric(_) => cast(&texts, to, Tz::UTC),
        _ => cast(&cast(&texts, &SqlType::Numeric(None), Tz::UTC)?, to, Tz::UTC),
    }
}

fn lists(array: &ListArray, item: &SqlType, zone: Tz) -> Result<ArrayRef> {
    let items = cast(array.values(), item, zone)?;
    let DataType::List(field) = SqlType::Array(Box::new(item.clone())).to_arrow() else {
        return Ok(Arc::new(array.clone()));
    };
    Ok(Arc::new(ListArray::try_new(field, array.offsets().clone(), items, array.nulls().cloned())?))
}

/// Each value of `array` by `of`, which gives `None` for what does not fit.
fn integers<T: ArrowPrimitiveType>(
    values: impl Iterator<Item = Option<i128>>,
    of: fn(i128) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let fit = |v: i128| of(v).ok_or_else(|| out_of_range(&T::DATA_TYPE));
    let values = values.map(|v| v.map(fit).transpose()).collect::<Result<PrimitiveArray<T>>>()?;
    Ok(Arc::new(values))
}

fn integers_as(to: &SqlType, values: impl Iterator<Item = Option<i128>>) -> Result<ArrayRef> {
    match to {
        SqlType::SmallInt => integers::<Int16Type>(values, |v| v.try_into().ok()),
        SqlType::Integer => integers::<Int32Type>(values, |v| v.try_into().ok()),
        _ => integers::<Int64Type>(values, |v| v.try_into().ok()),
    }
}

/// Rounded to the nearest, halves to even.
fn from_float(array: &ArrayRef, to: &SqlType) -> Result<ArrayRef> {
    let doubles = convert(array, &DataType::Float64)?;
    // What is no number, or too large for any integer, becomes one that does not fit.
    let of = |v: f64| if v.abs() < 1e30 { v.round_ties_even() as i128 } else { i128::MAX };
    integers_as(to, doubles.as_primitive::<Float64Type>().iter().map(|v| v.map(of)))
}

/// Rounded to the nearest, halves away from zero.
fn from_numeric(array: &ArrayRef, to: &SqlType) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Decimal128(_, scale) if *scale >= 0 => {
            let unit = 10_i128.pow(u32::from(scale.unsigned_abs()).min(38));
            let of = |v: i128| {
                let (quotient, rest) = (v / unit, v % unit);
                quotient + if rest.unsigned_abs() * 2 >= unit.unsigned_abs() { v.signum() } else { 0 }
            };
            let of = |v: i128| if unit == 1 { v } else { of(v) };
            integers_as(to, array.as_primitive::<Decimal128Type>().iter().map(|v| v.map(of)))
        }
        _ => {
            let scale = weir_common::types::NUMERIC_SCALE as u32;
            let of = |v: i256| shift_right(v, scale).to_i128().unwrap_or(i128::MAX);
            integers_as(to, numerics(array)?.iter().map(|v| v.map(of)))
        }
    }
}

fn to_real(array: &ArrayRef) -> Result<ArrayRef> {
    let of = |v: f64| match v as f32 {
        r if r.is_infinite() && v.is_finite() => {
            Err(refuse(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: overflow"))
        }
        0.0 if v != 0.0 => Err(refuse(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: underflow")),
        r => Ok(r),
    };
    let reals = array.as_primitive::<Float64Type>().iter().map(|v| v.map(of).transpose());
    Ok(Arc::new(reals.collect::<Result<Float32Array>>()?))
}

/// By the 15 (of a real 6) digits that are sure.
fn float_to_numeric(array: &ArrayRef, to: &SqlType) -> Result<ArrayRef> {
    let mut digits = String::new();
    let mut shown = |row: usize| -> Option<String> {
        array.is_valid(row).then(|| {
            digits.clear();
            match array.data_type() {
                DataType::Float32 => {
                    let value = array.as_primitive::<arrow::datatypes::Float32Type>().value(row);
                    write_float4(value, 0, &mut digits);
                }
                _ => write_float8(array.as_primitive::<Float64Type>().value(row), 0, &mut digits),
            }
            digits.clone()
        })
    };
    let refuse_text = |e: weir_common::ValueError| match e.state {
        SqlState::FEATURE_NOT_SUPPORTED => refuse(e.state, "cannot convert NaN or infinity to numeric"),
        _ => e.into_error(),
    };
    match to {
        SqlType::Numeric(Some((precision, scale))) => {
            let of = |text: String| parse_decimal128(&text, *precision, *scale).map_err(refuse_text);
            let values = (0..array.len()).map(|row| shown(row).map(of).transpose());
            let values = values.collect::<Result<Decimal128Array>>()?;
            Ok(Arc::new(values.with_precision_and_scale(*precision, *scale)?))
        }
        _ => {
            let DataType::Decimal256(precision, scale) = NUMERIC else { unreachable!("numeric is a decimal") };
            let of = |text: String| parse_decimal256(&text, precision, scale).map_err(refuse_text);
            array_of((0..array.len()).map(|row| shown(row).map(of).transpose()))
        }
    }
}

/// The nearest double, which a division is only sure to give for few digits.
fn numeric_to_double(array: &ArrayRef) -> Result<ArrayRef> {
    const EXACT_INTEGER_MAX: u128 = 1 << 53;
    const EXACT_POWER_MAX: i8 = 22;
    let mut text = String::new();
    let mut of = |unscaled: i128, scale: i8| -> f64 {
        if unscaled.unsigned_abs() <= EXACT_INTEGER_MAX && (0..=EXACT_POWER_MAX).contains(&scale) {
            return unscaled as f64 / 10_f64.powi(scale.into());
        }
        text.clear();
        write_decimal(unscaled, scale, None, &mut text);
        text.parse().unwrap_or(f64::NAN)
    };
    let doubles: PrimitiveArray<Float64Type> = match array.data_type() {
        DataType::Decimal128(_, scale) => {
            array.as_primitive::<Decimal128Type>().iter().map(|v| v.map(|v| of(v, *scale))).collect()
        }
        _ => {
            let mut wide = String::new();
            let values = array.as_primitive::<Decimal256Type>();
            let rows = 0..values.len();
            rows.map(|row| {
                values.is_valid(row).then(|| {
                    wide.clear();
                    write_value(values, row, &TextFormat::default(), &mut wide);
                    wide.parse().unwrap_or(f64::NAN)
                })
            })
            .collect()
        }
    };
    Ok(Arc::new(doubles))
}

/// A difference of timestamps as DataFusion computes it: days and a time.
fn from_duration(array: &ArrayRef) -> Result<ArrayRef> {
    let micros = convert(array, &DataType::Duration(arrow::datatypes::TimeUnit::Microsecond))?;
    let micros = micros.as_primitive::<arrow::datatypes::DurationMicrosecondType>();
    Ok(Arc::new(micros.unary::<_, IntervalMonthDayNanoType>(interval_of_micros)))
}

/// Days and a time with the same sign.
pub(super) fn interval_of_micros(micros: i64) -> IntervalMonthDayNano {
    IntervalMonthDayNano::new(0, (micros / MICROS_PER_DAY) as i32, micros % MICROS_PER_DAY * 1_000)
}

fn timestamp_out_of_range() -> DataFusionError {
    refuse(SqlState::DATETIME_OVERFLOW, "timestamp out of range")
}

/// Between dates, times and timestamps, by way of what a clock in the zone shows.
fn times(array: &ArrayRef, from: &SqlType, to: &SqlType, zone: Tz) -> Result<ArrayRef> {
    let finite = |v: i64| !matches!(v, i64::MIN | i64::MAX);
    let local: PrimitiveArray<TimestampMicrosecondType> = match from {
        SqlType::Date => array.as_primitive::<Date32Type>().try_unary(|days| match days {
            i32::MAX => Ok(i64::MAX),
            i32::MIN => Ok(i64::MIN),
            days => i64::from(days).checked_mul(MICROS_PER_DAY).ok_or_else(timestamp_out_of_range),
        })?,
        SqlType::Timestamp => array.as_primitive::<TimestampMicrosecondType>().clone(),
        _ => {
            let shown = |v: i64| if finite(v) { instant_to_local(zone, v) } else { v };
            array.as_primitive::<TimestampMicrosecondType>().unary(shown)
        }
    };
    Ok(match to {
        SqlType::Timestamp => Arc::new(local.with_timezone_opt(None::<Arc<str>>)),
        SqlType::TimestampTz => {
            let instant = |v: i64| if finite(v) { local_to_instant(zone, v) } else { v };
            let instants: PrimitiveArray<TimestampMicrosecondType> = local.unary(instant);
            Arc::new(instants.with_timezone(UTC))
        }
        SqlType::Date => Arc::new(local.unary::<_, Date32Type>(|v| match v {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            v => v.div_euclid(MICROS_PER_DAY) as i32,
        })),
        _ => {
            let of = |v: i64| finite(v).then(|| v.rem_euclid(MICROS_PER_DAY));
            Arc::new(local.unary_opt::<_, Time64MicrosecondType>(of))
        }
    })
}

/// The Arrow type of an interval.
pub(super) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
