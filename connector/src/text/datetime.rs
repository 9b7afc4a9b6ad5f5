//! Dates and times from text, in ISO 8601 and the like: `2024-02-29`, `20240229`, `2024-02-29 23:59:59.5+01`,
//! `2024-02-29T23:59Z`.
//!
//! Fractions of a second are rounded to microseconds. A timestamp ignores a zone, as PostgreSQL's does; a timestamptz
//! without one is in UTC, for a source has no session whose time zone could be meant.

use weir_common::calendar::Civil;

use super::{MALFORMED, OUT_OF_RANGE, Reason};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// The last year that PostgreSQL's timestamps reach.
const YEAR_MAX: i64 = 294_276;

/// Reads a date as days since 1970. A time after it is checked and dropped.
pub fn parse_date(text: &str) -> Result<i32, Reason> {
    let mut scanner = Scanner::new(text);
    let (days, _) = scanner.timestamp()?;
    scanner.zone()?;
    scanner.end()?;
    i32::try_from(days).map_err(|_| OUT_OF_RANGE)
}

/// Reads a time of day as microseconds since midnight. A zone after it is checked and ignored.
pub fn parse_time(text: &str) -> Result<i64, Reason> {
    let mut scanner = Scanner::new(text);
    let micros = scanner.time()?;
    scanner.zone()?;
    scanner.end()?;
    Ok(micros)
}

/// Reads a timestamp as microseconds since 1970.
pub fn parse_timestamp(text: &str) -> Result<i64, Reason> {
    let mut scanner = Scanner::new(text);
    let (days, micros) = scanner.timestamp()?;
    scanner.zone()?;
    scanner.end()?;
    Ok(days * MICROS_PER_DAY + micros)
}

/// Reads an instant as microseconds since 1970 in UTC.
pub fn parse_timestamptz(text: &str) -> Result<i64, Reason> {
    let mut scanner = Scanner::new(text);
    let (days, micros) = scanner.timestamp()?;
    let offset_seconds = scanner.zone()?;
    scanner.end()?;
    Ok(days * MICROS_PER_DAY + micros - offset_seconds * MICROS_PER_SECOND)
}

/// Reads a timestamp given as a number, by its size: below 10^11 seconds, below 10^14 milliseconds, else microseconds.
/// Each reading reaches at least from 1973 to the year 5138.
pub fn timestamp_from_number(number: i64) -> Result<i64, Reason> {
    let unit = match number.unsigned_abs() {
        0..100_000_000_000 => MICROS_PER_SECOND,
        100_000_000_000..100_000_000_000_000 => 1_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1,
        _ => return Err(OUT_OF_RANGE),
    };
    Ok(number * unit)
}

/// Reads the parts one after the other.
struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Scanner<'a> {
        Scanner { rest: text.trim().as_bytes() }
    }

    /// Takes one of the bytes if it is next.
    fn take(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        bytes.contains(first).then(|| {
            self.rest = rest;
            *first
        })
    }

    /// How many digits are next.
    fn span(&self) -> usize {
        self.rest.iter().take_while(|b| b.is_ascii_digit()).count()
    }

    /// Takes exactly `count` digits, which are there.
    fn fixed(&mut self, count: usize) -> i64 {
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        digits.iter().fold(0, |value, d| value * 10 + i64::from(d - b'0'))
    }

    /// Takes between `least` and `most` digits.
    fn number(&mut self, least: usize, most: usize) -> Result<i64, Reason> {
        let span = self.span();
        if (least..=most).contains(&span) { Ok(self.fixed(span)) } else { Err(MALFORMED) }
    }

    fn end(&self) -> Result<(), Reason> {
        if self.rest.is_empty() { Ok(()) } else { Err(MALFORMED) }
    }

    /// A date, and the time after it if there is one.
    fn timestamp(&mut self) -> Result<(i64, i64), Reason> {
        let days = self.date()?;
        let before = self.rest;
        let separated = self.take(b"Tt ").is_some();
        while separated && self.take(b" ").is_some() {}
        if separated && self.span() > 0 {
            return Ok((days, self.time()?));
        }
        self.rest = before;
        Ok((days, 0))
    }

    fn date(&mut self) -> Result<i64, Reason> {
        let (year, month, day) = if self.span() == 8 {
            (self.fixed(4), self.fixed(2), self.fixed(2))
        } else {
            let year = self.number(4, 6)?;
            let separator = self.take(b"-/").ok_or(MALFORMED)?;
            let month = self.number(1, 2)?;
            self.take(&[separator]).ok_or(MALFORMED)?;
            (year, month, self.number(1, 2)?)
        };
        let date = Civil { year, month: month as u32, day: day as u32 };
        if !(1..=YEAR_MAX).contains(&year) || !date.is_valid() {
            return Err("no such day");
        }
        Ok(date.to_days())
    }

    /// `23:59`, `23:59:59.5` or `235959.5`, as microseconds.
    fn time(&mut self) -> Result<i64, Reason> {
        let (hour, minute, second) = if self.span() == 6 {
            (self.fixed(2), self.fixed(2), self.fixed(2))
        } else {
            let hour = self.number(1, 2)?;
            self.take(b":").ok_or(MALFORMED)?;
            let minute = self.number(2, 2)?;
            let second = if self.take(b":").is_some() { self.number(2, 2)? } else { 0 };
            (hour, minute, second)
        };
        let fraction = if self.take(b".,").is_some() { self.fraction() } else { 0 };
        let micros = ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + fraction;
        if hour > 24 || minute > 59 || second > 60 || micros > MICROS_PER_DAY {
            return Err("no such time of day");
        }
        Ok(micros)
    }

    /// Digits after the point of a second, rounded to microseconds.
    fn fraction(&mut self) -> i64 {
        let (digits, rest) = self.rest.split_at(self.span());
        self.rest = rest;
        let digit = |i: usize| digits.get(i).map_or(0, |d| i64::from(d - b'0'));
        (0..6).fold(0, |value, i| value * 10 + digit(i)) + i64::from(digit(6) >= 5)
    }

    /// A zone as seconds that it is ahead of UTC; none is UTC.
    fn zone(&mut self) -> Result<i64, Reason> {
        while self.take(b" ").is_some() {}
        if self.rest.eq_ignore_ascii_case(b"z")
            || self.rest.eq_ignore_ascii_case(b"utc")
            || self.rest.eq_ignore_ascii_case(b"gmt")
        {
            self.rest = &[];
        }
        let Some(sign) = self.take(b"+-") else { return Ok(0) };
        let (hours, minutes, seconds) = if self.span() == 4 {
            (self.fixed(2), self.fixed(2), 0)
        } else {
            let hours = self.number(1, 2)?;
            let minutes = if self.take(b":").is_some() { self.number(2, 2)? } else { 0 };
            let seconds = if self.take(b":").is_some() { self.number(2, 2)? } else { 0 };
            (hours, minutes, seconds)
        };
        if hours > 15 || minutes > 59 || seconds > 59 {
            return Err("no such time zone offset");
        }
        let ahead = (hours * 60 + minutes) * 60 + seconds;
        Ok(if sign == b'-' { -ahead } else { ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-02-29 00:00:00.
    const DAY: i64 = 19_782;
    const MIDNIGHT: i64 = DAY * MICROS_PER_DAY;
    const HOUR: i64 = 3_600 * MICROS_PER_SECOND;

    #[test]
    fn timestamps() {
        let cases = [
            ("2024-02-29", 0),
            ("20240229", 0),
            ("2024/2/29", 0),
            ("2024-02-29 01:00", HOUR),
            ("2024-02-29T01:00:00Z", HOUR),
            (" 2024-02-29  1:00:00 utc ", HOUR),
            ("20240229T010000", HOUR),
            ("2024-02-29 01:00:00.5", HOUR + 500_000),
            ("2024-02-29 01:00:00.1234565", HOUR + 123_457),
            ("2024-02-29 00:59:59.9999999", HOUR),
            ("2024-02-29 24:00:00", 24 * HOUR),
            ("2024-02-29 00:59:60", HOUR),
            ("2024-02-29 01:00:00+05:30", HOUR),
        ];
        for (text, micros) in cases {
            assert_eq!(parse_timestamp(text), Ok(MIDNIGHT + micros), "{text}");
        }
        let refused = [
            "", "now", "infinity", "2023-02-29", "2024-13-01", "2024-00-01", "0000-01-01", "24-02-29", "2024-02-29x",
            "2024-02-29 25:00", "2024-02-29 24:00:01", "2024-02-29 1:2", "2024-02-29 T", "2024-02-29-01/01",
            "2024-02/29", "2024-02-29 01:00 PM", "999999-01-01", "2024-02-29 01:00+16", "2024-02-29 01:00 Mars/X",
        ];
        for text in refused {
            assert!(parse_timestamp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn instants() {
        let cases = [
            ("2024-02-29 01:00:00", HOUR),
            ("2024-02-29 01:00:00Z", HOUR),
            ("2024-02-29 01:00:00+01", 0),
            ("2024-02-29 01:00:00-0130", 2 * HOUR + HOUR / 2),
            ("2024-02-29T01:00:00 +01:00:01", -MICROS_PER_SECOND),
            ("2024-02-29+01", -HOUR),
        ];
        for (text, micros) in cases {
            assert_eq!(parse_timestamptz(text), Ok(MIDNIGHT + micros), "{text}");
        }
    }

    #[test]
    fn dates_and_times() {
        assert_eq!(parse_date("1970-01-01"), Ok(0));
        assert_eq!(parse_date("0001-01-01"), Ok(-719_162));
        assert_eq!(parse_date("2024-02-29 10:00:00"), Ok(DAY as i32));
        assert_eq!(parse_time("01:00:00.25"), Ok(HOUR + 250_000));
        assert_eq!(parse_time("010000"), Ok(HOUR));
        assert!(parse_time("1").is_err());
        assert!(parse_time("2024-02-29").is_err());
    }

    #[test]
    fn numbers() {
        assert_eq!(timestamp_from_number(1_709_164_800), Ok(MIDNIGHT));
        assert_eq!(timestamp_from_number(1_709_164_800_000), Ok(MIDNIGHT));
        assert_eq!(timestamp_from_number(1_709_164_800_000_000), Ok(MIDNIGHT));
        assert_eq!(timestamp_from_number(-1), Ok(-MICROS_PER_SECOND));
        assert!(timestamp_from_number(i64::MIN).is_err());
    }
}
