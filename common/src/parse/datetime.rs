//! Dates and times from text: PostgreSQL's input with DateStyle `ISO, MDY`.
//!
//! The usual `2024-02-29 23:59:59.5+01` is read in one go. Everything else is split into words, and each word says what it
//! is: a date, a time, a month, a year, a zone.

use chrono_tz::Tz;

use super::{Result, is_space, trim};
use crate::calendar::{
    Civil, DATE_YEAR_MAX, MICROS_PER_DAY, MICROS_PER_SECOND, TIMESTAMP_YEAR_MAX, YEAR_MIN, local_to_instant,
};
use crate::error::{SqlState, ValueError};

/// A date, in days since 1970-01-01.
pub fn parse_date(text: &str) -> Result<i32> {
    if let Some((civil, "")) = iso_date(trim(text)) {
        return days_of(civil, text);
    }
    match read(text, "date")? {
        Moment::Infinite(sign) => Ok(if sign > 0 { i32::MAX } else { i32::MIN }),
        Moment::Parts(parts) => days_of(parts.date(text, "date")?, text),
    }
}

/// A time of day, in microseconds.
pub fn parse_time(text: &str) -> Result<i64> {
    let digits = trim(text);
    if digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_digit()) {
        // `130405`
        let clock = clock(&format!("{}:{}:{}", &digits[..2], &digits[2..4], &digits[4..]));
        return clock.ok_or_else(|| invalid("time", text))?.map_err(|OutOfRange| field_out_of_range(text));
    }
    match read(text, "time")? {
        Moment::Parts(Parts { time: Some(time), .. }) => Ok(time),
        _ => Err(invalid("time", text)),
    }
}

/// A timestamp, in microseconds since 1970. A zone in the text is ignored, as in PostgreSQL.
pub fn parse_timestamp(text: &str) -> Result<i64> {
    Ok(timestamp(text, "timestamp")?.0)
}

/// An instant, in microseconds since 1970 in UTC. Without a zone of its own the text is in `zone`.
pub fn parse_timestamptz(text: &str, zone: Tz) -> Result<i64> {
    const NAME: &str = "timestamp with time zone";
    let (local, written) = timestamp(text, NAME)?;
    let instant = match written {
        _ if matches!(local, i64::MIN | i64::MAX) => Some(local),
        Some(Zone::Offset(seconds)) => local.checked_sub(seconds * MICROS_PER_SECOND),
        Some(Zone::Named(zone)) => Some(local_to_instant(zone, local)),
        None => Some(local_to_instant(zone, local)),
    };
    instant.ok_or_else(|| out_of_range(NAME, text))
}

/// What a clock shows, and the zone that is written with it.
fn timestamp(text: &str, name: &'static str) -> Result<(i64, Option<Zone>)> {
    let (civil, time, zone) = match iso_timestamp(trim(text)) {
        Some(found) => found,
        None => match read(text, name)? {
            Moment::Infinite(sign) => return Ok((if sign > 0 { i64::MAX } else { i64::MIN }, None)),
            Moment::Parts(parts) => {
                let civil = parts.date(text, name)?;
                (civil, parts.time.unwrap_or(0), parts.zone)
            }
        },
    };
    if !civil.is_valid() {
        return Err(field_out_of_range(text));
    }
    if !(YEAR_MIN..=TIMESTAMP_YEAR_MAX).contains(&civil.year) {
        return Err(out_of_range(name, text));
    }
    Ok((civil.to_days() * MICROS_PER_DAY + time, zone))
}

fn days_of(civil: Civil, text: &str) -> Result<i32> {
    if !civil.is_valid() {
        return Err(field_out_of_range(text));
    }
    let days = (YEAR_MIN..=DATE_YEAR_MAX).contains(&civil.year).then(|| civil.to_days());
    days.and_then(|days| i32::try_from(days).ok())
        .ok_or_else(|| ValueError::new(SqlState::DATETIME_OVERFLOW, format!("date out of range: \"{text}\"")))
}

fn invalid(name: &str, text: &str) -> ValueError {
    let message = format!("invalid input syntax for type {name}: \"{text}\"");
    ValueError::new(SqlState::INVALID_DATETIME, message)
}

fn field_out_of_range(text: &str) -> ValueError {
    ValueError::new(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

fn out_of_range(name: &str, text: &str) -> ValueError {
    let name = if name == "timestamp" { name } else { "timestamp" };
    ValueError::new(SqlState::DATETIME_OVERFLOW, format!("{name} out of range: \"{text}\""))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Zone {
    /// Seconds ahead of UTC.
    Offset(i64),
    Named(Tz),
}

/// `2024-02-29` and what follows.
fn iso_date(text: &str) -> Option<(Civil, &str)> {
    let bytes = text.as_bytes();
    let two = |at: usize| number(bytes.get(at..at + 2)?);
    if bytes.len() < 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let year = i64::from(two(0)? * 100 + two(2)?);
    // Years of fewer digits, and year 0, go the long way.
    (year > 0).then_some((Civil { year, month: two(5)?, day: two(8)? }, &text[10..]))
}

/// `2024-02-29 23:59[:59[.5]][zone]` with `T` or a blank between, zones `Z`, `+01`, `+01:30`, `+0130`.
fn iso_timestamp(text: &str) -> Option<(Civil, i64, Option<Zone>)> {
    let (civil, rest) = iso_date(text)?;
    if rest.is_empty() {
        return Some((civil, 0, None));
    }
    let bytes = rest.as_bytes();
    let two = |at: usize| number(bytes.get(at..at + 2)?);
    if !matches!(bytes[0], b' ' | b'T' | b't') || bytes.get(3) != Some(&b':') {
        return None;
    }
    let (hour, minute) = (two(1)?, two(4)?);
    let mut at = 6;
    let mut second = 0;
    let mut fraction = 0;
    if bytes.get(at) == Some(&b':') {
        second = two(at + 1)?;
        at += 3;
        if bytes.get(at) == Some(&b'.') {
            let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
            fraction = fraction_micros(&rest[at + 1..at + 1 + digits]);
            at += 1 + digits;
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let zone = match &rest[at..] {
        "" => None,
        "Z" | "z" => Some(Zone::Offset(0)),
        offset => Some(Zone::Offset(zone_offset(offset)?)),
    };
    let seconds = i64::from((hour * 60 + minute) * 60 + second);
    Some((civil, seconds * MICROS_PER_SECOND + fraction, zone))
}

/// A number of two digits.
fn number(digits: &[u8]) -> Option<u32> {
    match digits {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some(u32::from(a - b'0') * 10 + u32::from(b - b'0')),
        _ => None,
    }
}

/// The digits after a point as microseconds, rounded to the nearest, halves to even.
pub(super) fn fraction_micros(digits: &str) -> i64 {
    let digit = |i: usize| digits.as_bytes().get(i).map_or(0, |d| i64::from(d.saturating_sub(b'0')));
    let micros = (0..6).fold(0, |value, i| value * 10 + digit(i));
    let rest = digits.get(6..).unwrap_or_default().trim_end_matches('0');
    let up = if rest == "5" { micros % 2 == 1 } else { digit(6) >= 5 };
    micros + i64::from(up)
}

/// `+01`, `-03:30`, `+0130`, `+00:53:28` as seconds.
fn zone_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'+', ..] => (1, &text[1..]),
        [b'-', ..] => (-1, &text[1..]),
        _ => return None,
    };
    let parts: Vec<&str> = match digits.len() {
        4 if digits.is_ascii() && !digits.contains(':') => vec![&digits[..2], &digits[2..]],
        6 if digits.is_ascii() && !digits.contains(':') => vec![&digits[..2], &digits[2..4], &digits[4..]],
        _ => digits.split(':').collect(),
    };
    let mut seconds = 0;
    if parts.len() > 3 {
        return None;
    }
    for (i, part) in parts.iter().enumerate() {
        if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let value: i64 = part.parse().ok()?;
        if value > if i == 0 { 15 } else { 59 } {
            return None;
        }
        seconds += value * [3_600, 60, 1][i];
    }
    Some(sign * seconds)
}

/// What a text says.
enum Moment {
    Infinite(i64),
    Parts(Parts),
}

/// What the words of a text have said so far.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<u32>,
    day: Option<u32>,
    /// The year was written with at most two digits.
    short_year: bool,
    bc: bool,
    time: Option<i64>,
    zone: Option<Zone>,
    /// Twelve hours to add, for PM; `Some(false)` is AM.
    pm: Option<bool>,
}

impl Parts {
    fn date(&self, text: &str, name: &str) -> Result<Civil> {
        match (self.year, self.month, self.day) {
            (Some(year), Some(month), Some(day)) => {
                let year = match year {
                    _ if self.bc && year <= 0 => return Err(field_out_of_range(text)),
                    _ if self.bc => 1 - year,
                    0..70 if self.short_year => year + 2000,
                    70..100 if self.short_year => year + 1900,
                    0 => return Err(field_out_of_range(text)),
                    _ => year,
                };
                Ok(Civil { year, month, day })
            }
            _ => Err(invalid(name, text)),
        }
    }

    fn set_year(&mut self, digits: &str) -> Option<()> {
        self.short_year = digits.len() <= 2;
        set(&mut self.year, digits.parse().ok()?)
    }

    fn set_epoch(&mut self) -> Option<()> {
        set(&mut self.year, 1970)?;
        set(&mut self.month, 1)?;
        set(&mut self.day, 1)?;
        set(&mut self.time, 0)
    }
}

/// Each part may be said once.
fn set<T>(part: &mut Option<T>, value: T) -> Option<()> {
    part.is_none().then(|| *part = Some(value))
}

/// Reads a text word by word.
fn read(text: &str, name: &'static str) -> Result<Moment> {
    let words = words(text);
    if let [word] = words.as_slice() {
        match word.to_ascii_lowercase().as_str() {
            "infinity" | "+infinity" if name != "time" => return Ok(Moment::Infinite(1)),
            "-infinity" if name != "time" => return Ok(Moment::Infinite(-1)),
            _ => {}
        }
    }
    let mut parts = Parts::default();
    for (i, word) in words.iter().enumerate() {
        let after_t = i > 0 && words[i - 1].eq_ignore_ascii_case("t");
        match word_says(word, after_t, &mut parts) {
            Some(Ok(())) => {}
            Some(Err(OutOfRange)) => return Err(field_out_of_range(text)),
            None => return Err(invalid(name, text)),
        }
    }
    match (parts.pm, &mut parts.time) {
        (None, _) => {}
        (Some(pm), Some(time)) => {
            let hour = *time / (3_600 * MICROS_PER_SECOND);
            if hour == 0 || hour > 12 {
                return Err(field_out_of_range(text));
            }
            let twelve = 12 * 3_600 * MICROS_PER_SECOND;
            *time = *time % twelve + if pm { twelve } else { 0 };
        }
        (Some(_), None) => return Err(invalid(name, text)),
    }
    if words.is_empty() {
        return Err(invalid(name, text));
    }
    Ok(Moment::Parts(parts))
}

struct OutOfRange;

/// Splits at blanks and commas; before a sign that follows a time; and where letters meet digits, as in `1999T04`, `10pm`.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for piece in text.split(|c| is_space(c) || c == ',').filter(|p| !p.is_empty()) {
        let mut start = 0;
        let bytes = piece.as_bytes();
        let named_zone = bytes[0].is_ascii_alphabetic() && piece.contains('/');
        for i in 1..bytes.len() {
            if named_zone || !piece.is_char_boundary(i) {
                continue;
            }
            let (before, here) = (bytes[i - 1], bytes[i]);
            let time_so_far = piece[start..i].contains(':') || (start > 0 && piece[start..i].len() >= 4);
            let offset = matches!(here, b'+' | b'-') && time_so_far && before.is_ascii_digit();
            let plus = here == b'+' && before.is_ascii_alphanumeric();
            let digit_to_letter = before.is_ascii_digit() && here.is_ascii_alphabetic();
            let letter_to_digit = before.is_ascii_alphabetic() && here.is_ascii_digit();
            let t = letter_to_digit && before.eq_ignore_ascii_case(&b't') && i - start == 1;
            if offset || plus || digit_to_letter || t {
                words.push(&piece[start..i]);
                start = i;
            }
        }
        words.push(&piece[start..]);
    }
    words
}

/// Adds what one word says. `None`: it makes no sense here.
fn word_says(word: &str, after_t: bool, parts: &mut Parts) -> Option<std::result::Result<(), OutOfRange>> {
    let first = *word.as_bytes().first()?;
    if word.contains(':') && first.is_ascii_digit() {
        return match clock(word)? {
            Ok(time) => set(&mut parts.time, time).map(Ok),
            Err(e) => Some(Err(e)),
        };
    }
    if matches!(first, b'+' | b'-') {
        return set(&mut parts.zone, Zone::Offset(zone_offset(word)?)).map(Ok);
    }
    if first.is_ascii_digit() {
        return match word.find(['-', '/', '.']) {
            Some(_) if !after_t => date_of_three(word, parts),
            _ => plain_number(word, after_t, parts),
        }
        .map(Ok);
    }
    if let Some(rest) = word.find('-').filter(|i| month(&word[..*i]).is_some()) {
        // `Jan-08-1999`
        set(&mut parts.month, month(&word[..rest])?)?;
        let (day, year) = word[rest + 1..].split_once('-')?;
        set(&mut parts.day, day.parse().ok()?)?;
        return parts.set_year(year).map(Ok);
    }
    named(word, parts).map(Ok)
}

/// `23:59:59.5`, `23:59`.
fn clock(word: &str) -> Option<std::result::Result<i64, OutOfRange>> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut fields = [0_i64; 3];
    let pieces: Vec<&str> = whole.split(':').collect();
    if pieces.len() > 3 || (pieces.len() < 3 && !fraction.is_empty()) {
        return None;
    }
    for (field, piece) in fields.iter_mut().zip(&pieces) {
        if piece.is_empty() || piece.len() > 4 || !piece.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *field = piece.parse().ok()?;
    }
    let [hour, minute, second] = fields;
    let time = ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + fraction_micros(fraction);
    // A leap second and the end of the day are allowed.
    let valid = minute < 60 && second <= 60 && time <= MICROS_PER_DAY;
    Some(if valid { Ok(time) } else { Err(OutOfRange) })
}

/// `1999-01-08`, `1/8/1999`, `1999.008`, `08-Jan-1999`, `1999-Jan-08`.
fn date_of_three(word: &str, parts: &mut Parts) -> Option<()> {
    let fields: Vec<&str> = word.split(['-', '/', '.']).collect();
    let [a, b, c] = fields.as_slice() else {
        let [year, day] = fields.as_slice() else { return None };
        return day_of_year(year, day, parts);
    };
    let is_year = |field: &str| field.len() > 2;
    if let Some(named) = month(b) {
        set(&mut parts.month, named)?;
        let (year, day) = if is_year(a) { (a, c) } else { (c, a) };
        set(&mut parts.day, short(day)?)?;
        return parts.set_year(year);
    }
    let (year, month, day) = if is_year(a) { (a, b, c) } else { (c, a, b) };
    set(&mut parts.month, short(month)?)?;
    set(&mut parts.day, short(day)?)?;
    parts.set_year(year)
}

/// `1999.008`, the eighth day of the year.
fn day_of_year(year: &str, day: &str, parts: &mut Parts) -> Option<()> {
    if day.len() != 3 || year.len() < 4 {
        return None;
    }
    let first = Civil { year: year.parse().ok()?, month: 1, day: 1 };
    let day: i64 = day.parse().ok()?;
    let civil = Civil::from_days(first.to_days() + day - 1);
    if day < 1 || civil.year != first.year {
        return None;
    }
    set(&mut parts.month, civil.month)?;
    set(&mut parts.day, civil.day)?;
    parts.set_year(year)
}

/// A month or day.
fn short(field: &str) -> Option<u32> {
    let valid = (1..=2).contains(&field.len()) && field.bytes().all(|b| b.is_ascii_digit());
    valid.then(|| field.parse().ok()).flatten()
}

/// `19990108`, `990108`, `040506` after a T, or a lone day or year next to a month's name.
fn plain_number(word: &str, after_t: bool, parts: &mut Parts) -> Option<()> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    if !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let dated = parts.year.is_some() && parts.month.is_some() && parts.day.is_some();
    if after_t || (dated && parts.time.is_none()) {
        let fields = match whole.len() {
            2 => vec![whole],
            4 => vec![&whole[..2], &whole[2..]],
            6 => vec![&whole[..2], &whole[2..4], &whole[4..]],
            _ => return None,
        };
        let mut time = 0;
        for (field, unit) in fields.iter().zip([3_600, 60, 1]) {
            let value: i64 = field.parse().ok()?;
            if value > if unit == 3_600 { 24 } else { 59 } {
                return None;
            }
            time += value * unit * MICROS_PER_SECOND;
        }
        return set(&mut parts.time, time + fraction_micros(fraction)).filter(|_| time <= MICROS_PER_DAY);
    }
    match whole.len() {
        8.. => {
            let (year, rest) = whole.split_at(whole.len() - 4);
            set(&mut parts.month, short(&rest[..2])?)?;
            set(&mut parts.day, short(&rest[2..])?)?;
            parts.set_year(year)
        }
        7 => day_of_year(&whole[..4], &whole[4..], parts),
        6 => {
            set(&mut parts.month, short(&whole[2..4])?)?;
            set(&mut parts.day, short(&whole[4..])?)?;
            parts.set_year(&whole[..2])
        }
        3 | 4 => parts.set_year(whole),
        _ if parts.day.is_none() => set(&mut parts.day, short(whole)?),
        _ => parts.set_year(whole),
    }
}

/// A month by its name or the start of it.
fn month(word: &str) -> Option<u32> {
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
    let word = word.to_ascii_lowercase();
    let is = |name: &&str| **name == word || name[..3] == word || (word == "sept" && name.starts_with("sept"));
    MONTHS.iter().position(is).map(|i| i as u32 + 1)
}

/// A word of letters.
fn named(word: &str, parts: &mut Parts) -> Option<()> {
    const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    if let Some(month) = month(word) {
        // `January 8`: a number before it was taken for the day.
        return set(&mut parts.month, month);
    }
    let lower = word.to_ascii_lowercase();
    if DAYS.iter().any(|day| *day == lower || day[..3] == lower) {
        return Some(());
    }
    match lower.as_str() {
        "t" => Some(()),
        "am" => set(&mut parts.pm, false),
        "pm" => set(&mut parts.pm, true),
        "bc" => {
            parts.bc = true;
            Some(())
        }
        "ad" => Some(()),
        "epoch" => parts.set_epoch(),
        "allballs" => set(&mut parts.time, 0),
        "z" | "zulu" | "utc" | "gmt" | "ut" => set(&mut parts.zone, Zone::Offset(0)),
        _ => set(&mut parts.zone, abbreviation(&lower).map(Zone::Offset).or_else(|| named_zone(word))?),
    }
}

fn named_zone(word: &str) -> Option<Zone> {
    let named = word.parse::<Tz>().ok();
    let same = |zone: &&Tz| zone.name().eq_ignore_ascii_case(word);
    named.or_else(|| chrono_tz::TZ_VARIANTS.iter().find(same).copied()).map(Zone::Named)
}

/// The offsets of the usual abbreviations, in seconds.
fn abbreviation(word: &str) -> Option<i64> {
    let hours = match word {
        "est" => -5,
        "edt" => -4,
        "cst" => -6,
        "cdt" => -5,
        "mst" => -7,
        "mdt" => -6,
        "pst" => -8,
        "pdt" => -7,
        "wet" => 0,
        "west" | "bst" | "cet" | "met" => 1,
        "cest" | "mest" | "eet" => 2,
        "eest" | "msk" => 3,
        "jst" | "kst" => 9,
        "aest" => 10,
        "aedt" => 11,
        _ => return None,
    };
    Some(hours * 3_600)
}
