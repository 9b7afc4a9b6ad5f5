//! `to_char`: timestamps and numbers as text by a pattern.
//!
//! Of times: `YYYY YYY YY Y IYYY CC Q MM Month Mon WW IW W DDD DD D ID J Day Dy HH24 HH12 HH MI SS MS US SSSS AM PM A.M.
//! P.M. BC AD TZ OF`, in the case in which they are written where that matters; of numbers: `9 0 . D , G S SG MI PR L`.
//! `FM` leaves out zeros and blanks that only fill, and text in double quotes stays as it is.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::{DataType, IntervalMonthDayNanoType, TimestampMicrosecondType};
use chrono_tz::Tz;
use datafusion::error::Result;
use weir_common::SqlType;
use weir_common::calendar::{
    Civil, MICROS_PER_DAY, MICROS_PER_SECOND, instant_to_local, iso_weekday, offset_of_instant, split_timestamp,
};
use weir_common::text::{TextFormat, write_value};

use super::cast::{cast, zone};
use super::function::{Arguments, Call, Function, argument, no_such_function};

pub(super) fn functions() -> Vec<Function> {
    vec![Function::new("to_char", &[2, 3], result_type, to_char)]
}

fn result_type(args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 0) {
        DataType::Timestamp(..)
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Interval(_)
        | DataType::Duration(_)
        | DataType::Null => Ok(DataType::Utf8),
        number if number.is_numeric() => Ok(DataType::Utf8),
        _ => Err(no_such_function("to_char", args)),
    }
}

/// Writes the text of the value in a row by a pattern; false if there is none.
type Show = Box<dyn FnMut(usize, &str, &mut String) -> bool>;

fn to_char(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.array(0)?;
    let patterns = call.array_as(1, &DataType::Utf8)?;
    let patterns = patterns.as_string::<i32>();
    let mut times = Times::default();
    let mut show: Show = match values.data_type() {
        DataType::Timestamp(_, Some(_)) => {
            let (zone, instants) = (zone(call, 2)?, cast(&values, &SqlType::TimestampTz, Tz::UTC)?);
            Box::new(move |row, pattern, out| {
                let instant = instants.as_primitive::<TimestampMicrosecondType>().value(row);
                times.show(instant_to_local(zone, instant), Some((zone, instant)), pattern, out)
            })
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            let intervals = cast(&values, &SqlType::Interval, Tz::UTC)?;
            Box::new(move |row, pattern, out| {
                let i = intervals.as_primitive::<IntervalMonthDayNanoType>().value(row);
                let civil = Civil {
                    year: i64::from(i.months / 12),
                    month: i.months.unsigned_abs() % 12,
                    day: i.days.unsigned_abs(),
                };
                let moment = Moment { civil, days: 0, time: i.nanoseconds / 1_000, zone: None };
                moment.format(&TimePattern::read(pattern), out);
                true
            })
        }
        number if number.is_numeric() => {
            let numbers = cast(&values, &SqlType::Numeric(None), Tz::UTC)?;
            Box::new(move |row, pattern, out| {
                let pattern = Pattern::read(pattern);
                let format = TextFormat { declared_scale: Some(pattern.fraction.len() as i8), ..TextFormat::default() };
                let mut digits = String::new();
                write_value(&numbers, row, &format, &mut digits);
                out.push_str(&pattern.format(&digits));
                true
            })
        }
        DataType::Time64(_) => {
            let of_day = cast(&values, &SqlType::Interval, Tz::UTC)?;
            Box::new(move |row, pattern, out| {
                let time = of_day.as_primitive::<IntervalMonthDayNanoType>().value(row).nanoseconds / 1_000;
                times.show(time, None, pattern, out)
            })
        }
        _ => {
            let timestamps = cast(&values, &SqlType::Timestamp, Tz::UTC)?;
            Box::new(move |row, pattern, out| {
                times.show(timestamps.as_primitive::<TimestampMicrosecondType>().value(row), None, pattern, out)
            })
        }
    };
    let mut builder = StringBuilder::new();
    let mut text = String::new();
    for row in 0..call.rows() {
        text.clear();
        let valid = values.is_valid(row) && patterns.is_valid(row);
        let shown = valid && show(row, patterns.value(row), &mut text);
        builder.append_option(shown.then_some(&text));
    }
    Ok(Arc::new(builder.finish()))
}

/// Texts of times. Those that come one after the other are often of the same day, hour or minute, and then of the same text.
#[derive(Default)]
struct Times {
    pattern: String,
    parsed: TimePattern,
    /// The last time, in units of the pattern, and its text.
    last: Option<(i64, String)>,
}

impl Times {
    fn show(&mut self, local: i64, zone: Option<(Tz, i64)>, pattern: &str, out: &mut String) -> bool {
        if self.pattern != pattern {
            *self = Times { pattern: pattern.to_owned(), parsed: TimePattern::read(pattern), last: None };
        }
        let unit = local.div_euclid(self.parsed.unit);
        match &self.last {
            Some((last, text)) if *last == unit && self.parsed.unit > 1 => out.push_str(text),
            _ => {
                let Some(moment) = Moment::of(local, zone) else { return false };
                moment.format(&self.parsed, out);
                self.last = Some((unit, out.clone()));
            }
        }
        true
    }
}

/// A pattern of times.
struct TimePattern {
    parts: Vec<Part>,
    /// Microseconds: times of the same local unit have the same text. 1 where an instant has more to it.
    unit: i64,
}

enum Part {
    Text(String),
    /// One of [`TIME_PATTERNS`], with zeros and blanks that fill.
    Field {
        name: &'static str,
        fill: bool,
    },
    /// `TH` or `th` after a number.
    Ordinal {
        upper: bool,
    },
}

impl Default for TimePattern {
    fn default() -> TimePattern {
        TimePattern { parts: Vec::new(), unit: MICROS_PER_DAY }
    }
}

impl TimePattern {
    fn read(pattern: &str) -> TimePattern {
        let mut read = TimePattern::default();
        let mut rest = pattern;
        while let Some(c) = rest.chars().next() {
            if c == '"' {
                let quoted = &rest[1..];
                let end = quoted.find('"').unwrap_or(quoted.len());
                read.text(&quoted[..end]);
                rest = quoted.get(end + 1..).unwrap_or_default();
                continue;
            }
            let (fill, after) = match rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
                Some(after) => (false, after),
                None => (true, rest),
            };
            match TIME_PATTERNS.into_iter().find(|p| starts_with(after, p)) {
                Some(name) => {
                    rest = &after[name.len()..];
                    read.unit = read.unit.min(unit_of(name));
                    read.parts.push(Part::Field { name, fill });
                    let upper = rest.starts_with("TH");
                    if is_number(name) && (upper || rest.starts_with("th")) {
                        read.parts.push(Part::Ordinal { upper });
                        rest = &rest[2..];
                    }
                }
                None if !fill => rest = after,
                None => {
                    read.text(&rest[..c.len_utf8()]);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        read
    }

    fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }
}

/// Microseconds within which a field of a pattern stays as it is.
fn unit_of(name: &str) -> i64 {
    match name {
        "US" | "TZ" | "OF" => 1,
        "MS" => 1_000,
        "SS" | "SSSS" => MICROS_PER_SECOND,
        "MI" => 60 * MICROS_PER_SECOND,
        "HH24" | "HH12" | "HH" | "AM" | "PM" | "am" | "pm" | "A.M." | "P.M." => 3_600 * MICROS_PER_SECOND,
        _ => MICROS_PER_DAY,
    }
}

fn is_number(name: &str) -> bool {
    let texts = ["AM", "PM", "am", "pm", "A.M.", "P.M.", "BC", "AD", "TZ"];
    let is_name = name.len() > 1 && ["mon", "day", "dy"].iter().any(|n| name.to_ascii_lowercase().starts_with(n));
    !texts.contains(&name) && !is_name
}

/// What a clock and a calendar show.
struct Moment {
    civil: Civil,
    days: i64,
    time: i64,
    zone: Option<(Tz, i64)>,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
/// Patterns of times; of those with a common start, the longer first.
const TIME_PATTERNS: [&str; 46] = [
    "YYYY", "IYYY", "YYY", "YY", "Y", "CC", "Q", "MM", "Month", "MONTH", "month", "Mon", "MON", "mon", "WW", "IW",
    "DDD", "DD", "Day", "DAY", "day", "Dy", "DY", "dy", "D", "ID", "J", "HH24", "HH12", "HH", "MI", "MS", "SSSS", "SS",
    "US", "W", "A.M.", "P.M.", "AM", "PM", "am", "pm", "BC", "AD", "TZ", "OF",
];

impl Moment {
    /// `None` for infinity.
    fn of(local: i64, zone: Option<(Tz, i64)>) -> Option<Moment> {
        let (days, time) = split_timestamp(local);
        (!matches!(local, i64::MIN | i64::MAX)).then(|| Moment { civil: Civil::from_days(days), days, time, zone })
    }

    fn format(&self, pattern: &TimePattern, out: &mut String) {
        for part in &pattern.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field { name, fill } => self.write(name, *fill, out),
                Part::Ordinal { upper } => out.push_str(&ordinal(out, *upper)),
            }
        }
    }

    fn write(&self, pattern: &str, fill: bool, out: &mut String) {
        let Civil { year, month, day } = self.civil;
        let shown_year = if year > 0 { year } else { 1 - year };
        let seconds = self.time.abs() / MICROS_PER_SECOND;
        let hour = seconds / 3_600;
        let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
        let mut number = |value: i64, width: usize| {
            let width = if fill { width } else { 0 };
            let _ = write!(out, "{value:0width$}");
        };
        match pattern {
            "YYYY" => number(shown_year, 4),
            "YYY" => number(shown_year % 1_000, 3),
            "YY" => number(shown_year % 100, 2),
            "Y" => number(shown_year % 10, 1),
            "IYYY" => number(self.civil.iso_week().0, 4),
            "CC" => number((shown_year + 99) / 100, 2),
            "Q" => number((i64::from(month) + 2) / 3, 1),
            "MM" => number(month.into(), 2),
            "WW" => number((self.civil.day_of_year() + 6) / 7, 2),
            "IW" => number(self.civil.iso_week().1, 2),
            "W" => number((i64::from(day) + 6) / 7, 1),
            "DDD" => number(self.civil.day_of_year(), 3),
            "DD" => number(day.into(), 2),
            "D" => number(iso_weekday(self.days) % 7 + 1, 1),
            "ID" => number(iso_weekday(self.days), 1),
            "J" => number(self.days + 2_440_588, 1),
            "HH24" => number(hour, 2),
            "HH12" | "HH" => number(twelve, 2),
            "MI" => number(seconds / 60 % 60, 2),
            "SS" => number(seconds % 60, 2),
            "MS" => number(self.time.abs() / 1_000 % 1_000, 3),
            "US" => number(self.time.abs() % MICROS_PER_SECOND, 6),
            "SSSS" => number(self.time.abs() % MICROS_PER_DAY / MICROS_PER_SECOND, 1),
            "BC" | "AD" => out.push_str(if year > 0 { "AD" } else { "BC" }),
            "AM" | "PM" => out.push_str(if hour % 24 < 12 { "AM" } else { "PM" }),
            "am" | "pm" => out.push_str(if hour % 24 < 12 { "am" } else { "pm" }),
            "A.M." | "P.M." => out.push_str(if hour % 24 < 12 { "A.M." } else { "P.M." }),
            "TZ" => self.write_zone_name(out),
            "OF" => self.write_offset(out),
            _ => self.write_name(pattern, fill, out),
        }
    }

    /// The name of the month or the day of the week.
    fn write_name(&self, pattern: &str, fill: bool, out: &mut String) {
        let months = pattern.to_ascii_lowercase().starts_with('m');
        let name = match months {
            true => MONTHS.get(self.civil.month.wrapping_sub(1) as usize).copied().unwrap_or_default(),
            false => DAYS[(iso_weekday(self.days) - 1) as usize],
        };
        let short = matches!(pattern.len(), 2) || (months && pattern.len() == 3);
        let name = if short { name.get(..3).unwrap_or(name) } else { name };
        let name = match pattern.as_bytes() {
            [first, second, ..] if first.is_ascii_uppercase() && second.is_ascii_uppercase() => name.to_uppercase(),
            [first, ..] if first.is_ascii_lowercase() => name.to_lowercase(),
            _ => name.to_owned(),
        };
        let width = if fill && !short { 9 } else { 0 };
        let _ = write!(out, "{name:width$}");
    }

    fn write_zone_name(&self, out: &mut String) {
        use chrono::{DateTime, TimeZone};
        if let Some((zone, instant)) = self.zone {
            let at = DateTime::from_timestamp_micros(instant).unwrap_or(DateTime::UNIX_EPOCH).naive_utc();
            let _ = write!(out, "{}", zone.offset_from_utc_datetime(&at));
        }
    }

    fn write_offset(&self, out: &mut String) {
        let seconds = self.zone.map_or(0, |(zone, instant)| offset_of_instant(zone, instant));
        let _ = write!(out, "{}{:02}", if seconds < 0 { '-' } else { '+' }, seconds.abs() / 3_600);
        if seconds % 3_600 != 0 {
            let _ = write!(out, ":{:02}", seconds.abs() / 60 % 60);
        }
    }
}

/// What follows a number that is written at the end.
fn ordinal(number: &str, upper: bool) -> String {
    let digits = number.as_bytes();
    let teen = digits.len() >= 2 && digits[digits.len() - 2] == b'1';
    let suffix = match digits.last() {
        Some(b'1') if !teen => "st",
        Some(b'2') if !teen => "nd",
        Some(b'3') if !teen => "rd",
        _ => "th",
    };
    if upper { suffix.to_uppercase() } else { suffix.to_owned() }
}

/// Names of months and days, and am and pm, are told apart by their case; numbers are not.
fn starts_with(text: &str, pattern: &str) -> bool {
    let Some(start) = text.get(..pattern.len()) else { return false };
    let cased = pattern.contains(|c: char| c.is_ascii_lowercase())
        || ["MON", "DAY", "DY", "AM", "PM"].iter().any(|p| pattern.starts_with(p));
    if cased { start == pattern } else { start.eq_ignore_ascii_case(pattern) }
}

/// Where the sign of a number goes.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    /// A blank or minus before the first digit.
    Before,
    /// `S`: plus or minus, where it is written.
    Leading,
    Trailing,
    /// `MI`: minus or a blank, where it is written.
    LeadingMinus,
    TrailingMinus,
    /// `PR`: negative numbers in angle brackets.
    Brackets,
}

/// A pattern of numbers.
struct Pattern {
    /// `9`, `0` and `,` before the point.
    whole: Vec<char>,
    /// `9` and `0` after it.
    fraction: Vec<char>,
    point: bool,
    sign: Sign,
    fill: bool,
    /// Text before and after the number.
    prefix: String,
    suffix: String,
}

impl Pattern {
    fn read(pattern: &str) -> Pattern {
        let mut read = Pattern {
            whole: vec![],
            fraction: vec![],
            point: false,
            sign: Sign::Before,
            fill: true,
            prefix: String::new(),
            suffix: String::new(),
        };
        let mut rest = pattern;
        while let Some(c) = rest.chars().next() {
            let started = !read.whole.is_empty() || read.point;
            let upper: String = rest.chars().take(2).collect::<String>().to_ascii_uppercase();
            let mut taken = c.len_utf8();
            match c {
                _ if upper == "FM" => (read.fill, taken) = (false, 2),
                _ if upper == "MI" => {
                    read.sign = if started { Sign::TrailingMinus } else { Sign::LeadingMinus };
                    taken = 2;
                }
                _ if upper == "PR" => (read.sign, taken) = (Sign::Brackets, 2),
                _ if upper == "SG" => {
                    read.sign = if started { Sign::Trailing } else { Sign::Leading };
                    taken = 2;
                }
                'S' | 's' => read.sign = if started { Sign::Trailing } else { Sign::Leading },
                '9' | '0' if read.point => read.fraction.push(c),
                '9' | '0' => read.whole.push(c),
                ',' | 'G' | 'g' if !read.point => read.whole.push(','),
                '.' | 'D' | 'd' => read.point = true,
                '"' => {
                    let quoted = &rest[1..];
                    let end = quoted.find('"').unwrap_or(quoted.len());
                    read.literal(started, &quoted[..end]);
                    taken = (end + 2).min(rest.len());
                }
                // There is no currency in the C locale.
                'L' | 'l' => read.literal(started, " "),
                other => read.literal(started, other.encode_utf8(&mut [0; 4])),
            }
            rest = &rest[taken..];
        }
        read
    }

    fn literal(&mut self, started: bool, text: &str) {
        if started { self.suffix.push_str(text) } else { self.prefix.push_str(text) }
    }

    /// `number` has as many digits after its point as the pattern.
    fn format(&self, number: &str) -> String {
        let (negative, number) = match number.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, number),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let positions = self.whole.iter().filter(|c| **c != ',').count();
        let digits = whole.trim_start_matches('0');
        let body = match digits.len() <= positions {
            true => self.whole_part(digits) + &self.fraction_part(fraction),
            false => {
                let hash = |c: &char| if *c == ',' { ',' } else { '#' };
                let point = if self.point { "." } else { "" };
                self.whole.iter().map(hash).collect::<String>() + point + &"#".repeat(self.fraction.len())
            }
        };
        let (blanks, digits) = body.split_at(body.len() - body.trim_start().len());
        let digits = if digits == "." { "0." } else { digits };
        let blanks = if self.fill { blanks } else { "" };
        let (prefix, suffix) = (&self.prefix, &self.suffix);
        let space = if self.fill { " " } else { "" };
        match (self.sign, negative) {
            (Sign::Before, true) => format!("{prefix}{blanks}-{digits}{suffix}"),
            (Sign::Before, false) => format!("{prefix}{space}{blanks}{digits}{suffix}"),
            (Sign::Leading, true) => format!("{prefix}{blanks}-{digits}{suffix}"),
            (Sign::Leading, false) => format!("{prefix}{blanks}+{digits}{suffix}"),
            (Sign::Trailing, true) => format!("{prefix}{blanks}{digits}-{suffix}"),
            (Sign::Trailing, false) => format!("{prefix}{blanks}{digits}+{suffix}"),
            (Sign::LeadingMinus, true) => format!("{prefix}-{blanks}{digits}{suffix}"),
            (Sign::LeadingMinus, false) => format!("{prefix}{space}{blanks}{digits}{suffix}"),
            (Sign::TrailingMinus, true) => format!("{prefix}{blanks}{digits}-{suffix}"),
            (Sign::TrailingMinus, false) => format!("{prefix}{blanks}{digits}{space}{suffix}"),
            (Sign::Brackets, true) => format!("{prefix}{blanks}<{digits}>{suffix}"),
            (Sign::Brackets, false) => format!("{prefix}{space}{blanks}{digits}{space}{suffix}"),
        }
    }

    /// Blanks where there is no digit yet, unless a `0` asks for one.
    fn whole_part(&self, digits: &str) -> String {
        let positions = self.whole.iter().filter(|c| **c != ',').count();
        let mut missing = positions - digits.len();
        let mut digits = digits.chars();
        let mut started = false;
        let mut out = String::new();
        let last = self.whole.len().saturating_sub(1);
        for (i, position) in self.whole.iter().enumerate() {
            if *position == ',' {
                out.push(if started { ',' } else { ' ' });
                continue;
            }
            // A zero is shown where it is the only digit.
            let zero = *position == '0' || (i == last && self.fraction.is_empty());
            if missing > 0 {
                missing -= 1;
                started |= zero;
                out.push(if started { '0' } else { ' ' });
            } else {
                started = true;
                out.extend(digits.next());
            }
        }
        out
    }

    fn fraction_part(&self, fraction: &str) -> String {
        if !self.point {
            return String::new();
        }
        let mut digits = fraction;
        if !self.fill {
            let wanted = self.fraction.iter().rposition(|c| *c == '0').map_or(0, |i| i + 1);
            let kept = digits.trim_end_matches('0').len().max(wanted);
            digits = digits.get(..kept).unwrap_or(digits);
        }
        format!(".{digits}")
    }
}
