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
    trues: Vec<i64>,
    values: Vec<i64>,
}

impl Booleans {
    /// `bool_and`.
    pub fn all() -> Booleans {
        Booleans { all: true, trues: Vec::new(), values: Vec::new() }
    }

    /// `bool_or`.
    pub fn any() -> Booleans {
        Booleans { all: false, trues: Vec::new(), values: Vec::new() }
    }

    fn result(&self, slot: u32) -> Option<bool> {
        let (trues, values) = (self.trues[slot as usize], self.values[slot as usize]);
        (values != 0).then_some(if self.all { trues == values } else { trues != 0 })
    }
}

impl GroupState for Booleans {
    fn fields(&self) -> Vec<StateField> {
        vec![("trues", DataType::Int64), ("values", DataType::Int64)]
    }

    fn grow(&mut self, slots: usize) {
        self.trues.resize(slots, 0);
        self.values.resize(slots, 0);
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        load_i64(&mut self.trues, slots, &columns[0]);
        load_i64(&mut self.values, slots, &columns[1]);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![store_i64(&self.trues, slots), store_i64(&self.values, slots)])
    }

    fn results(&self, slots: &[u32], _errors: &mut u64) -> Result<ArrayRef> {
        Ok(Arc::new(slots.iter().map(|s| self.result(*s)).collect::<BooleanArray>()))
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.trues, keep);
        cache::retain(&mut self.values, keep);
    }

    fn bytes(&self) -> usize {
        (self.trues.capacity() + self.values.capacity()) * size_of::<i64>()
    }
}

impl Accumulator for Booleans {
    fn add(&mut self, rows: &Rows<'_>) {
        let arg = primitive::<BooleanArray>(&rows.args[0]);
        let (trues, values) = (&mut self.trues, &mut self.values);
        rows.each(arg.nulls(), |i, group, sign| {
            trues[group] += sign * i64::from(arg.value(i));
            values[group] += sign;
        });
    }
}
