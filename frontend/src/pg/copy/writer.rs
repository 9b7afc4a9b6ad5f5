//! Rows as the data of a copy.

use bytes::{BufMut, BytesMut};

use super::options::{CopyFormat, CopyOptions};
use crate::error::Result;
use crate::pg::encode::Cells;
use crate::session::OutputColumn;

/// How binary data begins: signature, flags, length of the header's extension.
pub const BINARY_HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// In the place of a number of columns: there are no more rows.
pub const BINARY_END: i16 = -1;

/// Writes rows in the form that the options say.
pub struct CopyWriter {
    options: CopyOptions,
    names: Vec<String>,
    /// Per column: CSV values are quoted whatever they are.
    quoted: Vec<bool>,
    started: bool,
    scratch: String,
    value: BytesMut,
}

impl CopyWriter {
    pub fn new(columns: &[OutputColumn], options: CopyOptions) -> CopyWriter {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let quoted = |name: &String| options.force_quote.iter().any(|forced| forced == "*" || forced == name);
        let quoted = names.iter().map(quoted).collect();
        CopyWriter { options, names, quoted, started: false, scratch: String::new(), value: BytesMut::new() }
    }

    /// The line before the rows, if there is one.
    pub fn header(&self) -> Option<BytesMut> {
        if !self.options.header || self.options.format == CopyFormat::Binary {
            return None;
        }
        let mut out = BytesMut::new();
        for (i, name) in self.names.iter().enumerate() {
            if i > 0 {
                out.put_u8(self.options.delimiter);
            }
            match self.options.format {
                CopyFormat::Csv => put_csv(name.as_bytes(), &self.options, false, false, &mut out),
                _ => put_escaped(name.as_bytes(), &self.options, &mut out),
            }
        }
        out.put_u8(b'\n');
        Some(out)
    }

    /// Appends a row.
    pub fn write_row(&mut self, cells: &[Cells], row: usize, out: &mut BytesMut) -> Result<()> {
        if self.options.format == CopyFormat::Binary {
            self.begin_binary(out);
            out.put_u16(cells.len() as u16);
            return cells.iter().try_for_each(|cells| cells.write_sized(row, &mut self.scratch, out));
        }
        let only = cells.len() == 1;
        for (i, cells) in cells.iter().enumerate() {
            if i > 0 {
                out.put_u8(self.options.delimiter);
            }
            if cells.is_null(row) {
                out.put_slice(self.options.null.as_bytes());
                continue;
            }
            self.value.clear();
            cells.write(row, &mut self.scratch, &mut self.value)?;
            match self.options.format {
                CopyFormat::Csv => put_csv(&self.value, &self.options, self.quoted[i], only, out),
                _ => put_escaped(&self.value, &self.options, out),
            }
        }
        out.put_u8(b'\n');
        Ok(())
    }

    /// What comes after the rows, if anything.
    pub fn trailer(&mut self) -> Option<BytesMut> {
        (self.options.format == CopyFormat::Binary).then(|| {
            let mut out = BytesMut::new();
            self.begin_binary(&mut out);
            out.put_i16(BINARY_END);
            out
        })
    }

    /// The header shares a message with what follows it: ADBC for one looks for the first row behind it.
    fn begin_binary(&mut self, out: &mut BytesMut) {
        if !self.started {
            self.started = true;
            out.put_slice(BINARY_HEADER);
        }
    }
}

/// Appends a value in the text format.
fn put_escaped(value: &[u8], options: &CopyOptions, out: &mut BytesMut) {
    for byte in value {
        let escaped = match byte {
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            b'\\' => b'\\',
            byte if *byte == options.delimiter => *byte,
            byte => {
                out.put_u8(*byte);
                continue;
            }
        };
        out.put_slice(&[b'\\', escaped]);
    }
}

/// Appends a value in the CSV format, in quotes where it would be read as something else without.
fn put_csv(value: &[u8], options: &CopyOptions, force: bool, only: bool, out: &mut BytesMut) {
    let special = |byte: &u8| matches!(byte, b'\n' | b'\r') || *byte == options.delimiter || *byte == options.quote;
    let end_of_data = only && value == b"\\.";
    if !force && !end_of_data && value != options.null.as_bytes() && !value.iter().any(special) {
        return out.put_slice(value);
    }
    out.put_u8(options.quote);
    for byte in value {
        if *byte == options.quote || *byte == options.escape {
            out.put_u8(options.escape);
        }
        out.put_u8(*byte);
    }
    out.put_u8(options.quote);
}
