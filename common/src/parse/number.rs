//! Numbers from text.

use arrow::datatypes::i256;

use super::{Result, trim};
use crate::error::{SqlState, ValueError};

/// An integer type.
pub trait Integer: TryFrom<i64> {
    /// Its name in messages.
    const NAME: &'static str;
}

impl Integer for i16 {
    const NAME: &'static str = "smallint";
}

impl Integer for i32 {
    const NAME: &'static str = "integer";
}

impl Integer for i64 {
    const NAME: &'static str = "bigint";
}

/// An integer: decimal, or with `0x`, `0o` or `0b`; underscores may stand between digits.
pub fn parse_integer<T: Integer>(text: &str) -> Result<T> {
    let out_of_range = || {
        let message = format!("value \"{text}\" is out of range for type {}", T::NAME);
        ValueError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
    };
    let value = read_integer(trim(text)).ok_or_else(|| ValueError::syntax(T::NAME, text))?;
    value.and_then(|v| T::try_from(v).ok()).ok_or_else(out_of_range)
}

/// `None`: no integer; `Some(None)`: too large.
fn read_integer(text: &str) -> Option<Option<i64>> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        _ => (10, digits),
    };
    let mut value = Some(0_i64);
    // After a prefix an underscore may come first.
    let mut after_digit = radix != 10;
    for c in digits.chars() {
        if c == '_' && after_digit {
            after_digit = false;
            continue;
        }
        let digit = i64::from(c.to_digit(radix)?);
        after_digit = true;
        // Counted downwards, as there is one more negative number.
        value = value.and_then(|v| v.checked_mul(radix.into())?.checked_sub(digit));
    }
    let complete = !digits.is_empty() && after_digit;
    complete.then(|| if negative { value } else { value.and_then(i64::checked_neg) })
}

/// A double precision.
pub fn parse_float8(text: &str) -> Result<f64> {
    parse_float(text, "double precision", |t| t.parse::<f64>().ok(), |v| v)
}

/// A real.
pub fn parse_float4(text: &str) -> Result<f32> {
    parse_float(text, "real", |t| t.parse::<f32>().ok(), f64::from)
}

fn parse_float<T: Copy>(
    text: &str,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
    wide: impl Fn(T) -> f64,
) -> Result<T> {
    let digits = trim(text);
    let value = read(digits).ok_or_else(|| ValueError::syntax(name, text))?;
    let wide = wide(value);
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    let overflow = wide.is_infinite() && digits.contains(|c: char| c.is_ascii_digit());
    let underflow = wide == 0.0 && mantissa.contains(|c: char| matches!(c, '1'..='9'));
    if overflow || underflow {
        let message = format!("\"{digits}\" is out of range for type {name}");
        return Err(ValueError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    Ok(value)
}

/// A numeric(precision, scale) of at most 38 digits: the value times 10^scale, rounded half away from zero.
pub fn parse_decimal128(text: &str, precision: u8, scale: i8) -> Result<i128> {
    let digits = Digits::read(text)?.scaled(precision, scale)?;
    // At most 38 digits fit.
    let value = digits.value.bytes().fold(0_i128, |v, d| v * 10 + i128::from(d - b'0'));
    Ok(if digits.negative { -value } else { value })
}

/// A numeric(precision, scale) of at most 76 digits: the value times 10^scale, rounded half away from zero.
pub fn parse_decimal256(text: &str, precision: u8, scale: i8) -> Result<i256> {
    let digits = Digits::read(text)?.scaled(precision, scale)?;
    let sign = if digits.negative { "-" } else { "" };
    let value = if digits.value.is_empty() { "0" } else { &digits.value };
    i256::from_string(&format!("{sign}{value}")).ok_or_else(overflow)
}

fn overflow() -> ValueError {
    ValueError::new(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow")
}

/// The number `value * 10^exponent`.
struct Digits {
    negative: bool,
    /// Decimal digits without zeros at the start; empty for 0.
    value: String,
    exponent: i64,
}

impl Digits {
    fn read(text: &str) -> Result<Digits> {
        let word = trim(text);
        if let Some(digits) = Digits::read_decimal(word) {
            return Ok(digits);
        }
        let unsigned = word.trim_start_matches(['+', '-']).to_ascii_lowercase();
        if matches!(unsigned.as_str(), "nan" | "inf" | "infinity") {
            let message = format!("numeric does not support {word} here");
            return Err(ValueError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        match read_integer(word) {
            Some(Some(value)) => {
                let digits = value.unsigned_abs().to_string();
                let value = digits.trim_start_matches('0').to_owned();
                Ok(Digits { negative: word.starts_with('-'), value, exponent: 0 })
            }
            _ => Err(ValueError::syntax("numeric", text)),
        }
    }

    /// `[+-] digits [. digits] [e [+-] digits]`.
    fn read_decimal(text: &str) -> Option<Digits> {
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let whole = digits_of(whole)?;
        let fraction = digits_of(fraction)?;
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = i64::from(exponent) - fraction.len() as i64;
        let value = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
        Some(Digits { negative, value, exponent })
    }

    /// As a multiple of 10^-scale that has no more than `precision` digits.
    fn scaled(mut self, precision: u8, scale: i8) -> Result<Digits> {
        let shift = self.exponent + i64::from(scale);
        if self.value.is_empty() {
            return Ok(Digits { negative: false, ..self });
        }
        if self.value.len() as i64 + shift > i64::from(precision) {
            return Err(overflow());
        }
        if shift >= 0 {
            self.value.extend(std::iter::repeat_n('0', shift as usize));
        } else {
            self.round(usize::try_from(-shift).unwrap_or(usize::MAX));
        }
        if self.value.len() > usize::from(precision) {
            return Err(overflow());
        }
        Ok(Digits { exponent: -i64::from(scale), ..self })
    }

    /// Drops the last `count` digits.
    fn round(&mut self, count: usize) {
        let Some(kept) = self.value.len().checked_sub(count) else {
            self.value.clear();
            return;
        };
        let up = self.value.as_bytes()[kept..].first().is_some_and(|d| *d >= b'5');
        self.value.truncate(kept);
        if up {
            let stem = self.value.trim_end_matches('9').len();
            let nines = kept - stem;
            let next = self.value.as_bytes()[..stem].last().map_or('1', |d| char::from(d + 1));
            self.value.truncate(stem.saturating_sub(1));
            self.value.push(next);
            self.value.extend(std::iter::repeat_n('0', nines));
        }
    }
}

/// Digits without the underscores between them.
fn digits_of(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let between = |i: usize| i > 0 && bytes[i - 1].is_ascii_digit() && bytes.get(i + 1).is_some_and(u8::is_ascii_digit);
    let valid = bytes.iter().enumerate().all(|(i, b)| b.is_ascii_digit() || (*b == b'_' && between(i)));
    valid.then(|| text.replace('_', ""))
}
