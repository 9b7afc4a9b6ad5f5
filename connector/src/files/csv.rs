//! CSV as RFC 4180 has it: fields in quotes may contain the delimiter, line ends, and quotes written twice.

use std::borrow::Cow;
use std::str;

use arrow::datatypes::{Schema, SchemaRef};

use super::records::RecordFormat;
use super::rows::{Cell, Rows};
use crate::error::listed;
use crate::options::Options;

/// How a CSV file is written.
#[derive(Clone, Copy, Debug)]
pub struct CsvDialect {
    pub delimiter: u8,
    /// Whether the first line has the names of the columns.
    pub header: bool,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvField<'a> {
    pub text: Cow<'a, str>,
    pub quoted: bool,
}

/// CSV. Columns are found by their name in the header, or else by their position.
pub struct Csv {
    dialect: CsvDialect,
    schema: SchemaRef,
    /// Where each column stands in a record; `None` until the header is known.
    places: Option<Places>,
}

struct Places {
    columns: Vec<usize>,
    /// Fields of a record.
    fields: usize,
}

/// Where a byte stands in its field.
#[derive(Clone, Copy)]
enum State {
    /// At the start, where a quote opens.
    Start,
    /// Outside of quotes, where a quote is a character.
    Plain,
    Quoted,
    /// After a quote in quotes: the closing one, or the first of two that stand for one.
    Closed,
}

impl CsvDialect {
    /// The length of the first record with its line end, or `None` while it is not complete. `line` is the length of the
    /// first line with its end.
    pub fn record_end(&self, bytes: &[u8], line: usize) -> Option<usize> {
        // Most records have no quotes and end with their line.
        if !bytes[..line].contains(&b'"') {
            return Some(line);
        }
        let mut state = State::Start;
        for (i, byte) in bytes.iter().enumerate() {
            state = match (state, byte) {
                (State::Start | State::Closed, b'"') => State::Quoted,
                (State::Quoted, b'"') => State::Closed,
                (State::Quoted, _) => State::Quoted,
                (_, b'\n') => return Some(i + 1),
                (_, byte) if *byte == self.delimiter => State::Start,
                _ => State::Plain,
            };
        }
        None
    }

    /// Cuts a record, without its line end, into fields.
    pub fn fields<'a>(&self, record: &'a str) -> Result<Vec<CsvField<'a>>, &'static str> {
        let mut fields = vec![];
        let mut rest = record;
        loop {
            let (field, after) = match rest.strip_prefix('"') {
                Some(inner) => quoted_field(inner)?,
                None => {
                    let end = rest.bytes().position(|b| b == self.delimiter).unwrap_or(rest.len());
                    (CsvField { text: rest[..end].into(), quoted: false }, &rest[end..])
                }
            };
            fields.push(field);
            match after.as_bytes().first() {
                None => return Ok(fields),
                Some(byte) if *byte == self.delimiter => rest = &after[1..],
                Some(_) => return Err("text after the closing quote of a field"),
            }
        }
    }
}

/// The field after its opening quote, and what follows its closing quote.
fn quoted_field(inner: &str) -> Result<(CsvField<'_>, &str), &'static str> {
    let mut text = Cow::Borrowed("");
    let mut rest = inner;
    loop {
        let quote = rest.find('"').ok_or("a quote is not closed")?;
        if text.is_empty() {
            text = Cow::Borrowed(&rest[..quote]);
        } else {
            text.to_mut().push_str(&rest[..quote]);
        }
        rest = &rest[quote + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                text.to_mut().push('"');
                rest = after;
            }
            None => return Ok((CsvField { text, quoted: true }, rest)),
        }
    }
}

impl Csv {
    /// Reads these columns.
    pub fn new(dialect: CsvDialect, schema: SchemaRef) -> Csv {
        let count = schema.fields().len();
        let places = (!dialect.header).then(|| Places { columns: (0..count).collect(), fields: count });
        Csv { dialect, schema, places }
    }
}

/// Where the columns stand in a header.
pub fn places(schema: &Schema, names: &[&str]) -> Result<Vec<usize>, String> {
    let place = |name: &str| {
        let exact = names.iter().position(|n| *n == name);
        exact
            .or_else(|| names.iter().position(|n| n.eq_ignore_ascii_case(name)))
            .ok_or_else(|| format!("the file has no column `{name}`; it has {}", listed(names.iter().copied())))
    };
    schema.fields().iter().map(|f| place(f.name())).collect()
}

/// The option for the byte between fields.
pub fn parse_delimiter(options: &Options<'_>, option: &'static str) -> crate::error::Result<u8> {
    // Not trimmed, for a tab is one.
    match options.get_exact(option) {
        None => Ok(b','),
        Some("\\t") => Ok(b'\t'),
        Some(text) => match text.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
            _ => Err(options.invalid(option, "it is one character of ASCII, or '\\t'")),
        },
    }
}

impl RecordFormat for Csv {
    fn needs_head(&self) -> bool {
        self.places.is_none()
    }

    fn set_head(&mut self, record: &[u8]) -> Result<(), String> {
        let text = str::from_utf8(record).map_err(|_| "the header is not UTF-8")?;
        let fields = self.dialect.fields(text)?;
        let names: Vec<&str> = fields.iter().map(|f| f.text.trim()).collect();
        self.places = Some(Places { columns: places(&self.schema, &names)?, fields: names.len() });
        Ok(())
    }

    fn record_end(&self, bytes: &[u8], line: usize) -> Option<usize> {
        self.dialect.record_end(bytes, line)
    }

    fn push(&mut self, record: &[u8], rows: &mut Rows) -> Result<(), String> {
        let text = str::from_utf8(record).map_err(|_| "not UTF-8")?;
        let fields = self.dialect.fields(text)?;
        let places = self.places.as_ref().ok_or("the header is missing")?;
        if fields.len() != places.fields {
            return Err(format!("{} fields instead of {}", fields.len(), places.fields));
        }
        rows.push(|column| match &fields[places.columns[column]] {
            CsvField { text, quoted: false } if text.is_empty() => Cell::Null,
            field => Cell::Text(&field.text),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::records::line_end;
    use super::*;

    const DIALECT: CsvDialect = CsvDialect { delimiter: b',', header: true };

    #[test]
    fn records_end_with_their_line_outside_of_quotes() {
        let cases = [
            ("a,b\nc", Some(4)),
            ("a,b", None),
            ("a,\"b\nc\"\nd", Some(8)),
            ("\"a\nb", None),
            ("\"a\"\"\nb\"\n", Some(8)),
            ("5\" pipe,b\nc\n", Some(10)),
            ("5\"\" pipe\nc\n", Some(9)),
            ("\"\"\n", Some(3)),
            ("a,\"\"\"\n\"\nb", Some(8)),
            ("\n", Some(1)),
        ];
        for (text, end) in cases {
            let found = line_end(text.as_bytes()).and_then(|line| DIALECT.record_end(text.as_bytes(), line));
            assert_eq!(found, end, "{text:?}");
        }
    }

    #[test]
    fn fields_keep_whether_they_were_quoted() {
        let plain = |t: &'static str| CsvField { text: t.into(), quoted: false };
        let quoted = |t: &'static str| CsvField { text: t.into(), quoted: true };
        assert_eq!(DIALECT.fields("a,,\"\"").unwrap(), [plain("a"), plain(""), quoted("")]);
        assert_eq!(DIALECT.fields("\"a,\"\"b\"\"\n\",c").unwrap(), [quoted("a,\"b\"\n"), plain("c")]);
        assert_eq!(DIALECT.fields("\"\"\"\"").unwrap(), [quoted("\"")]);
        assert_eq!(DIALECT.fields("5\" pipe,é").unwrap(), [plain("5\" pipe"), plain("é")]);
        assert!(DIALECT.fields("\"a").is_err());
        assert!(DIALECT.fields("\"a\"b,c").is_err());
    }
}
