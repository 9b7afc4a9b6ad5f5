//! Parquet files. The offset is the number of rows read.
//!
//! Columns are found by name, and converted where no value changes its meaning: to a wider type, to a type of another
//! precision, from strings as in text files. A value that the declared type cannot hold makes its row a bad record.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::convert::{self, Conversion};
use super::csv::places;
use super::watch::{Complaints, Looks};
use crate::error::{ConnectorError, Result};
use crate::source::{BadRecord, SourceBatch, SplitReader};

/// Reads one Parquet file.
pub struct ParquetReader {
    /// As in messages.
    name: String,
    path: PathBuf,
    schema: SchemaRef,
    /// Rows read so far; the offset.
    rows: u64,
    state: State,
    looks: Looks,
    complaints: Complaints,
}

enum State {
    /// Not opened yet, or not when it was tried with this length.
    Closed {
        tried: Option<u64>,
    },
    Open(Box<OpenFile>),
    Finished,
}

struct OpenFile {
    reader: ParquetRecordBatchReader,
    /// Per column of the schema, its place in the reader's batches and what is done to it.
    columns: Vec<(usize, Conversion)>,
    /// Rows that were decoded and not given yet.
    decoded: Option<RecordBatch>,
}

/// The columns of a Parquet file.
pub fn file_schema(path: &Path) -> std::result::Result<SchemaRef, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
    Ok(builder.schema().clone())
}

/// Per column of `schema`, its place in the file and what is done to it.
pub fn conversions(schema: &Schema, file: &Schema) -> std::result::Result<Vec<(usize, Conversion)>, String> {
    let names: Vec<&str> = file.fields().iter().map(|f| f.name().as_str()).collect();
    let places = places(schema, &names)?;
    let conversion = |(place, field): (usize, &arrow::datatypes::FieldRef)| {
        let conversion = Conversion::between(file.field(place).data_type(), field.data_type());
        let conversion = conversion.ok_or_else(|| {
            let (from, to) = (file.field(place).data_type(), convert::type_name(field.data_type()));
            format!("column `{}` of the file has type {from}, which does not fit {to}", field.name())
        })?;
        Ok((place, conversion))
    };
    places.into_iter().zip(schema.fields()).map(conversion).collect()
}

impl OpenFile {
    /// Opens a file at a row.
    fn open(path: &Path, schema: &Schema, row: u64) -> std::result::Result<OpenFile, String> {
        let file = File::open(path).map_err(|e| e.to_string())?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
        let mut columns = conversions(schema, builder.schema())?;
        let mut used: Vec<usize> = columns.iter().map(|(place, _)| *place).collect();
        used.sort_unstable();
        used.dedup();
        // The batches of the reader have only the columns that are used, in the order of the file.
        for (place, _) in &mut columns {
            *place = used.binary_search(place).unwrap_or(0);
        }
        let (groups, skip) = groups_from(builder.metadata(), row);
        let mask = ProjectionMask::roots(builder.parquet_schema(), used);
        let reader = builder.with_projection(mask).with_row_groups(groups).with_offset(skip).build();
        Ok(OpenFile { reader: reader.map_err(|e| e.to_string())?, columns, decoded: None })
    }

    /// The next rows as they are in the file.
    fn next(&mut self, max_rows: usize) -> std::result::Result<Option<RecordBatch>, String> {
        let decoded = match self.decoded.take() {
            Some(decoded) => decoded,
            None => match self.reader.next().transpose().map_err(|e| e.to_string())? {
                Some(decoded) => decoded,
                None => return Ok(None),
            },
        };
        let rows = decoded.num_rows().min(max_rows);
        if rows < decoded.num_rows() {
            self.decoded = Some(decoded.slice(rows, decoded.num_rows() - rows));
        }
        Ok(Some(decoded.slice(0, rows)))
    }
}

/// The row groups that have rows from `row` on, and how many rows of the first one come before it.
fn groups_from(metadata: &parquet::file::metadata::ParquetMetaData, row: u64) -> (Vec<usize>, usize) {
    let mut before = row;
    let mut groups = 0..metadata.num_row_groups();
    for group in metadata.row_groups() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        if before < rows {
            break;
        }
        before -= rows;
        groups.start += 1;
    }
    let skip = if groups.is_empty() { 0 } else { usize::try_from(before).unwrap_or(usize::MAX) };
    (groups.collect(), skip)
}

impl ParquetReader {
    /// Reads a file from an offset.
    pub fn new(name: &str, path: PathBuf, schema: SchemaRef, offset: Option<&str>) -> Result<ParquetReader> {
        let invalid = |offset: &str| ConnectorError::InvalidOffset { split: name.into(), offset: offset.into() };
        let rows = offset.map_or(Ok(0), |o| o.parse().map_err(|_| invalid(o)))?;
        let state = State::Closed { tried: None };
        let (looks, complaints) = (Looks::default(), Complaints::default());
        Ok(ParquetReader { name: name.to_owned(), path, schema, rows, state, looks, complaints })
    }

    /// For tests, which do not wait.
    #[cfg(test)]
    pub fn look_always(&mut self) {
        self.looks = Looks::always();
    }

    pub(super) fn read(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        if matches!(self.state, State::Closed { .. }) && !self.looks.due() {
            return Ok(None);
        }
        let outcome = self.read_file(max_rows);
        let (raw, outcome) = match outcome {
            Ok(raw) => (raw, Ok(())),
            Err(message) => (None, Err(message)),
        };
        if let Some(message) = self.complaints.news(outcome) {
            let bad = vec![BadRecord::new(message, b"", self.name.clone())];
            let batch = RecordBatch::new_empty(self.schema.clone());
            return Ok(Some(SourceBatch { batch, offset: self.rows.to_string(), bad }));
        }
        let Some(raw) = raw else { return Ok(None) };
        let (batch, bad) = self.convert(&raw)?;
        self.rows += raw.num_rows() as u64;
        Ok(Some(SourceBatch { batch, offset: self.rows.to_string(), bad }))
    }

    fn read_file(&mut self, max_rows: usize) -> std::result::Result<Option<RecordBatch>, String> {
        if let State::Closed { tried } = &mut self.state {
            let length = fs::metadata(&self.path).map_err(|e| e.to_string())?.len();
            // A file that is being written fails, and is tried again when it has grown.
            match OpenFile::open(&self.path, &self.schema, self.rows) {
                Ok(file) => self.state = State::Open(Box::new(file)),
                Err(_) if tried.replace(length) != Some(length) => return Ok(None),
                Err(message) => return Err(message),
            }
        }
        let State::Open(file) = &mut self.state else { return Ok(None) };
        let rows = file.next(max_rows);
        match &rows {
            Ok(Some(_)) => {}
            Ok(None) => self.state = State::Finished,
            Err(_) => self.state = State::Closed { tried: None },
        }
        rows
    }

    /// The rows in the columns of the schema; those with a value that does not fit are left out.
    fn convert(&self, raw: &RecordBatch) -> Result<(RecordBatch, Vec<BadRecord>)> {
        let State::Open(file) = &self.state else { return Ok((RecordBatch::new_empty(self.schema.clone()), vec![])) };
        let mut columns = Vec::with_capacity(file.columns.len());
        let mut bad: Vec<Option<String>> = vec![None; raw.num_rows()];
        for (field, (place, conversion)) in self.schema.fields().iter().zip(&file.columns) {
            columns.push(conversion.apply(field, raw.column(*place), &mut bad)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(raw.num_rows()));
        if bad.iter().all(Option::is_none) {
            return Ok((RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?, vec![]));
        }
        let good = bad.iter().map(Option::is_none).collect::<Vec<_>>().into();
        let columns =
            columns.iter().map(|c| arrow::compute::filter(c, &good)).collect::<std::result::Result<_, _>>()?;
        let position = |row: usize| format!("{}, row {}", self.name, self.rows + row as u64);
        let bad = bad.into_iter().enumerate();
        let bad = bad.filter_map(|(row, message)| Some(BadRecord::new(message?, b"", position(row)))).collect();
        Ok((RecordBatch::try_new(self.schema.clone(), columns)?, bad))
    }
}

#[async_trait]
impl SplitReader for ParquetReader {
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        self.read(max_rows)
    }

    fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }
}
