//! Change logs: what happened to a relation, epoch by epoch, for the jobs that read it.
//!
//! A chunk is stored as an Arrow IPC stream of one batch, whose last two columns are the sign of each row (Int8) and its
//! vnode (UInt8). The [`LogIndex`] in memory knows which epochs there are, so reading and truncating go straight to the
//! keys, and a chunk that is lost is noticed.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int8Array, RecordBatch, UInt8Array};
use arrow::datatypes::{DataType, Field, Int8Type, Schema, UInt8Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use weir_common::{Chunk, Epoch, TableId};

use crate::error::StorageError;
use crate::layout::{log_key, read_u32, read_u64};
use crate::store::Store;

/// Changes of a relation in one epoch; a part of its change log.
#[derive(Clone, Debug)]
pub struct LogChunk {
    pub table: TableId,
    pub epoch: Epoch,
    /// Whole rows of the relation. An update is a delete and an insert next to each other.
    pub chunk: Chunk,
    /// The vnode of each row.
    pub vnodes: Arc<[u8]>,
}

/// What a change log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Epochs with changes.
    pub epochs: usize,
    pub rows: u64,
    pub bytes: u64,
    /// The first epoch with changes.
    pub oldest: Option<Epoch>,
    /// The last epoch with changes.
    pub newest: Option<Epoch>,
}

/// What a change log holds of one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EpochEntry {
    /// How many chunks there are.
    pub parts: u32,
    pub rows: u64,
    pub bytes: u64,
}

impl EpochEntry {
    pub fn to_bytes(self) -> Vec<u8> {
        [&self.parts.to_be_bytes()[..], &self.rows.to_be_bytes(), &self.bytes.to_be_bytes()].concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<EpochEntry> {
        Some(EpochEntry { parts: read_u32(bytes, 0)?, rows: read_u64(bytes, 4)?, bytes: read_u64(bytes, 12)? })
    }
}

/// Which epochs the change logs hold.
#[derive(Debug, Default)]
pub(crate) struct LogIndex {
    tables: HashMap<TableId, TableLog>,
}

#[derive(Debug, Default)]
struct TableLog {
    epochs: BTreeMap<Epoch, EpochEntry>,
    /// The last epoch that was dropped.
    truncated: Epoch,
}

impl LogIndex {
    pub fn insert(&mut self, table: TableId, epoch: Epoch, entry: EpochEntry) {
        self.tables.entry(table).or_default().epochs.insert(epoch, entry);
    }

    pub fn remove(&mut self, table: TableId, epoch: Epoch) {
        if let Some(log) = self.tables.get_mut(&table) {
            log.epochs.remove(&epoch);
        }
    }

    pub fn forget(&mut self, table: TableId) {
        self.tables.remove(&table);
    }

    /// The last epoch that was dropped.
    pub fn truncated(&self, table: TableId) -> Epoch {
        self.tables.get(&table).map_or(Epoch::ZERO, |log| log.truncated)
    }

    pub fn set_truncated(&mut self, table: TableId, up_to: Epoch) {
        let log = self.tables.entry(table).or_default();
        log.truncated = log.truncated.max(up_to);
    }

    /// The epochs in `(after, up_to]` and how many parts each has.
    pub fn parts(&self, table: TableId, after: Epoch, up_to: Epoch) -> Vec<(Epoch, u32)> {
        if after >= up_to {
            return Vec::new();
        }
        let Some(log) = self.tables.get(&table) else { return Vec::new() };
        let range = (std::ops::Bound::Excluded(after), std::ops::Bound::Included(up_to));
        log.epochs.range(range).map(|(epoch, entry)| (*epoch, entry.parts)).collect()
    }

    /// The last of the epochs that are too many, if what comes after them has at most so many bytes; `None`: none are.
    pub fn excess(&self, table: TableId, bytes_max: u64) -> Option<Epoch> {
        let mut bytes = 0;
        let newest_first = self.tables.get(&table)?.epochs.iter().rev();
        newest_first
            .map(|(epoch, entry)| {
                (*epoch, {
                    bytes += entry.bytes;
                    bytes
                })
            })
            .find(|(_, b)| *b > bytes_max)
            .map(|f| f.0)
    }

    /// The last epoch of those after `after` that together have at most so many bytes, or the first one; `None`: all have.
    pub fn step(&self, table: TableId, after: Epoch, bytes_max: u64) -> Option<Epoch> {
        let after = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        let (mut bytes, mut last) = (0, None);
        for (epoch, entry) in self.tables.get(&table)?.epochs.range(after) {
            bytes += entry.bytes;
            if bytes > bytes_max && last.is_some() {
                return last;
            }
            last = Some(*epoch);
        }
        None
    }

    pub fn stats(&self, table: TableId) -> LogStats {
        self.stats_after(table, Epoch::ZERO)
    }

    pub fn stats_after(&self, table: TableId, after: Epoch) -> LogStats {
        let mut stats = LogStats::default();
        let Some(log) = self.tables.get(&table) else { return stats };
        let range = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        for (epoch, entry) in log.epochs.range(range) {
            stats.epochs += 1;
            stats.rows += entry.rows;
            stats.bytes += entry.bytes;
            stats.oldest.get_or_insert(*epoch);
            stats.newest = Some(*epoch);
        }
        stats
    }
}

/// The chunks of a change log between two epochs, in order. Chunks on disk are read one by one, as they are asked for.
pub struct LogReader {
    pub(crate) store: Arc<Store>,
    pub(crate) table: TableId,
    pub(crate) rest: Rest,
}

/// What is still to be read.
pub(crate) enum Rest {
    Memory(std::vec::IntoIter<LogChunk>),
    /// Epochs with their parts, and the next part of the first one.
    Disk {
        epochs: std::vec::IntoIter<(Epoch, u32)>,
        /// Epoch, next part, parts.
        current: Option<(Epoch, u32, u32)>,
    },
}

impl Iterator for LogReader {
    type Item = Result<LogChunk, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.rest {
            Rest::Memory(chunks) => chunks.next().map(Ok),
            Rest::Disk { epochs, current } => {
                let (epoch, part, parts) = match current.take() {
                    Some((epoch, part, parts)) if part < parts => (epoch, part, parts),
                    _ => epochs.next().map(|(epoch, parts)| (epoch, 0, parts))?,
                };
                *current = Some((epoch, part + 1, parts));
                Some(self.store.read_log_part(self.table, epoch, part))
            }
        }
    }
}

impl Store {
    fn read_log_part(&self, table: TableId, epoch: Epoch, part: u32) -> Result<LogChunk, StorageError> {
        let bytes = self
            .db
            .get_pinned_cf(self.changelog(), log_key(table, epoch, part))
            .map_err(|source| StorageError::ReadLog { table, source })?
            .ok_or(StorageError::MissingLogChunk { table, epoch })?;
        decode_chunk(table, epoch, &bytes).map_err(|source| StorageError::LogChunk { table, source })
    }
}

/// The bytes of a chunk.
pub(crate) fn encode_chunk(log: &LogChunk) -> Result<Vec<u8>, ArrowError> {
    let (chunk, batch) = (&log.chunk, log.chunk.batch());
    assert_eq!(chunk.len(), log.vnodes.len(), "a log chunk has one vnode per row");
    let mut fields = batch.schema().fields().to_vec();
    fields.push(Arc::new(Field::new("_sign", DataType::Int8, false)));
    fields.push(Arc::new(Field::new("_vnode", DataType::UInt8, false)));
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new((0..chunk.len()).map(|i| Some(chunk.sign(i))).collect::<Int8Array>()) as ArrayRef);
    columns.push(Arc::new(UInt8Array::from(log.vnodes.to_vec())));
    let schema = Arc::new(Schema::new_with_metadata(fields, batch.schema().metadata().clone()));
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    let mut writer = StreamWriter::try_new(Vec::with_capacity(batch.get_array_memory_size() + 1024), &schema)?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// The chunk of such bytes.
fn decode_chunk(table: TableId, epoch: Epoch, bytes: &[u8]) -> Result<LogChunk, ArrowError> {
    let damaged =
        || ArrowError::IpcError("a chunk of a change log is one batch that ends with signs and vnodes".into());
    let batch = StreamReader::try_new(Cursor::new(bytes), None)?.next().ok_or_else(damaged)??;
    let columns = batch.num_columns().checked_sub(2).ok_or_else(damaged)?;
    let signs = batch.column(columns).as_primitive_opt::<Int8Type>().ok_or_else(damaged)?.values().to_vec();
    let vnodes = batch.column(columns + 1).as_primitive_opt::<UInt8Type>().ok_or_else(damaged)?.values().to_vec();
    let rows = batch.project(&(0..columns).collect::<Vec<_>>())?;
    Ok(LogChunk { table, epoch, chunk: Chunk::new(rows, signs), vnodes: vnodes.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_as_many_epochs_as_have_room_and_at_least_one() {
        let (table, mut index) = (TableId(1), LogIndex::default());
        for (epoch, bytes) in [(1, 10), (2, 10), (3, 100), (4, 10)] {
            index.insert(table, Epoch(epoch), EpochEntry { parts: 1, rows: 1, bytes });
        }
        let step = |after, bytes| index.step(table, Epoch(after), bytes).map(|epoch| epoch.0);
        assert_eq!((step(0, 20), step(0, 25), step(1, 5)), (Some(2), Some(2), Some(2)));
        assert_eq!((step(2, 50), step(3, 5), step(0, 130)), (Some(3), None, None));
        assert_eq!(index.step(TableId(2), Epoch(0), 1), None);
    }
}
