//! Writes one Parquet file of a table.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::future::BoxFuture;
use iceberg::io::FileWrite;
use iceberg::spec::{DataContentType, DataFileBuilder, PrimitiveType, Schema};
use parquet::arrow::AsyncArrowWriter;
use parquet::arrow::async_writer::AsyncFileWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};

use super::statistics::{BOUND_BYTES_MAX, describe};
use super::storage::{Storage, unavailable};
use crate::error::Result;

/// What the files of a kind have in common.
#[derive(Clone)]
pub struct FileFormat {
    content: DataContentType,
    arrow: SchemaRef,
    /// Of the columns that have bounds, by field id.
    types: Arc<HashMap<i32, PrimitiveType>>,
    properties: WriterPropertiesPtr,
}

impl FileFormat {
    /// Files with the columns of a schema; `arrow` has their ids in the metadata of its fields.
    pub fn new(content: DataContentType, schema: &Schema, arrow: SchemaRef, compression: Compression) -> FileFormat {
        let primitive = |(id, field): (&i32, &iceberg::spec::NestedFieldRef)| {
            Some((*id, field.field_type.as_primitive_type()?.clone()))
        };
        let types = schema.field_id_to_fields().iter().filter_map(primitive).collect();
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_statistics_truncate_length(Some(BOUND_BYTES_MAX))
            .build();
        FileFormat { content, arrow, types: Arc::new(types), properties: Arc::new(properties) }
    }

    /// The columns.
    pub fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }
}

/// An open file. Dropped without [`finish`](DataFileWriter::finish), a piece of a file stays behind that no table has.
pub struct DataFileWriter {
    location: String,
    format: FileFormat,
    writer: AsyncArrowWriter<Output>,
    rows: u64,
}

impl DataFileWriter {
    /// Begins a file.
    pub async fn create(storage: &Storage, location: String, format: &FileFormat) -> Result<DataFileWriter> {
        let failed = |e: &dyn std::fmt::Display| unavailable(format!("write {location}"), e);
        let output = storage.io().new_output(&location).map_err(|e| failed(&e))?;
        let output = Output(output.writer().await.map_err(|e| failed(&e))?);
        let properties = Some(format.properties.as_ref().clone());
        let writer = AsyncArrowWriter::try_new(output, format.arrow.clone(), properties).map_err(|e| failed(&e))?;
        Ok(DataFileWriter { location, format: format.clone(), writer, rows: 0 })
    }

    /// How many rows were written: the position of the next one.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds rows.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).await.map_err(|e| self.failed(e))
    }

    /// Bytes of memory that rows take which are not in the file yet.
    pub fn memory_bytes(&self) -> usize {
        self.writer.memory_size()
    }

    /// Bytes that the file will have, about.
    pub fn file_bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    /// Brings everything from memory into the file.
    pub async fn relieve(&mut self) -> Result<()> {
        self.writer.flush().await.map_err(|e| self.failed(e))
    }

    /// Ends the file: it is durable then.
    pub async fn finish(mut self) -> Result<DataFileBuilder> {
        let metadata = match self.writer.finish().await {
            Ok(metadata) => metadata,
            Err(e) => return Err(self.failed(e)),
        };
        let bytes = self.writer.bytes_written() as u64;
        Ok(describe(&metadata, &self.format.types, self.format.content, self.location, bytes))
    }

    fn failed(&self, error: ParquetError) -> crate::ConnectorError {
        unavailable(format!("write {}", self.location), error)
    }
}

/// A file of a storage as Parquet writes to it.
struct Output(Box<dyn FileWrite>);

impl AsyncFileWriter for Output {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, parquet::errors::Result<()>> {
        Box::pin(async { self.0.write(bytes).await.map_err(|e| ParquetError::External(Box::new(e))) })
    }

    fn complete(&mut self) -> BoxFuture<'_, parquet::errors::Result<()>> {
        Box::pin(async { self.0.close().await.map_err(|e| ParquetError::External(Box::new(e))) })
    }
}
