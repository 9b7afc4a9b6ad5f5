//! The groups in memory: which slot a group has, how many rows it has, and what it looks like.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use weir_common::Chunk;
use weir_common::key::{KeyOrder, decode_keys, is_exact};
use weir_common::row::{ByteRows, decode_rows, encode_rows};
use weir_storage::StateTable;

use super::accumulator::load_i64;
use super::values::VNODE_BYTES;
use crate::Result;
use crate::cache::{self, CachedTable};

/// The full key of the only group there is without group columns: in vnode 0, and nothing more.
const ONLY_KEY: [u8; VNODE_BYTES] = [0; VNODE_BYTES];
/// Groups that are gone are cleared out once there are so many, and as many as others.
const DEAD_MIN: usize = 1024;

/// See the module. Columns are indexed by slot.
pub(super) struct Groups {
    table: CachedTable,
    types: Vec<DataType>,
    orders: Vec<KeyOrder>,
    /// Rows of each group.
    counts: Vec<i64>,
    /// The group has a row in the table, and one downstream.
    exists: Vec<bool>,
    /// How many groups exist.
    alive: usize,
    touched: Vec<bool>,
    /// Groups touched in this epoch, in the order of their first change.
    dirty: Vec<u32>,
    /// Row bytes of the group columns, where the key does not keep them exactly.
    shown: Option<Vec<Box<[u8]>>>,
}

/// What a chunk's rows are for the groups.
pub(super) struct Touched {
    /// The group of each row.
    pub slots: Vec<u32>,
    /// Groups that were read from the table …
    pub found: Vec<u32>,
    /// … and their rows.
    pub rows: Option<RecordBatch>,
    /// How many slots there are now.
    pub len: usize,
}

impl Groups {
    /// Nothing in memory yet.
    pub fn new(table: StateTable) -> Groups {
        let def = table.def();
        let (types, orders) = (def.key_types(), def.key_orders());
        let shown = (!types.iter().all(is_exact)).then(Vec::new);
        Groups {
            table: CachedTable::new(table),
            types,
            orders,
            counts: Vec::new(),
            exists: Vec::new(),
            alive: 0,
            touched: Vec::new(),
            dirty: Vec::new(),
            shown,
        }
    }

    /// Whether there is exactly one group, for lack of group columns.
    pub fn is_single(&self) -> bool {
        self.types.is_empty()
    }

    /// How many group columns there are.
    pub fn columns(&self) -> usize {
        self.types.len()
    }

    /// The groups of rows, by their group columns; those that are not in memory are read.
    pub async fn resolve(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Touched> {
        let mut resolved = if self.is_single() {
            let mut only = self.table.resolve(std::iter::once(&ONLY_KEY[..])).await?;
            only.slots.resize(rows, 0);
            only
        } else {
            let keys = self.table.table().keys(columns)?;
            self.table.resolve(keys.iter()).await?
        };
        self.grow(resolved.len);
        if let Some(rows) = resolved.rows.take() {
            let columns = self.columns();
            load_i64(&mut self.counts, &resolved.found, rows.column(columns));
            resolved.found.iter().for_each(|slot| self.exists[*slot as usize] = true);
            self.alive += resolved.found.len();
            let found = &resolved.found;
            self.show(found.iter().enumerate().map(|(row, slot)| (row, *slot)), &rows.columns()[..columns])?;
            resolved.rows = Some(rows);
        }
        Ok(Touched { slots: resolved.slots, found: resolved.found, rows: resolved.rows, len: resolved.len })
    }

    /// Marks the groups of a chunk's rows as changed. Returns those that exist and are so for the first time in this epoch:
    /// what they look like now is what is downstream.
    pub fn touch(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<Vec<u32>> {
        let (mut existing, mut new) = (Vec::new(), Vec::new());
        for (row, slot) in slots.iter().enumerate() {
            let i = *slot as usize;
            if self.touched[i] {
                continue;
            }
            self.touched[i] = true;
            self.dirty.push(*slot);
            if self.exists[i] {
                existing.push(*slot);
            } else {
                new.push((row, *slot));
            }
        }
        self.show(new.into_iter(), columns)?;
        Ok(existing)
    }

    /// Counts the rows of a chunk.
    pub fn count(&mut self, slots: &[u32], chunk: &Chunk) {
        match chunk.signs() {
            None => slots.iter().for_each(|slot| self.counts[*slot as usize] += 1),
            Some(signs) => {
                slots.iter().zip(signs).for_each(|(slot, sign)| self.counts[*slot as usize] += i64::from(*sign));
            }
        }
    }

    /// Rows of each group.
    pub fn counts(&self) -> &[i64] {
        &self.counts
    }

    /// Takes the groups that changed in this epoch. The epoch ends.
    pub fn take_dirty(&mut self) -> Vec<u32> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.iter().for_each(|slot| self.touched[*slot as usize] = false);
        self.table.slots_mut().tick();
        dirty
    }

    /// Whether the group had a row before this epoch.
    pub fn existed(&self, slot: u32) -> bool {
        self.exists[slot as usize]
    }

    /// Whether the group has a row now.
    pub fn is_alive(&self, slot: u32) -> bool {
        let count = self.counts[slot as usize];
        assert!(count >= 0, "a row that leaves a group was in it");
        count > 0 || self.is_single()
    }

    /// Notes whether the group has a row from now on.
    pub fn set_exists(&mut self, slot: u32, exists: bool) {
        let before = std::mem::replace(&mut self.exists[slot as usize], exists);
        self.alive = self.alive + usize::from(exists) - usize::from(before);
    }

    /// The group columns of groups.
    pub fn group_columns(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        if let Some(shown) = &self.shown {
            return Ok(decode_rows(slots.iter().map(|slot| &*shown[*slot as usize]), &self.types)?);
        }
        if self.is_single() {
            return Ok(Vec::new());
        }
        let keys = slots.iter().map(|slot| &self.key(*slot)[VNODE_BYTES..]);
        Ok(decode_keys(keys, &self.types, &self.orders)?)
    }

    /// The full key of a group.
    pub fn key(&self, slot: u32) -> &[u8] {
        self.table.slots().key(slot)
    }

    /// The full keys of groups.
    pub fn keys(&self, slots: &[u32]) -> ByteRows {
        slots.iter().map(|slot| self.key(*slot)).collect()
    }

    /// The table.
    pub fn table(&self) -> &StateTable {
        self.table.table()
    }

    /// The table, to write to and to be sealed.
    pub fn table_mut(&mut self) -> &mut StateTable {
        self.table.table_mut()
    }

    /// The groups that stay when those that are gone are cleared out. `None`: it is not worth it.
    pub fn compact(&mut self) -> Option<Vec<u32>> {
        let dead = self.exists.len() - self.alive;
        if self.is_single() || dead < DEAD_MIN || dead < self.alive {
            return None;
        }
        let keep: Vec<u32> = (0..self.exists.len() as u32).filter(|slot| self.existed(*slot)).collect();
        self.table.compact(&keep);
        self.retain(&keep);
        Some(keep)
    }

    /// The groups that stay when this fraction of memory is given up.
    pub fn evict(&mut self, fraction: f64) -> Vec<u32> {
        let keep = self.table.slots().survivors(fraction);
        self.table.evict(&keep);
        self.retain(&keep);
        keep
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let shown =
            self.shown.as_ref().map_or(0, |shown| cache::estimate(shown, |row| row.len() + size_of::<Box<[u8]>>()));
        let per_slot = size_of::<i64>() + 2 * size_of::<bool>();
        self.table.bytes() + self.counts.capacity() * per_slot + self.dirty.capacity() * size_of::<u32>() + shown
    }

    fn grow(&mut self, slots: usize) {
        self.counts.resize(slots, 0);
        self.exists.resize(slots, false);
        self.touched.resize(slots, false);
        if let Some(shown) = &mut self.shown {
            shown.resize_with(slots, Box::default);
        }
    }

    fn retain(&mut self, keep: &[u32]) {
        debug_assert!(self.dirty.is_empty(), "groups are forgotten after they are written");
        cache::retain(&mut self.counts, keep);
        cache::retain(&mut self.exists, keep);
        cache::retain(&mut self.touched, keep);
        if let Some(shown) = &mut self.shown {
            cache::retain(shown, keep);
        }
        self.alive = self.exists.iter().filter(|e| **e).count();
    }

    /// Remembers the group columns of groups, each from a row of these columns.
    fn show(&mut self, rows: impl ExactSizeIterator<Item = (usize, u32)>, columns: &[ArrayRef]) -> Result<()> {
        let Some(shown) = &mut self.shown else { return Ok(()) };
        if rows.len() == 0 {
            return Ok(());
        }
        let encoded = encode_rows(columns, columns[0].len())?;
        rows.for_each(|(row, slot)| shown[slot as usize] = encoded.get(row).into());
        Ok(())
    }
}
