//! One actor's part of a state table: what is committed, under what is not committed yet.
//!
//! Writes go to the buffer of the epoch and are read back through it. [`seal`](StateTable::seal) hands the buffer to the
//! commit of the job; it stays readable here until the commit is known to be in the store. So a reader looks, newest
//! first, into the buffer, the sealed buffers and RocksDB.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, RecordBatch};
use rocksdb::{DBRawIterator, ReadOptions};
use tokio::runtime::{Handle, RuntimeFlavor};
use weir_common::row::ByteRows;
use weir_common::{Chunk, Epoch, TableDef, Vnode, VnodeSet};

use crate::buffer::{Deleted, Layers, scan_order};
use crate::error::StorageError;
use crate::layout::{TABLE_BYTES, VNODE_BYTES, after_prefix, state_key, table_end, table_start};
use crate::row_codec::{Found, RowCodec};
use crate::store::{SealedTable, Store};

/// See the module.
pub struct StateTable {
    store: Arc<Store>,
    codec: RowCodec,
    vnodes: VnodeSet,
    /// The newest committed epoch of the job.
    committed: Arc<AtomicU64>,
    layers: Layers,
}

/// Rows to scan, by full keys or the first bytes of some.
#[derive(Clone, Debug)]
pub struct ScanRange {
    pub start: Bound<Vec<u8>>,
    pub end: Bound<Vec<u8>>,
    /// From the last row to the first.
    pub reverse: bool,
    /// At most so many rows.
    pub limit: usize,
}

impl ScanRange {
    /// All rows whose keys start with the prefix, ascending.
    pub fn prefix(prefix: &[u8]) -> ScanRange {
        let end = after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        ScanRange { start: Bound::Included(prefix.to_vec()), end, reverse: false, limit: usize::MAX }
    }

    /// The first and the last vnode that the range touches.
    fn vnodes(&self) -> (usize, usize) {
        let vnode =
            |key: &[u8]| u16::from_be_bytes([key.first().copied().unwrap_or(0), key.get(1).copied().unwrap_or(0)]);
        let first = match &self.start {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => vnode(key),
        };
        let last = match &self.end {
            Bound::Unbounded => u8::MAX as u16,
            // Before all keys of that vnode.
            Bound::Excluded(key) if key.len() <= VNODE_BYTES => vnode(key).saturating_sub(1),
            Bound::Included(key) | Bound::Excluded(key) => vnode(key),
        };
        (first as usize, last as usize)
    }

    /// Whether no key can be in the range.
    fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
                start >= end
            }
        }
    }
}

/// The rows of several ranges, one range after the other.
#[derive(Clone, Debug)]
pub struct Scanned {
    pub rows: RecordBatch,
    /// Which range each row is from.
    pub range: Vec<u32>,
    /// The full key of each row.
    pub keys: ByteRows,
}

impl StateTable {
    /// The part of a table that is in these vnodes. `committed` is kept up to date by whoever commits the job.
    pub fn open(store: Arc<Store>, def: TableDef, vnodes: VnodeSet, committed: Arc<AtomicU64>) -> StateTable {
        let layers = Layers::new(store.uncommitted().clone());
        StateTable { store, codec: RowCodec::new(&def), vnodes, committed, layers }
    }

    /// What the table looks like.
    pub fn def(&self) -> &TableDef {
        self.codec.def()
    }

    /// The vnodes that the actor owns.
    pub fn vnodes(&self) -> &VnodeSet {
        &self.vnodes
    }

    /// Full keys, each after its vnode, from all key columns in the key's order. A table without key columns has one key.
    ///
    /// Panics when a vnode is not owned.
    pub fn keys(&self, key_columns: &[ArrayRef]) -> Result<ByteRows, StorageError> {
        assert_eq!(key_columns.len(), self.def().key.len(), "a full key has all key columns");
        self.prefixes(key_columns)
    }

    /// The first bytes of keys, from the first columns of the key, which must include all distribution columns.
    ///
    /// Panics when a vnode is not owned.
    pub fn prefixes(&self, key_columns: &[ArrayRef]) -> Result<ByteRows, StorageError> {
        let keys = self.codec.keys(key_columns, key_columns.first().map_or(1, |c| c.len()))?;
        keys.iter().for_each(|key| self.check_owned(key));
        Ok(keys)
    }

    /// The rows with these full keys.
    pub async fn get_many(&mut self, keys: &ByteRows) -> Result<Found, StorageError> {
        self.layers.arrange();
        let mut stored_keys = Vec::new();
        let mut stored_at = Vec::new();
        let mut values = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            let known = if self.layers.is_empty() { None } else { self.layers.get(key) };
            if known.is_none() {
                stored_keys.push(state_key(self.def().id, key));
                stored_at.push(i);
            }
            values.push(known.flatten());
        }
        let stored = if stored_keys.is_empty() { Vec::new() } else { blocking(|| self.read_stored(&stored_keys))? };
        for (i, value) in stored_at.into_iter().zip(&stored) {
            values[i] = value.as_deref();
        }
        self.codec.found(keys, values.into_iter())
    }

    fn read_stored(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<rocksdb::DBPinnableSlice<'_>>>, StorageError> {
        let values = self.store.db.batched_multi_get_cf(self.store.state(), keys, false);
        values.into_iter().collect::<Result<_, _>>().map_err(|source| self.read_error(source))
    }

    /// The rows of these ranges, one range after the other, each in its order.
    ///
    /// Panics when a range touches a vnode that is not owned.
    pub async fn scan(&mut self, ranges: &[ScanRange]) -> Result<Scanned, StorageError> {
        self.layers.arrange();
        ranges.iter().for_each(|range| self.check_range(range));
        blocking(|| self.scan_ranges(ranges))
    }

    fn scan_ranges(&self, ranges: &[ScanRange]) -> Result<Scanned, StorageError> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(table_start(self.def().id));
        options.set_iterate_upper_bound(table_end(self.def().id));
        let mut stored = self.store.db.raw_iterator_cf_opt(self.store.state(), options);
        let mut rows = ScanRows::default();
        for (i, range) in ranges.iter().enumerate().filter(|(_, range)| !range.is_empty()) {
            self.scan_range(range, &mut stored, &mut rows)?;
            rows.range.resize(rows.keys.len(), i as u32);
        }
        let batch = self.codec.decode(rows.keys.iter(), rows.values.iter())?;
        Ok(Scanned { rows: batch, range: rows.range, keys: rows.keys })
    }

    /// Merges what is written with what is stored.
    fn scan_range(
        &self,
        range: &ScanRange,
        stored: &mut DBRawIterator<'_>,
        rows: &mut ScanRows,
    ) -> Result<(), StorageError> {
        let reverse = range.reverse;
        let bounds = (range.start.as_ref().map(Vec::as_slice), range.end.as_ref().map(Vec::as_slice));
        let mut written = self.layers.range(bounds, reverse).peekable();
        let mut cursor = Stored { iterator: stored, bounds, reverse };
        cursor.seek(self.def());
        let mut left = range.limit;
        while left > 0 {
            let head = cursor.head();
            let order = match (written.peek(), head) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(write), Some(row)) => scan_order(write.0, row.0, reverse),
            };
            let row = if order.is_le() {
                written.next().and_then(|(key, value)| value.map(|value| (key, value)))
            } else {
                head
            };
            if let Some((key, value)) = row {
                rows.keys.push(key);
                rows.values.push(value);
                left -= 1;
            }
            if order.is_ge() {
                cursor.advance();
            }
        }
        stored.status().map_err(|source| self.read_error(source))
    }

    /// Applies changes in order: an insert puts the row under its key, a delete removes what is under its key.
    ///
    /// Fails when the epoch has written more than may be. Panics when columns are not those of the table, or a vnode is
    /// not owned.
    pub fn write(&mut self, changes: &Chunk) -> Result<(), StorageError> {
        let (keys, values) = self.codec.encode(changes.batch())?;
        keys.iter().for_each(|key| self.check_owned(key));
        let rows = |signs: &[i8]| Deleted::Rows(signs.iter().map(|sign| *sign < 0).collect());
        let deleted = changes.signs().map_or(Deleted::None, rows);
        self.write_encoded(keys, values, deleted);
        let bytes_max = self.store.epoch_bytes_max;
        if self.layers.pending_bytes() > bytes_max {
            return Err(StorageError::EpochTooLarge { table: self.def().id, bytes_max });
        }
        Ok(())
    }

    /// Removes the rows with these full keys.
    pub fn delete(&mut self, keys: &ByteRows) {
        keys.iter().for_each(|key| self.check_owned(key));
        self.write_encoded(keys.clone(), ByteRows::new(), Deleted::All);
    }

    fn write_encoded(&mut self, keys: ByteRows, values: ByteRows, deleted: Deleted) {
        // What is committed by now makes room.
        self.layers.retire(self.committed());
        self.layers.write(keys, values, deleted);
    }

    /// Ends an epoch: its writes leave for the commit of the job, and are still read back here.
    pub fn seal(&mut self, epoch: Epoch) -> SealedTable {
        self.layers.retire(self.committed());
        SealedTable { table: self.def().id, writes: self.layers.seal(epoch) }
    }

    /// Bytes in memory of writes that are not known to be committed.
    pub fn pending_bytes(&self) -> usize {
        self.layers.bytes()
    }

    fn committed(&self) -> Epoch {
        Epoch(self.committed.load(Ordering::Acquire))
    }

    fn check_owned(&self, key: &[u8]) {
        let vnode = u16::from_be_bytes([key[0], key[1]]);
        let owned = u8::try_from(vnode).is_ok_and(|v| self.vnodes.contains(Vnode(v)));
        assert!(owned, "table {}: an actor touches vnode {vnode}, which it does not own", self.def().id);
    }

    fn check_range(&self, range: &ScanRange) {
        let (first, last) = range.vnodes();
        let owned = (first..=last).all(|v| u8::try_from(v).is_ok_and(|v| self.vnodes.contains(Vnode(v))));
        assert!(owned, "table {}: a scan touches vnodes {first} to {last}, not all owned", self.def().id);
    }

    fn read_error(&self, source: rocksdb::Error) -> StorageError {
        StorageError::ReadTable { table: self.def().id, source }
    }
}

/// Rows as they are scanned.
#[derive(Default)]
struct ScanRows {
    range: Vec<u32>,
    keys: ByteRows,
    values: ByteRows,
}

/// The stored rows of a range.
struct Stored<'a, 'db> {
    iterator: &'a mut DBRawIterator<'db>,
    /// Of keys without the table's id.
    bounds: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    reverse: bool,
}

impl Stored<'_, '_> {
    /// Goes to the first row in the order of the scan.
    fn seek(&mut self, def: &TableDef) {
        let key = |key: &[u8]| state_key(def.id, key);
        let from = if self.reverse { self.bounds.1 } else { self.bounds.0 };
        match (from, self.reverse) {
            (Bound::Unbounded, false) => self.iterator.seek_to_first(),
            (Bound::Unbounded, true) => self.iterator.seek_to_last(),
            (Bound::Included(from) | Bound::Excluded(from), false) => self.iterator.seek(key(from)),
            (Bound::Included(from) | Bound::Excluded(from), true) => self.iterator.seek_for_prev(key(from)),
        }
        if let Bound::Excluded(from) = from
            && self.iterator.key().is_some_and(|key| &key[TABLE_BYTES..] == from)
        {
            self.advance();
        }
    }

    fn advance(&mut self) {
        if self.reverse { self.iterator.prev() } else { self.iterator.next() }
    }

    /// The key after the table's id and the value of the row; `None` after the last one of the range.
    fn head(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.iterator.item()?;
        let key = &key[TABLE_BYTES..];
        let inside = match (self.reverse, self.bounds) {
            (false, (_, Bound::Included(end))) => key <= end,
            (false, (_, Bound::Excluded(end))) => key < end,
            (true, (Bound::Included(start), _)) => key >= start,
            (true, (Bound::Excluded(start), _)) => key > start,
            (false, (_, Bound::Unbounded)) | (true, (Bound::Unbounded, _)) => true,
        };
        inside.then_some((key, value))
    }
}

/// Does something that may wait for a disk. Other tasks of this thread are moved to another one first, where the runtime
/// has one.
fn blocking<T>(read: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(read),
        _ => read(),
    }
}
