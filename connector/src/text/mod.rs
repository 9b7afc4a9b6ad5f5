//! Values from text, in the formats that PostgreSQL reads.
//!
//! What fails is told as a short phrase, such as `out of range`; the caller knows the value and the type.

mod array;
mod datetime;
mod interval;
mod number;

pub use array::{Item, parse_array};
pub use datetime::{parse_date, parse_time, parse_timestamp, parse_timestamptz, timestamp_from_number};
pub use interval::parse_interval;
pub use number::{parse_decimal128, parse_decimal256, parse_float32, parse_float64, parse_integer};

/// Why a text is not a value of a type.
pub type Reason = &'static str;

/// The text has nothing of the type's format.
pub const MALFORMED: Reason = "not of this type";
/// The value exists, but the type does not reach it.
pub const OUT_OF_RANGE: Reason = "out of range";

/// Reads a boolean: the beginning of true, false, yes, no, on or off that says which, or a digit.
pub fn parse_boolean(text: &str) -> Result<bool, Reason> {
    let text = text.trim().to_ascii_lowercase();
    let starts = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if text == "1" || starts("true", 1) || starts("yes", 1) || starts("on", 2) {
        Ok(true)
    } else if text == "0" || starts("false", 1) || starts("no", 1) || starts("off", 2) {
        Ok(false)
    } else {
        Err(MALFORMED)
    }
}

/// Reads bytes: hexadecimal after `\x`, or text where `\\` is a backslash and `\ooo` the byte with these octal digits.
pub fn parse_bytea(text: &str) -> Result<Vec<u8>, Reason> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let nibble = |byte: u8| char::from(byte).to_digit(16).ok_or("not hexadecimal");
        return digits
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Ok((nibble(*high)? * 16 + nibble(*low)?) as u8),
                _ => Err("an odd number of hexadecimal digits"),
            })
            .collect();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => (b'\\', after),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), after)
            }
            (b'\\', _) => return Err("unknown escape"),
            _ => (*first, after),
        };
        out.push(byte);
        rest = after;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans() {
        for text in ["t", "TRUE", " y ", "yes", "on", "1", "tr"] {
            assert_eq!(parse_boolean(text), Ok(true), "{text}");
        }
        for text in ["f", "False", "n", "no", "off", "of", "0"] {
            assert_eq!(parse_boolean(text), Ok(false), "{text}");
        }
        for text in ["", "o", "2", "truth", "null"] {
            assert_eq!(parse_boolean(text), Err(MALFORMED), "{text}");
        }
    }

    #[test]
    fn bytes() {
        assert_eq!(parse_bytea("\\xDEad 00"), Ok(vec![0xde, 0xad, 0]));
        assert_eq!(parse_bytea("a\\\\b\\001\\377"), Ok(vec![b'a', b'\\', b'b', 1, 255]));
        assert_eq!(parse_bytea(""), Ok(vec![]));
        for text in ["\\x1", "\\xgg", "\\a", "\\400", "\\"] {
            assert!(parse_bytea(text).is_err(), "{text}");
        }
    }
}
