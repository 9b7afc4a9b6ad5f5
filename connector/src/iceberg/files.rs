//! The open files of a writer: one for each partition and kind of content, within bounds of number and memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, Struct};
use uuid::Uuid;

use super::data_file::{DataFileWriter, FileFormat};
use super::keys::Written;
use super::routes::Partition;
use super::storage::{Storage, unavailable};
use crate::error::Result;

/// Bytes of memory that the open files of a sink may take.
const MEMORY_MAX: usize = 256 << 20;
/// Files of a writer that are open at a time.
const OPEN_MAX: usize = 1000;

/// What files of a writer have in common.
pub struct FileSet {
    pub storage: Storage,
    /// The directory of data files.
    pub directory: String,
    /// Begins the name of each file.
    pub name: String,
    pub spec_id: i32,
    /// Bytes after which a file is closed.
    pub target_bytes: u64,
    /// Memory of the files of all writers.
    pub open_bytes: Arc<AtomicUsize>,
}

struct OpenFile {
    /// Its number in the open commit.
    number: u32,
    writer: DataFileWriter,
    partition: Struct,
    /// Of the columns that a delete by key compares.
    equality_ids: Option<Vec<i32>>,
    /// As counted.
    memory_bytes: usize,
}

/// Open files, and those that were closed since the last commit.
pub struct Files {
    set: FileSet,
    open: HashMap<(u32, Content), OpenFile>,
    closed: Vec<DataFile>,
    /// The files of the open commit by their numbers, each with its partition.
    begun: Vec<(String, u32)>,
    /// Files ever begun, for their names.
    names: u64,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Rows,
    DeletedKeys,
    DeletedPositions,
}

impl Content {
    /// As manifests have it.
    pub fn in_manifest(self) -> DataContentType {
        match self {
            Content::Rows => DataContentType::Data,
            Content::DeletedKeys => DataContentType::EqualityDeletes,
            Content::DeletedPositions => DataContentType::PositionDeletes,
        }
    }
}

impl Files {
    pub fn new(set: FileSet) -> Files {
        Files { set, open: HashMap::new(), closed: Vec::new(), begun: Vec::new(), names: 0 }
    }

    /// Writes rows of a partition to its open file, which is closed when it is large enough. Where the first one is.
    pub async fn write(
        &mut self,
        (number, content): (u32, Content),
        partition: &Partition,
        format: &FileFormat,
        equality_ids: Option<&[i32]>,
        batch: &RecordBatch,
    ) -> Result<Written> {
        let target = self.set.target_bytes;
        let file = self.open((number, content), partition, format, equality_ids).await?;
        let written = Written { file: file.number, position: file.writer.rows() };
        file.writer.write(batch).await?;
        let is_full = file.writer.file_bytes() >= target;
        self.count((number, content));
        if is_full {
            self.close((number, content)).await?;
        }
        while self.set.open_bytes.load(Ordering::Relaxed) > MEMORY_MAX {
            if !self.relieve().await? {
                break;
            }
        }
        Ok(written)
    }

    /// The files of the open commit by their numbers, each with its partition.
    pub fn begun(&self) -> &[(String, u32)] {
        &self.begun
    }

    /// Closes all files. Gives those closed since the last time; they are durable.
    pub async fn take(&mut self) -> Result<Vec<DataFile>> {
        let open: Vec<_> = self.open.keys().copied().collect();
        for key in open {
            self.close(key).await?;
        }
        self.begun.clear();
        Ok(std::mem::take(&mut self.closed))
    }

    /// Bytes of memory that open files take.
    pub fn memory_bytes(&self) -> usize {
        self.open.values().map(|f| f.memory_bytes).sum()
    }

    async fn open(
        &mut self,
        key: (u32, Content),
        partition: &Partition,
        format: &FileFormat,
        equality_ids: Option<&[i32]>,
    ) -> Result<&mut OpenFile> {
        if !self.open.contains_key(&key) {
            if self.open.len() >= OPEN_MAX {
                let largest = self.open.iter().max_by_key(|(_, f)| f.writer.file_bytes()).map(|(key, _)| *key);
                if let Some(largest) = largest {
                    self.close(largest).await?;
                }
            }
            let FileSet { directory, name, .. } = &self.set;
            let location = format!("{directory}/{}{name}-{}-{}.parquet", partition.path, self.names, Uuid::new_v4());
            self.names += 1;
            let writer = DataFileWriter::create(&self.set.storage, location.clone(), format).await?;
            let number = self.begun.len() as u32;
            self.begun.push((location, key.0));
            let equality_ids = equality_ids.map(<[i32]>::to_vec);
            let file = OpenFile { number, writer, partition: partition.value.clone(), equality_ids, memory_bytes: 0 };
            self.open.insert(key, file);
        }
        Ok(self.open.get_mut(&key).expect("it was just made"))
    }

    /// Counts the memory of a file anew.
    fn count(&mut self, key: (u32, Content)) {
        if let Some(file) = self.open.get_mut(&key) {
            let bytes = file.writer.memory_bytes();
            self.set.open_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.set.open_bytes.fetch_sub(std::mem::replace(&mut file.memory_bytes, bytes), Ordering::Relaxed);
        }
    }

    /// Takes the file that needs most memory out of it. `false`: none needs any.
    async fn relieve(&mut self) -> Result<bool> {
        let largest = self.open.iter_mut().max_by_key(|(_, f)| f.memory_bytes);
        let Some((key, file)) = largest.filter(|(_, f)| f.memory_bytes > 0) else {
            return Ok(false);
        };
        let key = *key;
        if self.set.storage.takes_small_writes() {
            file.writer.relieve().await?;
            let before = file.memory_bytes;
            self.count(key);
            return Ok(self.open.get(&key).is_some_and(|f| f.memory_bytes < before));
        }
        self.close(key).await?;
        Ok(true)
    }

    async fn close(&mut self, key: (u32, Content)) -> Result<()> {
        let Some(file) = self.open.remove(&key) else {
            return Ok(());
        };
        self.set.open_bytes.fetch_sub(file.memory_bytes, Ordering::Relaxed);
        let mut described: DataFileBuilder = file.writer.finish().await?;
        described.partition(file.partition).partition_spec_id(self.set.spec_id).equality_ids(file.equality_ids);
        self.closed.push(described.build().map_err(|e| unavailable("describe a data file", e))?);
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.set.open_bytes.fetch_sub(self.memory_bytes(), Ordering::Relaxed);
    }
}
