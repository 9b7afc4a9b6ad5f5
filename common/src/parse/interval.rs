//! Intervals from text.
//!
//! ```text
//! 1 year 2 mons 3 days 04:05:06.7     numbers with units, and a time
//! @ 1 hour 30 minutes ago             everything negated
//! 1-2 3 04:05:06                      years-months, days, time
//! P1Y2M3DT4H5M6.7S                    ISO 8601
//! ```

use arrow::datatypes::IntervalMonthDayNano;

use super::datetime::fraction_micros;
use super::{Result, is_space, trim};
use crate::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND};
use crate::error::{SqlState, ValueError};

const INTERVAL_OVERFLOW: SqlState = SqlState("22015");

/// An interval. Its time is a whole number of microseconds.
pub fn parse_interval(text: &str) -> Result<IntervalMonthDayNano> {
    let invalid = || {
        let message = format!("invalid input syntax for type interval: \"{text}\"");
        ValueError::new(SqlState::INVALID_DATETIME, message)
    };
    let word = trim(text);
    let sum = match word.strip_prefix('P') {
        Some(designated) => iso(designated),
        None => words(word),
    };
    let sum = sum.ok_or_else(invalid)?;
    sum.interval()
        .ok_or_else(|| ValueError::new(INTERVAL_OVERFLOW, format!("interval field value out of range: \"{text}\"")))
}

/// The fields added up.
#[derive(Default)]
struct Sum {
    months: i128,
    days: i128,
    micros: i128,
}

impl Sum {
    fn interval(&self) -> Option<IntervalMonthDayNano> {
        let nanoseconds = i64::try_from(self.micros).ok()?.checked_mul(1_000)?;
        let (months, days) = (i32::try_from(self.months).ok()?, i32::try_from(self.days).ok()?);
        Some(IntervalMonthDayNano { months, days, nanoseconds })
    }

    fn add(&mut self, number: Number, unit: Unit) {
        match unit {
            Unit::Micros(micros) => self.micros += number.times(micros),
            Unit::Days(days) => {
                self.days += i128::from(number.whole) * i128::from(days);
                self.add_days(number.fraction * days as f64);
            }
            Unit::Months(1) => {
                self.months += i128::from(number.whole);
                self.add_days(number.fraction * 30.0);
            }
            Unit::Months(months) => {
                // A part of a year is rounded to months.
                self.months += i128::from(number.whole) * i128::from(months);
                self.months += (number.fraction * months as f64).round_ties_even() as i128;
            }
        }
    }

    /// Parts of days become days and a time.
    fn add_days(&mut self, days: f64) {
        let whole = days.trunc();
        self.days += whole as i128;
        self.micros += ((days - whole) * MICROS_PER_DAY as f64).round_ties_even() as i128;
    }

    fn negate(&mut self) {
        (self.months, self.days, self.micros) = (-self.months, -self.days, -self.micros);
    }
}

/// A number apart: both parts have its sign.
#[derive(Clone, Copy)]
struct Number {
    whole: i64,
    fraction: f64,
    /// The fraction in millionths, for exact seconds.
    millionths: i64,
}

impl Number {
    /// `[+-] digits [. digits]`.
    fn read(text: &str) -> Option<Number> {
        let (sign, digits) = match text.as_bytes() {
            [b'-', ..] => (-1, &text[1..]),
            [b'+', ..] => (1, &text[1..]),
            _ => (1, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let numeric = whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
        if !numeric || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let millionths = sign * fraction_micros(fraction);
        let fraction = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().ok()? };
        Some(Number { whole: sign * whole, fraction: sign as f64 * fraction, millionths })
    }

    fn times(self, micros: i64) -> i128 {
        let fraction = if micros >= MICROS_PER_SECOND && micros % MICROS_PER_SECOND == 0 && micros == MICROS_PER_SECOND
        {
            i128::from(self.millionths)
        } else {
            (self.fraction * micros as f64).round_ties_even() as i128
        };
        i128::from(self.whole) * i128::from(micros) + fraction
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Micros(i64),
    Days(i64),
    Months(i64),
}

impl Unit {
    const SECOND: Unit = Unit::Micros(MICROS_PER_SECOND);

    fn named(name: &str) -> Option<Unit> {
        Some(match name.to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" | "microsecon" => {
                Unit::Micros(1)
            }
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" | "millisecon" => {
                Unit::Micros(1_000)
            }
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::SECOND,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Micros(60 * MICROS_PER_SECOND),
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Micros(3_600 * MICROS_PER_SECOND),
            "d" | "day" | "days" => Unit::Days(1),
            "w" | "week" | "weeks" => Unit::Days(7),
            "mon" | "mons" | "month" | "months" => Unit::Months(1),
            "qtr" | "quarter" | "quarters" => Unit::Months(3),
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Months(12),
            "dec" | "decs" | "decade" | "decades" => Unit::Months(120),
            "c" | "cent" | "century" | "centuries" => Unit::Months(1_200),
            "mil" | "mils" | "millennium" | "millennia" => Unit::Months(12_000),
            _ => return None,
        })
    }
}

/// The style of PostgreSQL and that of the SQL standard.
fn words(text: &str) -> Option<Sum> {
    let words = split(text);
    let mut sum = Sum::default();
    let mut rest = words.as_slice();
    let mut ago = false;
    let mut any = false;
    while let [word, after @ ..] = rest {
        rest = after;
        match *word {
            "@" if !any => continue,
            _ if any && rest.is_empty() && word.eq_ignore_ascii_case("ago") => {
                ago = true;
                continue;
            }
            _ if word.contains(':') => sum.micros += i128::from(clock(word)?),
            _ if word.chars().skip(1).any(|c| c == '-') => sum.months += years_and_months(word)?,
            _ => {
                let number = Number::read(word)?;
                let unit = match rest {
                    [next, after @ ..] if Unit::named(next).is_some() => {
                        rest = after;
                        Unit::named(next)?
                    }
                    // A number before a time is days; the last one is seconds.
                    [next, ..] if next.contains(':') => Unit::Days(1),
                    [] => Unit::SECOND,
                    _ => return None,
                };
                sum.add(number, unit);
            }
        }
        any = true;
    }
    if ago {
        sum.negate();
    }
    any.then_some(sum)
}

/// Splits at blanks, and between a number and its unit.
fn split(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for piece in text.split(is_space).filter(|p| !p.is_empty()) {
        let mut start = 0;
        let bytes = piece.as_bytes();
        for i in 1..bytes.len() {
            let letter = |b: u8| b.is_ascii_alphabetic();
            if piece.is_char_boundary(i) && letter(bytes[i]) != letter(bytes[i - 1]) {
                words.push(&piece[start..i]);
                start = i;
            }
        }
        words.push(&piece[start..]);
    }
    words
}

/// `[+-] 04:05:06.7`, `04:05`, as microseconds.
fn clock(word: &str) -> Option<i64> {
    let (sign, digits) = match word.as_bytes() {
        [b'-', ..] => (-1, &word[1..]),
        [b'+', ..] => (1, &word[1..]),
        _ => (1, word),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let pieces: Vec<&str> = whole.split(':').collect();
    let mut fields = Vec::new();
    for piece in &pieces {
        let valid = !piece.is_empty() && piece.bytes().all(|b| b.is_ascii_digit());
        fields.push(if valid { piece.parse::<i64>().ok()? } else { return None });
    }
    let (hours, minutes, seconds) = match fields.as_slice() {
        // With a fraction, the second of two fields is seconds.
        [minutes, seconds] if !fraction.is_empty() => (0, *minutes, *seconds),
        [hours, minutes] => (*hours, *minutes, 0),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    if minutes > 59 || seconds > 59 {
        return None;
    }
    let seconds = hours.checked_mul(3_600)?.checked_add(minutes * 60 + seconds)?;
    Some(sign * (seconds.checked_mul(MICROS_PER_SECOND)? + fraction_micros(fraction)))
}

/// `[+-] 1-2` as months.
fn years_and_months(word: &str) -> Option<i128> {
    let (sign, digits) = match word.as_bytes() {
        [b'-', ..] => (-1, &word[1..]),
        [b'+', ..] => (1, &word[1..]),
        _ => (1, word),
    };
    let (years, months) = digits.split_once('-')?;
    let (years, months): (u32, u32) = (years.parse().ok()?, months.parse().ok()?);
    (months < 12).then_some(sign * (i128::from(years) * 12 + i128::from(months)))
}

/// ISO 8601 after the P: `1Y2M3W4DT5H6M7.8S`.
fn iso(text: &str) -> Option<Sum> {
    let mut sum = Sum::default();
    let mut time = false;
    let mut rest = text;
    let mut any = false;
    while !rest.is_empty() {
        if !time && rest.starts_with('T') {
            (time, rest) = (true, &rest[1..]);
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let unit = match (&rest[end..=end], time) {
            ("Y", false) => Unit::Months(12),
            ("M", false) => Unit::Months(1),
            ("W", false) => Unit::Days(7),
            ("D", false) => Unit::Days(1),
            ("H", true) => Unit::Micros(3_600 * MICROS_PER_SECOND),
            ("M", true) => Unit::Micros(60 * MICROS_PER_SECOND),
            ("S", true) => Unit::SECOND,
            _ => return None,
        };
        sum.add(Number::read(&rest[..end])?, unit);
        rest = &rest[end + 1..];
        any = true;
    }
    any.then_some(sum)
}
