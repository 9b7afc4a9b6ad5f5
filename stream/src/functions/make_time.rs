//! Dates, times and intervals made from their parts or from a text by a pattern, and intervals made tidy.
//!
//! Patterns of `to_timestamp(text, pattern)` and `to_date` know `YYYY YY MM Month Mon DD DDD HH24 HH12 HH MI SS MS US AM
//! PM`; every other character stands for one character that is skipped.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Date32Type, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use chrono_tz::Tz;
use datafusion::error::{DataFusionError, Result};
use weir_common::calendar::{Civil, MICROS_PER_DAY, MICROS_PER_SECOND, local_to_instant};
use weir_common::{SqlState, SqlType};

use super::cast::{INTERVAL, cast, zone};
use super::function::{Arguments, Call, Function, argument, no_such_function, refuse};

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("make_date", &[3], |_| Ok(DataType::Date32), make_date),
        Function::new("make_time", &[3], |_| Ok(SqlType::Time.to_arrow()), make_time),
        Function::new("make_timestamp", &[6], |_| Ok(SqlType::Timestamp.to_arrow()), make_timestamp),
        Function::new("make_timestamptz", &[6, 7], |_| Ok(SqlType::TimestampTz.to_arrow()), make_timestamp),
        Function::new("make_interval", &[0, 1, 2, 3, 4, 5, 6, 7], |_| Ok(INTERVAL), make_interval),
        Function::new("justify_hours", &[1], |_| Ok(INTERVAL), |call| intervals(call, justify_hours)),
        Function::new("justify_days", &[1], |_| Ok(INTERVAL), |call| intervals(call, justify_days)),
        Function::new("justify_interval", &[1], |_| Ok(INTERVAL), |call| intervals(call, justify_interval)),
        Function::new("isfinite", &[1], finite_type, is_finite),
        Function::new("to_date", &[1, 2], |_| Ok(DataType::Date32), to_date),
    ]
}

fn out_of_range(what: &str, value: &str) -> DataFusionError {
    refuse(SqlState::DATETIME_OVERFLOW, format!("{what} field value out of range: {value}"))
}

fn date_out_of_range(year: f64, month: f64, day: f64) -> DataFusionError {
    out_of_range("date", &format!("{year}-{month:02}-{day:02}"))
}

/// Arguments as numbers, a column each.
fn numbers(call: &Call<'_>, count: usize) -> Result<Vec<PrimitiveArray<Float64Type>>> {
    (0..count.min(call.len())).map(|i| Ok(call.array_as(i, &DataType::Float64)?.as_primitive().clone())).collect()
}

/// The arguments of a row, unless one is NULL.
fn row(columns: &[PrimitiveArray<Float64Type>], row: usize) -> Option<Vec<f64>> {
    columns.iter().map(|c| c.is_valid(row).then(|| c.value(row))).collect()
}

fn day(year: f64, month: f64, day: f64) -> Result<i64> {
    // Years before 1 are counted backwards from -1.
    let astronomical = if year < 0.0 { year as i64 + 1 } else { year as i64 };
    let civil = Civil { year: astronomical, month: month.max(0.0) as u32, day: day.max(0.0) as u32 };
    let valid = year != 0.0 && civil.is_valid() && (-4713..=294_246).contains(&astronomical);
    if valid { Ok(civil.to_days()) } else { Err(date_out_of_range(year, month, day)) }
}

fn make_date(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = numbers(call, 3)?;
    let dates = (0..call.rows()).map(|i| match row(&columns, i).as_deref() {
        Some([y, m, d]) => day(*y, *m, *d).map(|days| Some(days as i32)),
        _ => Ok(None),
    });
    Ok(Arc::new(dates.collect::<Result<PrimitiveArray<Date32Type>>>()?))
}

fn make_time(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = numbers(call, 3)?;
    let times = (0..call.rows()).map(|i| {
        let Some(&[hour, minute, second]) = row(&columns, i).as_deref() else { return Ok(None) };
        let micros = (hour * 60.0 + minute) * 60.0 * 1e6 + (second * 1e6).round_ties_even();
        let valid = hour >= 0.0 && (0.0..60.0).contains(&minute) && (0.0..=60.0).contains(&second);
        if !valid || micros > MICROS_PER_DAY as f64 {
            return Err(out_of_range("time", &format!("{hour}:{minute:02}:{second:02}")));
        }
        Ok(Some(micros as i64))
    });
    Ok(Arc::new(times.collect::<Result<PrimitiveArray<Time64MicrosecondType>>>()?))
}

fn make_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = numbers(call, 6)?;
    let zoned = *call.result_type() != SqlType::Timestamp.to_arrow();
    let zone = zone(call, 6)?;
    let times = (0..call.rows()).map(|i| {
        let Some(&[year, month, of_month, hour, minute, second]) = row(&columns, i).as_deref() else { return Ok(None) };
        let valid = (0.0..=24.0).contains(&hour) && (0.0..60.0).contains(&minute) && (0.0..=60.0).contains(&second);
        if !valid {
            return Err(out_of_range("time", &format!("{hour}:{minute:02}:{second:02}")));
        }
        let seconds = (hour as i64 * 60 + minute as i64) * 60;
        let time = seconds * MICROS_PER_SECOND + (second * 1e6).round_ties_even() as i64;
        let local = day(year, month, of_month)? * MICROS_PER_DAY + time;
        Ok(Some(if zoned { local_to_instant(zone, local) } else { local }))
    });
    let times = times.collect::<Result<PrimitiveArray<TimestampMicrosecondType>>>()?;
    Ok(Arc::new(times.with_data_type(call.result_type().clone())))
}

/// `make_interval(years, months, weeks, days, hours, minutes, seconds)`.
fn make_interval(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = numbers(call, 7)?;
    let made = (0..call.rows()).map(|i| {
        let Some(parts) = row(&columns, i) else { return Ok(None) };
        let part = |i: usize| parts.get(i).copied().unwrap_or(0.0);
        let (months, days) = (part(0) * 12.0 + part(1), part(2) * 7.0 + part(3));
        let micros = ((part(4) * 60.0 + part(5)) * 60.0 + part(6)) * 1e6;
        let fits = months.abs() < 2e9 && days.abs() < 2e9 && micros.abs() < 9e15;
        let made = || IntervalMonthDayNano::new(months as i32, days as i32, micros.round_ties_even() as i64 * 1_000);
        if fits { Ok(Some(made())) } else { Err(refuse(SqlState::DATETIME_OVERFLOW, "interval out of range")) }
    });
    Ok(Arc::new(made.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?))
}

fn intervals(call: &Call<'_>, of: fn(IntervalMonthDayNano) -> IntervalMonthDayNano) -> Result<ArrayRef> {
    let intervals = cast(&call.array(0)?, &SqlType::Interval, Tz::UTC)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    Ok(Arc::new(intervals.unary::<_, IntervalMonthDayNanoType>(of)))
}

const NANOS_PER_DAY: i64 = MICROS_PER_DAY * 1_000;

/// 24 hours become a day; then days and time have the same sign.
fn justify_hours(i: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let mut days = i64::from(i.days) + i.nanoseconds / NANOS_PER_DAY;
    let mut nanos = i.nanoseconds % NANOS_PER_DAY;
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + NANOS_PER_DAY);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - NANOS_PER_DAY);
    }
    IntervalMonthDayNano::new(i.months, days.clamp(i32::MIN.into(), i32::MAX.into()) as i32, nanos)
}

/// 30 days become a month; then months and days have the same sign.
fn justify_days(i: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let mut months = i64::from(i.months) + i64::from(i.days / 30);
    let mut days = i.days % 30;
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - 30);
    }
    IntervalMonthDayNano::new(months.clamp(i32::MIN.into(), i32::MAX.into()) as i32, days, i.nanoseconds)
}

/// Both, and all parts have the same sign.
fn justify_interval(i: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let mut days = i64::from(i.days) + i.nanoseconds / NANOS_PER_DAY;
    let mut nanos = i.nanoseconds % NANOS_PER_DAY;
    let mut months = i64::from(i.months) + days / 30;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && nanos < 0)) {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && (days > 0 || (days == 0 && nanos > 0)) {
        (months, days) = (months + 1, days - 30);
    }
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + NANOS_PER_DAY);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - NANOS_PER_DAY);
    }
    IntervalMonthDayNano::new(months.clamp(i32::MIN.into(), i32::MAX.into()) as i32, days as i32, nanos)
}

fn finite_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 0) {
        DataType::Date32 | DataType::Timestamp(..) | DataType::Interval(_) | DataType::Null => Ok(DataType::Boolean),
        _ => Err(no_such_function("isfinite", args)),
    }
}

fn is_finite(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let finite: BooleanArray = match array.data_type() {
        DataType::Date32 => {
            let dates = array.as_primitive::<Date32Type>();
            dates.iter().map(|d| d.map(|d| !matches!(d, i32::MIN | i32::MAX))).collect()
        }
        DataType::Timestamp(..) => {
            let times = super::function::convert(&array, &DataType::Int64)?;
            times.as_primitive::<Int64Type>().iter().map(|t| t.map(|t| !matches!(t, i64::MIN | i64::MAX))).collect()
        }
        _ => (0..array.len()).map(|i| array.is_valid(i).then_some(true)).collect(),
    };
    Ok(Arc::new(finite))
}

fn to_date(call: &Call<'_>) -> Result<ArrayRef> {
    if call.len() == 1 {
        return cast(&call.array(0)?, &SqlType::Date, Tz::UTC);
    }
    let local = from_pattern(call)?;
    Ok(Arc::new(local.unary::<_, Date32Type>(|micros| micros.div_euclid(MICROS_PER_DAY) as i32)))
}

/// The texts of the first argument, read by the patterns of the second: what a clock shows.
pub(super) fn from_pattern(call: &Call<'_>) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    let (texts, patterns) = (call.array_as(0, &DataType::Utf8)?, call.array_as(1, &DataType::Utf8)?);
    let pairs = texts.as_string::<i32>().iter().zip(patterns.as_string::<i32>());
    pairs.map(|(text, pattern)| text.zip(pattern).map(|(t, p)| read(t, p)).transpose()).collect()
}

/// What a text has told so far.
struct Parts {
    year: i64,
    month: u32,
    day: u32,
    day_of_year: Option<i64>,
    hour: i64,
    afternoon: Option<bool>,
    /// Minutes, seconds and less.
    micros: i64,
}

const PATTERNS: [&str; 16] =
    ["YYYY", "YY", "MONTH", "MON", "MM", "DDD", "DD", "HH24", "HH12", "HH", "MI", "SS", "MS", "US", "AM", "PM"];

fn read(text: &str, pattern: &str) -> Result<i64> {
    let mut parts = Parts { year: 0, month: 1, day: 1, day_of_year: None, hour: 0, afternoon: None, micros: 0 };
    let (mut rest, mut pattern) = (text, pattern);
    while let Some(c) = pattern.chars().next() {
        rest = rest.trim_start();
        let known = PATTERNS.iter().find(|p| pattern.get(..p.len()).is_some_and(|s| s.eq_ignore_ascii_case(p)));
        match known {
            Some(found) => {
                pattern = &pattern[found.len()..];
                // Digits run on unless digits of the next pattern follow.
                let separated = !pattern.starts_with(|c: char| c.is_ascii_alphabetic());
                rest = parts.take(found, rest, separated)?;
            }
            None => {
                pattern = &pattern[c.len_utf8()..];
                let skipped = rest.chars().next().filter(|n| !n.is_ascii_alphanumeric() || *n == c);
                rest = &rest[skipped.map_or(0, char::len_utf8)..];
            }
        }
    }
    parts.micros(text)
}

impl Parts {
    /// Takes what a pattern stands for off the text.
    fn take<'a>(&mut self, pattern: &str, text: &'a str, separated: bool) -> Result<&'a str> {
        let invalid = || {
            let value: String = text.chars().take(pattern.len()).collect();
            refuse(SqlState::INVALID_DATETIME, format!("invalid value \"{value}\" for \"{pattern}\""))
        };
        if matches!(pattern, "MONTH" | "MON") {
            const MONTHS: [&str; 12] = [
                "january",
                "february",
                "march",
                "april",
                "may",
                "june",
                "july",
                "august",
                "september",
                "october",
                "november",
                "december",
            ];
            let named = |name: &&str| {
                let name = if pattern == "MON" { &name[..3] } else { name };
                text.get(..name.len()).is_some_and(|t| t.eq_ignore_ascii_case(name))
            };
            let i = MONTHS.iter().position(named).ok_or_else(invalid)?;
            self.month = i as u32 + 1;
            return Ok(&text[if pattern == "MON" { 3 } else { MONTHS[i].len() }..]);
        }
        if matches!(pattern, "AM" | "PM") {
            let word = text.get(..2).map(str::to_ascii_uppercase);
            self.afternoon = match word.as_deref() {
                Some("AM") => Some(false),
                Some("PM") => Some(true),
                _ => return Err(invalid()),
            };
            return Ok(&text[2..]);
        }
        let width = match pattern {
            "HH24" | "HH12" => 2,
            "MS" => 3,
            "US" => 6,
            other => other.len(),
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let digits = if separated && pattern == "YYYY" { digits } else { digits.min(width) };
        let value: i64 = text[..digits].parse().map_err(|_| invalid())?;
        match pattern {
            "YYYY" => self.year = value,
            "YY" => self.year = if value < 70 { 2000 + value } else { 1900 + value },
            "MM" => self.month = value as u32,
            "DD" => self.day = value as u32,
            "DDD" => self.day_of_year = Some(value),
            "HH24" | "HH12" | "HH" => self.hour = value,
            "MI" => self.micros += value * 60 * MICROS_PER_SECOND,
            "SS" => self.micros += value * MICROS_PER_SECOND,
            "MS" => self.micros += value * 10_i64.pow(3 - digits as u32) * 1_000,
            _ => self.micros += value * 10_i64.pow(6 - digits as u32),
        }
        Ok(&text[digits..])
    }

    fn micros(&self, text: &str) -> Result<i64> {
        let out_of_range =
            || refuse(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""));
        let civil = Civil { year: self.year, month: self.month, day: self.day };
        let days = match self.day_of_year {
            Some(day) => Civil { month: 1, day: 1, ..civil }.to_days() + day - 1,
            None => civil.to_days(),
        };
        let hour = match self.afternoon {
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let valid = civil.is_valid() && (0..=294_246).contains(&self.year) && hour <= 24;
        if valid {
            Ok(days * MICROS_PER_DAY + hour * 3_600 * MICROS_PER_SECOND + self.micros)
        } else {
            Err(out_of_range())
        }
    }
}
