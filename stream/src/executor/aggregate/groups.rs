//! The groups in memory: which slot a group has, how many rows it has, and what it looks like.

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;
use arrow::datatypes::{
    DataType, Date32Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use weir_common::Chunk;
use weir_common::key::{KeyOrder, decode_keys, is_exact};
use weir_common::row::{decode_rows, encode_rows};
use weir_storage::StateTable;

use super::accumulator::{load_i64, store_i64};
use super::values::VNODE_BYTES;
use crate::Result;
use crate::cache::{self, CachedTable, IntSlots};

/// The full key of the only group there is without group columns: in vnode 0, and nothing more.
const ONLY_KEY: [u8; VNODE_BYTES] = [0; VNODE_BYTES];
/// Groups that are gone are cleared out once there are so many, and as many as others.
const DEAD_MIN: usize = 1024;

/// See the module. Columns are indexed by slot.
pub(super) struct Groups {
    table: CachedTable,
    types: Vec<DataType>,
    orders: Vec<KeyOrder>,
    groups: Vec<Group>,
    /// How many groups exist.
    alive: usize,
    /// Groups touched in this epoch, in the order of their first change.
    dirty: Vec<u32>,
    /// Groups by their only column, if it is an integer or a time: a row finds its group without a key being made.
    integers: Option<IntSlots>,
    /// Row bytes of the group columns, where the key does not keep them exactly.
    shown: Option<Vec<Box<[u8]>>>,
}

#[derive(Clone, Copy, Default)]
struct Group {
    /// Its rows.
    count: i64,
    /// It has a row in the table, and one downstream.
    exists: bool,
    /// It changed in this epoch.
    touched: bool,
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
        let integers = (types.len() == 1).then(IntSlots::default);
        let shown = (!types.iter().all(is_exact)).then(Vec::new);
        Groups {
            table: CachedTable::new(table),
            types,
            orders,
            groups: Vec::new(),
            alive: 0,
            dirty: Vec::new(),
            integers,
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
        if self.is_single() {
            let mut only = self.resolve_keys(std::iter::once(&ONLY_KEY[..])).await?;
            only.slots.resize(rows, 0);
            return Ok(only);
        }
        let Some(values) = self.integers.as_ref().and_then(|_| integers(&columns[0])) else {
            let keys = self.table.table().keys(columns)?;
            return self.resolve_keys(keys.iter()).await;
        };
        let nulls = columns[0].logical_nulls();
        let is_valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
        let (mut slots, mut missing) = (vec![0; rows], Vec::new());
        let known = self.integers.get_or_insert_default();
        for (row, value) in values.iter().enumerate() {
            match known.find(*value).filter(|_| is_valid(row)) {
                Some(slot) => slots[row] = slot,
                None => missing.push(row as u32),
            }
        }
        if missing.is_empty() {
            return Ok(Touched { slots, found: Vec::new(), rows: None, len: self.groups.len() });
        }
        let missing = UInt32Array::from(missing);
        let keys = self.table.table().keys(&[take(&columns[0], &missing, None)?])?;
        let resolved = self.resolve_keys(keys.iter()).await?;
        let known = self.integers.get_or_insert_default();
        for (row, slot) in missing.values().iter().zip(&resolved.slots) {
            slots[*row as usize] = *slot;
            if is_valid(*row as usize) {
                known.insert(values[*row as usize], *slot);
            }
        }
        Ok(Touched { slots, ..resolved })
    }

    async fn resolve_keys<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> Result<Touched> {
        let resolved = self.table.resolve(keys).await?;
        self.grow(resolved.len);
        if let Some(rows) = &resolved.rows {
            let columns = self.columns();
            load_i64(&resolved.found, rows.column(columns), |slot, count| {
                self.groups[slot] = Group { count, exists: true, touched: false };
            });
            self.alive += resolved.found.len();
            let found = resolved.found.iter().enumerate().map(|(row, slot)| (row, *slot));
            self.show(found, &rows.columns()[..columns])?;
        }
        Ok(Touched { slots: resolved.slots, found: resolved.found, rows: resolved.rows, len: resolved.len })
    }

    /// Marks the groups of a chunk's rows as changed. Returns those that exist and are so for the first time in this epoch:
    /// what they look like now is what is downstream.
    pub fn touch(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<Vec<u32>> {
        let (mut existing, mut new) = (Vec::new(), Vec::new());
        for (row, slot) in slots.iter().enumerate() {
            let group = &mut self.groups[*slot as usize];
            if group.touched {
                continue;
            }
            group.touched = true;
            self.dirty.push(*slot);
            self.table.slots_mut().touch(*slot);
            if group.exists {
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
            None => slots.iter().for_each(|slot| self.groups[*slot as usize].count += 1),
            Some(signs) => {
                let signs = signs.iter().map(|sign| i64::from(*sign));
                slots.iter().zip(signs).for_each(|(slot, sign)| self.groups[*slot as usize].count += sign);
            }
        }
    }

    /// How many rows each of these groups has.
    pub fn counts(&self, slots: &[u32]) -> ArrayRef {
        store_i64(slots, |slot| self.groups[slot].count)
    }

    /// Takes the groups that changed in this epoch. The epoch ends.
    pub fn take_dirty(&mut self) -> Vec<u32> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.iter().for_each(|slot| self.groups[*slot as usize].touched = false);
        self.table.slots_mut().tick();
        dirty
    }

    /// Whether the group had a row before this epoch.
    pub fn existed(&self, slot: u32) -> bool {
        self.groups[slot as usize].exists
    }

    /// Whether the group has a row now.
    pub fn is_alive(&self, slot: u32) -> bool {
        let count = self.groups[slot as usize].count;
        assert!(count >= 0, "a row that leaves a group was in it");
        count > 0 || self.is_single()
    }

    /// Notes whether the group has a row from now on.
    pub fn set_exists(&mut self, slot: u32, exists: bool) {
        let before = std::mem::replace(&mut self.groups[slot as usize].exists, exists);
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
        let dead = self.groups.len() - self.alive;
        if self.is_single() || dead < DEAD_MIN || dead < self.alive {
            return None;
        }
        let keep: Vec<u32> = (0..self.groups.len() as u32).filter(|slot| self.existed(*slot)).collect();
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
        let integers = self.integers.as_ref().map_or(0, IntSlots::bytes);
        self.table.bytes()
            + self.groups.capacity() * size_of::<Group>()
            + self.dirty.capacity() * size_of::<u32>()
            + shown
            + integers
    }

    fn grow(&mut self, slots: usize) {
        self.groups.resize(slots, Group::default());
        if let Some(shown) = &mut self.shown {
            shown.resize_with(slots, Box::default);
        }
    }

    fn retain(&mut self, keep: &[u32]) {
        debug_assert!(self.dirty.is_empty(), "groups are forgotten after they are written");
        cache::retain(&mut self.groups, keep);
        if let Some(shown) = &mut self.shown {
            cache::retain(shown, keep);
        }
        if let Some(integers) = &mut self.integers {
            integers.retain(keep);
        }
        self.alive = self.groups.iter().filter(|g| g.exists).count();
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

/// The values of a column of integers or times. `None`: it has another type.
fn integers(column: &ArrayRef) -> Option<ScalarBuffer<i64>> {
    let widened = |values: &[i32]| values.iter().map(|v| i64::from(*v)).collect();
    Some(match column.data_type() {
        DataType::Int16 => column.as_primitive::<Int16Type>().values().iter().map(|v| i64::from(*v)).collect(),
        DataType::Int32 => widened(column.as_primitive::<Int32Type>().values()),
        DataType::Date32 => widened(column.as_primitive::<Date32Type>().values()),
        DataType::Int64 => column.as_primitive::<Int64Type>().values().clone(),
        DataType::Time64(TimeUnit::Microsecond) => column.as_primitive::<Time64MicrosecondType>().values().clone(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            column.as_primitive::<TimestampMicrosecondType>().values().clone()
        }
        _ => return None,
    })
}
