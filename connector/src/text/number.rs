//! Numbers from text. Decimals never go through a float.

use std::str::FromStr;

use arrow::datatypes::i256;

use super::{MALFORMED, OUT_OF_RANGE, Reason};

/// Digits of the widest decimal, and one more for a carry.
const DIGITS_MAX: usize = 77;

/// Reads an integer. A point or an exponent is accepted when the value is whole, as in `1.0` and `1e3`.
pub fn parse_integer<T: FromStr + TryFrom<i128>>(text: &str) -> Result<T, Reason> {
    let text = text.trim();
    if let Ok(value) = text.parse() {
        return Ok(value);
    }
    let decimal = Decimal::split(text)?;
    if decimal.digit_after(decimal.point()) {
        return Err("not a whole number");
    }
    T::try_from(parse_decimal128(text, 38, 0)?).map_err(|_| OUT_OF_RANGE)
}

/// Reads a numeric with these digits, rounding half away from zero.
pub fn parse_decimal128(text: &str, precision: u8, scale: i8) -> Result<i128, Reason> {
    let decimal = Decimal::split(text.trim())?;
    let unscaled = decimal.unscaled(precision, scale)?.iter().fold(0i128, |value, d| value * 10 + i128::from(*d));
    Ok(if decimal.negative { -unscaled } else { unscaled })
}

/// Reads a numeric with these digits, rounding half away from zero.
pub fn parse_decimal256(text: &str, precision: u8, scale: i8) -> Result<i256, Reason> {
    let decimal = Decimal::split(text.trim())?;
    let digits = decimal.unscaled(precision, scale)?;
    // Up to 38 digits fit the fast integers; so the value is built from two of them.
    let part = |digits: &[u8]| i256::from_i128(digits.iter().fold(0i128, |value, d| value * 10 + i128::from(*d)));
    let (high, low) = digits.split_at(digits.len().saturating_sub(38));
    let unscaled = if high.is_empty() {
        part(low)
    } else {
        let shift = i256::from_i128(10i128.pow(38));
        part(high).checked_mul(shift).and_then(|h| h.checked_add(part(low))).ok_or(OUT_OF_RANGE)?
    };
    Ok(if decimal.negative { -unscaled } else { unscaled })
}

/// Reads a real.
pub fn parse_float32(text: &str) -> Result<f32, Reason> {
    let text = text.trim();
    let value: f32 = text.parse().map_err(|_| MALFORMED)?;
    check_float(text, value.is_infinite(), value == 0.0)?;
    Ok(value)
}

/// Reads a double precision.
pub fn parse_float64(text: &str) -> Result<f64, Reason> {
    let text = text.trim();
    let value: f64 = text.parse().map_err(|_| MALFORMED)?;
    check_float(text, value.is_infinite(), value == 0.0)?;
    Ok(value)
}

/// Digits may not become infinity, nor zero unless they are.
fn check_float(text: &str, infinite: bool, zero: bool) -> Result<(), Reason> {
    if !infinite && !zero {
        return Ok(());
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let lost = if infinite { text.contains(|c: char| c.is_ascii_digit()) } else { mantissa.contains(['1', '2', '3', '4', '5', '6', '7', '8', '9']) };
    if lost { Err(OUT_OF_RANGE) } else { Ok(()) }
}

/// The parts of a number as written.
struct Decimal<'a> {
    negative: bool,
    integer: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Decimal<'a> {
    fn split(text: &'a str) -> Result<Decimal<'a>, Reason> {
        let (negative, digits) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        let span = |bytes: &[u8]| bytes.iter().take_while(|b| b.is_ascii_digit()).count();
        let (integer, rest) = digits.split_at(span(digits));
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => rest.split_at(span(rest)),
            _ => rest.split_at(0),
        };
        if integer.is_empty() && fraction.is_empty() {
            return Err(MALFORMED);
        }
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', exponent @ ..] => {
                let text = std::str::from_utf8(exponent).map_err(|_| MALFORMED)?;
                i64::from(text.parse::<i32>().map_err(|_| MALFORMED)?)
            }
            _ => return Err(MALFORMED),
        };
        Ok(Decimal { negative, integer, fraction, exponent })
    }

    /// How many digits stand before the point, once the exponent has moved it.
    fn point(&self) -> i64 {
        self.integer.len() as i64 + self.exponent
    }

    /// The digit at an index, counted from the first; zero beyond the ends.
    fn digit(&self, index: i64) -> u8 {
        let Ok(index) = usize::try_from(index) else { return 0 };
        let digit = self.integer.get(index).or_else(|| self.fraction.get(index.checked_sub(self.integer.len())?));
        digit.map_or(0, |d| d - b'0')
    }

    /// Whether a digit other than zero stands at the index or later.
    fn digit_after(&self, index: i64) -> bool {
        let end = (self.integer.len() + self.fraction.len()) as i64;
        (index.max(0)..end).any(|i| self.digit(i) != 0)
    }

    /// The digits of the value times `10^scale`, rounded, without zeros in front.
    fn unscaled(&self, precision: u8, scale: i8) -> Result<Vec<u8>, Reason> {
        if !self.digit_after(0) {
            return Ok(vec![]);
        }
        let end = self.point() + i64::from(scale);
        let mut out = Vec::with_capacity(DIGITS_MAX);
        for index in 0..end {
            let digit = self.digit(index);
            if digit == 0 && out.is_empty() {
                continue;
            }
            if out.len() == usize::from(precision) {
                return Err(OUT_OF_RANGE);
            }
            out.push(digit);
        }
        if self.digit(end) >= 5 {
            match out.iter().rposition(|d| *d != 9) {
                Some(last) => {
                    out[last] += 1;
                    out[last + 1..].fill(0);
                }
                None => {
                    out.fill(0);
                    out.insert(0, 1);
                }
            }
        }
        if out.len() > usize::from(precision) { Err(OUT_OF_RANGE) } else { Ok(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_round_half_away_from_zero() {
        let cases = [
            ("1", 100),
            ("1.005", 101),
            ("-1.005", -101),
            ("1.0049999", 100),
            ("0.005", 1),
            ("0.0049", 0),
            ("99.999", 10_000),
            (".5", 50),
            ("5.", 500),
            ("+5e-1", 50),
            ("123e-1", 1_230),
            ("1e3", 100_000),
            ("0e999999999", 0),
            ("-0", 0),
            ("5e-3", 1),
            ("5e-4", 0),
            ("5e-400000000", 0),
            (" 7 ", 700),
        ];
        for (text, unscaled) in cases {
            assert_eq!(parse_decimal128(text, 10, 2), Ok(unscaled), "{text}");
            assert_eq!(parse_decimal256(text, 10, 2), Ok(i256::from_i128(unscaled)), "{text}");
        }
        for text in ["", ".", "-", "e5", "1e", "1x", "NaN", "1 2", "0x10", "1_000", "--1"] {
            assert_eq!(parse_decimal128(text, 10, 2), Err(MALFORMED), "{text}");
        }
        assert_eq!(parse_decimal128("99999999.99", 10, 2), Ok(9_999_999_999));
        for text in ["99999999.995", "100000000", "1e2000000000"] {
            assert_eq!(parse_decimal128(text, 10, 2), Err(OUT_OF_RANGE), "{text}");
        }
    }

    #[test]
    fn wide_decimals_keep_every_digit() {
        let text = "123456789012345678901234567890123456789012345678.1234567890123456789012345678";
        let value = parse_decimal256(text, 76, 28).map(|v| v.to_string());
        assert_eq!(value, Ok(text.replace('.', "")));
        let value = parse_decimal256(&format!("-{text}"), 76, 28).map(|v| v.to_string());
        assert_eq!(value, Ok(format!("-{}", text.replace('.', ""))));
        assert_eq!(parse_decimal256(&"9".repeat(49), 76, 28), Err(OUT_OF_RANGE));
    }

    #[test]
    fn integers_are_whole() {
        assert_eq!(parse_integer::<i16>("32767"), Ok(32767));
        assert_eq!(parse_integer::<i16>("32768"), Err(OUT_OF_RANGE));
        assert_eq!(parse_integer::<i64>("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_integer::<i64>("9223372036854775807.0"), Ok(i64::MAX));
        assert_eq!(parse_integer::<i32>("1.5e1"), Ok(15));
        assert_eq!(parse_integer::<i32>("1.5"), Err("not a whole number"));
        assert_eq!(parse_integer::<i32>("1e-1"), Err("not a whole number"));
        assert_eq!(parse_integer::<i32>("1e30"), Err(OUT_OF_RANGE));
        assert_eq!(parse_integer::<i32>("seven"), Err(MALFORMED));
    }

    #[test]
    fn floats_do_not_lose_their_value_silently() {
        assert_eq!(parse_float64(" 1.5 "), Ok(1.5));
        assert_eq!(parse_float64("-Infinity"), Ok(f64::NEG_INFINITY));
        assert!(parse_float64("nan").is_ok_and(f64::is_nan));
        assert_eq!(parse_float64("0e5"), Ok(0.0));
        assert_eq!(parse_float64("1e400"), Err(OUT_OF_RANGE));
        assert_eq!(parse_float64("1e-400"), Err(OUT_OF_RANGE));
        assert_eq!(parse_float32("1e39"), Err(OUT_OF_RANGE));
        assert_eq!(parse_float32("x"), Err(MALFORMED));
    }
}
