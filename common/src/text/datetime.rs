//! Dates, times and intervals as text, in PostgreSQL's styles `ISO` and `postgres`.

use std::fmt::Write;

use chrono_tz::Tz;

use crate::calendar::{Civil, MICROS_PER_SECOND, instant_to_local, offset_of_instant, split_timestamp};

/// Appends a date, `2024-02-29`.
pub fn write_date(days: i32, out: &mut String) {
    match days {
        i32::MAX => out.push_str("infinity"),
        i32::MIN => out.push_str("-infinity"),
        _ => {
            let civil = Civil::from_days(days.into());
            write_day(civil, out);
            write_era(civil, out);
        }
    }
}

/// Appends a time of day, `23:59:59.5`.
pub fn write_time(micros: i64, out: &mut String) {
    let seconds = micros.div_euclid(MICROS_PER_SECOND);
    two_digits(seconds / 3_600, out);
    out.push(':');
    two_digits(seconds / 60 % 60, out);
    out.push(':');
    two_digits(seconds % 60, out);
    write_fraction(micros.rem_euclid(MICROS_PER_SECOND), out);
}

/// Appends a timestamp, `2024-02-29 23:59:59.5`.
pub fn write_timestamp(micros: i64, out: &mut String) {
    if let Some(civil) = write_date_and_time(micros, out) {
        write_era(civil, out);
    }
}

/// Appends an instant as a clock in the zone shows it, `2024-02-29 23:59:59.5+01`.
pub fn write_timestamptz(micros: i64, zone: Tz, out: &mut String) {
    if matches!(micros, i64::MIN | i64::MAX) {
        return write_timestamp(micros, out);
    }
    let civil = write_date_and_time(instant_to_local(zone, micros), out);
    write_offset(offset_of_instant(zone, micros), out);
    if let Some(civil) = civil {
        write_era(civil, out);
    }
}

/// Appends an interval, `1 year 2 mons -3 days +04:05:06.7`.
pub fn write_interval(months: i32, days: i32, micros: i64, out: &mut String) {
    let start = out.len();
    let mut negative = false;
    let parts = [(i64::from(months / 12), "year"), (i64::from(months % 12), "mon"), (i64::from(days), "day")];
    for (value, unit) in parts.into_iter().filter(|(value, _)| *value != 0) {
        let space = if out.len() > start { " " } else { "" };
        let sign = if negative && value > 0 { "+" } else { "" };
        let plural = if value == 1 { "" } else { "s" };
        let _ = write!(out, "{space}{sign}{value} {unit}{plural}");
        negative = value < 0;
    }
    let first = out.len() == start;
    if micros != 0 || first {
        let space = if first { "" } else { " " };
        let sign = match micros {
            ..0 => "-",
            _ if negative => "+",
            _ => "",
        };
        let (seconds, fraction) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        let _ = write!(out, "{space}{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60);
        write_fraction(fraction as i64, out);
    }
}

/// Appends day and time, or the name of an infinite timestamp.
fn write_date_and_time(micros: i64, out: &mut String) -> Option<Civil> {
    match micros {
        i64::MAX => out.push_str("infinity"),
        i64::MIN => out.push_str("-infinity"),
        _ => {
            let (days, time) = split_timestamp(micros);
            let civil = Civil::from_days(days);
            write_day(civil, out);
            out.push(' ');
            write_time(time, out);
            return Some(civil);
        }
    }
    None
}

fn write_day(civil: Civil, out: &mut String) {
    let year = if civil.year > 0 { civil.year } else { 1 - civil.year };
    if year < 10_000 {
        two_digits(year / 100, out);
        two_digits(year % 100, out);
    } else {
        super::put(out, year);
    }
    out.push('-');
    two_digits(civil.month.into(), out);
    out.push('-');
    two_digits(civil.day.into(), out);
}

fn write_era(civil: Civil, out: &mut String) {
    if civil.year <= 0 {
        out.push_str(" BC");
    }
}

/// Appends `+02`, `-03:30` or `+00:53:28`.
fn write_offset(seconds: i64, out: &mut String) {
    out.push(if seconds < 0 { '-' } else { '+' });
    let seconds = seconds.abs();
    two_digits(seconds / 3_600, out);
    if seconds % 3_600 != 0 {
        out.push(':');
        two_digits(seconds / 60 % 60, out);
    }
    if seconds % 60 != 0 {
        out.push(':');
        two_digits(seconds % 60, out);
    }
}

/// Appends microseconds of a second without zeros at the end; nothing for none.
fn write_fraction(micros: i64, out: &mut String) {
    if micros == 0 {
        return;
    }
    let mut digits = 6;
    let mut value = micros;
    while value % 10 == 0 {
        value /= 10;
        digits -= 1;
    }
    let _ = write!(out, ".{value:0digits$}");
}

/// Appends a number below 100 with two digits; a larger one with all of its digits.
fn two_digits(value: i64, out: &mut String) {
    if !(0..100).contains(&value) {
        return super::put(out, value);
    }
    out.push(char::from(b'0' + (value / 10) as u8));
    out.push(char::from(b'0' + (value % 10) as u8));
}
