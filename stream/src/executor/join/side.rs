//! The rows of one input of a join: a state table, and in front of it a cache by join key.
//!
//! ```text
//! join key ──> entry (index.rs) ──> RowIds ──> columns (arena.rs)
//! ```
//!
//! Invariant  an entry in memory has exactly the rows of its key. A key without an entry is looked up in the table, unless
//!            memory is known to hold everything: then it has no rows.
//!
//! So a row whose key is not in memory goes to the table alone, and memory fills with the keys that the other input asks
//! for. Counts of matches are changed in memory and written once per row and epoch, by [`Side::write_matches`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use hashbrown::HashTable;
use weir_common::row::ByteRows;
use weir_common::{Chunk, Vnode};
use weir_storage::{MemoryLimit, ScanRange, StateTable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::arena::{Arena, RowId};
use super::index::{EntryId, KeyIndex};
use super::keys::Keys;
use crate::cache::MemoryShare;
use crate::{Result, StreamError};

/// Rows whose counts are written at once.
const WRITE_ROWS: usize = 16_384;

/// One input of a join; see the module.
pub(super) struct Side {
    table: StateTable,
    /// Join key columns of the input.
    on: Vec<usize>,
    /// Columns of the input.
    width: usize,
    /// The rest of the stream key has columns, so a join key may have many rows.
    many: bool,
    /// The table has a column `matches`.
    counted: bool,
    index: KeyIndex,
    rows: Arena,
    /// By row id.
    links: Vec<Link>,
    /// Matching rows of the other side, by row id. Empty unless they are counted by row.
    matches: Vec<i64>,
    counts_by_row: bool,
    /// Rows by join key and rest of the stream key. Built when the first delete comes; an append-only input has none.
    by_key: Option<HashTable<(u64, RowId)>>,
    /// Memory holds all rows. `None`: not known yet.
    complete: Option<bool>,
    /// Rows whose `matches` are to be written.
    changed: Vec<RowId>,
    memory: MemoryShare,
}

#[derive(Clone, Copy)]
struct Link {
    entry: EntryId,
    /// Position among the rows of the entry.
    slot: u32,
    /// Is in `changed`.
    changed: bool,
}

impl Side {
    /// Over the table of an input with `width` columns, of which `on` are the join key. With `residual`, rows of the same
    /// key may have different matches, which are then counted by row where the table has a column for it.
    pub fn new(
        table: StateTable,
        width: usize,
        on: Vec<usize>,
        residual: bool,
        memory: Arc<MemoryLimit>,
    ) -> Result<Side> {
        let def = table.def();
        let key = def.key_indices();
        let counted = match def.schema.fields().len().checked_sub(width) {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(StreamError::Plan("the table of a join has the columns of its input, and matches")),
        };
        if !key.starts_with(&on) || key.iter().any(|c| *c >= width) {
            return Err(StreamError::Plan("the key of a join's table starts with the join key"));
        }
        let rest = key[on.len()..].to_vec();
        let columns = Arc::new(def.schema.project(&(0..width).collect::<Vec<_>>())?);
        Ok(Side {
            width,
            many: !rest.is_empty(),
            counted,
            index: KeyIndex::default(),
            rows: Arena::new(columns, rest),
            links: Vec::new(),
            matches: Vec::new(),
            counts_by_row: counted && residual,
            by_key: None,
            complete: None,
            changed: Vec::new(),
            memory: MemoryShare::new(memory),
            table,
            on,
        })
    }

    /// Join key columns of the input.
    pub fn on(&self) -> &[usize] {
        &self.on
    }

    /// Whether the table has a column `matches`.
    pub fn counted(&self) -> bool {
        self.counted
    }

    /// Looks once whether the table is empty, because then memory can hold everything. To be called before all else.
    pub async fn start(&mut self) -> Result<()> {
        if self.complete.is_none() {
            let first = |vnode: Vnode| ScanRange { limit: 1, ..ScanRange::prefix(&vnode.prefix()) };
            let ranges: Vec<_> = self.table.vnodes().iter().map(first).collect();
            self.complete = Some(self.table.scan(&ranges).await?.rows.num_rows() == 0);
        }
        Ok(())
    }

    /// The state table.
    pub fn table(&mut self) -> &mut StateTable {
        &mut self.table
    }

    /// Brings the keys of these rows into memory. `columns` are the key columns of all rows of the chunk.
    pub async fn load(&mut self, keys: &Keys, columns: &[ArrayRef], rows: &[usize]) -> Result<()> {
        if self.is_complete() {
            return Ok(());
        }
        let mut entries = Vec::new();
        let mut missing = Vec::new();
        for row in rows.iter().copied().filter(|row| keys.matchable(*row)) {
            if self.index.find(keys.hash(row), keys.get(row)).is_none() {
                // The entry is there from now on, so the next row with this key does not ask again.
                entries.push(self.index.insert(keys.hash(row), keys.get(row)));
                missing.push(row as u32);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let prefixes = self.prefixes(columns, UInt32Array::from(missing))?;
        // In the order of the table, so that neighbours are read together.
        let mut wanted: Vec<_> = prefixes.iter().zip(entries).collect();
        wanted.sort_unstable_by_key(|(prefix, _)| *prefix);
        let ranges: Vec<_> = wanted.iter().map(|(prefix, _)| ScanRange::prefix(prefix)).collect();
        let scanned = self.table.scan(&ranges).await?;
        let ids = self.add_rows(&scanned.rows.columns()[..self.width], scanned.rows.num_rows())?;
        for (id, range) in ids.iter().zip(&scanned.range) {
            self.link(*id, wanted[*range as usize].1);
        }
        if let Some(matches) = scanned.rows.columns().get(self.width).filter(|_| self.counts_by_row) {
            let matches = as_bigint(matches)?;
            ids.iter().zip(matches.values()).for_each(|(id, n)| self.matches[id.index()] = *n);
        }
        self.memory.set(self.bytes());
        Ok(())
    }

    /// The entry of each row's key, [`EntryId::NONE`] where there are no rows. The keys have been loaded.
    pub fn find(&mut self, keys: &Keys) -> Vec<EntryId> {
        let find = |row| {
            let entry = if keys.matchable(row) { self.index.find(keys.hash(row), keys.get(row)) } else { None };
            entry.inspect(|id| self.index.touch(*id)).unwrap_or(EntryId::NONE)
        };
        (0..keys.len()).map(find).collect()
    }

    /// The rows of an entry.
    pub fn rows(&self, entry: EntryId) -> &[RowId] {
        self.index.rows(entry)
    }

    /// How many rows have the key of a row of the chunk. The key has been loaded.
    pub fn count(&self, keys: &Keys, row: usize) -> usize {
        self.index.find(keys.hash(row), keys.get(row)).map_or(0, |entry| self.index.rows(entry).len())
    }

    /// The columns of rows.
    pub fn gather(&mut self, rows: &[RowId]) -> Result<Vec<ArrayRef>> {
        self.rows.gather(rows)
    }

    /// Changes the number of matches of a row, and returns the number before.
    pub fn add_matches(&mut self, row: RowId, change: i64) -> i64 {
        let before = self.matches[row.index()];
        if change != 0 {
            assert!(before + change >= 0, "a row has no fewer than zero matches");
            self.matches[row.index()] = before + change;
            if !self.links[row.index()].changed {
                self.links[row.index()].changed = true;
                self.changed.push(row);
            }
        }
        before
    }

    /// Applies the changes of a chunk, whose inserted rows have these numbers of matches.
    pub fn apply(&mut self, chunk: &Chunk, keys: &Keys, matches: &[i64]) -> Result<()> {
        self.write(chunk, keys, matches)?;
        let rest = if chunk.is_append_only() { None } else { self.rest_keys(chunk)? };
        let entries = self.entries_to_change(chunk, keys);
        let mut ids = self.insert(chunk, &entries)?.into_iter();
        for (row, entry) in entries.iter().enumerate().filter(|(_, entry)| **entry != EntryId::NONE) {
            if chunk.sign(row) < 0 {
                let old = self.find_row(*entry, rest.as_ref().map(|keys| keys.get(row)));
                self.unlink(old);
            } else if let Some(id) = ids.next() {
                if self.counts_by_row {
                    self.matches[id.index()] = matches[row];
                }
                self.link(id, *entry);
            }
        }
        if !chunk.is_append_only() {
            self.drop_empty(entries);
        }
        self.rows.compact()?;
        self.memory.set(self.bytes());
        Ok(())
    }

    /// Writes the counts that have changed.
    pub fn write_matches(&mut self) -> Result<()> {
        let mut changed = std::mem::take(&mut self.changed);
        // A row that was removed, and one that took its number, is not marked.
        changed.retain(|row| std::mem::take(&mut self.links[row.index()].changed));
        for rows in changed.chunks(WRITE_ROWS) {
            let matches: Vec<i64> = rows.iter().map(|row| self.matches[row.index()]).collect();
            let mut columns = self.rows.gather(rows)?;
            columns.push(Arc::new(Int64Array::from(matches)));
            let batch = RecordBatch::try_new(self.table.def().schema.clone(), columns)?;
            self.table.write(&Chunk::inserts(batch))?;
        }
        Ok(())
    }

    /// Gives up about this fraction of the memory, least recently used keys first.
    pub fn evict(&mut self, fraction: f64) -> Result<()> {
        assert!(self.changed.is_empty(), "counts are written before their rows are evicted");
        let bytes = self.bytes();
        if bytes == 0 || fraction <= 0.0 {
            return Ok(());
        }
        self.complete = Some(false);
        let row_bytes = self.rows.bytes() / self.rows.len().max(1);
        let mut left = (bytes as f64 * fraction.min(1.0)) as usize;
        while left > 0 {
            let Some(entry) = self.index.next_cold() else { break };
            let rows = self.index.rows(entry).to_vec();
            left = left.saturating_sub(KeyIndex::ENTRY_BYTES + rows.len() * row_bytes);
            rows.into_iter().for_each(|row| self.unlink(row));
            self.index.remove(entry);
        }
        self.rows.compact()?;
        self.memory.set(self.bytes());
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.complete == Some(true)
    }

    /// The first bytes of the table's keys for the join keys of these rows.
    fn prefixes(&self, columns: &[ArrayRef], rows: UInt32Array) -> Result<ByteRows> {
        if columns.is_empty() {
            return Ok([&Vnode::of(&[]).prefix()[..]].into_iter().collect());
        }
        let columns = columns.iter().map(|c| take(c, &rows, None)).collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(self.table.prefixes(&columns)?)
    }

    /// Writes the rows of a chunk that can match to the table.
    fn write(&mut self, chunk: &Chunk, keys: &Keys, matches: &[i64]) -> Result<()> {
        let mut chunk = chunk.clone();
        if self.counted {
            let mut columns = chunk.batch().columns().to_vec();
            columns.push(Arc::new(Int64Array::from(matches.to_vec())));
            let options = RecordBatchOptions::new().with_row_count(Some(chunk.len()));
            let schema = self.table.def().schema.clone();
            chunk = chunk.with_batch(RecordBatch::try_new_with_options(schema, columns, &options)?);
        }
        if let Some(matchable) = keys.matchable_rows() {
            chunk = chunk.filter(&BooleanArray::new(matchable.clone(), None))?;
        }
        Ok(self.table.write(&chunk)?)
    }

    /// The entry in which memory has to follow each row: none for keys that are not in memory, except that memory which
    /// holds everything makes one.
    fn entries_to_change(&mut self, chunk: &Chunk, keys: &Keys) -> Vec<EntryId> {
        let complete = self.is_complete();
        let entry = |row| {
            if !keys.matchable(row) {
                return EntryId::NONE;
            }
            match self.index.find(keys.hash(row), keys.get(row)) {
                Some(entry) => entry,
                None if complete => self.index.insert(keys.hash(row), keys.get(row)),
                None => EntryId::NONE,
            }
        };
        (0..chunk.len()).map(entry).collect()
    }

    /// In memory that holds everything, a key without rows needs no entry.
    fn drop_empty(&mut self, mut entries: Vec<EntryId>) {
        if !self.is_complete() {
            return;
        }
        entries.retain(|entry| self.index.rows(*entry).is_empty() && *entry != EntryId::NONE);
        entries.sort_unstable();
        entries.dedup();
        entries.into_iter().for_each(|entry| self.index.remove(entry));
    }

    /// Takes rows in, without an entry yet.
    fn add_rows(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<RowId>> {
        let ids = self.rows.insert(columns, rows)?;
        self.links.resize(self.rows.ids(), Link { entry: EntryId::NONE, slot: 0, changed: false });
        if self.counts_by_row {
            self.matches.resize(self.rows.ids(), 0);
        }
        Ok(ids)
    }

    fn link(&mut self, row: RowId, entry: EntryId) {
        let slot = self.index.push(entry, row);
        self.links[row.index()] = Link { entry, slot, changed: false };
        if self.by_key.is_some() {
            let hash = self.row_hash(row, entry);
            if let Some(by_key) = &mut self.by_key {
                by_key.insert_unique(hash, (hash, row), |(hash, _)| *hash);
            }
        }
    }

    fn unlink(&mut self, row: RowId) {
        let Link { entry, slot, .. } = self.links[row.index()];
        if self.by_key.is_some() {
            let hash = self.row_hash(row, entry);
            if let Some(Ok(found)) = self.by_key.as_mut().map(|t| t.find_entry(hash, |(_, other)| *other == row)) {
                found.remove();
            }
        }
        if let Some(moved) = self.index.swap_remove(entry, slot) {
            self.links[moved.index()].slot = slot;
        }
        self.links[row.index()] = Link { entry: EntryId::NONE, slot: 0, changed: false };
        self.rows.remove(row);
    }

    /// Takes in the inserted rows of a chunk that have an entry.
    fn insert(&mut self, chunk: &Chunk, entries: &[EntryId]) -> Result<Vec<RowId>> {
        let kept = |row: &u32| chunk.sign(*row as usize) > 0 && entries[*row as usize] != EntryId::NONE;
        let rows: Vec<u32> = (0..chunk.len() as u32).filter(kept).collect();
        if rows.len() == chunk.len() {
            return self.add_rows(chunk.batch().columns(), chunk.len());
        }
        let (count, rows) = (rows.len(), UInt32Array::from(rows));
        let columns = chunk.batch().columns().iter().map(|c| take(c, &rows, None));
        self.add_rows(&columns.collect::<std::result::Result<Vec<_>, _>>()?, count)
    }

    /// The row of an entry with this rest of the stream key.
    fn find_row(&self, entry: EntryId, rest: Option<&[u8]>) -> RowId {
        let found = match (&self.by_key, rest) {
            (Some(by_key), Some(rest)) => {
                let hash = xxh3_64_with_seed(rest, self.index.hash(entry));
                let same = |row: RowId| self.links[row.index()].entry == entry && self.rows.key(row) == rest;
                by_key.find(hash, |(_, row)| same(*row)).map(|(_, row)| *row)
            }
            _ => self.index.rows(entry).first().copied(),
        };
        found.expect("a delete names a row that was inserted before")
    }

    /// The rest of the stream key of each row, by which the rows in memory are found from now on. `None` where the join
    /// key alone tells.
    fn rest_keys(&mut self, chunk: &Chunk) -> Result<Option<ByteRows>> {
        if !self.many {
            return Ok(None);
        }
        if self.by_key.is_none() {
            self.rows.keep_keys()?;
            let mut by_key = HashTable::with_capacity(self.rows.len());
            for (i, link) in self.links.iter().enumerate().filter(|(_, link)| link.entry != EntryId::NONE) {
                let row = RowId(i as u32);
                let hash = self.row_hash(row, link.entry);
                by_key.insert_unique(hash, (hash, row), |(hash, _)| *hash);
            }
            self.by_key = Some(by_key);
        }
        Ok(Some(self.rows.encode_key(chunk.batch())?))
    }

    fn row_hash(&self, row: RowId, entry: EntryId) -> u64 {
        xxh3_64_with_seed(self.rows.key(row), self.index.hash(entry))
    }

    fn bytes(&self) -> usize {
        let row = size_of::<RowId>()
            + size_of::<Link>()
            + if self.counts_by_row { size_of::<i64>() } else { 0 }
            + if self.by_key.is_some() { 2 * size_of::<(u64, RowId)>() } else { 0 };
        self.rows.bytes() + self.index.bytes() + self.rows.len() * row
    }
}

fn as_bigint(column: &ArrayRef) -> Result<&Int64Array> {
    column.as_any().downcast_ref().ok_or(StreamError::Plan("matches is a bigint"))
}
