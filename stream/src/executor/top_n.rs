//! The first rows of each partition in an order, with their rank if wanted.
//!
//! State     `rows`: every input row. Key: partition, order, the rest of the stream key.
//! Output    at a barrier, for each partition that changed, the difference between its window (the rows whose rank is
//!           wanted) and the one emitted before: deletes, then inserts.
//! Invariant what was emitted of a partition is its window as of the last barrier.
//!
//! ```text
//! partition ──► slot ──► rows in memory, by key:   window | spare ones      the rest: in the table only
//!                          │
//!                          └──► place in the arena, which holds the columns
//! ```
//!
//! Of a partition, memory holds its first rows up to a known key, at least as many as tell the window. A change behind
//! that key only goes to the table. If deletes leave too few, more are read at the barrier, for all such partitions at
//! once. While no delete has been seen, no spare rows are kept.

mod arena;
mod partition;
#[cfg(test)]
mod tests;
mod window;

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use weir_common::chunk::CHUNK_ROWS;
use weir_common::key::{KeyOrder, SortColumn, encode_keys};
use weir_common::row::ByteRows;
use weir_common::{Chunk, TableDef, TableId, Vnode, plan};
use weir_storage::{MemoryLimit, ScanRange, StateTable};

use crate::Result;
use crate::cache::{self, KeySlots, MemoryShare};
use crate::executor::Executor;
use crate::message::Output;
use arena::{Arena, At};
use partition::{Known, Partition, Ranked, Row};
use window::Window;

/// Rows kept beyond those that a window needs, besides half as many as it needs.
const SPARE_MIN: usize = 8;
/// Rows read at once, at most, of a partition of which all are needed.
const READ_MAX: usize = 1 << 16;
/// Differences of windows up to this size (old rows x new rows) are found without a hash table.
const NESTED_LOOP_MAX: usize = 1 << 10;

/// The table of all input rows.
pub fn table(
    input: &Schema,
    stream_key: &[usize],
    partition_by: &[usize],
    order_by: &[SortColumn],
    id: TableId,
) -> TableDef {
    let ascending = |column: &usize| SortColumn { column: *column, order: KeyOrder::ASC };
    let columns =
        partition_by.iter().map(ascending).chain(order_by.iter().copied()).chain(stream_key.iter().map(ascending));
    let mut key: Vec<SortColumn> = Vec::new();
    for column in columns {
        // A column that is there already is constant among the rows that it would order.
        if key.iter().all(|k| k.column != column.column) {
            key.push(column);
        }
    }
    let mut distribution: Vec<usize> = Vec::new();
    for column in partition_by {
        if !distribution.contains(column) {
            distribution.push(*column);
        }
    }
    TableDef { id, schema: Arc::new(input.clone()), key, distribution }
}

/// See the module.
pub struct TopN {
    window: Window,
    output: SchemaRef,
    emit_rank: bool,
    /// Columns of the partition, the order, and the whole key.
    partition_by: Vec<usize>,
    order_by: Vec<SortColumn>,
    key: Vec<usize>,
    rows: StateTable,
    slots: KeySlots,
    /// By slot.
    partitions: Vec<Partition>,
    arena: Arena,
    /// Slots of partitions changed in this epoch, in order of their first change. `flush` drains it.
    touched: Vec<u32>,
    /// Slots of partitions with changes to be merged. Empty between chunks.
    pending: Vec<u32>,
    /// Every row of the table belongs to a partition in memory. `None`: not known yet.
    complete: Option<bool>,
    /// A delete has been seen.
    retracting: bool,
    memory: MemoryShare,
}

/// The keys of rows: of the partition with its vnode, and of the row itself.
struct Keys {
    prefixes: ByteRows,
    full: ByteRows,
    /// See [`TopN::orders`].
    orders: Option<ByteRows>,
}

impl Keys {
    /// What orders and identifies row `i` in its partition.
    fn in_partition(&self, i: usize) -> &[u8] {
        &self.full.get(i)[self.prefixes.get(i).len()..]
    }

    fn order_len(&self, i: usize) -> u32 {
        self.orders.as_ref().map_or(0, |orders| orders.get(i).len() as u32)
    }
}

impl TopN {
    /// Over the table made by [`table`].
    pub fn new(
        plan: &plan::TopN,
        input: &SchemaRef,
        output: &SchemaRef,
        rows: StateTable,
        memory: Arc<MemoryLimit>,
    ) -> Result<TopN> {
        let key = rows.def().key_indices();
        let mut partition_by: Vec<usize> = Vec::new();
        for column in &plan.partition_by {
            if !partition_by.contains(column) {
                partition_by.push(*column);
            }
        }
        let ordered = |k: &&SortColumn| plan.order_by.iter().any(|o| o.column == k.column);
        let order_by = rows.def().key[partition_by.len()..].iter().take_while(ordered).copied().collect();
        Ok(TopN {
            window: Window::new(plan),
            output: output.clone(),
            emit_rank: plan.emit_rank,
            partition_by,
            order_by,
            key,
            rows,
            slots: KeySlots::new(),
            partitions: Vec::new(),
            arena: Arena::new(input.clone()),
            touched: Vec::new(),
            pending: Vec::new(),
            complete: None,
            retracting: false,
            memory: MemoryShare::new(memory),
        })
    }

    fn keys(&self, batch: &RecordBatch) -> Result<Keys> {
        let columns = |indices: &[usize]| indices.iter().map(|i| batch.column(*i).clone()).collect::<Vec<_>>();
        let prefixes = if self.partition_by.is_empty() {
            // One partition, in vnode 0.
            std::iter::repeat_n(&[0, 0][..], batch.num_rows()).collect()
        } else {
            self.rows.prefixes(&columns(&self.partition_by))?
        };
        Ok(Keys { prefixes, full: self.rows.keys(&columns(&self.key))?, orders: self.orders(batch)? })
    }

    /// The keys of the order alone, where ties matter.
    fn orders(&self, batch: &RecordBatch) -> Result<Option<ByteRows>> {
        if self.window.counts_rows() || self.order_by.is_empty() {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> = self.order_by.iter().map(|o| batch.column(o.column).clone()).collect();
        let orders: Vec<KeyOrder> = self.order_by.iter().map(|o| o.order).collect();
        Ok(Some(encode_keys(&columns, &orders)?))
    }

    /// The partition of each row. Reads those that are not in memory.
    async fn resolve(&mut self, keys: &Keys) -> Result<Vec<u32>> {
        let complete = match self.complete {
            Some(complete) => complete,
            None => self.is_table_empty().await?,
        };
        self.complete = Some(complete);
        let slots = self.slots.slots(keys.prefixes.iter());
        let known = self.partitions.len()..self.slots.len();
        self.partitions
            .extend(known.clone().map(|_| Partition::new(if complete { Known::All } else { Known::Nothing })));
        if !complete {
            self.fill(known.map(|slot| slot as u32).collect()).await?;
        }
        Ok(slots)
    }

    async fn is_table_empty(&mut self) -> Result<bool> {
        let vnode = |v: Vnode| ScanRange { limit: 1, ..ScanRange::prefix(&u16::from(v.0).to_be_bytes()) };
        let vnodes: Vec<ScanRange> = self.rows.vnodes().iter().map(vnode).collect();
        Ok(self.rows.scan(&vnodes).await?.rows.num_rows() == 0)
    }

    /// Reads on in these partitions until each tells its window.
    async fn fill(&mut self, mut slots: Vec<u32>) -> Result<()> {
        let mut limit = self.window.last().map_or(READ_MAX, |last| (last + self.spare()).clamp(1, READ_MAX));
        loop {
            slots.retain(|slot| !self.partitions[*slot as usize].covers(&self.window));
            if slots.is_empty() {
                return Ok(());
            }
            let ranges: Vec<_> = slots.iter().map(|slot| self.rest_of(*slot, limit)).collect();
            let scanned = self.rows.scan(&ranges).await?;
            let segment = self.arena.next_segment();
            let orders = self.orders(&scanned.rows)?;
            let mut row = 0;
            for (range, slot) in slots.iter().enumerate() {
                let prefix = self.slots.key(*slot).len();
                let end = row + scanned.range[row..].partition_point(|r| *r as usize <= range);
                let rows = (row..end).map(|i| Row {
                    key: Box::from(&scanned.keys.get(i)[prefix..]),
                    order_len: orders.as_ref().map_or(0, |o| o.get(i).len() as u32),
                    at: At { segment, row: i as u32 },
                });
                self.partitions[*slot as usize].extend(rows, end - row < limit);
                row = end;
            }
            self.arena.push(scanned.rows);
            // Ties may be many; reading twice as much each time, all are soon there.
            limit = limit.saturating_mul(2).min(READ_MAX.max(limit));
        }
    }

    /// The rows of a partition that are not in memory.
    fn rest_of(&self, slot: u32, limit: usize) -> ScanRange {
        let prefix = self.slots.key(slot);
        let range = ScanRange { limit, ..ScanRange::prefix(prefix) };
        match self.partitions[slot as usize].known() {
            Known::UpTo(key) => ScanRange { start: Bound::Excluded([prefix, key].concat()), ..range },
            Known::Nothing | Known::All => range,
        }
    }

    /// How many rows to keep beyond those that tell the window.
    fn spare(&self) -> usize {
        match self.window.last() {
            Some(last) if self.retracting => (last / 2).saturating_add(SPARE_MIN),
            _ => 0,
        }
    }

    /// Applies the changes to the rows in memory.
    fn change(&mut self, chunk: &Chunk, keys: &Keys, slots: &[u32]) -> Result<()> {
        let segment = self.arena.next_segment();
        let spare = self.spare();
        let mut kept: Vec<u32> = Vec::new();
        for (row, slot) in slots.iter().enumerate() {
            let partition = &mut self.partitions[*slot as usize];
            let key = keys.in_partition(row);
            if !partition.knows(key) {
                continue;
            }
            if partition.emitted.is_none() {
                partition.emitted = Some(self.window.of(partition.rows()));
                self.touched.push(*slot);
            }
            let was_pending = partition.is_pending();
            if chunk.sign(row) > 0 {
                let at = At { segment, row: kept.len() as u32 };
                partition.insert(key, keys.order_len(row), at);
                kept.push(row as u32);
                if self.window.counts_rows() && !partition.is_pending() {
                    partition.trim(&self.window, spare);
                }
            } else {
                partition.remove(key);
            }
            if partition.is_pending() && !was_pending {
                self.pending.push(*slot);
            }
        }
        for slot in self.pending.drain(..) {
            self.partitions[slot as usize].merge();
        }
        if !kept.is_empty() {
            let all = kept.len() == chunk.len();
            let batch = chunk.batch();
            self.arena.push(if all { batch.clone() } else { take_record_batch(batch, &UInt32Array::from(kept))? });
        }
        Ok(())
    }

    /// The changes of all windows in this epoch: rows and signs.
    fn drain_changes(&mut self) -> (Vec<Ranked>, Vec<i8>) {
        let (mut rows, mut signs) = (Vec::new(), Vec::new());
        let spare = self.spare();
        for slot in self.touched.drain(..) {
            let partition = &mut self.partitions[slot as usize];
            let old = partition.emitted.take().unwrap_or_default();
            let new = self.window.of(partition.rows());
            difference(&old, &new, &mut rows);
            signs.resize(rows.len(), -1);
            difference(&new, &old, &mut rows);
            signs.resize(rows.len(), 1);
            partition.trim(&self.window, spare);
        }
        (rows, signs)
    }

    fn chunk(&self, rows: &[Ranked], signs: &[i8]) -> Result<Chunk> {
        let places: Vec<At> = rows.iter().map(|r| r.at).collect();
        let mut columns = self.arena.gather(&places)?;
        if self.emit_rank {
            columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.rank))) as ArrayRef);
        }
        Ok(Chunk::new(RecordBatch::try_new(self.output.clone(), columns)?, signs.to_vec()))
    }

    /// Gives up memory: of partitions when there is too little of it, and of rows that no partition holds any more.
    fn shrink(&mut self) -> Result<()> {
        let pressure = self.memory.pressure();
        if pressure > 0.0 {
            self.complete = Some(false);
            self.retain(&self.slots.survivors(pressure));
        }
        if self.arena.is_due() || pressure > 0.0 {
            let used: Vec<u32> =
                (0..self.partitions.len() as u32).filter(|s| !self.partitions[*s as usize].is_empty()).collect();
            if used.len() < self.partitions.len() / 2 {
                self.retain(&used);
            }
            self.arena.compact(self.partitions.iter_mut().flat_map(Partition::places))?;
        }
        self.slots.tick();
        let bytes = self.arena.bytes() + self.slots.bytes() + cache::estimate(&self.partitions, Partition::bytes);
        self.memory.set(bytes);
        Ok(())
    }

    /// Forgets the other partitions.
    fn retain(&mut self, slots: &[u32]) {
        self.slots.retain(slots);
        cache::retain(&mut self.partitions, slots);
    }
}

/// Appends the rows of `from` that are not in `other`. Both are in the order of the partition.
fn difference(from: &[Ranked], other: &[Ranked], out: &mut Vec<Ranked>) {
    let same = from.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (from, other) = (&from[same..], &other[same..]);
    let same = from.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (from, other) = (&from[..from.len() - same], &other[..other.len() - same]);
    if from.len() * other.len() <= NESTED_LOOP_MAX {
        out.extend(from.iter().filter(|row| !other.contains(row)));
    } else {
        let other: HashSet<&Ranked> = other.iter().collect();
        out.extend(from.iter().filter(|row| !other.contains(row)));
    }
}

impl Executor for TopN {
    async fn apply(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<()> {
        self.retracting |= !chunk.is_append_only();
        let keys = self.keys(chunk.batch())?;
        // Before the changes are written, so that what is read of a partition is what was emitted of it.
        let slots = self.resolve(&keys).await?;
        self.rows.write(&chunk)?;
        self.change(&chunk, &keys, &slots)
    }

    async fn flush(&mut self, out: &mut Output) -> Result<()> {
        self.fill(self.touched.clone()).await?;
        let (rows, signs) = self.drain_changes();
        for (rows, signs) in rows.chunks(CHUNK_ROWS).zip(signs.chunks(CHUNK_ROWS)) {
            out.push(self.chunk(rows, signs)?).await?;
        }
        self.shrink()
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![&mut self.rows]
    }
}
