//! `min`, `max`, `first_value`, `last_value`: the first value of a group in an order.
//!
//! State     in the groups row the key of the first value; unless the input is append-only, all values in `values`.
//! In memory the first few keys of each group. A value that comes after them changes nothing here, and when the last of
//!           them leaves, the next few are read.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema};
use weir_common::Chunk;
use weir_common::plan::{AggCall, AggFunction};
use weir_common::row::ByteRows;
use weir_storage::{ScanRange, StateTable};

use super::accumulator::{GroupState, StateField, primitive};
use super::groups::Groups;
use super::value_key::ValueKey;
use super::values::CountedValues;
use crate::Result;
use crate::cache;

/// Keys of a group that are kept in memory.
const TOP_MAX: usize = 32;
/// Groups for which values are read in one scan.
const SCAN_GROUPS: usize = 256;

/// See the module.
pub(super) struct First {
    key: ValueKey,
    arg: usize,
    /// NULL is no value to `min` and `max`.
    skips_nulls: bool,
    rule: Rule,
    /// All values. `None`: the input is append-only.
    pub values: Option<CountedValues>,
    tops: Vec<Top>,
}

/// Which value is first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// That with the smallest key.
    Smallest,
    /// The first to come; of an append-only input, where no order is asked for.
    Earliest,
    /// The last to come, likewise.
    Latest,
}

/// The smallest keys of a group, in order.
struct Top {
    keys: Vec<Box<[u8]>>,
    /// There are no others.
    complete: bool,
}

impl First {
    /// The state of a call. Without a table of values, values are never taken back.
    pub fn new(call: &AggCall, input: &Schema, values: Option<StateTable>) -> First {
        let skips_nulls = matches!(call.function, AggFunction::Min | AggFunction::Max);
        let rule = match call.function {
            AggFunction::FirstValue if values.is_none() && call.order_by.is_empty() => Rule::Earliest,
            AggFunction::LastValue if values.is_none() && call.order_by.is_empty() => Rule::Latest,
            _ => Rule::Smallest,
        };
        let arg = call.args[0];
        let values = values.map(CountedValues::new);
        First { key: ValueKey::new(call, input), arg, skips_nulls, rule, values, tops: Vec::new() }
    }

    /// Takes changes: row `i` of the chunk is in group `slots[i]`.
    pub async fn add(&mut self, chunk: &Chunk, slots: &[u32], groups: &Groups) -> Result<()> {
        let nulls = chunk.column(self.arg).logical_nulls().filter(|n| self.skips_nulls && n.null_count() > 0);
        if let Some(nulls) = nulls {
            let rows: UInt32Array = nulls.valid_indices().map(|row| row as u32).collect();
            let slots: Vec<u32> = rows.values().iter().map(|row| slots[*row as usize]).collect();
            self.add_values(&chunk.take(&rows)?, &slots, groups).await
        } else {
            self.add_values(chunk, slots, groups).await
        }
    }

    async fn add_values(&mut self, chunk: &Chunk, slots: &[u32], groups: &Groups) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        let keys = self.key.encode(chunk.batch())?;
        let Some(values) = &mut self.values else {
            for (slot, key) in slots.iter().zip(keys.iter()) {
                self.tops[*slot as usize].replace(key, self.rule);
            }
            return Ok(());
        };
        let mut full = ByteRows::with_capacity(keys.len(), 2 * keys.bytes());
        for (slot, key) in slots.iter().zip(keys.iter()) {
            full.push_joined(groups.key(*slot), key);
        }
        let counted = values.resolve(&full).await?;
        for (row, (slot, key)) in slots.iter().zip(keys.iter()).enumerate() {
            match values.count(0, counted[row], chunk.sign(row)) {
                1 => self.tops[*slot as usize].insert(key),
                -1 => self.tops[*slot as usize].remove(key),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the values, and reads the first ones of those groups among `dirty` that have lost sight of them.
    pub async fn flush(&mut self, dirty: &[u32], groups: &Groups) -> Result<()> {
        let Some(values) = &mut self.values else { return Ok(()) };
        values.flush()?;
        let lost: Vec<u32> = dirty.iter().copied().filter(|slot| self.tops[*slot as usize].is_lost()).collect();
        for lost in lost.chunks(SCAN_GROUPS) {
            let range = |slot: &u32| ScanRange { limit: TOP_MAX, ..ScanRange::prefix(groups.key(*slot)) };
            let ranges: Vec<ScanRange> = lost.iter().map(range).collect();
            let scanned = values.table().scan(&ranges).await?;
            for (key, range) in scanned.keys.iter().zip(&scanned.range) {
                let slot = lost[*range as usize];
                self.tops[slot as usize].keys.push(key[groups.key(slot).len()..].into());
            }
            for slot in lost {
                let top = &mut self.tops[*slot as usize];
                top.complete = top.keys.len() < TOP_MAX;
            }
        }
        Ok(())
    }
}

impl Top {
    const NONE: Top = Top { keys: Vec::new(), complete: true };

    /// There are values, but which is first is not known.
    fn is_lost(&self) -> bool {
        self.keys.is_empty() && !self.complete
    }

    /// A value has come.
    fn insert(&mut self, key: &[u8]) {
        let Err(place) = self.place(key) else { return };
        if place == self.keys.len() && !self.complete {
            return;
        }
        self.keys.insert(place, key.into());
        if self.keys.len() > TOP_MAX {
            self.keys.pop();
            self.complete = false;
        }
    }

    /// A value has left.
    fn remove(&mut self, key: &[u8]) {
        if let Ok(place) = self.place(key) {
            self.keys.remove(place);
        }
    }

    /// A value has come, and only the first is of interest.
    fn replace(&mut self, key: &[u8], rule: Rule) {
        match self.keys.first_mut() {
            None => self.keys.push(key.into()),
            Some(first) => {
                let is_first = match rule {
                    Rule::Smallest => key < &**first,
                    Rule::Earliest => false,
                    Rule::Latest => true,
                };
                if is_first {
                    *first = key.into();
                }
            }
        }
    }

    fn place(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        self.keys.binary_search_by(|k| (**k).cmp(key))
    }

    fn bytes(&self) -> usize {
        size_of::<Top>()
            + self.keys.capacity() * size_of::<Box<[u8]>>()
            + self.keys.iter().map(|k| k.len()).sum::<usize>()
    }
}

impl GroupState for First {
    fn fields(&self) -> Vec<StateField> {
        vec![("first", DataType::Binary)]
    }

    fn grow(&mut self, slots: usize) {
        self.tops.resize_with(slots, || Top::NONE);
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let firsts = primitive::<BinaryArray>(&columns[0]);
        for (slot, first) in slots.iter().zip(firsts) {
            if let Some(first) = first {
                self.tops[*slot as usize] = Top { keys: vec![first.into()], complete: false };
            }
        }
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let first = |slot: &u32| self.tops[*slot as usize].keys.first().map(|key| &**key);
        Ok(vec![Arc::new(slots.iter().map(first).collect::<BinaryArray>())])
    }

    fn results(&self, slots: &[u32], _errors: &mut u64) -> Result<ArrayRef> {
        let firsts: Vec<Option<&[u8]>> =
            slots.iter().map(|slot| self.tops[*slot as usize].keys.first().map(|key| &**key)).collect();
        let values = self.key.decode(firsts.iter().flatten().copied(), 0)?;
        if values.len() == slots.len() {
            return Ok(values);
        }
        let mut next = 0..;
        let rows: UInt32Array = firsts.iter().map(|first| first.and_then(|_| next.next())).collect();
        Ok(take(&values, &rows, None)?)
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.tops, keep);
    }

    fn bytes(&self) -> usize {
        let values = self.values.as_ref().map_or(0, CountedValues::bytes);
        cache::estimate(&self.tops, Top::bytes) + values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(top: &Top) -> Vec<u8> {
        top.keys.iter().map(|k| k[0]).collect()
    }

    #[test]
    fn what_comes_after_the_known_keys_is_not_kept_unless_all_are_known() {
        let mut top = Top { keys: vec![[5].into()], complete: false };
        top.insert(&[7]);
        assert_eq!(keys(&top), [5]);
        top.insert(&[3]);
        assert_eq!(keys(&top), [3, 5]);
        top.remove(&[7]);
        top.remove(&[3]);
        top.remove(&[5]);
        assert!(top.is_lost());
        // It stays lost until the next values are read: there may be others before this one.
        top.insert(&[9]);
        assert!(top.is_lost());
    }

    #[test]
    fn no_more_keys_are_kept_than_needed() {
        let mut top = Top::NONE;
        (0..TOP_MAX as u8 + 1).rev().for_each(|key| top.insert(&[key]));
        assert_eq!((top.keys.len(), top.complete, keys(&top)[0]), (TOP_MAX, false, 0));
        (0..TOP_MAX as u8).for_each(|key| top.remove(&[key]));
        assert!(top.is_lost());
    }
}
