//! The store as of one moment, for reading.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use rocksdb::ReadOptions;
use weir_common::row::ByteRows;
use weir_common::{Epoch, JobId, TableDef, TableId, Vnode};

use crate::error::StorageError;
use crate::layout::{
    TABLE_BYTES, VNODE_BYTES, after_prefix, frontier_key, read_u64, state_key, table_end, vnode_bytes,
};
use crate::row_codec::{Found, RowCodec};
use crate::store::Store;

/// Scans of at least this many rows read ahead.
const READAHEAD_ROWS_MIN: usize = 1024;
const READAHEAD_BYTES: usize = 1 << 20;

/// All jobs, each at the frontier it had when the snapshot was taken. Cheap to clone.
#[derive(Clone)]
pub struct Snapshot(Arc<Pinned>);

struct Pinned {
    /// Refers to `store`; see [`Snapshot::new`]. Dropped before it, being the first field.
    snapshot: rocksdb::Snapshot<'static>,
    store: Arc<Store>,
}

impl Snapshot {
    pub(crate) fn new(store: Arc<Store>) -> Snapshot {
        let snapshot = store.db.snapshot();
        // SAFETY: the snapshot refers to `store.db`. That stays where it is, in the allocation of the `Arc`, and lives as
        // long as any clone of the `Arc`. One clone is next to the snapshot in `Pinned`, is never moved out or replaced,
        // and is dropped after the snapshot, because fields are dropped in the order of their declaration. Nothing hands
        // out the snapshot with its 'static lifetime: the field is private, and the methods of this module borrow it.
        let snapshot = unsafe { std::mem::transmute::<rocksdb::Snapshot<'_>, rocksdb::Snapshot<'static>>(snapshot) };
        Snapshot(Arc::new(Pinned { snapshot, store }))
    }

    /// The newest epoch of a job that is in the snapshot.
    pub fn frontier(&self, job: JobId) -> Result<Option<Epoch>, StorageError> {
        let failed = |source| StorageError::ReadProgress { source };
        let key = frontier_key(job);
        let value = self.0.snapshot.get_pinned_cf(self.0.store.progress(), &key).map_err(failed)?;
        let Some(value) = value else { return Ok(None) };
        let epoch = read_u64(&value, 0).ok_or(StorageError::CorruptProgress { key })?;
        Ok(Some(Epoch(epoch)))
    }

    /// Up to `limit` rows of a vnode in key order, from the key `after` on, which is left out. Also the key of the last
    /// row, to go on from; `None` when the vnode has ended.
    pub fn scan(
        &self,
        def: &TableDef,
        vnode: Vnode,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<(RecordBatch, Option<Vec<u8>>), StorageError> {
        let vnode = vnode_bytes(vnode);
        let prefix = state_key(def.id, &vnode);
        let end = after_prefix(&prefix).expect("a vnode is below 256");
        let start = after.map_or_else(|| prefix.clone(), |after| next_key(&[&prefix[..], after].concat()));
        let (rows, last) = self.read(def, start, end, limit)?;
        Ok((rows, last.map(|key| key[VNODE_BYTES..].to_vec())))
    }

    /// Like [`scan`](Snapshot::scan), over all vnodes one after the other. Keys start with the vnode.
    pub fn scan_table(
        &self,
        def: &TableDef,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<(RecordBatch, Option<Vec<u8>>), StorageError> {
        let start = after.map_or_else(|| state_key(def.id, &[]), |after| next_key(&state_key(def.id, after)));
        self.read(def, start, table_end(def.id), limit)
    }

    /// Rows with keys in `start .. end`, and the key after the table's id of the last one unless it is the last at all.
    fn read(
        &self,
        def: &TableDef,
        start: Vec<u8>,
        end: Vec<u8>,
        limit: usize,
    ) -> Result<(RecordBatch, Option<Vec<u8>>), StorageError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        if limit >= READAHEAD_ROWS_MIN {
            options.set_readahead_size(READAHEAD_BYTES);
        }
        let mut iterator = self.0.snapshot.raw_iterator_cf_opt(self.0.store.state(), options);
        let (mut keys, mut values) = (ByteRows::new(), ByteRows::new());
        iterator.seek(&start);
        while keys.len() < limit
            && let Some((key, value)) = iterator.item()
        {
            keys.push(&key[TABLE_BYTES..]);
            values.push(value);
            iterator.next();
        }
        iterator.status().map_err(|source| failed(def.id, source))?;
        let last = keys.len().checked_sub(1).filter(|_| iterator.valid()).map(|i| keys.get(i).to_vec());
        Ok((RowCodec::new(def).decode(keys.iter(), values.iter())?, last))
    }

    /// The rows with these keys. Each key starts with the vnode, as [`keys`](Snapshot::keys) makes them.
    pub fn get_many(&self, def: &TableDef, keys: &ByteRows) -> Result<Found, StorageError> {
        let store_keys: Vec<_> = keys.iter().map(|key| state_key(def.id, key)).collect();
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.0.snapshot);
        let store = &self.0.store;
        let values = store.db.batched_multi_get_cf_opt(store.state(), &store_keys, false, &options);
        let values = values.into_iter().collect::<Result<Vec<_>, _>>().map_err(|source| failed(def.id, source))?;
        RowCodec::new(def).found(keys, values.iter().map(Option::as_deref))
    }

    /// The keys, each after its vnode, of rows that are given by all their key columns.
    pub fn keys(&self, def: &TableDef, key_columns: &[ArrayRef]) -> Result<ByteRows, StorageError> {
        assert_eq!(key_columns.len(), def.key.len(), "a key has all its columns");
        RowCodec::new(def).keys(key_columns, key_columns.first().map_or(1, |c| c.len()))
    }
}

/// The smallest key after a key.
fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn failed(table: TableId, source: rocksdb::Error) -> StorageError {
    StorageError::ReadTable { table, source }
}
