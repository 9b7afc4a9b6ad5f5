//! Writes files that nobody sees yet: one open file per partition.
//!
//! Bounds: open files by `open_files_max`; their memory by `MEMORY_BYTES_MAX`. Where a bound is passed, a file is ended
//! early: the one that was not written to for longest, or the one that takes most.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use uuid::Uuid;
use weir_common::{Chunk, Generation};

use super::config::FileSinkConfig;
use super::disk::{self, failed, off_runtime};
use super::encode::{Encode, Encoder};
use super::layout::{DataFile, Layout};
use super::partition::Partitioner;
use crate::error::{ConnectorError, Result};
use crate::sink::{SinkSpec, SinkWriter, Stamp};

/// Bytes of memory that the open files of a writer take together.
const MEMORY_BYTES_MAX: usize = 256 << 20;

/// Writes the files of one writer.
pub struct FileWriter {
    layout: Layout,
    generation: Generation,
    encode: Encode,
    /// Of the files.
    schema: SchemaRef,
    partitioner: Partitioner,
    file_bytes: u64,
    open_files_max: usize,
    memory_bytes_max: usize,
    /// Starts the names of files; no other writer has the same.
    prefix: String,
    /// Files made so far.
    files: u64,
    /// Writes so far.
    clock: u64,
    /// By partition.
    open: HashMap<String, OpenFile>,
    /// Ended since the last flush.
    ended: Vec<DataFile>,
}

struct OpenFile {
    file: DataFile,
    path: PathBuf,
    encoder: Encoder,
    /// Value of the writer's clock at the last write.
    written_at: u64,
}

impl FileWriter {
    pub fn new(
        layout: Layout,
        config: &FileSinkConfig,
        spec: &SinkSpec,
        generation: Generation,
        prefix: &str,
    ) -> Result<FileWriter> {
        let partitioner = Partitioner::new(config.partition_by.clone(), spec.columns.fields().len());
        let schema = spec.columns.project(partitioner.others())?.into();
        let unique = Uuid::new_v4().simple().to_string();
        Ok(FileWriter {
            layout,
            generation,
            encode: config.encode,
            schema,
            partitioner,
            file_bytes: config.file_bytes,
            open_files_max: config.open_files_max,
            memory_bytes_max: MEMORY_BYTES_MAX,
            prefix: format!("{prefix}-{}", &unique[..12]),
            files: 0,
            clock: 0,
            open: HashMap::new(),
            ended: vec![],
        })
    }

    fn start(&mut self, partition: &str) -> Result<OpenFile> {
        self.files += 1;
        let ending = match self.encode {
            Encode::Parquet { .. } => "parquet",
            Encode::Json => "json",
            Encode::Csv { .. } => "csv",
        };
        let name = format!("{}-{}.{ending}", self.prefix, self.files);
        let file = self.layout.data_file(self.generation, partition, &name);
        let path = self.layout.absolute(&file.staged);
        let created = File::create_new(&path).map_err(|e| failed("create", &path, e))?;
        let encoder = Encoder::new(self.encode, &self.schema, created, &path)?;
        Ok(OpenFile { file, path, encoder, written_at: 0 })
    }

    /// Ends the file of a partition, if one is open.
    async fn end(&mut self, partition: &str) -> Result<()> {
        if let Some(open) = self.open.remove(partition) {
            self.ended.push(off_runtime(move || open.end()).await?);
        }
        Ok(())
    }

    /// Makes room for one more file.
    async fn make_room(&mut self) -> Result<()> {
        if self.open.len() < self.open_files_max {
            return Ok(());
        }
        let oldest = self.open.iter().min_by_key(|(_, open)| open.written_at).map(|(name, _)| name.clone());
        match oldest {
            Some(oldest) => self.end(&oldest).await,
            None => Ok(()),
        }
    }

    async fn bound_memory(&mut self) -> Result<()> {
        while self.memory_bytes() > self.memory_bytes_max {
            let largest = self.open.iter().max_by_key(|(_, open)| open.encoder.memory_bytes());
            let Some(largest) = largest.map(|(name, _)| name.clone()) else { break };
            self.end(&largest).await?;
        }
        Ok(())
    }
}

impl OpenFile {
    fn end(self) -> Result<DataFile> {
        let mut file = self.file;
        file.bytes = self.encoder.finish(&self.path)?;
        Ok(file)
    }
}

#[async_trait]
impl SinkWriter for FileWriter {
    async fn write(&mut self, chunk: Chunk) -> Result<()> {
        if !chunk.is_append_only() {
            return Err(ConnectorError::Mismatch { reason: "files are only added to, and a row was deleted".into() });
        }
        for (partition, rows) in self.partitioner.divide(chunk.batch())? {
            if rows.num_rows() == 0 {
                continue;
            }
            if !self.open.contains_key(&partition) {
                self.make_room().await?;
                let started = self.start(&partition)?;
                self.open.insert(partition.clone(), started);
            }
            self.clock += 1;
            let Some(open) = self.open.get_mut(&partition) else { continue };
            open.encoder.write(&rows, &open.path)?;
            open.file.rows += rows.num_rows() as u64;
            open.written_at = self.clock;
            if open.encoder.file_bytes() >= self.file_bytes {
                self.end(&partition).await?;
            }
        }
        self.bound_memory().await
    }

    async fn flush(&mut self, _stamp: &Stamp) -> Result<Option<serde_json::Value>> {
        let mut open: Vec<OpenFile> = self.open.drain().map(|(_, open)| open).collect();
        open.sort_unstable_by(|a, b| a.file.path.cmp(&b.file.path));
        let mut files = std::mem::take(&mut self.ended);
        if open.is_empty() && files.is_empty() {
            return Ok(None);
        }
        let directory = self.layout.staged_by(self.generation);
        let files = off_runtime(move || {
            for open in open {
                files.push(open.end()?);
            }
            disk::sync_directory(&directory)?;
            Ok(files)
        })
        .await?;
        serde_json::to_value(files).map(Some).map_err(|e| failed("describe the files of", self.layout.root(), e))
    }

    fn memory_bytes(&self) -> usize {
        self.open.values().map(|open| open.encoder.memory_bytes()).sum()
    }
}
