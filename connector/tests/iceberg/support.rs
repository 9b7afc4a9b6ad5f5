//! A warehouse in a temporary directory, chunks from text, and rows read back.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::TryStreamExt;
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;
use iceberg::table::StaticTable;
use iceberg::{NamespaceIdent, TableIdent};
use sqlx::Row;
use sqlx::any::{AnyPoolOptions, install_default_drivers};
use tempfile::TempDir;
use weir_common::{Chunk, Epoch, Generation, JobId};
use weir_connector::{Commit, Committer, Result, Sink, SinkSpec, SinkWriter, Stamp, iceberg as weir_iceberg};

pub const SINK: JobId = JobId(7);

/// A warehouse with a catalog, and a sink into table `d.t` of it.
pub struct Warehouse {
    pub directory: TempDir,
    pub spec: SinkSpec,
}

impl Warehouse {
    /// A sink of `id` and `name`, where `id` is the key unless only inserts come.
    pub fn new(append_only: bool, options: &[(&str, &str)]) -> Warehouse {
        let directory = TempDir::new().unwrap();
        let path = directory.path().to_str().unwrap();
        let mut all = BTreeMap::new();
        let catalog = format!("sqlite://{path}/catalog.db");
        let given = [
            ("connector", "iceberg"),
            ("warehouse.path", path),
            ("catalog.type", "sql"),
            ("catalog.uri", &catalog),
            ("database.name", "d"),
            ("table.name", "t"),
            ("create_table_if_not_exists", "true"),
        ];
        all.extend(given.iter().chain(options).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let spec = SinkSpec {
            sink: SINK,
            name: "s".into(),
            columns: columns(),
            primary_key: if append_only { Vec::new() } else { vec![0] },
            append_only,
            options: all,
            format: None,
        };
        Warehouse { directory, spec }
    }

    /// The sink as a process that has just started opens it.
    pub fn open(&self) -> Box<dyn Sink> {
        weir_iceberg::open(&self.spec).unwrap()
    }

    /// The sink, with its table made.
    pub async fn prepared(&self) -> Box<dyn Sink> {
        let sink = self.open();
        sink.prepare().await.unwrap();
        sink
    }

    async fn execute(&self, statement: &str) -> Vec<sqlx::any::AnyRow> {
        install_default_drivers();
        let url = format!("sqlite:{}/catalog.db", self.directory.path().to_str().unwrap());
        let pool = AnyPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        sqlx::query(statement).fetch_all(&pool).await.unwrap()
    }

    /// Where the metadata of the table is.
    pub async fn metadata_location(&self) -> String {
        self.execute("SELECT metadata_location FROM iceberg_tables").await[0].get(0)
    }

    pub async fn metadata(&self) -> TableMetadata {
        TableMetadata::read_from(&FileIO::new_with_fs(), self.metadata_location().await).await.unwrap()
    }

    /// Replaces the metadata, as another client does it.
    pub async fn set_metadata(&self, metadata: &TableMetadata) {
        let location = format!("{}.other.metadata.json", self.metadata_location().await);
        let path = location.strip_prefix("file://").unwrap();
        std::fs::write(path, serde_json::to_vec(metadata).unwrap()).unwrap();
        self.execute(&format!("UPDATE iceberg_tables SET metadata_location = '{location}'")).await;
    }

    /// Takes the table out of the catalog.
    pub async fn drop_table(&self) {
        self.execute("DELETE FROM iceberg_tables").await;
    }

    /// The rows of the table, as text, sorted.
    pub async fn rows(&self) -> Vec<String> {
        let table = TableIdent::new(NamespaceIdent::new("d".into()), "t".into());
        let location = self.metadata_location().await;
        let table = StaticTable::from_metadata_file(&location, table, FileIO::new_with_fs()).await.unwrap();
        let batches: Vec<RecordBatch> =
            table.scan().build().unwrap().to_arrow().await.unwrap().try_collect().await.unwrap();
        let mut rows = Vec::new();
        for batch in &batches {
            let (ids, names) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
            rows.extend(ids.iter().zip(names).map(|(id, name)| format!("{} {}", id.unwrap(), name.unwrap())));
        }
        rows.sort();
        rows
    }

    /// How many commits of ours are in the history of the table.
    pub async fn commits(&self) -> usize {
        let metadata = self.metadata().await;
        metadata.snapshots().filter(|s| s.summary().additional_properties.contains_key("weir.commit")).count()
    }

    /// All files under the table with this ending.
    pub fn files(&self, ending: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut pending = vec![self.directory.path().join("d")];
        while let Some(directory) = pending.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                } else if path.to_str().unwrap().ends_with(ending) {
                    found.push(path.to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        found
    }
}

pub fn columns() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![field("id", DataType::Int64), field("name", DataType::Utf8)]))
}

/// Changes such as `+1 a -1 a +1 b`: a sign and a key, and a name.
pub fn chunk(text: &str) -> Chunk {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut ids, mut names, mut signs) = (Vec::new(), Vec::new(), Vec::new());
    for pair in words.chunks(2) {
        signs.push(if pair[0].starts_with('-') { -1 } else { 1 });
        ids.push(pair[0][1..].parse::<i64>().unwrap());
        names.push(pair[1]);
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(names))];
    Chunk::new(RecordBatch::try_new(self::columns(), columns).unwrap(), signs)
}

pub fn stamp(generation: u64, epoch: u64) -> Stamp {
    let commit = uuid::Uuid::new_v4().to_string();
    Stamp { sink: SINK, commit, generation: Generation(generation), epoch: Epoch(epoch) }
}

/// Ends a commit of one writer.
pub async fn flush(writer: &mut Box<dyn SinkWriter>, generation: u64, epoch: u64) -> Commit {
    let stamp = stamp(generation, epoch);
    let parts = writer.flush(&stamp).await.unwrap().into_iter().collect();
    // As it comes back from where it is recorded.
    serde_json::from_str(&serde_json::to_string(&Commit { stamp, parts }).unwrap()).unwrap()
}

/// A commit with these changes that was recorded, and no more.
pub async fn recorded(sink: &dyn Sink, generation: u64, epoch: u64, changes: &str) -> Commit {
    let mut writer = sink.writer(Generation(generation), 0).await.unwrap();
    writer.write(chunk(changes)).await.unwrap();
    flush(&mut writer, generation, epoch).await
}

/// A committer that has taken the sink over.
pub async fn fenced(sink: &dyn Sink, generation: u64) -> Result<Box<dyn Committer>> {
    let mut committer = sink.committer().await?;
    committer.fence(SINK, Generation(generation)).await?;
    Ok(committer)
}
