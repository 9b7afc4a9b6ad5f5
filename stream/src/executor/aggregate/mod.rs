//! One row per group: the group columns, then the results of aggregate functions.
//!
//! State     `groups`: group columns → count of rows and the state of each call. One row per group that exists.
//!           `values`, for the calls that need it: how often each value is in each group.
//!           [`layout`] says what is in both.
//! Output    at a barrier, one change per group that looks different from what is downstream: a delete of the old row, an
//!           insert of the new one, or both.
//! Invariant a group without rows has no row here and none downstream. Without group columns there is one group, which
//!           always has a row.
//!
//! A group has a slot while it is in memory, and every call keeps a column with a value per slot, so a chunk is worked on
//! as columns: its groups are resolved to slots, then each call adds its arguments in one loop over one type.
//!
//! ```text
//!                   ┌─ accumulators (counts, sums, …)         in the groups row alone
//! chunk ─► groups ──┼─ distinct ─► accumulators               values: which values the accumulators have seen
//!           slots   ├─ first (min, max, …)                    values: what comes next when the first leaves
//!                   └─ collected (string_agg, array_agg)      values: all there is
//! ```
//!
//! What is downstream of a group is computed from its state before its first change in an epoch. That needs no copy of
//! the results beside the state, because results are functions of the state: no sum drifts (see [`exact`]).

mod accumulator;
mod booleans;
mod collected;
mod distinct;
mod emit;
mod exact;
mod first;
mod float_sums;
mod groups;
mod interval_sums;
mod layout;
mod peaks;
mod sums;
#[cfg(test)]
mod tests;
mod value_key;
mod values;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::take_arrays;
use arrow::datatypes::SchemaRef;
use weir_common::Chunk;
use weir_common::chunk::CHUNK_ROWS;
use weir_common::plan::{self, AggCall};
use weir_common::row::ByteRows;
use weir_storage::{MemoryLimit, StateTable};

use self::accumulator::{Accumulator, GroupState, Rows, plain, primitive};
use self::collected::Collected;
use self::distinct::DistinctSet;
use self::emit::Changes;
use self::first::First;
use self::groups::Groups;
use self::layout::{Family, arg_types, families};
use super::Executor;
use crate::Result;
use crate::cache::MemoryShare;
use crate::error::StreamError;
use crate::expr::ErrorCounter;
use crate::message::Output;

pub use self::layout::{output_type, tables};

/// Why a result is NULL that is none.
const TOO_LARGE: &str = "value out of range: the result of an aggregate function";

/// See the module.
pub struct Aggregate {
    group_by: Vec<usize>,
    output: SchemaRef,
    groups: Groups,
    calls: Vec<Call>,
    distinct: Vec<DistinctSet>,
    memory: MemoryShare,
    /// Where results are counted that have no room in their type.
    errors: Arc<ErrorCounter>,
}

/// One aggregate function.
struct Call {
    args: Vec<usize>,
    filter: Option<usize>,
    state: State,
    /// The results of groups touched in this epoch as they are downstream, in the order of the groups.
    old: Vec<ArrayRef>,
}

enum State {
    /// `count(*)`: the group's count.
    Rows,
    Plain(Box<dyn Accumulator>),
    /// In [`Aggregate::distinct`]: the set, and the member of it.
    Distinct(usize, usize),
    First(Box<First>),
    Collected(Box<Collected>),
}

impl Aggregate {
    /// The executor of a plan on its tables: that of the groups, and for each call one of its values where it has one.
    pub fn new(
        plan: &plan::Aggregate,
        input: &SchemaRef,
        output: &SchemaRef,
        groups: StateTable,
        values: Vec<Option<StateTable>>,
        memory: Arc<MemoryLimit>,
    ) -> Result<Aggregate> {
        let mut distinct: Vec<DistinctSet> = Vec::new();
        // The distinct set that each call leads.
        let mut sets = vec![None; plan.calls.len()];
        let mut calls = Vec::with_capacity(plan.calls.len());
        let families = families(&plan.calls, input, plan.append_only);
        for (i, ((call, family), values)) in plan.calls.iter().zip(families).zip(values).enumerate() {
            let no_table = || StreamError::Plan("an aggregate function that keeps values has a table for them");
            let state = match family {
                Family::Rows => State::Rows,
                Family::Plain => State::Plain(accumulator_of(call, input)?),
                Family::Distinct { leader, member } => {
                    if leader == i {
                        sets[i] = Some(distinct.len());
                        distinct.push(DistinctSet::new(call, input, values.ok_or_else(no_table)?));
                    }
                    let set = sets[leader].expect("the leader of a set comes before its other members");
                    distinct[set].join(call, accumulator_of(call, input)?);
                    State::Distinct(set, member)
                }
                Family::First if plan.append_only => State::First(Box::new(First::new(call, input, None))),
                Family::First => State::First(Box::new(First::new(call, input, Some(values.ok_or_else(no_table)?)))),
                Family::Collected => {
                    State::Collected(Box::new(Collected::new(call, input, values.ok_or_else(no_table)?)?))
                }
            };
            calls.push(Call { args: call.args.clone(), filter: call.filter, state, old: Vec::new() });
        }
        let (group_by, output, memory) = (plan.group_by.clone(), Arc::clone(output), MemoryShare::new(memory));
        Ok(Aggregate { group_by, output, groups: Groups::new(groups), calls, distinct, memory, errors: Arc::default() })
    }

    /// Counts results there that have no room in their type.
    pub fn counting(self, errors: Arc<ErrorCounter>) -> Aggregate {
        Aggregate { errors, ..self }
    }

    /// The groups of rows, with their state in memory.
    async fn resolve(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let touched = self.groups.resolve(columns, rows).await?;
        let mut next = self.groups.columns() + 1;
        for call in &mut self.calls {
            let Some(state) = call.state.of_groups_mut(&mut self.distinct) else { continue };
            state.grow(touched.len);
            let fields = state.fields().len();
            if let Some(rows) = &touched.rows {
                state.load(&touched.found, &rows.columns()[next..next + fields])?;
            }
            next += fields;
        }
        Ok(touched.slots)
    }

    /// Marks the groups of rows as changed, and notes what is downstream of those that were not yet.
    fn touch(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let existing = self.groups.touch(slots, columns)?;
        if existing.is_empty() {
            return Ok(());
        }
        for call in &mut self.calls {
            let old = call.state.results(&existing, &self.groups, &self.distinct, &mut 0)?;
            call.old.push(old);
        }
        Ok(())
    }

    /// Ends the epoch for the groups that changed: emits what is different downstream, and writes their state.
    async fn leave(&mut self, dirty: &[u32], out: &mut Output) -> Result<()> {
        let mut olds = Vec::with_capacity(self.calls.len());
        for call in &mut self.calls {
            olds.push(emit::concat(std::mem::take(&mut call.old))?);
        }
        let mut offset = 0;
        for slots in dirty.chunks(CHUNK_ROWS) {
            let keys = self.groups.group_columns(slots)?;
            let mut new = keys.clone();
            for call in &self.calls {
                let mut errors = 0;
                new.push(call.state.results(slots, &self.groups, &self.distinct, &mut errors)?);
                (0..errors).for_each(|_| self.errors.add(TOO_LARGE.to_owned()));
            }
            let existed: Vec<bool> = slots.iter().map(|slot| self.groups.existed(*slot)).collect();
            let alive: Vec<bool> = slots.iter().map(|slot| self.groups.is_alive(*slot)).collect();
            let count = existed.iter().filter(|e| **e).count();
            let old = olds.iter().map(|old| old.as_ref().map(|old| old.slice(offset, count))).collect();
            offset += count;
            let changes = Changes { group_columns: keys.len(), new, old, existed, alive };
            out.push(changes.chunk(&self.output)?).await?;
            self.write(slots, keys)?;
        }
        Ok(())
    }

    /// Writes the state of these groups, which have these group columns.
    fn write(&mut self, slots: &[u32], keys: Vec<ArrayRef>) -> Result<()> {
        let (mut deleted, mut rows, mut written) = (ByteRows::new(), Vec::new(), Vec::with_capacity(slots.len()));
        for (row, slot) in slots.iter().enumerate() {
            let alive = self.groups.is_alive(*slot);
            if alive {
                written.push(*slot);
                rows.push(row as u32);
            } else if self.groups.existed(*slot) {
                deleted.push(self.groups.key(*slot));
            }
            self.groups.set_exists(*slot, alive);
        }
        if !deleted.is_empty() {
            self.groups.table_mut().delete(&deleted);
        }
        if written.is_empty() {
            return Ok(());
        }
        let mut columns =
            if rows.len() == slots.len() { keys } else { take_arrays(&keys, &UInt32Array::from(rows), None)? };
        columns.push(self.groups.counts(&written));
        for call in &self.calls {
            if let Some(state) = call.state.of_groups(&self.distinct) {
                columns.extend(state.store(&written)?);
            }
        }
        let schema = Arc::clone(&self.groups.table().def().schema);
        let rows = RecordBatch::try_new(schema, columns)?;
        self.groups.table_mut().write(&Chunk::inserts(rows))?;
        Ok(())
    }

    /// Forgets groups that are gone, and as much as is asked for when memory is short.
    fn forget(&mut self) {
        self.memory.set(self.bytes());
        let pressure = self.memory.pressure();
        let keep = if pressure > 0.0 { Some(self.groups.evict(pressure)) } else { self.groups.compact() };
        let Some(keep) = keep else { return };
        for call in &mut self.calls {
            if let Some(state) = call.state.of_groups_mut(&mut self.distinct) {
                state.retain(&keep);
            }
            if pressure > 0.0 {
                match &mut call.state {
                    State::First(first) => first.values.iter_mut().for_each(|values| values.evict(pressure)),
                    State::Collected(collected) => collected.values.evict(pressure),
                    State::Rows | State::Plain(_) | State::Distinct(..) => {}
                }
            }
        }
        if pressure > 0.0 {
            self.distinct.iter_mut().for_each(|set| set.values.evict(pressure));
        }
        self.memory.set(self.bytes());
    }

    fn bytes(&self) -> usize {
        let calls = self.calls.iter().filter_map(|call| call.state.of_groups(&self.distinct));
        let calls = calls.map(GroupState::bytes).sum::<usize>();
        self.groups.bytes() + calls + self.distinct.iter().map(|set| set.values.bytes()).sum::<usize>()
    }
}

fn accumulator_of(call: &AggCall, input: &SchemaRef) -> Result<Box<dyn Accumulator>> {
    plain(call, &arg_types(call, input))
        .ok_or(StreamError::Plan("an aggregate function takes the types it is called with"))
}

impl State {
    /// What it keeps in the groups table.
    fn of_groups<'a>(&'a self, distinct: &'a [DistinctSet]) -> Option<&'a dyn GroupState> {
        match self {
            State::Rows => None,
            State::Plain(accumulator) => Some(&**accumulator),
            State::Distinct(set, member) => Some(&*distinct[*set].members[*member].accumulator),
            State::First(first) => Some(&**first),
            State::Collected(collected) => Some(&**collected),
        }
    }

    fn of_groups_mut<'a>(&'a mut self, distinct: &'a mut [DistinctSet]) -> Option<&'a mut dyn GroupState> {
        match self {
            State::Rows => None,
            State::Plain(accumulator) => Some(&mut **accumulator),
            State::Distinct(set, member) => Some(&mut *distinct[*set].members[*member].accumulator),
            State::First(first) => Some(&mut **first),
            State::Collected(collected) => Some(&mut **collected),
        }
    }

    fn results(&self, slots: &[u32], groups: &Groups, distinct: &[DistinctSet], errors: &mut u64) -> Result<ArrayRef> {
        match self.of_groups(distinct) {
            Some(state) => state.results(slots, errors),
            None => Ok(groups.counts(slots)),
        }
    }
}

impl Call {
    /// Takes changes: row `i` of the chunk is in group `slots[i]`. Calls with DISTINCT take theirs through their set.
    async fn add(&mut self, chunk: &Chunk, slots: &[u32], groups: &Groups) -> Result<()> {
        if let State::Rows | State::Distinct(..) = self.state {
            return Ok(());
        }
        let Some(filter) = self.filter else { return self.add_selected(chunk, slots, groups).await };
        let filter = primitive::<BooleanArray>(chunk.column(filter));
        let rows: UInt32Array =
            (0..filter.len()).filter(|row| filter.is_valid(*row) && filter.value(*row)).map(|row| row as u32).collect();
        if rows.is_empty() {
            return Ok(());
        }
        if rows.len() == chunk.len() {
            return self.add_selected(chunk, slots, groups).await;
        }
        let slots: Vec<u32> = rows.values().iter().map(|row| slots[*row as usize]).collect();
        self.add_selected(&chunk.take(&rows)?, &slots, groups).await
    }

    async fn add_selected(&mut self, chunk: &Chunk, slots: &[u32], groups: &Groups) -> Result<()> {
        match &mut self.state {
            State::Rows | State::Distinct(..) => Ok(()),
            State::Plain(accumulator) => {
                accumulator.add(&Rows { groups: slots, signs: chunk.signs(), args: chunk.columns(&self.args) });
                Ok(())
            }
            State::First(first) => first.add(chunk, slots, groups).await,
            State::Collected(collected) => collected.add(chunk, slots, groups).await,
        }
    }
}

impl Executor for Aggregate {
    async fn apply(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<()> {
        let columns = chunk.columns(&self.group_by);
        let slots = self.resolve(&columns, chunk.len()).await?;
        self.touch(&slots, &columns)?;
        self.groups.count(&slots, &chunk);
        for call in &mut self.calls {
            call.add(&chunk, &slots, &self.groups).await?;
        }
        for set in &mut self.distinct {
            set.add(&chunk, &slots, &self.groups).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, out: &mut Output) -> Result<()> {
        if self.groups.is_single() {
            // The only group has a row even before it has rows.
            let slots = self.resolve(&[], 1).await?;
            if !self.groups.existed(slots[0]) {
                self.touch(&slots, &[])?;
            }
        }
        let dirty = self.groups.take_dirty();
        for call in &mut self.calls {
            match &mut call.state {
                State::First(first) => first.flush(&dirty, &self.groups).await?,
                State::Collected(collected) => collected.flush(&dirty, &self.groups).await?,
                State::Rows | State::Plain(_) | State::Distinct(..) => {}
            }
        }
        for set in &mut self.distinct {
            set.values.flush()?;
        }
        self.leave(&dirty, out).await?;
        self.forget();
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        let calls = self.calls.iter_mut().filter_map(|call| match &mut call.state {
            State::First(first) => first.values.as_mut().map(|values| values.table()),
            State::Collected(collected) => Some(collected.values.table()),
            State::Rows | State::Plain(_) | State::Distinct(..) => None,
        });
        let sets = self.distinct.iter_mut().map(|set| set.values.table());
        std::iter::once(self.groups.table_mut()).chain(calls).chain(sets).collect()
    }
}
