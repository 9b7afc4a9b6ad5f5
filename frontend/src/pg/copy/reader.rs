//! The data of a copy as rows.
//!
//! Data comes in pieces that end anywhere. What is complete, lines or binary rows, is read at once into columns; the rest
//! waits for the next piece.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::{Buf, BytesMut};
use datafusion::scalar::ScalarValue;
use weir_common::chunk::CHUNK_ROWS;
use weir_common::parse::TextColumn;
use weir_common::text::TextFormat;

use super::bad_data;
use super::options::{CopyFormat, CopyOptions};
use super::writer::{BINARY_END, BINARY_HEADER};
use crate::error::{Result, SqlError};
use crate::pg::decode::Parameter;
use crate::pg::encode::Format;
use crate::pg::message::{FRAME_BYTES_MAX, utf8};
use crate::pg::oid;
use crate::session::OutputColumn;

/// Bytes of data in one batch, about.
const BATCH_BYTES: usize = 4 << 20;

/// Reads rows in the form that the options say.
pub struct CopyReader {
    options: CopyOptions,
    settings: TextFormat,
    schema: SchemaRef,
    columns: Vec<Column>,
    input: BytesMut,
    scan: Scan,
    /// The line, or binary row, that is being read, from 1.
    line: u64,
    /// Rows and bytes that the columns hold.
    rows: usize,
    bytes: usize,
    /// The header of binary data has been read.
    started: bool,
    /// The data has said that there are no more rows.
    ended: bool,
}

/// One column.
struct Column {
    name: String,
    parameter: Parameter,
    values: Values,
}

enum Values {
    Text(TextColumn),
    Binary(Vec<ScalarValue>),
}

/// Where the search for the end of a line stands.
#[derive(Default)]
struct Scan {
    position: usize,
    /// Inside of quotes, or behind a backslash.
    quoted: bool,
    escaped: bool,
}

impl CopyReader {
    pub fn new(columns: &[OutputColumn], options: CopyOptions, settings: TextFormat) -> CopyReader {
        let field = |column: &OutputColumn| Field::new(&column.name, column.sql_type.to_arrow(), true);
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let columns = columns.iter().map(|column| Column {
            name: column.name.clone(),
            parameter: Parameter { oid: oid::of(&column.sql_type), sql_type: column.sql_type.clone() },
            values: match options.format {
                CopyFormat::Binary => Values::Binary(vec![]),
                _ => Values::Text(TextColumn::new(&column.sql_type, settings.time_zone)),
            },
        });
        let columns = columns.collect();
        CopyReader {
            options,
            settings,
            schema,
            columns,
            input: BytesMut::new(),
            scan: Scan::default(),
            line: 0,
            rows: 0,
            bytes: 0,
            started: false,
            ended: false,
        }
    }

    /// Reads a piece of data.
    pub fn feed(&mut self, data: &[u8]) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        self.input.extend_from_slice(data);
        match self.options.format {
            CopyFormat::Binary => self.read_binary()?,
            CopyFormat::Text | CopyFormat::Csv => {
                while let Some(length) = self.line_length() {
                    let line = self.input.split_to(length + 1);
                    self.read_line(&line[..length])?;
                    if self.ended {
                        break;
                    }
                }
            }
        }
        if self.ended {
            self.input.clear();
        }
        if self.input.len() > FRAME_BYTES_MAX {
            return Err(bad_data("a row is too long"));
        }
        Ok(())
    }

    /// There is no more data: what is left is the last line.
    pub fn end(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.input);
        if self.ended || (rest.is_empty() && self.options.format != CopyFormat::Binary) {
            return Ok(());
        }
        match self.options.format {
            // PostgreSQL too takes an end without a trailer between two rows.
            CopyFormat::Binary if rest.is_empty() && self.started => Ok(()),
            CopyFormat::Binary if !self.started => Err(bad_data("COPY file signature not recognized")),
            CopyFormat::Binary => Err(bad_data("unexpected EOF in COPY data")),
            CopyFormat::Csv if self.scan.quoted => Err(bad_data("unterminated CSV quoted field")),
            CopyFormat::Text | CopyFormat::Csv => self.read_line(&rest),
        }
    }

    /// The rows so far, if they are worth a batch or `all` are wanted.
    pub fn take_batch(&mut self, all: bool) -> Result<Option<RecordBatch>> {
        let full = self.rows >= CHUNK_ROWS || self.bytes >= BATCH_BYTES;
        if self.rows == 0 || !(full || all) {
            return Ok(None);
        }
        let columns = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        Ok(Some(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?))
    }

    /// How long the next line is, without its end. `None`: it has not come yet.
    fn line_length(&mut self) -> Option<usize> {
        let csv = self.options.format == CopyFormat::Csv;
        let (quote, escape) = (self.options.quote, self.options.escape);
        while let Some(byte) = self.input.get(self.scan.position) {
            self.scan.position += 1;
            match *byte {
                _ if self.scan.escaped => self.scan.escaped = false,
                b'\\' if !csv => self.scan.escaped = true,
                // A doubled quote ends and begins the quotes again.
                byte if csv && byte == escape && escape != quote => self.scan.escaped = self.scan.quoted,
                byte if csv && byte == quote => self.scan.quoted = !self.scan.quoted,
                b'\n' if !self.scan.quoted => {
                    let length = self.scan.position - 1;
                    self.scan = Scan::default();
                    return Some(length);
                }
                _ => {}
            }
        }
        None
    }

    fn read_line(&mut self, line: &[u8]) -> Result<()> {
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        if self.options.header && self.line == 1 {
            return Ok(());
        }
        let fields = match self.options.format {
            CopyFormat::Csv => csv_fields(line, &self.options),
            _ => text_fields(line, &self.options),
        };
        let fields = fields.map_err(|error| self.locate(error, None))?;
        if let Some(column) = self.columns.get(fields.len()) {
            return Err(self.locate(bad_data(format!("missing data for column \"{}\"", column.name)), None));
        }
        if fields.len() > self.columns.len() {
            return Err(self.locate(bad_data("extra data after last expected column"), None));
        }
        for (i, field) in fields.iter().enumerate() {
            if let Err(error) = self.columns[i].push_text(field.as_deref()) {
                return Err(self.locate(error, Some(i)));
            }
        }
        self.rows += 1;
        self.bytes += line.len();
        Ok(())
    }

    fn read_binary(&mut self) -> Result<()> {
        if !self.started {
            let Some(header) = self.input.first_chunk::<19>() else { return Ok(()) };
            // Behind the signature: flags, the upper half of which one must understand; the length of what to skip.
            let (flags, extension) = ((&header[11..15]).get_u32(), (&header[15..]).get_u32() as usize);
            if header[..11] != BINARY_HEADER[..11] {
                return Err(bad_data("COPY file signature not recognized"));
            }
            if flags >> 16 != 0 {
                return Err(bad_data("unrecognized critical flags in COPY file header"));
            }
            if extension > FRAME_BYTES_MAX {
                return Err(bad_data("invalid COPY file header (wrong length)"));
            }
            if self.input.len() < 19 + extension {
                return Ok(());
            }
            self.input.advance(19 + extension);
            self.started = true;
        }
        while let Some(length) = self.binary_row_length()? {
            let row = self.input.split_to(length);
            self.read_binary_row(&row)?;
            if self.ended {
                break;
            }
        }
        Ok(())
    }

    /// How long the next row is. `None`: it has not come yet.
    fn binary_row_length(&self) -> Result<Option<usize>> {
        let mut rest = &self.input[..];
        let Some(count) = take::<2>(&mut rest).map(i16::from_be_bytes) else { return Ok(None) };
        if count != BINARY_END && usize::try_from(count) != Ok(self.columns.len()) {
            let expected = self.columns.len();
            return Err(bad_data(format!("row field count is {count}, expected {expected}")));
        }
        for _ in 0..count.max(0) {
            let Some(length) = take::<4>(&mut rest).map(i32::from_be_bytes) else { return Ok(None) };
            let length = match length {
                -1 => 0,
                length => usize::try_from(length).map_err(|_| bad_data("invalid field size"))?,
            };
            let Some((_, behind)) = rest.split_at_checked(length) else { return Ok(None) };
            rest = behind;
        }
        Ok(Some(self.input.len() - rest.len()))
    }

    /// Reads a row that is complete.
    fn read_binary_row(&mut self, row: &[u8]) -> Result<()> {
        self.line += 1;
        let (count, mut rest) = (row.first_chunk::<2>().copied().map_or(BINARY_END, i16::from_be_bytes), &row[2..]);
        if count == BINARY_END {
            self.ended = true;
            return Ok(());
        }
        for i in 0..self.columns.len() {
            let length = take::<4>(&mut rest).map_or(-1, i32::from_be_bytes);
            let value = usize::try_from(length).ok().and_then(|length| rest.split_off(..length));
            if let Err(error) = self.columns[i].push_binary(value, &self.settings) {
                return Err(self.locate(error, Some(i)));
            }
        }
        self.rows += 1;
        self.bytes += row.len();
        Ok(())
    }

    /// The error, with the place in the data that it is about.
    fn locate(&self, error: SqlError, column: Option<usize>) -> SqlError {
        let place = match column.and_then(|i| self.columns.get(i)) {
            Some(column) => format!("COPY line {}, column {}", self.line, column.name),
            None => format!("COPY line {}", self.line),
        };
        error.with_detail(place)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

impl Column {
    fn push_text(&mut self, text: Option<&[u8]>) -> Result<()> {
        let Values::Text(values) = &mut self.values else { return Ok(()) };
        match text {
            None => values.append_null(),
            Some(text) => values.append(utf8(text)?).map_err(|error| SqlError::new(error.state, error.message))?,
        }
        Ok(())
    }

    fn push_binary(&mut self, bytes: Option<&[u8]>, settings: &TextFormat) -> Result<()> {
        let value = self.parameter.decode(bytes, Format::Binary, settings)?;
        if let Values::Binary(values) = &mut self.values {
            values.push(value);
        }
        Ok(())
    }

    /// The values, which are gone from here afterwards.
    fn finish(&mut self) -> Result<ArrayRef> {
        match &mut self.values {
            Values::Text(values) => Ok(values.finish()),
            Values::Binary(values) => Ok(ScalarValue::iter_to_array(std::mem::take(values))?),
        }
    }
}

type Fields = Vec<Option<Vec<u8>>>;

/// The values of a line in the text format.
fn text_fields(line: &[u8], options: &CopyOptions) -> Result<Fields> {
    let mut fields = vec![];
    let mut start = 0;
    let mut position = 0;
    loop {
        match line.get(position) {
            Some(b'\\') => position += 2,
            Some(byte) if *byte != options.delimiter => position += 1,
            end => {
                let field = &line[start..position.min(line.len())];
                fields.push((field != options.null.as_bytes()).then(|| unescape(field)));
                if end.is_none() {
                    return Ok(fields);
                }
                position += 1;
                start = position;
            }
        }
    }
}

/// A value of the text format without its escapes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'\\' {
            value.push(*byte);
            continue;
        }
        // A backslash at the very end stands for itself.
        let Some((escaped, behind)) = rest.split_first() else {
            value.push(b'\\');
            break;
        };
        rest = behind;
        value.push(match escaped {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'0'..=b'7' => number(*escaped, 8, 2, &mut rest),
            b'x' if rest.first().is_some_and(u8::is_ascii_hexdigit) => number(b'0', 16, 2, &mut rest),
            other => *other,
        });
    }
    value
}

/// A byte that is written as a digit and at most `more` digits after it.
fn number(first: u8, radix: u32, more: usize, rest: &mut &[u8]) -> u8 {
    let digit = |byte: u8| char::from(byte).to_digit(radix);
    let mut value = digit(first).unwrap_or(0);
    for _ in 0..more {
        let Some(next) = rest.first().copied().and_then(digit) else { break };
        value = value * radix + next;
        *rest = &rest[1..];
    }
    value as u8
}

/// The values of a line in the CSV format.
fn csv_fields(line: &[u8], options: &CopyOptions) -> Result<Fields> {
    let mut fields = vec![];
    let mut value = vec![];
    let (mut quoted, mut was_quoted) = (false, false);
    let mut bytes = line.iter().copied().peekable();
    loop {
        match bytes.next() {
            Some(byte) if quoted => {
                let next = bytes.peek().copied();
                if byte == options.escape && next.is_some_and(|next| next == options.quote || next == options.escape) {
                    value.extend(bytes.next());
                } else if byte == options.quote {
                    quoted = false;
                } else {
                    value.push(byte);
                }
            }
            None if quoted => return Err(bad_data("unterminated CSV quoted field")),
            Some(byte) if byte == options.quote => (quoted, was_quoted) = (true, true),
            Some(byte) if byte != options.delimiter => value.push(byte),
            end => {
                let value = std::mem::take(&mut value);
                let null = !was_quoted && value == options.null.as_bytes();
                fields.push((!null).then_some(value));
                was_quoted = false;
                if end.is_none() {
                    return Ok(fields);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
