//! JSON: reading it, and writing it in the normal form that jsonb has.
//!
//! A jsonb value is carried as text in one form only (see [`crate::types`]), so equal values are equal strings:
//!
//! - no white space but one space after each `:` and `,`;
//! - keys of an object in order of their length in bytes, then of their bytes; of equal keys the last one counts;
//! - numbers as PostgreSQL's numeric prints them: no exponent, zeros after the point kept, no minus before a zero;
//! - in strings, `\b \f \n \r \t \" \\` and `\u00XX` for other control characters; everything else as it is.
//!
//! Numbers stay text from end to end, so no digit is lost. The parser borrows from its input: a string without escapes
//! is a slice of it.

use std::borrow::Cow;
use std::fmt::{self, Write};

use thiserror::Error;

/// Levels of arrays and objects inside each other; deeper values are refused, for the parser recurses.
const DEPTH_MAX: usize = 512;
/// Digits that a number may have before the point, as in PostgreSQL's numeric.
const INTEGER_DIGITS_MAX: i64 = 131_072;
/// Digits that a number may have after the point, as in PostgreSQL's numeric.
const FRACTION_DIGITS_MAX: i64 = 16_383;

/// Text that is not JSON, or that jsonb cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem} at byte {position}")]
pub struct JsonError {
    /// What is wrong.
    pub problem: &'static str,
    /// Where, in bytes from the start.
    pub position: usize,
}

/// A JSON value, borrowed from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json<'a> {
    Null,
    Bool(bool),
    /// As written; see [`Json::fmt`] for its normal form.
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    /// Members as written: in their order, duplicates included.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// The normal form of JSON text.
pub fn normalize(text: &str) -> Result<String, JsonError> {
    let value = Json::parse(text)?;
    let mut out = String::with_capacity(text.len());
    value.write_normal(&mut out);
    Ok(out)
}

impl<'a> Json<'a> {
    /// Reads one value; only white space may stand around it.
    pub fn parse(text: &'a str) -> Result<Json<'a>, JsonError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        parser.skip_space();
        let value = parser.value()?;
        parser.skip_space();
        if parser.at < text.len() {
            return Err(parser.error("text after the value"));
        }
        Ok(value)
    }

    /// The member of an object with this key; of several the last.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => members.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Appends the normal form.
    pub fn write_normal(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(true) => out.push_str("true"),
            Json::Bool(false) => out.push_str("false"),
            Json::Number(text) => write_number(text, out),
            Json::String(text) => write_string(text, out),
            Json::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    item.write_normal(out);
                }
                out.push(']');
            }
            Json::Object(members) => write_object(members, out),
        }
    }
}

impl fmt::Display for Json<'_> {
    /// The normal form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write_normal(&mut out);
        f.write_str(&out)
    }
}

fn write_object(members: &[(Cow<'_, str>, Json<'_>)], out: &mut String) {
    let mut order: Vec<usize> = (0..members.len()).collect();
    // A later duplicate comes first among its equals, and `dedup` keeps the first.
    order.sort_unstable_by_key(|i| (members[*i].0.len(), members[*i].0.as_bytes(), usize::MAX - i));
    order.dedup_by(|later, first| members[*later].0 == members[*first].0);
    out.push('{');
    for (i, member) in order.into_iter().enumerate() {
        let (key, value) = &members[member];
        out.push_str(if i == 0 { "" } else { ", " });
        write_string(key, out);
        out.push_str(": ");
        value.write_normal(out);
    }
    out.push('}');
}

/// Appends a string in quotes, escaped as jsonb prints it.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut copied = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[copied..i]);
        copied = i + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.push_str(&text[copied..]);
    out.push('"');
}

/// Appends a number without exponent. `text` is a number of JSON, of a size that the parser has allowed.
fn write_number(text: &str, out: &mut String) {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = split_exponent(text);
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if negative && mantissa.bytes().any(|b| matches!(b, b'1'..=b'9')) {
        out.push('-');
    }
    if exponent == 0 && integer.len() == mantissa.len() {
        return out.push_str(integer);
    }
    // The point moves right by `exponent` through the digits.
    let digits = [integer, fraction].concat();
    let point = integer.len() as i64 + exponent;
    let whole: String = digits.chars().take(point.max(0) as usize).collect();
    let padding = (point - digits.len() as i64).clamp(0, INTEGER_DIGITS_MAX) as usize;
    let whole = [whole.as_str(), "0".repeat(padding).as_str()].concat();
    let whole = whole.trim_start_matches('0');
    out.push_str(if whole.is_empty() { "0" } else { whole });
    if point < digits.len() as i64 {
        out.push('.');
        (point..0).for_each(|_| out.push('0'));
        out.push_str(&digits[point.max(0) as usize..]);
    }
}

/// A number without its sign: what stands before the exponent, and the exponent. One that does not fit 32 bits is as
/// good as the largest that does: only zero can have it.
fn split_exponent(text: &str) -> (&str, i64) {
    match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            let limit = if exponent.starts_with('-') { i32::MIN } else { i32::MAX };
            (mantissa, exponent.parse().unwrap_or(limit).into())
        }
        None => (text, 0),
    }
}

/// Whether numeric could hold a number of JSON.
fn number_fits(text: &str) -> bool {
    let (mantissa, exponent) = split_exponent(text.trim_start_matches('-'));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zero = mantissa.bytes().all(|b| matches!(b, b'0' | b'.'));
    let whole = if zero { 1 } else { integer.len() as i64 + exponent };
    whole <= INTEGER_DIGITS_MAX && fraction.len() as i64 - exponent <= FRACTION_DIGITS_MAX
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, problem: &'static str) -> JsonError {
        JsonError { problem, position: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips white space and takes `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Json<'a>, JsonError> {
        match self.peek() {
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'{') => self.nested(Parser::object),
            Some(b'[') => self.nested(Parser::array),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(_) => Err(self.error("a value is expected")),
            None => Err(self.error("the text ends early")),
        }
    }

    fn word(&mut self, word: &'static str, value: Json<'a>) -> Result<Json<'a>, JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("a value is expected"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Json<'a>, JsonError>) -> Result<Json<'a>, JsonError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error("too many levels of arrays and objects"));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn array(&mut self) -> Result<Json<'a>, JsonError> {
        let mut items = vec![];
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            self.skip_space();
            items.push(self.value()?);
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            if !self.take(b',') {
                return Err(self.error("`,` or `]` is expected"));
            }
        }
    }

    fn object(&mut self) -> Result<Json<'a>, JsonError> {
        let mut members = vec![];
        if self.take(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.error("a key in quotes is expected"));
            }
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.error("`:` is expected"));
            }
            self.skip_space();
            members.push((key, self.value()?));
            if self.take(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.take(b',') {
                return Err(self.error("`,` or `}` is expected"));
            }
        }
    }

    fn digits(&mut self) -> Result<usize, JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("a digit is expected")) } else { Ok(self.at - start) }
    }

    fn number(&mut self) -> Result<Json<'a>, JsonError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        if self.digits()? > 1 && zero {
            return Err(JsonError { problem: "a number starts with 0", position: start });
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if !number_fits(text) {
            return Err(JsonError { problem: "the number is too large or has too many digits", position: start });
        }
        Ok(Json::Number(text))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let start = self.at;
        let plain = self.plain()?;
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(&self.text[start..start + plain.len()]));
        }
        let mut out = plain.to_owned();
        while self.peek() == Some(b'\\') {
            self.at += 1;
            out.push(self.escape()?);
            out.push_str(self.plain()?);
        }
        self.at += 1;
        Ok(Cow::Owned(out))
    }

    /// The text up to the next quote or backslash.
    fn plain(&mut self) -> Result<&'a str, JsonError> {
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"' | b'\\') => return Ok(&self.text[start..self.at]),
                Some(byte) if byte >= b' ' => self.at += 1,
                Some(_) => return Err(self.error("a control character in a string must be escaped")),
                None => return Err(self.error("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let byte = self.peek().ok_or(self.error("the text ends inside a string"))?;
        let plain = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.error("unknown escape")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// `uXXXX`, or two of them for a character beyond 16 bits.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let position = self.at - 1;
        let problem = |problem| JsonError { problem, position };
        let mut code = self.hex()?;
        if (0xd800..0xdc00).contains(&code) {
            let low = if self.text[self.at..].starts_with("\\u") {
                self.at += 1;
                self.hex()?
            } else {
                0
            };
            if !(0xdc00..0xe000).contains(&low) {
                return Err(problem("half of a surrogate pair"));
            }
            code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        match char::from_u32(code) {
            Some('\0') => Err(problem("\\u0000 cannot be kept in text")),
            Some(c) => Ok(c),
            None => Err(problem("half of a surrogate pair")),
        }
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at + 1..self.at + 5).unwrap_or_default();
        if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.error("four hexadecimal digits are expected"));
        }
        self.at += 5;
        Ok(digits.iter().fold(0, |code, d| code * 16 + char::from(*d).to_digit(16).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_normal_form_is_jsonbs() {
        let cases = [
            ("null", "null"),
            (" true\n", "true"),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            ("[1,2 , [3]]", "[1, 2, [3]]"),
            (r#"{"bb":1,"a":2,"c":{"y":[],"x":null}}"#, r#"{"a": 2, "c": {"x": null, "y": []}, "bb": 1}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a": 3, "b": 2}"#),
            (r#"{"é":1,"zz":2,"z":3}"#, r#"{"z": 3, "zz": 2, "é": 1}"#),
            (r#""\u0041\/\n\u001f\ud83d\ude00é""#, "\"A/\\n\\u001f😀é\""),
            (r#""\"\\""#, r#""\"\\""#),
            ("\"\u{7f}\"", "\"\u{7f}\""),
            // Numbers, as numeric prints them.
            ("-0", "0"),
            ("-0.0", "0.0"),
            ("1.50", "1.50"),
            ("1e2", "100"),
            ("1.0e1", "10"),
            ("1.25e1", "12.5"),
            ("-1E-3", "-0.001"),
            ("12e-1", "1.2"),
            ("0e5", "0"),
            ("0e-2", "0.00"),
            ("0.1e1", "1"),
            ("0.01e1", "0.1"),
            ("123456789012345678901234567890.123", "123456789012345678901234567890.123"),
        ];
        for (text, normal) in cases {
            assert_eq!(normalize(text).as_deref(), Ok(normal), "{text}");
            assert_eq!(normalize(normal).as_deref(), Ok(normal), "{text}");
        }
    }

    #[test]
    fn what_jsonb_refuses_is_refused() {
        let refused = [
            "",
            " ",
            "nul",
            "tru",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "NaN",
            "[1,]",
            "[1 2]",
            "[",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1,}",
            "{\"a\":1",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud83d\"",
            "\"\\ud83dx\"",
            "\"\\ude00\"",
            "\"\\u0000\"",
            "\"a\nb\"",
            "1 2",
            "'a'",
            "1e200000",
            "1e-20000",
            "1e99999999999999999999",
        ];
        for text in refused {
            assert!(normalize(text).is_err(), "{text}");
        }
        assert!(normalize(&"[".repeat(100_000)).is_err());
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(normalize(&deep), Ok(deep));
    }

    #[test]
    fn errors_say_where() {
        let error = Json::parse(r#"{"a": tru}"#).unwrap_err();
        assert_eq!(error.to_string(), "a value is expected at byte 6");
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let value = Json::parse(r#"{"k": "v", "k": "\t"}"#).unwrap();
        assert_eq!(value.get("k"), Some(&Json::String("\t".into())));
        assert!(matches!(&value, Json::Object(m) if matches!(m[0].1, Json::String(Cow::Borrowed("v")))));
        assert_eq!(value.get("none"), None);
    }
}
