//! Calls with DISTINCT on the same arguments: an accumulator each, which sees a value when it comes into a group and when
//! it leaves it.

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Schema;
use weir_common::Chunk;
use weir_common::key::is_exact;
use weir_common::plan::{AggCall, AggFunction};
use weir_common::row::ByteRows;
use weir_storage::StateTable;

use super::accumulator::{Accumulator, Rows, primitive};
use super::groups::Groups;
use super::layout::arg_types;
use super::value_key::ValueKey;
use super::values::CountedValues;
use crate::Result;

/// The calls that share a values table.
pub(super) struct DistinctSet {
    args: Vec<usize>,
    key: ValueKey,
    pub values: CountedValues,
    pub members: Vec<Member>,
    /// Equal arguments may differ, so accumulators are given what the key makes of them.
    canonical: bool,
}

/// One of them.
pub(super) struct Member {
    filter: Option<usize>,
    /// `count` needs no values, only to be told how many.
    counts_only: bool,
    pub accumulator: Box<dyn Accumulator>,
}

impl DistinctSet {
    /// The set whose first member is this call, before it has members.
    pub fn new(call: &AggCall, input: &Schema, table: StateTable) -> DistinctSet {
        let canonical = !arg_types(call, input).iter().all(is_exact);
        let args = call.args.clone();
        DistinctSet {
            args,
            key: ValueKey::new(call, input),
            values: CountedValues::new(table),
            members: Vec::new(),
            canonical,
        }
    }

    /// Adds the next call with the same arguments.
    pub fn join(&mut self, call: &AggCall, accumulator: Box<dyn Accumulator>) {
        let counts_only = call.function == AggFunction::Count;
        self.members.push(Member { filter: call.filter, counts_only, accumulator });
    }

    /// Takes changes: row `i` of the chunk is in group `slots[i]`.
    pub async fn add(&mut self, chunk: &Chunk, slots: &[u32], groups: &Groups) -> Result<()> {
        let rows = self.rows(chunk);
        if rows.is_empty() {
            return Ok(());
        }
        let all = rows.len() == chunk.len();
        let rows = UInt32Array::from(rows);
        let selected = if all { chunk.clone() } else { chunk.take(&rows)? };
        let suffixes = self.key.encode(selected.batch())?;
        let mut keys = ByteRows::with_capacity(rows.len(), 2 * suffixes.bytes());
        for (row, suffix) in rows.values().iter().zip(suffixes.iter()) {
            keys.push_joined(groups.key(slots[*row as usize]), suffix);
        }
        let values = self.values.resolve(&keys).await?;
        let args = self.arguments(&selected, &suffixes)?;
        for (i, member) in self.members.iter_mut().enumerate() {
            let filter = member.filter.map(|f| primitive::<BooleanArray>(selected.column(f)));
            let (mut turned, mut signs, mut turned_groups) = (Vec::new(), Vec::new(), Vec::new());
            for (row, value) in values.iter().enumerate() {
                if filter.is_some_and(|f| f.is_null(row) || !f.value(row)) {
                    continue;
                }
                let turn = self.values.count(i, *value, selected.sign(row));
                if turn != 0 {
                    turned.push(row as u32);
                    signs.push(turn);
                    turned_groups.push(slots[rows.value(row) as usize]);
                }
            }
            if turned.is_empty() {
                continue;
            }
            let args = if member.counts_only {
                Vec::new()
            } else {
                let turned = UInt32Array::from(turned);
                args.iter().map(|arg| Ok(take(arg, &turned, None)?)).collect::<Result<_>>()?
            };
            member.accumulator.add(&Rows { groups: &turned_groups, signs: Some(&signs), args });
        }
        Ok(())
    }

    /// Rows of the chunk whose arguments are all not null and that a member counts.
    fn rows(&self, chunk: &Chunk) -> Vec<u32> {
        let nulls: Vec<_> = self.args.iter().filter_map(|arg| chunk.column(*arg).logical_nulls()).collect();
        let filters: Option<Vec<&BooleanArray>> =
            self.members.iter().map(|m| m.filter.map(|f| primitive(chunk.column(f)))).collect();
        let counted = |row: &u32| {
            let row = *row as usize;
            nulls.iter().all(|n| n.is_valid(row))
                && filters.as_ref().is_none_or(|all| all.iter().any(|f| f.is_valid(row) && f.value(row)))
        };
        (0..chunk.len() as u32).filter(counted).collect()
    }

    /// The arguments as the accumulators get them.
    fn arguments(&self, selected: &Chunk, suffixes: &ByteRows) -> Result<Vec<ArrayRef>> {
        if self.members.iter().all(|m| m.counts_only) {
            return Ok(Vec::new());
        }
        if !self.canonical {
            return Ok(selected.columns(&self.args));
        }
        (0..self.args.len()).map(|arg| self.key.decode(suffixes.iter(), arg)).collect()
    }
}
