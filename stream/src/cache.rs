//! Rows of a state table kept in memory, as columns.
//!
//! An executor that changes rows by key reads each of them once and keeps it. Here a key becomes a *slot*, a dense number,
//! and what is remembered of a row is in the columns of the executor at that index:
//!
//! ```text
//! keys ──► KeySlots ──► slot 0 1 2 3 …      counts: Vec<i64>    sums: Vec<i128>    …
//! ```
//!
//! So the work on a chunk is one hash look-up per row, then typed loops over columns. [`CachedTable`] adds the table: keys
//! that are new in memory are read from it, all of a chunk at once; and as long as everything in the table is also in
//! memory ([`CachedTable::resolve`]), a new key need not be looked up at all.
//!
//! Nothing is ever removed one by one. To forget rows, the owner decides which slots stay and compacts: slots to keep, in
//! ascending order, get the numbers from 0 on, in [`KeySlots::retain`] and by [`retain`] in every column. When memory is
//! short, [`KeySlots::survivors`] names those used most recently. [`MemoryShare`] accounts for what is held.

use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use hashbrown::{DefaultHashBuilder, HashTable};
use weir_common::row::ByteRows;
use weir_storage::{MemoryLimit, ScanRange, StateTable};

use crate::Result;

/// The smallest part of the rows that is given up at a time, as compacting goes over all of them.
const EVICTED_MIN: f64 = 1.0 / 8.0;
/// Elements of a column that are looked at to estimate its size.
const SAMPLE: usize = 256;

/// Keys, each with a dense number, its slot.
#[derive(Default)]
pub struct KeySlots {
    table: HashTable<Entry>,
    keys: ByteRows,
    /// When each slot was last used, in ticks.
    used: Vec<u32>,
    tick: u32,
    hasher: DefaultHashBuilder,
}

struct Entry {
    hash: u64,
    slot: u32,
}

impl KeySlots {
    /// No keys.
    pub fn new() -> KeySlots {
        KeySlots::default()
    }

    /// The slot of a key. A key that is new gets the next one, which is [`KeySlots::len`].
    pub fn slot(&mut self, key: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(key);
        let keys = &self.keys;
        let entry = self.table.entry(hash, |e| e.hash == hash && keys.get(e.slot as usize) == key, |e| e.hash);
        let slot = match entry {
            hashbrown::hash_table::Entry::Occupied(found) => found.get().slot,
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                let slot = u32::try_from(self.keys.len()).expect("memory ends before there are 2^32 keys in it");
                vacant.insert(Entry { hash, slot });
                self.keys.push(key);
                self.used.push(self.tick);
                return slot;
            }
        };
        self.used[slot as usize] = self.tick;
        slot
    }

    /// The slot of a key, if it is known.
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |e| e.hash == hash && self.keys.get(e.slot as usize) == key).map(|e| e.slot)
    }

    /// The slots of keys, in order.
    pub fn slots<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> Vec<u32> {
        keys.map(|key| self.slot(key)).collect()
    }

    /// The key of a slot.
    pub fn key(&self, slot: u32) -> &[u8] {
        self.keys.get(slot as usize)
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Notes that a slot is used.
    pub fn touch(&mut self, slot: u32) {
        self.used[slot as usize] = self.tick;
    }

    /// Lets time pass: what is used from here on is more recent than what was used before.
    pub fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
    }

    /// The slots to keep when this fraction of memory is to be given up, in ascending order: the most recently used. At
    /// least an eighth goes.
    pub fn survivors(&self, fraction: f64) -> Vec<u32> {
        let len = self.len();
        let gone = ((len as f64) * fraction.clamp(EVICTED_MIN, 1.0)).ceil() as usize;
        if gone >= len {
            return Vec::new();
        }
        let age = |used: u32| self.tick.wrapping_sub(used);
        let mut ages: Vec<u32> = self.used.iter().map(|u| age(*u)).collect();
        // The `gone` oldest go; of those as old as the youngest of them, as many as fit.
        let (_, threshold, _) = ages.select_nth_unstable(len - gone);
        let threshold = *threshold;
        let older = self.used.iter().filter(|u| age(**u) > threshold).count();
        let mut ties = gone - older;
        let keeps = |slot: &u32| {
            let age = age(self.used[*slot as usize]);
            let goes = age > threshold || (age == threshold && ties > 0);
            ties -= usize::from(age == threshold && goes);
            !goes
        };
        (0..len as u32).filter(keeps).collect()
    }

    /// Keeps these slots only, which are in ascending order; slot `keep[i]` becomes slot `i`.
    pub fn retain(&mut self, keep: &[u32]) {
        let mut hashes = vec![0; self.len()];
        for entry in self.table.drain() {
            hashes[entry.slot as usize] = entry.hash;
        }
        self.keys = keep.iter().map(|slot| self.key(*slot)).collect();
        retain(&mut self.used, keep);
        self.table = HashTable::with_capacity(keep.len());
        for (slot, old) in keep.iter().enumerate() {
            let hash = hashes[*old as usize];
            self.table.insert_unique(hash, Entry { hash, slot: slot as u32 }, |e| e.hash);
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let per_key = size_of::<usize>() + size_of::<u32>();
        self.table.allocation_size() + self.keys.bytes() + self.used.capacity() * per_key
    }
}

/// Slots by an integer that stands for their keys, so that no key need be made to find one.
#[derive(Default)]
pub struct IntSlots {
    table: HashTable<(i64, u32)>,
    hasher: DefaultHashBuilder,
}

impl IntSlots {
    /// The slot of an integer, if it is known.
    #[inline]
    pub fn find(&self, value: i64) -> Option<u32> {
        self.table.find(self.hasher.hash_one(value), |(v, _)| *v == value).map(|(_, slot)| *slot)
    }

    /// Notes the slot of an integer.
    pub fn insert(&mut self, value: i64, slot: u32) {
        let hash = |(v, _): &(i64, u32)| self.hasher.hash_one(*v);
        self.table.entry(self.hasher.hash_one(value), |(v, _)| *v == value, hash).insert((value, slot));
    }

    /// Does what [`KeySlots::retain`] does.
    pub fn retain(&mut self, keep: &[u32]) {
        let renumbered = |old: u32| keep.binary_search(&old).ok();
        self.table.retain(|(_, slot)| match renumbered(*slot) {
            Some(new) => {
                *slot = new as u32;
                true
            }
            None => false,
        });
        self.table.shrink_to_fit(|(v, _)| self.hasher.hash_one(*v));
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.table.allocation_size()
    }
}

/// Keeps the elements at these indices, which are in ascending order.
pub fn retain<T>(column: &mut Vec<T>, keep: &[u32]) {
    for (to, from) in keep.iter().enumerate() {
        column.swap(to, *from as usize);
    }
    column.truncate(keep.len());
    column.shrink_to_fit();
}

/// Bytes that the elements of a column take, from a sample of them.
pub fn estimate<T>(column: &[T], bytes: impl Fn(&T) -> usize) -> usize {
    let step = column.len().div_ceil(SAMPLE).max(1);
    let sample = column.iter().step_by(step);
    let sampled = sample.len().max(1);
    sample.map(bytes).sum::<usize>() * column.len() / sampled
}

/// A state table and the slots of its keys that are in memory.
pub struct CachedTable {
    table: StateTable,
    slots: KeySlots,
    /// Every row of the table has a slot. `None`: not known yet.
    complete: Option<bool>,
}

/// What [`CachedTable::resolve`] found.
pub struct Resolved {
    /// The slot of each key.
    pub slots: Vec<u32>,
    /// How many slots there are now. The owner's columns must grow to it.
    pub len: usize,
    /// New slots for which the table has a row …
    pub found: Vec<u32>,
    /// … and these rows, all columns; `None` if there is none.
    pub rows: Option<RecordBatch>,
}

impl CachedTable {
    /// Nothing in memory yet.
    pub fn new(table: StateTable) -> CachedTable {
        CachedTable { table, slots: KeySlots::new(), complete: None }
    }

    /// The slots of full keys. Reads the rows of those that are new in memory, unless memory holds the whole table: then
    /// there are none. That is so for a table that was empty at the start, until rows are evicted.
    pub async fn resolve<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> Result<Resolved> {
        let complete = match self.complete {
            Some(complete) => complete,
            None => self.is_empty().await?,
        };
        self.complete = Some(complete);
        let before = self.slots.len();
        let slots = self.slots.slots(keys);
        let len = self.slots.len();
        let mut resolved = Resolved { slots, len, found: Vec::new(), rows: None };
        if complete || len == before {
            return Ok(resolved);
        }
        let missing: ByteRows = (before..len).map(|slot| self.slots.key(slot as u32)).collect();
        let found = self.table.get_many(&missing).await?;
        let (mut slots, mut rows) = (Vec::new(), Vec::new());
        for (i, row) in found.index.iter().enumerate() {
            if let Some(row) = row {
                slots.push((before + i) as u32);
                rows.push(*row);
            }
        }
        if !slots.is_empty() {
            let in_order =
                rows.len() == found.rows.num_rows() && rows.iter().enumerate().all(|(i, r)| i == *r as usize);
            let rows = if in_order { found.rows } else { take_record_batch(&found.rows, &UInt32Array::from(rows))? };
            resolved = Resolved { found: slots, rows: Some(rows), ..resolved };
        }
        Ok(resolved)
    }

    /// The table.
    pub fn table(&self) -> &StateTable {
        &self.table
    }

    /// The table, to write to.
    pub fn table_mut(&mut self) -> &mut StateTable {
        &mut self.table
    }

    /// The slots.
    pub fn slots(&self) -> &KeySlots {
        &self.slots
    }

    /// The slots, to let time pass.
    pub fn slots_mut(&mut self) -> &mut KeySlots {
        &mut self.slots
    }

    /// Forgets all but these slots, the keys of which have rows in the table: from now on, a new key is looked up.
    pub fn evict(&mut self, keep: &[u32]) {
        self.complete = Some(false);
        self.slots.retain(keep);
    }

    /// Forgets all but these slots; none of the others has a row in the table.
    pub fn compact(&mut self, keep: &[u32]) {
        self.slots.retain(keep);
    }

    /// Bytes in memory, the table's buffer aside.
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Whether the actor's part of the table has no row.
    async fn is_empty(&mut self) -> Result<bool> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for vnode in self.table.vnodes().iter().map(|v| u16::from(v.0)) {
            match ranges.last_mut() {
                Some((_, end)) if *end == vnode => *end += 1,
                _ => ranges.push((vnode, vnode + 1)),
            }
        }
        let bytes = |vnode: u16| vnode.to_be_bytes().to_vec();
        let range = |(start, end)| ScanRange {
            start: Bound::Included(bytes(start)),
            end: Bound::Excluded(bytes(end)),
            reverse: false,
            limit: 1,
        };
        let ranges: Vec<ScanRange> = ranges.into_iter().map(range).collect();
        Ok(self.table.scan(&ranges).await?.rows.num_rows() == 0)
    }
}

/// An executor's part of the memory that all of them may use.
pub struct MemoryShare {
    limit: Arc<MemoryLimit>,
    bytes: usize,
}

impl MemoryShare {
    /// Nothing yet.
    pub fn new(limit: Arc<MemoryLimit>) -> MemoryShare {
        MemoryShare { limit, bytes: 0 }
    }

    /// Accounts for this many bytes from now on.
    pub fn set(&mut self, bytes: usize) {
        self.limit.add(bytes as isize - self.bytes as isize);
        self.bytes = bytes;
    }

    /// The fraction that should be given up now; 0 when there is enough.
    pub fn pressure(&self) -> f64 {
        self.limit.pressure()
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_slot() {
        let mut slots = KeySlots::new();
        assert_eq!(slots.slots([&b"a"[..], b"b", b"a", b""].into_iter()), [0, 1, 0, 2]);
        assert_eq!((slots.len(), slots.key(1), slots.find(b""), slots.find(b"c")), (3, &b"b"[..], Some(2), None));
        slots.retain(&[1, 2]);
        assert_eq!((slots.find(b"a"), slots.find(b"b"), slots.find(b"")), (None, Some(0), Some(1)));
        assert_eq!(slots.slot(b"a"), 2);
    }

    #[test]
    fn integers_follow_their_slots() {
        let mut slots = IntSlots::default();
        [7, -7, 70].into_iter().zip(0..).for_each(|(value, slot)| slots.insert(value, slot));
        assert_eq!((slots.find(-7), slots.find(8)), (Some(1), None));
        slots.retain(&[0, 2]);
        assert_eq!((slots.find(7), slots.find(-7), slots.find(70)), (Some(0), None, Some(1)));
        slots.insert(7, 5);
        assert_eq!(slots.find(7), Some(5));
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let mut slots = KeySlots::new();
        for key in 0..16_u8 {
            slots.tick();
            slots.slot(&[key]);
        }
        slots.tick();
        slots.slot(&[0]);
        assert_eq!(slots.survivors(0.01), [vec![0], (3..16).collect()].concat());
        assert_eq!(slots.survivors(0.9), [0]);
        assert_eq!(slots.survivors(1.0), Vec::<u32>::new());
        let mut column: Vec<u32> = (0..16).collect();
        retain(&mut column, &[0, 3, 15]);
        assert_eq!(column, [0, 3, 15]);
    }
}
