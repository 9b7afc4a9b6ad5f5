//! The options of COPY.

use crate::error::{Result, SqlError, SqlState};

/// The form of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    Text,
    Csv,
    Binary,
}

/// How the data of a copy is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    pub format: CopyFormat,
    /// Between two values.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// The first line has the names of the columns.
    pub header: bool,
    /// Around a CSV value that has a delimiter or a line end in it.
    pub quote: u8,
    /// Before a quote inside of quotes.
    pub escape: u8,
    /// Columns whose values are always quoted; `*` is all.
    pub force_quote: Vec<String>,
}

impl CopyOptions {
    /// From the options of the statement, names in lower case, in the order in which they are written. An option without a
    /// value is `None`.
    pub fn new<'a>(options: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Result<CopyOptions> {
        let options: Vec<_> = options.into_iter().collect();
        let format = match options.iter().find(|(name, _)| *name == "format") {
            None => CopyFormat::Text,
            Some((_, value)) => format(value.unwrap_or_default())?,
        };
        let csv = format == CopyFormat::Csv;
        let mut copy = CopyOptions {
            format,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_string() },
            header: false,
            quote: b'"',
            escape: b'"',
            force_quote: vec![],
        };
        let mut escape = None;
        for (name, value) in &options {
            let only = |allowed: bool, kind: &str| {
                let message = format!("COPY {name} requires {kind} mode").replace('_', " ");
                if allowed { Ok(()) } else { Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)) }
            };
            let text = value.unwrap_or_default();
            match *name {
                "format" => {}
                "delimiter" | "null" | "header" if format == CopyFormat::Binary => {
                    return Err(SqlError::syntax(format!("cannot specify {} in BINARY mode", name.to_uppercase())));
                }
                "delimiter" => copy.delimiter = one_byte(name, text)?,
                "null" => copy.null = text.to_string(),
                "header" => copy.header = boolean(name, *value)?,
                "quote" => {
                    only(csv, "CSV")?;
                    copy.quote = one_byte(name, text)?;
                }
                "escape" => {
                    only(csv, "CSV")?;
                    escape = Some(one_byte(name, text)?);
                }
                "force_quote" => {
                    only(csv, "CSV")?;
                    copy.force_quote = text.split(',').map(|column| column.trim().to_string()).collect();
                }
                "freeze" if !boolean(name, *value)? => {}
                "encoding" if matches!(text.to_lowercase().as_str(), "utf8" | "utf-8" | "unicode") => {}
                "freeze" | "encoding" | "force_not_null" | "force_null" | "default" | "on_error" => {
                    return Err(SqlError::unsupported(format!("the option {} of COPY", name.to_uppercase())));
                }
                _ => return Err(SqlError::syntax(format!("option \"{name}\" not recognized"))),
            }
        }
        copy.escape = escape.unwrap_or(copy.quote);
        copy.check()?;
        Ok(copy)
    }

    fn check(&self) -> Result<()> {
        let csv = self.format == CopyFormat::Csv;
        let refuse = |message: &str| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        if matches!(self.delimiter, b'\n' | b'\r') {
            return refuse("COPY delimiter cannot be newline or carriage return");
        }
        if self.null.contains(['\n', '\r']) {
            return refuse("COPY null representation cannot use newline or carriage return");
        }
        if !csv && (self.delimiter == b'.' || self.delimiter == b'\\' || self.delimiter.is_ascii_alphanumeric()) {
            return refuse(&format!("COPY delimiter cannot be \"{}\"", char::from(self.delimiter)));
        }
        if csv && self.delimiter == self.quote {
            return refuse("COPY delimiter and quote must be different");
        }
        if self.null.as_bytes().contains(&self.delimiter) {
            return refuse("COPY delimiter must not appear in the NULL specification");
        }
        if csv && self.null.as_bytes().contains(&self.quote) {
            return refuse("CSV quote character must not appear in the NULL specification");
        }
        Ok(())
    }
}

fn format(name: &str) -> Result<CopyFormat> {
    match name.to_lowercase().as_str() {
        "text" => Ok(CopyFormat::Text),
        "csv" => Ok(CopyFormat::Csv),
        "binary" => Ok(CopyFormat::Binary),
        _ => {
            let message = format!("COPY format \"{name}\" not recognized");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

fn one_byte(name: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {name} must be a single one-byte character"),
        )),
    }
}

fn boolean(name: &str, value: Option<&str>) -> Result<bool> {
    match value.map(str::to_lowercase).as_deref() {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        Some(_) => Err(SqlError::syntax(format!("{name} requires a Boolean value"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_depend_on_the_format() {
        let text = CopyOptions::new([]).unwrap();
        assert_eq!((text.delimiter, text.null.as_str(), text.header), (b'\t', "\\N", false));
        let csv = CopyOptions::new([("header", None), ("format", Some("CSV")), ("quote", Some("'"))]).unwrap();
        assert_eq!((csv.delimiter, csv.null.as_str(), csv.header, csv.escape), (b',', "", true, b'\''));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |options: &[(&'static str, Option<&'static str>)], state: &str| {
            assert_eq!(CopyOptions::new(options.to_vec()).unwrap_err().state.0, state, "{options:?}");
        };
        refused(&[("format", Some("xml"))], "22023");
        refused(&[("quote", Some("'"))], "0A000");
        refused(&[("delimiter", Some("||"))], "0A000");
        refused(&[("delimiter", Some("a"))], "22023");
        refused(&[("format", Some("csv")), ("delimiter", Some("\""))], "22023");
        refused(&[("format", Some("binary")), ("header", None)], "42601");
        refused(&[("colour", Some("red"))], "42601");
    }
}
