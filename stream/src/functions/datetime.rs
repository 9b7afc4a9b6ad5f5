//! Functions of dates, times and intervals.
//!
//! | function | gives |
//! |---|---|
//! | `timezone(zone, t)` | `t AT TIME ZONE zone` |
//! | `pg_timestamp_diff(a, b)` | `a - b`: days and a time |
//! | `pg_interval_mul(i, x)`, `pg_interval_div` | `i * x`, `i / x` |
//! | `date_part(field, t [, zone])`, alias `extract` | a numeric |
//! | `date_trunc(field, t [, zone])` | the start of that year, month, … |
//! | `pg_instant_add(t, i, zone)`, `pg_instant_sub` | `t + i`, `t - i` on the calendar of the zone |
//! | `pg_interval_length(i)` | what intervals are compared by, a month being 30 days |
//! | `pg_days(d)`, `pg_date(n)` | a date as days since 1970, and back |
//! | `age(a, b)` | `a - b` in years, months, days and a time |
//! | `to_timestamp(seconds)` | the instant that many seconds after 1970 |
//! | `to_timestamp(text, pattern [, zone])` | the instant that a text tells |

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, StringArray};
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType, i256,
};
use chrono_tz::Tz;
use datafusion::error::{DataFusionError, Result};
use weir_common::calendar::{
    Civil, MICROS_PER_DAY, MICROS_PER_SECOND, instant_to_local, iso_weekday, local_to_instant, offset_of_instant,
    split_timestamp,
};
use weir_common::types::NUMERIC_SCALE;
use weir_common::{SqlState, SqlType};

use super::cast::{INTERVAL, cast, interval_of_micros, zone, zone_named};
use super::function::{Arguments, Call, Function, argument, convert, no_such_function, refuse};
use super::make_time::from_pattern;
use super::numeric::{NUMERIC, array_of, power_of_ten};

const HOUR: i64 = 3_600 * MICROS_PER_SECOND;
/// Days of a month, where months must be days.
const DAYS_PER_MONTH: f64 = 30.0;

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("timezone", &[2], timezone_type, timezone),
        Function::new("pg_timestamp_diff", &[2], |_| Ok(INTERVAL), difference),
        Function::new("pg_interval_mul", &[2], |_| Ok(INTERVAL), |call| scale(call, Ok)),
        Function::new(
            "pg_interval_div",
            &[2],
            |_| Ok(INTERVAL),
            |call| {
                scale(call, |x| match x {
                    0.0 => Err(refuse(SqlState::DIVISION_BY_ZERO, "division by zero")),
                    x => Ok(1.0 / x),
                })
            },
        ),
        Function::new("date_part", &[2, 3], part_type, part).alias("extract").alias("datepart"),
        Function::new("date_trunc", &[2, 3], trunc_type, trunc).alias("datetrunc"),
        Function::new("age", &[2], |_| Ok(INTERVAL), age),
        Function::new("pg_instant_add", &[3], |_| Ok(SqlType::TimestampTz.to_arrow()), |call| instant(call, false)),
        Function::new("pg_instant_sub", &[3], |_| Ok(SqlType::TimestampTz.to_arrow()), |call| instant(call, true)),
        Function::new("pg_interval_length", &[1], |_| Ok(DataType::Decimal128(38, 0)), length),
        Function::new("pg_days", &[1], |_| Ok(DataType::Int32), |call| call.array_as(0, &DataType::Int32)),
        Function::new("pg_date", &[1], |_| Ok(DataType::Date32), |call| call.array_as(0, &DataType::Date32)),
        Function::new("to_timestamp", &[1, 2, 3], |_| Ok(SqlType::TimestampTz.to_arrow()), to_timestamp),
    ]
}

fn timestamps(call: &Call<'_>, i: usize) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    let array = match call.type_of(i) {
        DataType::Timestamp(..) => call.array(i)?,
        _ => cast(&call.array(i)?, &SqlType::Timestamp, Tz::UTC)?,
    };
    let zone = match array.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, zone);
    Ok(convert(&array, &micros)?.as_primitive().clone())
}

fn intervals(call: &Call<'_>, i: usize) -> Result<PrimitiveArray<IntervalMonthDayNanoType>> {
    Ok(cast(&call.array(i)?, &SqlType::Interval, Tz::UTC)?.as_primitive().clone())
}

fn texts(call: &Call<'_>, i: usize) -> Result<StringArray> {
    Ok(call.array_as(i, &DataType::Utf8)?.as_string().clone())
}

fn is_finite(micros: i64) -> bool {
    !matches!(micros, i64::MIN | i64::MAX)
}

fn timezone_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 1) {
        DataType::Timestamp(_, Some(_)) => Ok(SqlType::Timestamp.to_arrow()),
        DataType::Timestamp(_, None) | DataType::Date32 | DataType::Null => Ok(SqlType::TimestampTz.to_arrow()),
        _ => Err(no_such_function("timezone", args)),
    }
}

fn timezone(call: &Call<'_>) -> Result<ArrayRef> {
    let (zones, times) = (texts(call, 0)?, timestamps(call, 1)?);
    let to_local = *call.result_type() == SqlType::Timestamp.to_arrow();
    let mut known: Option<(String, Tz)> = None;
    let mut shifted = Vec::with_capacity(times.len());
    for row in 0..times.len() {
        if times.is_null(row) || zones.is_null(row) {
            shifted.push(None);
            continue;
        }
        let name = zones.value(row);
        let zone = match &known {
            Some((last, zone)) if last == name => *zone,
            _ => known.insert((name.to_owned(), zone_named(name)?)).1,
        };
        let time = times.value(row);
        shifted.push(Some(match to_local {
            _ if !is_finite(time) => time,
            true => instant_to_local(zone, time),
            false => local_to_instant(zone, time),
        }));
    }
    let shifted = PrimitiveArray::<TimestampMicrosecondType>::from(shifted);
    Ok(Arc::new(shifted.with_data_type(call.result_type().clone())))
}

fn infinite() -> DataFusionError {
    refuse(SqlState::DATETIME_OVERFLOW, "interval out of range")
}

fn difference(call: &Call<'_>) -> Result<ArrayRef> {
    let (a, b) = (timestamps(call, 0)?, timestamps(call, 1)?);
    let of = |(a, b): (i64, i64)| {
        let micros = a.checked_sub(b).filter(|_| is_finite(a) && is_finite(b));
        micros.map(interval_of_micros).ok_or_else(infinite)
    };
    let pairs = a.iter().zip(b.iter()).map(|(a, b)| a.zip(b).map(of).transpose());
    Ok(Arc::new(pairs.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?))
}

fn scale(call: &Call<'_>, factor: fn(f64) -> Result<f64>) -> Result<ArrayRef> {
    let intervals = intervals(call, 0)?;
    let factors = call.array_as(1, &DataType::Float64)?;
    let factors = factors.as_primitive::<Float64Type>();
    let of = |(interval, x): (IntervalMonthDayNano, f64)| scaled(interval, factor(x)?);
    let pairs = intervals.iter().zip(factors.iter()).map(|(i, x)| i.zip(x).map(of).transpose());
    Ok(Arc::new(pairs.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?))
}

/// Parts of months become days of a month of 30 days, parts of days become time.
fn scaled(interval: IntervalMonthDayNano, factor: f64) -> Result<IntervalMonthDayNano> {
    // What rounding errors leave beyond microseconds is cut off before it can tip a day over.
    let tidy = |x: f64| (x * 1e6).round_ties_even() / 1e6;
    let months = f64::from(interval.months) * factor;
    let days = f64::from(interval.days) * factor;
    let days_of_months = tidy((months - months.trunc()) * DAYS_PER_MONTH);
    let mut whole_days = days.trunc() + days_of_months.trunc();
    let mut seconds = tidy((days - days.trunc() + days_of_months - days_of_months.trunc()) * 86_400.0);
    if seconds.abs() >= 86_400.0 {
        whole_days += (seconds / 86_400.0).trunc();
        seconds -= (seconds / 86_400.0).trunc() * 86_400.0;
    }
    let micros = (interval.nanoseconds / 1_000) as f64 * factor + seconds * 1e6;
    let fits = |x: f64, max: f64| x.abs() <= max && !x.is_nan();
    if !fits(months, i32::MAX.into()) || !fits(whole_days, i32::MAX.into()) || !fits(micros, 9e15) {
        return Err(infinite());
    }
    Ok(IntervalMonthDayNano::new(months as i32, whole_days as i32, micros.round_ties_even() as i64 * 1_000))
}

/// Months and days move what the clock in the zone shows, the rest the instant.
fn instant(call: &Call<'_>, subtract: bool) -> Result<ArrayRef> {
    let (times, intervals, zone) = (timestamps(call, 0)?, intervals(call, 1)?, zone(call, 2)?);
    let out_of_range = || refuse(SqlState::DATETIME_OVERFLOW, "timestamp out of range");
    let sign = if subtract { -1 } else { 1 };
    let of = |(time, interval): (i64, IntervalMonthDayNano)| {
        if !is_finite(time) {
            return Ok(time);
        }
        let (months, days) = (sign * i64::from(interval.months), sign * i64::from(interval.days));
        let mut instant = time;
        if months != 0 || days != 0 {
            let local = instant_to_local(zone, time);
            let (day, of_day) = (local.div_euclid(MICROS_PER_DAY), local.rem_euclid(MICROS_PER_DAY));
            let mut civil = Civil::from_days(day);
            if months != 0 {
                let month = civil.year * 12 + i64::from(civil.month) - 1 + months;
                (civil.year, civil.month) = (month.div_euclid(12), month.rem_euclid(12) as u32 + 1);
                // The last day of the month stands for those that it has not.
                while !civil.is_valid() && civil.day > 28 {
                    civil.day -= 1;
                }
            }
            let day = (civil.to_days() + days).checked_mul(MICROS_PER_DAY);
            let moved = day.and_then(|d| d.checked_add(of_day)).ok_or_else(out_of_range)?;
            instant = local_to_instant(zone, moved);
        }
        instant.checked_add(sign * (interval.nanoseconds / 1_000)).ok_or_else(out_of_range)
    };
    let pairs = times.iter().zip(intervals.iter()).map(|(t, i)| t.zip(i).map(of).transpose());
    let times = pairs.collect::<Result<PrimitiveArray<TimestampMicrosecondType>>>()?;
    Ok(Arc::new(times.with_data_type(call.result_type().clone())))
}

fn length(call: &Call<'_>) -> Result<ArrayRef> {
    const DAY: i128 = MICROS_PER_DAY as i128 * 1_000;
    let of = |i: IntervalMonthDayNano| {
        (i128::from(i.months) * DAYS_PER_MONTH as i128 + i128::from(i.days)) * DAY + i128::from(i.nanoseconds)
    };
    let lengths: PrimitiveArray<Decimal128Type> = intervals(call, 0)?.iter().map(|i| i.map(of)).collect();
    Ok(Arc::new(lengths.with_data_type(call.result_type().clone())))
}

/// `a - b` as people count it: years, months, days, and a time, all with the same sign.
fn age(call: &Call<'_>) -> Result<ArrayRef> {
    let (a, b) = (timestamps(call, 0)?, timestamps(call, 1)?);
    let of = |(a, b): (i64, i64)| match (is_finite(a) && is_finite(b), a >= b) {
        (false, _) => Err(infinite()),
        (true, true) => Ok(symbolic_difference(a, b)),
        (true, false) => {
            let i = symbolic_difference(b, a);
            Ok(IntervalMonthDayNano::new(-i.months, -i.days, -i.nanoseconds))
        }
    };
    let pairs = a.iter().zip(b.iter()).map(|(a, b)| a.zip(b).map(of).transpose());
    Ok(Arc::new(pairs.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?))
}

fn symbolic_difference(later: i64, earlier: i64) -> IntervalMonthDayNano {
    let ((later_days, later_time), (earlier_days, earlier_time)) = (split_timestamp(later), split_timestamp(earlier));
    let (a, b) = (Civil::from_days(later_days), Civil::from_days(earlier_days));
    let mut months = (a.year - b.year) * 12 + i64::from(a.month) - i64::from(b.month);
    let mut days = i64::from(a.day) - i64::from(b.day);
    let mut time = later_time - earlier_time;
    if time < 0 {
        time += MICROS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // The month that is not complete has as many days as that of the earlier date.
        days += i64::from(weir_common::calendar::days_in_month(b.year, b.month));
        months -= 1;
    }
    IntervalMonthDayNano::new(months as i32, days as i32, time * 1_000)
}

fn to_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    if call.len() > 1 {
        let zone = zone(call, 2)?;
        let instants = from_pattern(call)?.unary::<_, TimestampMicrosecondType>(|local| local_to_instant(zone, local));
        return Ok(Arc::new(instants.with_data_type(call.result_type().clone())));
    }
    if matches!(call.type_of(0), DataType::Utf8 | DataType::Utf8View | DataType::Timestamp(..) | DataType::Date32) {
        return cast(&call.array(0)?, &SqlType::TimestampTz, Tz::UTC);
    }
    let seconds = call.array_as(0, &DataType::Float64)?;
    let of = |s: f64| match s {
        _ if s == f64::INFINITY => Ok(i64::MAX),
        _ if s == f64::NEG_INFINITY => Ok(i64::MIN),
        _ if s.is_nan() => Err(refuse(SqlState::DATETIME_OVERFLOW, "timestamp cannot be NaN")),
        _ if s.abs() > 9.2e12 => Err(refuse(SqlState::DATETIME_OVERFLOW, format!("timestamp out of range: \"{s}\""))),
        _ => Ok((s * 1e6).round_ties_even() as i64),
    };
    let instants = seconds.as_primitive::<Float64Type>().iter().map(|s| s.map(of).transpose());
    let instants = instants.collect::<Result<PrimitiveArray<TimestampMicrosecondType>>>()?;
    Ok(Arc::new(instants.with_data_type(call.result_type().clone())))
}

/// A part of a moment or interval.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Julian,
    Zone,
    ZoneHour,
    ZoneMinute,
}

impl Field {
    fn named(name: &str) -> Option<Field> {
        Some(match name.to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Field::Microseconds,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Field::Milliseconds,
            "second" | "seconds" | "s" | "sec" | "secs" => Field::Second,
            "minute" | "minutes" | "m" | "min" | "mins" => Field::Minute,
            "hour" | "hours" | "h" | "hr" | "hrs" => Field::Hour,
            "day" | "days" | "d" => Field::Day,
            "week" | "weeks" | "w" => Field::Week,
            "month" | "months" | "mon" | "mons" => Field::Month,
            "quarter" | "quarters" | "qtr" => Field::Quarter,
            "year" | "years" | "y" | "yr" | "yrs" => Field::Year,
            "decade" | "decades" | "dec" | "decs" => Field::Decade,
            "century" | "centuries" | "c" | "cent" => Field::Century,
            "millennium" | "millennia" | "mil" | "mils" => Field::Millennium,
            "epoch" => Field::Epoch,
            "dow" => Field::DayOfWeek,
            "isodow" => Field::IsoDayOfWeek,
            "doy" => Field::DayOfYear,
            "isoyear" => Field::IsoYear,
            "julian" => Field::Julian,
            "timezone" => Field::Zone,
            "timezone_hour" => Field::ZoneHour,
            "timezone_minute" | "timezone_m" => Field::ZoneMinute,
            _ => return None,
        })
    }

    fn is_within_hour(self) -> bool {
        matches!(self, Field::Microseconds | Field::Milliseconds | Field::Second | Field::Minute | Field::Hour)
    }

    fn read(name: &str, sql_type: &SqlType) -> Result<Field> {
        Field::named(name).ok_or_else(|| {
            let message = format!("unit \"{}\" not recognized for type {sql_type}", name.to_ascii_lowercase());
            refuse(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    }

    fn unsupported(name: &str, sql_type: &SqlType) -> DataFusionError {
        let message = format!("unit \"{}\" not supported for type {sql_type}", name.to_ascii_lowercase());
        refuse(SqlState::FEATURE_NOT_SUPPORTED, message)
    }
}

fn part_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 1) {
        DataType::Timestamp(..)
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Interval(_)
        | DataType::Duration(_)
        | DataType::Null => Ok(NUMERIC),
        _ => Err(no_such_function("date_part", args)),
    }
}

fn part(call: &Call<'_>) -> Result<ArrayRef> {
    let (fields, zone) = (texts(call, 0)?, zone(call, 2)?);
    let sql_type = SqlType::from_arrow(&call.type_of(1)).unwrap_or(SqlType::Timestamp);
    let values = call.array(1)?;
    let mut known: Option<(&str, Field)> = None;
    let mut field_of = |row: usize| -> Result<Option<(&str, Field)>> {
        if fields.is_null(row) || values.is_null(row) {
            return Ok(None);
        }
        let name = fields.value(row);
        Ok(match known {
            Some((last, _)) if last == name => known,
            _ => {
                known = Some((name, Field::read(name, &sql_type)?));
                known
            }
        })
    };
    let unsupported = |name: &str| Field::unsupported(name, &sql_type);
    let rows = 0..values.len();
    match &sql_type {
        SqlType::Time => {
            let times = convert(&values, &SqlType::Time.to_arrow())?;
            let times = times.as_primitive::<Time64MicrosecondType>();
            array_of(rows.map(|row| {
                let Some((name, field)) = field_of(row)? else { return Ok(None) };
                time_part(field, times.value(row)).ok_or_else(|| unsupported(name)).map(Some)
            }))
        }
        SqlType::Interval => {
            let intervals = cast(&values, &SqlType::Interval, Tz::UTC)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            array_of(rows.map(|row| {
                let Some((name, field)) = field_of(row)? else { return Ok(None) };
                interval_part(field, intervals.value(row)).ok_or_else(|| unsupported(name)).map(Some)
            }))
        }
        _ => {
            let times = timestamps(call, 1)?;
            array_of(rows.map(|row| {
                let Some((name, field)) = field_of(row)? else { return Ok(None) };
                if !is_finite(times.value(row)) {
                    return Ok(None);
                }
                moment_part(field, times.value(row), &sql_type, zone).ok_or_else(|| unsupported(name)).map(Some)
            }))
        }
    }
}

/// An integer as a numeric.
fn whole(value: i64) -> i256 {
    decimal(value, 0)
}

/// `value / 10^digits` as a numeric.
fn decimal(value: i64, digits: u32) -> i256 {
    i256::from_i128(value.into()).wrapping_mul(power_of_ten(NUMERIC_SCALE as u32 - digits))
}

fn time_part(field: Field, micros: i64) -> Option<i256> {
    let of_minute = micros % (60 * MICROS_PER_SECOND);
    Some(match field {
        Field::Microseconds => whole(of_minute),
        Field::Milliseconds => decimal(of_minute, 3),
        Field::Second => decimal(of_minute, 6),
        Field::Minute => whole(micros / (60 * MICROS_PER_SECOND) % 60),
        Field::Hour => whole(micros / HOUR),
        Field::Epoch => decimal(micros, 6),
        _ => return None,
    })
}

fn interval_part(field: Field, interval: IntervalMonthDayNano) -> Option<i256> {
    let (months, days) = (i64::from(interval.months), i64::from(interval.days));
    let micros = interval.nanoseconds / 1_000;
    let years = months / 12;
    Some(match field {
        Field::Day => whole(days),
        Field::Week => whole(days / 7),
        Field::Month => whole(months % 12),
        Field::Quarter => whole(months % 12 / 3 + 1),
        Field::Year => whole(years),
        Field::Decade => whole(years / 10),
        Field::Century => whole(years / 100),
        Field::Millennium => whole(years / 1_000),
        Field::Epoch => {
            // A year has 365.25 days here, a month 30.
            let days = i256::from_i128(i128::from(days + months % 12 * 30) * i128::from(MICROS_PER_DAY));
            let years = i256::from_i128(i128::from(years) * 31_557_600_000_000);
            let micros = days.wrapping_add(years).wrapping_add(i256::from_i128(micros.into()));
            micros.wrapping_mul(power_of_ten(NUMERIC_SCALE as u32 - 6))
        }
        other => return time_part(other, micros),
    })
}

/// Part of a date or timestamp; of an instant, what a clock in the zone shows.
fn moment_part(field: Field, micros: i64, sql_type: &SqlType, zone: Tz) -> Option<i256> {
    let with_zone = *sql_type == SqlType::TimestampTz;
    let local = if with_zone { instant_to_local(zone, micros) } else { micros };
    let (days, time) = split_timestamp(local);
    let civil = Civil::from_days(days);
    // Years before 1 are counted backwards from -1.
    let shown_year = if civil.year > 0 { civil.year } else { civil.year - 1 };
    let offset = || with_zone.then(|| offset_of_instant(zone, micros));
    Some(match field {
        Field::Day => whole(civil.day.into()),
        Field::Week => whole(civil.iso_week().1),
        Field::Month => whole(civil.month.into()),
        Field::Quarter => whole((i64::from(civil.month) - 1) / 3 + 1),
        Field::Year => whole(shown_year),
        Field::Decade => whole(civil.year.div_euclid(10)),
        Field::Century => whole(periods(civil.year, 100)),
        Field::Millennium => whole(periods(civil.year, 1_000)),
        Field::Epoch => decimal(micros, 6),
        Field::DayOfWeek => whole(iso_weekday(days) % 7),
        Field::IsoDayOfWeek => whole(iso_weekday(days)),
        Field::DayOfYear => whole(civil.day_of_year()),
        Field::IsoYear => {
            let year = civil.iso_week().0;
            whole(if year > 0 { year } else { year - 1 })
        }
        Field::Julian => {
            const JULIAN_EPOCH: i64 = 2_440_588;
            let part = i256::from_i128(time.into()).wrapping_mul(power_of_ten(NUMERIC_SCALE as u32));
            let day = part.wrapping_div(i256::from_i128(MICROS_PER_DAY.into()));
            whole(days + JULIAN_EPOCH).wrapping_add(super::numeric::round(day, 20))
        }
        Field::Zone => whole(offset()?),
        Field::ZoneHour => whole(offset()? / 3_600),
        Field::ZoneMinute => whole(offset()? / 60 % 60),
        _ if *sql_type == SqlType::Date => return None,
        other => return time_part(other, time),
    })
}

/// The number of a century or millennium: the first has the year 1, and there is none with number 0.
fn periods(year: i64, years: i64) -> i64 {
    if year > 0 { (year + years - 1) / years } else { -((years - year) / years) }
}

fn trunc_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 1) {
        DataType::Timestamp(_, zone) => Ok(DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, zone.clone())),
        DataType::Date32 | DataType::Null => Ok(SqlType::Timestamp.to_arrow()),
        DataType::Interval(_) | DataType::Duration(_) => Ok(INTERVAL),
        _ => Err(no_such_function("date_trunc", args)),
    }
}

fn trunc(call: &Call<'_>) -> Result<ArrayRef> {
    let (fields, zone) = (texts(call, 0)?, zone(call, 2)?);
    let sql_type = SqlType::from_arrow(&call.type_of(1)).unwrap_or(SqlType::Timestamp);
    let field_of = |row: usize| -> Result<Field> { Field::read(fields.value(row), &sql_type) };
    let unsupported = |row: usize| Field::unsupported(fields.value(row), &sql_type);
    if sql_type == SqlType::Interval {
        let intervals = intervals(call, 1)?;
        let truncated = (0..intervals.len()).map(|row| {
            if intervals.is_null(row) || fields.is_null(row) {
                return Ok(None);
            }
            trunc_interval(field_of(row)?, intervals.value(row)).ok_or_else(|| unsupported(row)).map(Some)
        });
        return Ok(Arc::new(truncated.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?));
    }
    let times = timestamps(call, 1)?;
    let with_zone = sql_type == SqlType::TimestampTz;
    let mut known: Option<(&str, Field)> = None;
    let truncated = (0..times.len()).map(|row| {
        if times.is_null(row) || fields.is_null(row) {
            return Ok(None);
        }
        let field = match known {
            Some((name, field)) if name == fields.value(row) => field,
            _ => known.insert((fields.value(row), field_of(row)?)).1,
        };
        let time = times.value(row);
        if !is_finite(time) {
            return Ok(Some(time));
        }
        let local = if with_zone { instant_to_local(zone, time) } else { time };
        let start = trunc_moment(field, local).ok_or_else(|| unsupported(row))?;
        Ok(Some(match with_zone {
            false => start,
            // Within the hour the offset stays, also where a clock that was set back shows the hour twice.
            true if field.is_within_hour() => time - (local - start),
            true => local_to_instant(zone, start),
        }))
    });
    let truncated = truncated.collect::<Result<PrimitiveArray<TimestampMicrosecondType>>>()?;
    Ok(Arc::new(truncated.with_data_type(call.result_type().clone())))
}

fn trunc_moment(field: Field, micros: i64) -> Option<i64> {
    let (days, _) = split_timestamp(micros);
    let floor = |unit: i64| micros - micros.rem_euclid(unit);
    let start_of = |year: i64, month: u32| Civil { year, month, day: 1 }.to_days() * MICROS_PER_DAY;
    let civil = Civil::from_days(days);
    // The period that has the year, of those that start with a year 1.
    let period = |years: i64| start_of((civil.year - 1).div_euclid(years) * years + 1, 1);
    Some(match field {
        Field::Microseconds => micros,
        Field::Milliseconds => floor(1_000),
        Field::Second => floor(MICROS_PER_SECOND),
        Field::Minute => floor(60 * MICROS_PER_SECOND),
        Field::Hour => floor(HOUR),
        Field::Day => floor(MICROS_PER_DAY),
        Field::Week => (days - (iso_weekday(days) - 1)) * MICROS_PER_DAY,
        Field::Month => start_of(civil.year, civil.month),
        Field::Quarter => start_of(civil.year, (civil.month - 1) / 3 * 3 + 1),
        Field::Year => start_of(civil.year, 1),
        Field::Decade => start_of(civil.year.div_euclid(10) * 10, 1),
        Field::Century => period(100),
        Field::Millennium => period(1_000),
        _ => return None,
    })
}

fn trunc_interval(field: Field, i: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let months = |unit: i32| IntervalMonthDayNano::new(i.months / unit * unit, 0, 0);
    let time = |unit: i64| IntervalMonthDayNano::new(i.months, i.days, i.nanoseconds / (unit * 1_000) * unit * 1_000);
    Some(match field {
        Field::Microseconds => time(1),
        Field::Milliseconds => time(1_000),
        Field::Second => time(MICROS_PER_SECOND),
        Field::Minute => time(60 * MICROS_PER_SECOND),
        Field::Hour => time(HOUR),
        Field::Day => IntervalMonthDayNano::new(i.months, i.days, 0),
        Field::Month => months(1),
        Field::Quarter => months(3),
        Field::Year => months(12),
        Field::Decade => months(120),
        Field::Century => months(1_200),
        Field::Millennium => months(12_000),
        _ => return None,
    })
}
