//! Reads records from the end of what was read before to the end of the file, again and again.
//!
//! ```text
//! file   | records read        | skipped | buffer: whole records, then part of one |  not read yet
//!                              ^ offset                                           ^ end
//! ```
//!
//! The offset is the byte after the last record read; only whole records are read. Two records are not whole by
//! themselves:
//!
//! - The last one of a file without its line end is taken for whole when the file has not grown for
//!   [`QUIET`]. Should it grow later all the same, what was read stays read, and the rest is a record of its own.
//! - One that is longer than [`RECORD_BYTES_MAX`] is skipped, and reading goes on after its first line.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::rows::Rows;
use super::watch::{Complaints, Looks};
use crate::error::{ConnectorError, Result};
use crate::source::{BadRecord, SourceBatch, SplitReader};

/// How long a file must stay the same until its last line counts without a line end.
pub const QUIET: Duration = Duration::from_secs(1);
/// The longest record that is read.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Records of a batch have at most so many bytes together, the last one aside.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// What some editors put at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How records follow each other in a file, and what is in them.
pub trait RecordFormat: Send {
    /// Whether the first record of the file must be given to `set_head` before others are pushed.
    fn needs_head(&self) -> bool {
        false
    }

    /// Takes the first record.
    fn set_head(&mut self, _record: &[u8]) -> std::result::Result<(), String> {
        Ok(())
    }

    /// The length of the first record with its line end, or `None` while it is not complete. `line` is the length of the
    /// first line with its end.
    fn record_end(&self, bytes: &[u8], line: usize) -> Option<usize>;

    /// Appends the row of a record, which has no line end; or tells what is wrong with it.
    fn push(&mut self, record: &[u8], rows: &mut Rows) -> std::result::Result<(), String>;
}

/// The length of the first line with its end.
pub fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b == b'\n').map(|i| i + 1)
}

/// Reads one file of records.
pub struct RecordReader<F> {
    /// As in messages.
    name: String,
    path: PathBuf,
    format: F,
    rows: Rows,
    /// The byte after the last record read.
    offset: u64,
    /// Bytes after `offset` that belong to a record which is too long, and are not kept.
    skipped: u64,
    /// What follows: whole records, then part of one.
    buffer: Vec<u8>,
    /// How much of the buffer was read as records; cut off before more is read from the file.
    consumed: usize,
    /// How many bytes after these have no line end.
    searched: usize,
    /// Open only while there is more to read, so that many files can be watched.
    file: Option<File>,
    /// An unfinished last line: the end of the file, and since when it is there.
    tail: Option<(u64, Instant)>,
    quiet: Duration,
    looks: Looks,
    complaints: Complaints,
}

/// What reading some bytes led to.
enum Filled {
    More,
    /// That was all, for now.
    End,
    /// It is too early to look again.
    Early,
}

impl<F: RecordFormat> RecordReader<F> {
    /// Reads a file from an offset.
    pub fn new(name: &str, path: PathBuf, format: F, rows: Rows, offset: Option<&str>) -> Result<RecordReader<F>> {
        let invalid = |offset: &str| ConnectorError::InvalidOffset { split: name.into(), offset: offset.into() };
        let offset = offset.map_or(Ok(0), |o| o.parse().map_err(|_| invalid(o)))?;
        Ok(RecordReader {
            name: name.to_owned(),
            path,
            format,
            rows,
            offset,
            skipped: 0,
            buffer: vec![],
            consumed: 0,
            searched: 0,
            file: None,
            tail: None,
            quiet: QUIET,
            looks: Looks::default(),
            complaints: Complaints::default(),
        })
    }

    /// The byte of the file after the buffer.
    fn end(&self) -> u64 {
        self.offset + self.skipped + self.pending().len() as u64
    }

    /// The part of the buffer that was not read as records.
    fn pending(&self) -> &[u8] {
        &self.buffer[self.consumed..]
    }

    fn read(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        let start = self.offset;
        let mut bad = vec![];
        let mut records = 0;
        let outcome = loop {
            records += self.consume(max_rows - records, start, &mut bad);
            if records >= max_rows || self.offset - start >= BATCH_BYTES_MAX as u64 {
                break Ok(());
            }
            match self.fill() {
                Ok(Filled::More) => {}
                Ok(Filled::Early) => return self.give(bad),
                Ok(Filled::End) => {
                    self.consume_tail(&mut bad);
                    break Ok(());
                }
                Err(e) => break Err(e.to_string()),
            }
        };
        if let Some(message) = self.complaints.news(outcome) {
            bad.push(BadRecord::new(message, b"", self.name.clone()));
        }
        self.give(bad)
    }

    /// What was read.
    fn give(&mut self, bad: Vec<BadRecord>) -> Result<Option<SourceBatch>> {
        let batch = self.rows.finish()?;
        // Blank lines alone are no reason for a batch, they will be read again.
        let news = batch.num_rows() > 0 || !bad.is_empty();
        Ok(news.then(|| SourceBatch { batch, offset: self.offset.to_string(), bad }))
    }

    /// Reads whole records from the buffer.
    fn consume(&mut self, max_rows: usize, start: u64, bad: &mut Vec<BadRecord>) -> usize {
        let mut records = 0;
        if self.format.needs_head() {
            return 0;
        }
        while records < max_rows && self.offset - start < BATCH_BYTES_MAX as u64 {
            let Some(end) = self.record_end() else { break };
            records += usize::from(self.record(end, bad));
        }
        records
    }

    /// The end of the first record of the buffer; one that is too long is skipped.
    fn record_end(&mut self) -> Option<usize> {
        let searched = self.searched;
        let line = line_end(&self.pending()[searched..]).map(|end| searched + end);
        self.searched = line.map_or(self.pending().len(), |line| line - 1);
        if self.skipped > 0 {
            return line.or_else(|| self.skip(self.pending().len()));
        }
        let end = line.and_then(|line| self.format.record_end(self.pending(), line));
        if end.is_some() || self.pending().len() < RECORD_BYTES_MAX {
            return end;
        }
        match line {
            Some(line) => self.skip(line).or(Some(0)),
            None => self.skip(self.pending().len()),
        }
    }

    /// Gives up bytes of a record that is too long. The end of its line is not among them or the last of them.
    fn skip(&mut self, length: usize) -> Option<usize> {
        self.skipped += length as u64;
        self.consumed += length;
        self.searched = 0;
        None
    }

    /// Reads the record of this length. Returns whether there was one: blank lines are none.
    fn record(&mut self, length: usize, bad: &mut Vec<BadRecord>) -> bool {
        let start = self.offset;
        let bytes = &self.buffer[self.consumed..self.consumed + length];
        let bytes = if start == 0 { bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes) } else { bytes };
        let outcome = if self.skipped > 0 {
            Err(format!("longer than {} MiB", RECORD_BYTES_MAX >> 20))
        } else if bytes.trim_ascii().is_empty() {
            Ok(false)
        } else {
            self.format.push(trim_line_end(bytes), &mut self.rows).map(|()| true)
        };
        let outcome = outcome.unwrap_or_else(|message| {
            bad.push(BadRecord::new(message, trim_line_end(bytes), format!("{}, byte {start}", self.name)));
            true
        });
        self.offset += self.skipped + length as u64;
        self.consumed += length;
        self.skipped = 0;
        self.searched = 0;
        outcome
    }

    /// At the end of the file: takes the rest of the buffer for a record, if it has been there for long enough.
    fn consume_tail(&mut self, bad: &mut Vec<BadRecord>) {
        if self.pending().is_empty() || self.skipped > 0 || self.format.needs_head() {
            self.tail = None;
            return;
        }
        let end = self.end();
        match self.tail {
            Some((seen, since)) if seen == end && since.elapsed() >= self.quiet => self.tail = None,
            Some((seen, _)) if seen == end => return,
            _ => {
                self.tail = Some((end, Instant::now()));
                return;
            }
        }
        // A quote that is never closed makes all the rest one record: only its first line is given up.
        let all = self.pending().len();
        let first_line = line_end(self.pending()).unwrap_or(all);
        let length = if self.is_closed() { all } else { first_line };
        self.record(length, bad);
    }

    /// Whether the rest of the buffer is a record that lacks only its line end.
    fn is_closed(&self) -> bool {
        let bytes = [self.pending(), b"\n"].concat();
        line_end(&bytes).and_then(|line| self.format.record_end(&bytes, line)).is_some()
    }

    /// Reads more of the file into the buffer.
    fn fill(&mut self) -> io::Result<Filled> {
        if self.file.is_none() {
            if !self.looks.due() {
                return Ok(Filled::Early);
            }
            if !self.open()? {
                return Ok(Filled::End);
            }
        }
        let end = self.end();
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        let Some(file) = &mut self.file else { return Ok(Filled::End) };
        file.seek(SeekFrom::Start(end))?;
        let read = file.take(READ_BYTES as u64).read_to_end(&mut self.buffer)?;
        if read == 0 {
            self.file = None;
            self.buffer.shrink_to_fit();
            return Ok(Filled::End);
        }
        Ok(Filled::More)
    }

    /// Opens the file. Returns whether there is more to read.
    fn open(&mut self) -> io::Result<bool> {
        let length = fs::metadata(&self.path)?.len();
        if length < self.end() {
            self.buffer.clear();
            self.consumed = 0;
            self.searched = 0;
            self.skipped = 0;
            if length < self.offset {
                let message = format!("the file has {length} bytes, of which {} were read already", self.offset);
                return Err(io::Error::other(message));
            }
        }
        if length == self.end() {
            return Ok(false);
        }
        let mut file = File::open(&self.path)?;
        if self.format.needs_head() && !self.read_head(&mut file)? {
            return Ok(false);
        }
        self.file = Some(file);
        Ok(true)
    }

    /// Reads the first record and gives it to the format. Returns whether it is complete.
    fn read_head(&mut self, file: &mut File) -> io::Result<bool> {
        let mut head = vec![];
        let end = loop {
            let read = (&mut *file).take(READ_BYTES as u64).read_to_end(&mut head)?;
            match line_end(&head).and_then(|line| self.format.record_end(&head, line)) {
                Some(end) => break end,
                None if read == 0 || head.len() >= RECORD_BYTES_MAX => return Ok(false),
                None => {}
            }
        };
        let record = head[..end].strip_prefix(BYTE_ORDER_MARK).unwrap_or(&head[..end]);
        self.format.set_head(trim_line_end(record)).map_err(io::Error::other)?;
        self.offset = self.offset.max(end as u64);
        Ok(true)
    }
}

/// A record without its line end.
pub fn trim_line_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

#[async_trait]
impl<F: RecordFormat> SplitReader for RecordReader<F> {
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        self.read(max_rows)
    }

    /// A file may always grow.
    fn is_finished(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
