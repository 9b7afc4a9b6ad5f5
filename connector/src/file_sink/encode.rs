//! One file: rows in, bytes out.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use weir_common::text::{TextFormat, write_cast};

use super::disk::failed;
use super::plain::{plain_batch, plain_schema};
use crate::error::Result;
use crate::json;

/// Text is written to the file in pieces of this size.
const TEXT_BYTES: usize = 256 << 10;

/// What is in a file.
#[derive(Clone, Copy, Debug)]
pub enum Encode {
    Parquet { compression: Compression },
    Json,
    Csv { delimiter: char, header: bool },
}

/// A file that is being written.
pub enum Encoder {
    Parquet(Box<ArrowWriter<File>>),
    Text(TextFile),
}

/// A file of lines.
pub struct TextFile {
    file: File,
    /// `None`: JSON.
    delimiter: Option<char>,
    /// What is not in the file yet.
    buffer: String,
    /// Bytes in the file.
    written: u64,
}

impl Encoder {
    /// Writes rows of this schema into an empty file.
    pub fn new(encode: Encode, schema: &Schema, file: File, path: &Path) -> Result<Encoder> {
        let text = |delimiter, file| TextFile { file, delimiter, buffer: String::new(), written: 0 };
        Ok(match encode {
            Encode::Parquet { compression } => {
                let properties = WriterProperties::builder().set_compression(compression).build();
                let writer = ArrowWriter::try_new(file, Arc::new(plain_schema(schema)), Some(properties));
                Encoder::Parquet(Box::new(writer.map_err(|e| failed("write", path, e))?))
            }
            Encode::Json => Encoder::Text(text(None, file)),
            Encode::Csv { delimiter, header } => {
                let mut text = text(Some(delimiter), file);
                if header {
                    text.push_header(schema, delimiter);
                }
                Encoder::Text(text)
            }
        })
    }

    pub fn write(&mut self, batch: &RecordBatch, path: &Path) -> Result<()> {
        match self {
            Encoder::Parquet(writer) => writer.write(&plain_batch(batch)?).map_err(|e| failed("write", path, e)),
            Encoder::Text(text) => text.write(batch).map_err(|e| failed("write", path, e)),
        }
    }

    /// Bytes of the file if it were ended now, about.
    pub fn file_bytes(&self) -> u64 {
        match self {
            Encoder::Parquet(writer) => (writer.bytes_written() + writer.in_progress_size()) as u64,
            Encoder::Text(text) => text.written + text.buffer.len() as u64,
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Encoder::Parquet(writer) => writer.memory_size(),
            Encoder::Text(text) => text.buffer.capacity(),
        }
    }

    /// Ends the file and makes it durable. Its length.
    pub fn finish(self, path: &Path) -> Result<u64> {
        let file = match self {
            Encoder::Parquet(writer) => writer.into_inner().map_err(|e| failed("write", path, e))?,
            Encoder::Text(mut text) => {
                text.write_out().map_err(|e| failed("write", path, e))?;
                text.file
            }
        };
        file.sync_all().and_then(|_| file.metadata()).map(|m| m.len()).map_err(|e| failed("make durable", path, e))
    }
}

impl TextFile {
    fn push_header(&mut self, schema: &Schema, delimiter: char) {
        for (i, field) in schema.fields().iter().enumerate() {
            if i > 0 {
                self.buffer.push(delimiter);
            }
            push_field(field.name(), delimiter, &mut self.buffer);
        }
        self.buffer.push('\n');
    }

    fn write(&mut self, batch: &RecordBatch) -> std::io::Result<()> {
        let mut field = String::new();
        for row in 0..batch.num_rows() {
            match self.delimiter {
                None => json::write_row(batch, 0..batch.num_columns(), row, &mut self.buffer),
                Some(delimiter) => push_record(batch, row, delimiter, &mut field, &mut self.buffer),
            }
            self.buffer.push('\n');
            if self.buffer.len() >= TEXT_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn write_out(&mut self) -> std::io::Result<()> {
        self.file.write_all(self.buffer.as_bytes())?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn push_record(batch: &RecordBatch, row: usize, delimiter: char, field: &mut String, out: &mut String) {
    for (i, column) in batch.columns().iter().enumerate() {
        if i > 0 {
            out.push(delimiter);
        }
        if column.is_null(row) {
            // A line with nothing in it would be no record, but an empty line.
            continue;
        }
        let declared_scale = match column.data_type() {
            arrow::datatypes::DataType::Decimal128(_, scale) => Some(*scale),
            _ => None,
        };
        field.clear();
        write_cast(column, row, &TextFormat { declared_scale, ..TextFormat::default() }, field);
        push_field(field, delimiter, out);
    }
}

/// Appends a field, in quotes where it could be read as something else: an empty one would be NULL.
fn push_field(text: &str, delimiter: char, out: &mut String) {
    let special = |c: char| c == delimiter || matches!(c, '"' | '\n' | '\r');
    if !text.is_empty() && !text.contains(special) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        if c == '"' {
            out.push('"');
        }
        out.push(c);
    }
    out.push('"');
}
