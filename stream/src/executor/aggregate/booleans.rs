//! `bool_and` and `bool_or`: counted, so that a row can be taken back.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::DataType;

use super::accumulator::{Accumulator, GroupState, Rows, StateField, load_i64, primitive, store_i64};
use crate::Result;
use crate::cache;

/// How many values there are and how many of them are true.
pub(super) struct Booleans {
    all: bool,
    counts: Vec<Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    trues: i64,
    values: i64,
}

impl Booleans {
    /// `bool_and`.
    pub fn all() -> Booleans {
        Booleans { all: true, counts: Vec::new() }
    }

    /// `bool_or`.
    pub fn any() -> Booleans {
        Booleans { all: false, counts: Vec::new() }
    }

    fn result(&self, slot: u32) -> Option<bool> {
        let Counts { trues, values } = self.counts[slot as usize];
        (values != 0).then_some(if self.all { trues == values } else { trues != 0 })
    }
}

impl GroupState for Booleans {
    fn fields(&self) -> Vec<StateField> {
        vec![("trues", DataType::Int64), ("values", DataType::Int64)]
    }

    fn grow(&mut self, slots: usize) {
        self.counts.resize(slots, Counts::default());
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        load_i64(slots, &columns[0], |slot, trues| self.counts[slot].trues = trues);
        load_i64(slots, &columns[1], |slot, values| self.counts[slot].values = values);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let trues = store_i64(slots, |slot| self.counts[slot].trues);
        Ok(vec![trues, store_i64(slots, |slot| self.counts[slot].values)])
    }

    fn results(&self, slots: &[u32], _errors: &mut u64) -> Result<ArrayRef> {
        Ok(Arc::new(slots.iter().map(|s| self.result(*s)).collect::<BooleanArray>()))
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.counts, keep);
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<Counts>()
    }
}

impl Accumulator for Booleans {
    fn add(&mut self, rows: &Rows<'_>) {
        let arg = primitive::<BooleanArray>(&rows.args[0]);
        rows.each(arg.nulls(), |i, group, sign| {
            let counts = &mut self.counts[group];
            counts.trues += sign * i64::from(arg.value(i));
            counts.values += sign;
        });
    }
}
