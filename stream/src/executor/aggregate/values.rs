//! How often each value is in each group: the `values` table of a call, and what is in memory of it.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use weir_common::Chunk;
use weir_common::key::decode_keys;
use weir_common::row::ByteRows;
use weir_storage::StateTable;

use super::accumulator::{load_i64, primitive, store_i64};
use crate::Result;
use crate::cache::{self, CachedTable};

/// Bytes of the vnode before the key columns in a full key.
pub(super) const VNODE_BYTES: usize = 2;
/// Values that are in no group any more are cleared out once there are so many, and as many as others.
const DEAD_MIN: usize = 1024;

/// Counts of values. A value is named by a full key: that of its group, then the value columns.
pub(super) struct CountedValues {
    table: CachedTable,
    /// A column per count of the table, a value per slot.
    counts: Vec<Vec<i64>>,
    /// The table has a row for the slot.
    stored: Vec<bool>,
    /// How many slots are stored.
    alive: usize,
    dirty: Vec<bool>,
    changed: Vec<u32>,
}

impl CountedValues {
    /// Nothing in memory yet.
    pub fn new(table: StateTable) -> CountedValues {
        let def = table.def();
        let members = def.schema.fields().len() - def.key.len();
        CountedValues {
            table: CachedTable::new(table),
            counts: vec![Vec::new(); members],
            stored: Vec::new(),
            alive: 0,
            dirty: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// The slots of values; those that are not in memory are read.
    pub async fn resolve(&mut self, keys: &ByteRows) -> Result<Vec<u32>> {
        let resolved = self.table.resolve(keys.iter()).await?;
        self.counts.iter_mut().for_each(|c| c.resize(resolved.len, 0));
        self.stored.resize(resolved.len, false);
        self.dirty.resize(resolved.len, false);
        if let Some(rows) = &resolved.rows {
            let key_columns = self.table.table().def().key.len();
            for (counts, column) in self.counts.iter_mut().zip(&rows.columns()[key_columns..]) {
                load_i64(&resolved.found, column, |slot, count| counts[slot] = count);
            }
            resolved.found.iter().for_each(|slot| self.stored[*slot as usize] = true);
            self.alive += resolved.found.len();
        }
        Ok(resolved.slots)
    }

    /// Counts a value once more (+1) or less (-1). Returns the sign if it came into its group or left it by that, else 0.
    #[inline]
    pub fn count(&mut self, member: usize, slot: u32, sign: i8) -> i8 {
        let slot = slot as usize;
        if !self.dirty[slot] {
            self.dirty[slot] = true;
            self.changed.push(slot as u32);
        }
        let count = &mut self.counts[member][slot];
        *count += i64::from(sign);
        assert!(*count >= 0, "a value that leaves a group was in it");
        match (sign, *count) {
            (1, 1) | (-1, 0) => sign,
            _ => 0,
        }
    }

    /// Writes what has changed.
    pub fn flush(&mut self) -> Result<()> {
        let changed = std::mem::take(&mut self.changed);
        let mut deleted = ByteRows::new();
        let mut written = Vec::with_capacity(changed.len());
        for slot in changed {
            let i = slot as usize;
            self.dirty[i] = false;
            let exists = self.counts.iter().any(|c| c[i] != 0);
            if exists {
                written.push(slot);
            } else if self.stored[i] {
                deleted.push(self.table.slots().key(slot));
            }
            self.alive = self.alive + usize::from(exists) - usize::from(self.stored[i]);
            self.stored[i] = exists;
        }
        if !deleted.is_empty() {
            self.table.table_mut().delete(&deleted);
        }
        if !written.is_empty() {
            let rows = self.rows(&written)?;
            self.table.table_mut().write(&Chunk::inserts(rows))?;
        }
        self.table.slots_mut().tick();
        self.compact();
        Ok(())
    }

    /// The table, to read what [`CountedValues::flush`] has written, and to be sealed.
    pub fn table(&mut self) -> &mut StateTable {
        self.table.table_mut()
    }

    /// Forgets this fraction of the values, those least recently used. Only after [`CountedValues::flush`].
    pub fn evict(&mut self, fraction: f64) {
        let keep = self.table.slots().survivors(fraction);
        self.table.evict(&keep);
        self.retain(&keep);
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let per_slot = self.counts.len() * size_of::<i64>() + 2 * size_of::<bool>();
        self.table.bytes() + self.stored.capacity() * per_slot + self.changed.capacity() * size_of::<u32>()
    }

    /// The rows of slots as the table has them.
    fn rows(&self, slots: &[u32]) -> Result<RecordBatch> {
        let def = self.table.table().def();
        let keys = slots.iter().map(|slot| &self.table.slots().key(*slot)[VNODE_BYTES..]);
        let mut columns = decode_keys(keys, &def.key_types(), &def.key_orders())?;
        columns.extend(self.counts.iter().map(|counts| store_i64(slots, |slot| counts[slot])));
        Ok(RecordBatch::try_new(def.schema.clone(), columns)?)
    }

    /// Clears out values that are in no group, when there are many.
    fn compact(&mut self) {
        let dead = self.stored.len() - self.alive;
        if dead >= DEAD_MIN && dead >= self.alive {
            let keep: Vec<u32> = (0..self.stored.len() as u32).filter(|slot| self.stored[*slot as usize]).collect();
            self.table.compact(&keep);
            self.retain(&keep);
        }
    }

    fn retain(&mut self, keep: &[u32]) {
        debug_assert!(self.changed.is_empty(), "values are forgotten after they are written");
        self.counts.iter_mut().for_each(|c| cache::retain(c, keep));
        cache::retain(&mut self.stored, keep);
        cache::retain(&mut self.dirty, keep);
        self.alive = self.stored.iter().filter(|s| **s).count();
    }
}

/// The count column of rows of a values table that has one.
pub(super) fn count_column(rows: &RecordBatch) -> &Int64Array {
    primitive::<Int64Array>(rows.columns().last().expect("a values table ends with a count"))
}

/// All but the group columns of a values table that has one count: the columns of a `ValueKey`.
pub(super) fn value_columns_of(rows: &RecordBatch, groups: usize) -> Vec<ArrayRef> {
    rows.columns()[groups..rows.num_columns() - 1].iter().map(Arc::clone).collect()
}
