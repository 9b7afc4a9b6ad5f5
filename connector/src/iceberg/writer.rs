//! Writes the rows of a commit to data files, and what it deletes to delete files.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::metadata_columns::{delete_file_path_field, delete_file_pos_field};
use iceberg::spec::Schema;
use weir_common::Chunk;

use super::config::IcebergConfig;
use super::convert::convert;
use super::data_file::FileFormat;
use super::files::{Content, FileSet, Files};
use super::keys::{Keys, Written};
use super::part::Part;
use super::routes::{Routes, split};
use super::storage::unavailable;
use super::target::Target;
use crate::error::{ConnectorError, Result};
use crate::sink::{SinkSpec, SinkWriter, Stamp};

/// Rows that are collected before they are sorted into partitions: of few rows each partition would get next to none.
const PENDING_ROWS: usize = 65_536;
const PENDING_BYTES: usize = 16 << 20;

/// A writer of a sink.
pub struct IcebergWriter {
    target: Target,
    columns: SchemaRef,
    /// Changes to a partitioned table that are not in files yet.
    pending: Vec<Chunk>,
    pending_rows: usize,
    pending_bytes: usize,
    routes: Routes,
    files: Files,
    rows: FileFormat,
    /// Of a sink that updates and deletes.
    deletes: Option<Deletes>,
}

/// What the open commit deletes.
struct Deletes {
    /// The columns of a key, by index, and by their ids in the table.
    key: Vec<usize>,
    key_ids: Vec<i32>,
    /// The table had rows when the writer began: a key that is new here may be there.
    replaces: bool,
    keys: Keys,
    by_key: FileFormat,
    by_position: FileFormat,
    /// Rows of this commit that are gone again.
    positions: Vec<Written>,
}

impl IcebergWriter {
    /// `name` begins the names of its files; `open_bytes` is the memory of all writers of the sink.
    pub fn new(
        target: Target,
        config: &IcebergConfig,
        spec: &SinkSpec,
        name: String,
        open_bytes: Arc<AtomicUsize>,
    ) -> Result<IcebergWriter> {
        let columns = &target.columns;
        let format = |content: Content, schema: &Schema| {
            let arrow = schema_to_arrow_schema(schema).map_err(|e| unavailable("read the schema of the table", e))?;
            Ok::<_, ConnectorError>(FileFormat::new(content.in_manifest(), schema, Arc::new(arrow), config.compression))
        };
        let subset = |fields: Vec<_>| {
            Schema::builder().with_fields(fields).build().map_err(|e| unavailable("read the schema of the table", e))
        };
        let deletes = if spec.append_only {
            None
        } else {
            let fields = columns.schema.as_struct().fields();
            let key_fields = spec.primary_key.iter().map(|i| fields[*i].clone()).collect();
            let position_fields = vec![delete_file_path_field().clone(), delete_file_pos_field().clone()];
            Some(Deletes {
                key_ids: columns.ids(&spec.primary_key),
                replaces: target.table.metadata.current_snapshot().is_some(),
                keys: Keys::new(&columns.arrow.project(&spec.primary_key)?)?,
                by_key: format(Content::DeletedKeys, &subset(key_fields)?)?,
                by_position: format(Content::DeletedPositions, &subset(position_fields)?)?,
                key: spec.primary_key.clone(),
                positions: Vec::new(),
            })
        };
        let files = Files::new(FileSet {
            storage: target.table.storage.clone(),
            directory: target.table.data_location(),
            name,
            spec_id: target.spec().spec_id(),
            target_bytes: config.target_file_size,
            open_bytes,
        });
        let routes = Routes::new(target.spec().clone(), columns.schema.clone())?;
        let rows = format(Content::Rows, &columns.schema)?;
        Ok(IcebergWriter {
            target,
            columns: spec.columns.clone(),
            pending: Vec::new(),
            pending_rows: 0,
            pending_bytes: 0,
            routes,
            files,
            rows,
            deletes,
        })
    }

    /// Writes what is pending.
    async fn write_pending(&mut self) -> Result<()> {
        (self.pending_rows, self.pending_bytes) = (0, 0);
        let chunks = std::mem::take(&mut self.pending);
        if chunks.is_empty() {
            return Ok(());
        }
        self.apply(Chunk::concat(&self.columns, &chunks)?).await
    }

    async fn apply(&mut self, chunk: Chunk) -> Result<()> {
        let batch = convert(chunk.batch(), &self.target.columns.arrow)?;
        if self.deletes.is_some() {
            return self.upsert(&batch, &chunk).await;
        }
        if !chunk.is_append_only() {
            let reason = "a row is deleted, and the sink was declared to have inserts only".to_owned();
            return Err(ConnectorError::Refused { what: "an append-only sink".into(), reason });
        }
        let routes = self.routes.route(&batch)?;
        self.insert(&batch, &routes).await.map(|_| ())
    }

    /// Writes rows, given with their partitions. Where the first row of each partition is.
    async fn insert(&mut self, batch: &RecordBatch, routes: &[u32]) -> Result<HashMap<u32, Written>> {
        let mut first = HashMap::new();
        for (number, rows) in split(batch, routes)? {
            let partition = self.routes.partition(number);
            let written = self.files.write((number, Content::Rows), partition, &self.rows, None, &rows).await?;
            first.insert(number, written);
        }
        Ok(first)
    }

    async fn upsert(&mut self, batch: &RecordBatch, chunk: &Chunk) -> Result<()> {
        let routes = self.routes.route(batch)?;
        let mut next = if chunk.is_append_only() {
            self.insert(batch, &routes).await?
        } else {
            let inserted: Vec<u32> = (0..chunk.len() as u32).filter(|i| chunk.sign(*i as usize) > 0).collect();
            let inserted_routes: Vec<u32> = inserted.iter().map(|i| routes[*i as usize]).collect();
            self.insert(&take_record_batch(batch, &UInt32Array::from(inserted))?, &inserted_routes).await?
        };
        let Some(deletes) = &mut self.deletes else {
            return Ok(());
        };
        let key_columns = batch.project(&deletes.key)?;
        let keys = deletes.keys.of(&key_columns)?;
        let mut by_key = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            if chunk.sign(i) > 0 {
                let at = next.get_mut(&routes[i]).expect("its partition was written");
                match deletes.keys.insert(key.data(), *at) {
                    Ok(written) => deletes.positions.extend(written),
                    Err(()) if deletes.replaces => by_key.push(i as u32),
                    Err(()) => {}
                }
                at.position += 1;
            } else {
                match deletes.keys.delete(key.data()) {
                    Ok(written) => deletes.positions.extend(written),
                    Err(()) => by_key.push(i as u32),
                }
            }
        }
        let by_key_routes: Vec<u32> = by_key.iter().map(|i| routes[*i as usize]).collect();
        for (number, rows) in split(&take_record_batch(&key_columns, &UInt32Array::from(by_key))?, &by_key_routes)? {
            let partition = self.routes.partition(number);
            let rows = RecordBatch::try_new(deletes.by_key.arrow().clone(), rows.columns().to_vec())?;
            let ids = Some(deletes.key_ids.as_slice());
            self.files.write((number, Content::DeletedKeys), partition, &deletes.by_key, ids, &rows).await?;
        }
        Ok(())
    }

    /// Writes which rows of this commit are gone again, sorted as the format wants it.
    async fn write_positions(&mut self) -> Result<()> {
        let Some(deletes) = &mut self.deletes else {
            return Ok(());
        };
        let mut partitions: BTreeMap<u32, Vec<(&str, i64)>> = BTreeMap::new();
        let begun = self.files.begun().to_vec();
        for written in std::mem::take(&mut deletes.positions) {
            let (location, number) = &begun[written.file as usize];
            let position = i64::try_from(written.position).expect("a file has fewer rows");
            partitions.entry(*number).or_default().push((location, position));
        }
        for (number, mut rows) in partitions {
            rows.sort_unstable();
            let locations: ArrayRef =
                Arc::new(rows.iter().map(|(location, _)| Some(location)).collect::<StringArray>());
            let positions: ArrayRef = Arc::new(rows.iter().map(|(_, position)| *position).collect::<Int64Array>());
            let rows = RecordBatch::try_new(deletes.by_position.arrow().clone(), vec![locations, positions])?;
            let key = (number, Content::DeletedPositions);
            self.files.write(key, self.routes.partition(number), &deletes.by_position, None, &rows).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl SinkWriter for IcebergWriter {
    async fn write(&mut self, chunk: Chunk) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        if self.target.spec().is_unpartitioned() {
            return self.apply(chunk).await;
        }
        self.pending_rows += chunk.len();
        self.pending_bytes += chunk.memory_bytes();
        self.pending.push(chunk);
        if self.pending_rows >= PENDING_ROWS || self.pending_bytes >= PENDING_BYTES {
            self.write_pending().await?;
        }
        Ok(())
    }

    async fn flush(&mut self, _stamp: &Stamp) -> Result<Option<serde_json::Value>> {
        self.write_pending().await?;
        self.write_positions().await?;
        let files = self.files.take().await?;
        self.routes.forget();
        if let Some(deletes) = &mut self.deletes {
            deletes.keys.clear();
        }
        if files.is_empty() {
            return Ok(None);
        }
        let part = Part::new(self.target.table.metadata.uuid(), self.target.schema(), self.target.spec(), files)?;
        Ok(Some(serde_json::to_value(part).map_err(|e| unavailable("describe data files", e))?))
    }

    fn memory_bytes(&self) -> usize {
        let deletes = self.deletes.as_ref();
        let deletes = deletes.map_or(0, |d| d.keys.memory_bytes() + d.positions.capacity() * size_of::<Written>());
        self.files.memory_bytes() + self.pending_bytes + deletes
    }
}
