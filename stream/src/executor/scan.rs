//! Reads the relation of another job: first what exists (backfill), then its change log.
//!
//! State     `progress`: `vnode | position | finished | rows | offset`, one row per vnode.
//! Output    changes that build up the relation and then follow it.
//!
//! Backfill, in steps between two barriers, without a long-lived snapshot and without holding anybody up:
//!
//! ```text
//! 1. take a snapshot of the store; e = the input's frontier in it
//! 2. apply the log of (offset, e] to keys at or below the position of their vnode; drop the rest; offset = e
//! 3. read on from the snapshot in key order, past the positions, until the next barrier
//! 4. the barrier commits positions, offset and effects together
//! ```
//!
//! Invariant: at a barrier, what this reader has emitted adds up to the rows of the input at `offset` whose key is at or
//! below the position of their vnode. When every vnode is finished, that is the input at `offset`.
//!
//! A reader has one offset. When a job is given another number of actors while it backfills, vnodes of readers with
//! different offsets come together in one: it begins at the smallest, and leaves out what the others have applied.
//!
//! Once all readers of the job are finished, its barriers are *aligned*: then the reader emits, for barrier E, exactly the
//! log of (offset, E]. Its offset is the job's frontier from then on, so the table says `-1` and is not written any more.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int16Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int16Type, Int64Type, Schema, SchemaRef};
use weir_common::chunk::CHUNK_ROWS;
use weir_common::key::encode_keys;
use weir_common::{Chunk, Epoch, JobId, TableDef, TableId, Vnode, VnodeSet, plan};
use weir_storage::{LogChunk, ScanRange, Snapshot, StateTable, StorageError, Store};

use crate::Result;
use crate::backfill_order::BackfillOrder;
use crate::courtesy::Courtesy;
use crate::driver::{Backfill, Reader};
use crate::message::{Barrier, Output};
use crate::rate_limit::{Allowance, RateLimit};

/// The offset in `progress` of a reader that follows its input at the job's frontier.
const FOLLOWING: i64 = -1;

type Log = Box<dyn Iterator<Item = std::result::Result<LogChunk, StorageError>> + Send>;

/// See the module.
pub struct Scan {
    store: Arc<Store>,
    input: JobId,
    table: TableDef,
    columns: Vec<usize>,
    output: SchemaRef,
    vnodes: VnodeSet,
    progress: StateTable,
    positions: BTreeMap<Vnode, Position>,
    /// Changes up to here are applied.
    offset: Epoch,
    /// Vnodes that come from a reader with a greater offset, and that.
    ahead: BTreeMap<Vnode, Epoch>,
    /// Barriers are aligned.
    following: bool,
    /// The snapshot of this step.
    snapshot: Option<Snapshot>,
    /// The log of this step that is still to be applied, and the offset that it leads to.
    replay: Option<(Log, Epoch)>,
    /// Something was read from the snapshot since the last barrier.
    stepped: bool,
    /// The progress table does not say how far this is.
    unsaved: bool,
    allowance: Allowance,
    /// Relations that are read first.
    after: Vec<JobId>,
    order: BackfillOrder,
    courtesy: Arc<Courtesy>,
    /// When the last step began.
    begun: Option<Instant>,
    /// Others have been told that this reader has finished.
    told: bool,
}

/// How far a vnode has been read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Position {
    /// The greatest key that was read, memcomparable.
    key: Option<Vec<u8>>,
    finished: bool,
    rows: u64,
}

/// The table of a reader's progress.
pub fn progress_table(id: TableId) -> TableDef {
    let schema = Schema::new(vec![
        Field::new("vnode", DataType::Int16, false),
        Field::new("position", DataType::Binary, true),
        Field::new("finished", DataType::Boolean, false),
        Field::new("rows", DataType::Int64, false),
        Field::new("offset", DataType::Int64, false),
    ]);
    TableDef::ascending(id, schema, &[0], &[])
}

impl Scan {
    /// Continues where the progress table says. `frontier` is the frontier of the reading job.
    #[allow(clippy::too_many_arguments)]
    pub async fn open(
        plan: &plan::Scan,
        output: SchemaRef,
        store: Arc<Store>,
        vnodes: VnodeSet,
        mut progress: StateTable,
        frontier: Epoch,
        limit: RateLimit,
        order: BackfillOrder,
        courtesy: Arc<Courtesy>,
    ) -> Result<Scan> {
        let stored = progress.scan(&[ScanRange::prefix(&Vnode(0).prefix())]).await?.rows;
        let mut positions: BTreeMap<_, _> = vnodes.iter().map(|v| (v, Position::default())).collect();
        let mut offsets = BTreeMap::new();
        let mut following = false;
        for row in 0..stored.num_rows() {
            let vnode = Vnode(stored.column(0).as_primitive::<Int16Type>().value(row) as u8);
            let Some(position) = positions.get_mut(&vnode) else { continue };
            let keys = stored.column(1).as_binary::<i32>();
            position.key = keys.is_valid(row).then(|| keys.value(row).to_vec());
            position.finished = stored.column(2).as_boolean().value(row);
            position.rows = stored.column(3).as_primitive::<Int64Type>().value(row) as u64;
            match stored.column(4).as_primitive::<Int64Type>().value(row) {
                FOLLOWING => following = true,
                stored => drop(offsets.insert(vnode, Epoch(stored as u64))),
            }
        }
        let offset = if following { frontier } else { offsets.values().min().copied().unwrap_or(Epoch::ZERO) };
        offsets.retain(|_, ahead| *ahead > offset);
        // The log is complete after the frontier that the input has now.
        let skips = plan.from_now && stored.num_rows() == 0;
        if skips {
            positions.values_mut().for_each(|position| position.finished = true);
        }
        let offset = if skips { store.frontier(plan.job)?.unwrap_or(Epoch::ZERO) } else { offset };
        let mut scan = Scan {
            store,
            input: plan.job,
            table: plan.table.clone(),
            columns: plan.columns.clone(),
            output,
            vnodes,
            progress,
            positions,
            offset,
            ahead: offsets,
            following,
            snapshot: None,
            replay: None,
            stepped: false,
            unsaved: skips,
            allowance: Allowance::new(limit),
            after: plan.after.clone(),
            order,
            courtesy,
            begun: None,
            told: false,
        };
        scan.tell();
        Ok(scan)
    }

    /// Tells those that come after this reader when it has finished.
    fn tell(&mut self) {
        if !self.told && self.finished() {
            self.told = true;
            self.order.finished(self.input);
        }
    }

    /// Whether the offset is the job's frontier.
    pub fn following(&self) -> bool {
        self.following
    }

    fn finished(&self) -> bool {
        self.positions.values().all(|p| p.finished)
    }

    /// Begins a step: a snapshot, and the log that leads to it.
    fn begin_step(&mut self) -> Result<()> {
        let snapshot = self.store.snapshot();
        let frontier = snapshot.frontier(self.input)?.unwrap_or(Epoch::ZERO);
        if self.positions.values().all(|p| p.key.is_none() && !p.finished) {
            // Nothing was read yet, so no change concerns what was.
            self.offset = self.offset.max(frontier);
        }
        self.catch_up(frontier)?;
        self.snapshot = Some(snapshot);
        Ok(())
    }

    fn catch_up(&mut self, to: Epoch) -> Result<()> {
        if to > self.offset {
            let log = self.store.read_log(self.table.id, self.offset, to)?;
            self.replay = Some((Box::new(log), to));
        }
        Ok(())
    }

    /// The next changes of the log of this step, `None` when it is applied.
    fn replayed(&mut self) -> Result<Option<Chunk>> {
        while let Some((log, to)) = &mut self.replay {
            match log.next().transpose()? {
                Some(logged) => {
                    let chunk = self.concerned(&logged)?;
                    if !chunk.is_empty() {
                        return Ok(Some(chunk));
                    }
                }
                None => {
                    self.offset = *to;
                    self.unsaved = true;
                    self.replay = None;
                    self.ahead.retain(|_, ahead| *ahead > self.offset);
                }
            }
        }
        Ok(None)
    }

    /// The changes of own vnodes to keys that have been read.
    fn concerned(&self, logged: &LogChunk) -> Result<Chunk> {
        let chunk = &logged.chunk;
        if self.vnodes == VnodeSet::ALL && self.finished() && self.ahead.is_empty() {
            return self.project(chunk);
        }
        let keys = encode_keys(&chunk.columns(&self.table.key_indices()), &self.table.key_orders())?;
        let mask: BooleanArray = logged
            .vnodes
            .iter()
            .zip(keys.iter())
            .map(|(vnode, key)| {
                let vnode = Vnode(*vnode);
                let position = self.positions.get(&vnode);
                if self.ahead.get(&vnode).is_some_and(|ahead| logged.epoch <= *ahead) {
                    return Some(false);
                }
                Some(position.is_some_and(|p| p.finished || p.key.as_deref().is_some_and(|read| key <= read)))
            })
            .collect();
        self.project(&chunk.filter(&mask)?)
    }

    fn project(&self, chunk: &Chunk) -> Result<Chunk> {
        let columns = chunk.columns(&self.columns);
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(chunk.len()));
        Ok(chunk.with_batch(RecordBatch::try_new_with_options(self.output.clone(), columns, &options)?))
    }

    /// Reads on from the snapshot; `None` when every vnode is finished.
    fn step(&mut self, rows: usize) -> Result<Option<Chunk>> {
        let Some(snapshot) = self.snapshot.clone() else { return Ok(None) };
        while let Some((vnode, position)) = self.positions.iter_mut().find(|(_, p)| !p.finished) {
            let (batch, last) = snapshot.scan(&self.table, *vnode, position.key.as_deref(), rows)?;
            position.rows += batch.num_rows() as u64;
            match last {
                Some(key) => position.key = Some(key),
                None => position.finished = true,
            }
            self.stepped = true;
            self.unsaved = true;
            if position.finished {
                self.tell();
            }
            if batch.num_rows() > 0 {
                self.allowance.spend(batch.num_rows());
                return self.project(&Chunk::inserts(batch)).map(Some);
            }
        }
        Ok(None)
    }

    /// Emits the rest of the log of this step.
    async fn drain(&mut self, out: &mut Output) -> Result<()> {
        while let Some(chunk) = self.replayed()? {
            out.push(chunk).await?;
        }
        Ok(())
    }

    /// While other readers of the job are still behind: follow the input alone, one step a barrier.
    async fn finish_creating(&mut self, out: &mut Output) -> Result<()> {
        self.drain(out).await?;
        if !self.finished() && !self.stepped && self.order.are_finished(&self.after) {
            // Barriers that follow each other without a pause must not keep the backfill from going on.
            let allowed = self.allowance.allowed(CHUNK_ROWS);
            if allowed > 0 {
                self.begin_step()?;
                self.drain(out).await?;
                if let Some(chunk) = self.step(allowed)? {
                    out.push(chunk).await?;
                }
            }
        }
        if self.finished() {
            let frontier = self.store.frontier(self.input)?.unwrap_or(Epoch::ZERO);
            self.catch_up(frontier)?;
            self.drain(out).await?;
        }
        self.snapshot = None;
        self.stepped = false;
        // One that stands still makes its job write nothing.
        if !std::mem::take(&mut self.unsaved) {
            return Ok(());
        }
        self.save(|scan, vnode| scan.ahead.get(&vnode).map_or(scan.offset, |ahead| *ahead).0 as i64)
    }

    async fn finish_aligned(&mut self, epoch: Epoch, out: &mut Output) -> Result<()> {
        assert!(self.finished(), "barriers are aligned only after every backfill of the job");
        assert!(self.offset <= epoch, "an aligned barrier is not before the offset of a reader");
        self.drain(out).await?;
        self.catch_up(epoch)?;
        self.drain(out).await?;
        self.offset = epoch;
        if !self.following {
            self.following = true;
            self.save(|_, _| FOLLOWING)?;
        }
        Ok(())
    }

    /// Writes the positions of all vnodes: the offset, which is theirs too, moves with every step.
    fn save(&mut self, offset: impl Fn(&Scan, Vnode) -> i64) -> Result<()> {
        let rows: Vec<_> = self.positions.iter().map(|(v, p)| (*v, p.clone())).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int16Array::from_iter_values(rows.iter().map(|(v, _)| v.0 as i16))),
            Arc::new(BinaryArray::from_iter(rows.iter().map(|(_, p)| p.key.as_deref()))),
            Arc::new(BooleanArray::from_iter(rows.iter().map(|(_, p)| Some(p.finished)))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, p)| p.rows as i64))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|(vnode, _)| offset(self, *vnode)))),
        ];
        let batch = RecordBatch::try_new(self.progress.def().schema.clone(), columns)?;
        self.progress.write(&Chunk::inserts(batch))?;
        Ok(())
    }

    /// Applies the log first, then reads on; what there is now, without waiting.
    fn poll_step(&mut self, rows: usize) -> Result<ControlFlow<Chunk>> {
        if self.snapshot.is_none() {
            self.begin_step()?;
        }
        if let Some(chunk) = self.replayed()? {
            return Ok(ControlFlow::Break(chunk));
        }
        Ok(match self.step(rows)? {
            Some(chunk) => ControlFlow::Break(chunk),
            None => ControlFlow::Continue(()),
        })
    }
}

impl Reader for Scan {
    async fn next(&mut self) -> Result<Chunk> {
        while !self.finished() {
            self.order.wait_for(&self.after).await;
            self.store.uncommitted().room().await;
            if let Some(begun) = self.begun.take() {
                let rest = self.courtesy.rest_after(begun.elapsed());
                if !rest.is_zero() {
                    tokio::time::sleep(rest).await;
                }
            }
            let rows = self.allowance.wait(CHUNK_ROWS).await;
            self.begun = Some(Instant::now());
            if let ControlFlow::Break(chunk) = self.poll_step(rows)? {
                return Ok(chunk);
            }
        }
        std::future::pending().await
    }

    async fn finish(&mut self, barrier: Barrier, out: &mut Output) -> Result<()> {
        if barrier.aligned { self.finish_aligned(barrier.epoch, out).await } else { self.finish_creating(out).await }
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![&mut self.progress]
    }

    fn backfill(&self) -> Option<Backfill> {
        Some(Backfill {
            input: self.input,
            offset: self.offset,
            vnodes_finished: self.positions.values().filter(|p| p.finished).count(),
            vnodes: self.positions.len(),
            rows: self.positions.values().map(|p| p.rows).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicU64;

    use tokio::sync::mpsc;
    use weir_storage::JobCommit;

    use super::*;
    use crate::executor::check::open_store;
    use crate::message::Message;

    const INPUT: JobId = JobId(1);
    const READER: JobId = JobId(2);

    fn relation() -> TableDef {
        TableDef::ascending(TableId(1), Schema::new(vec![Field::new("k", DataType::Int64, false)]), &[0], &[0])
    }

    /// Inserts the rows of an epoch, `100 * epoch ..`, and logs them.
    fn commit(store: &Arc<Store>, epoch: u64) {
        let def = relation();
        let first = epoch as i64 * 100;
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 100));
        let chunk = Chunk::inserts(RecordBatch::try_new(def.schema.clone(), vec![keys.clone()]).unwrap());
        let vnodes = Vnode::of_columns(&[keys], 100).unwrap().iter().map(|v| v.0).collect();
        let mut table = StateTable::open(store.clone(), def, VnodeSet::ALL, Arc::new(AtomicU64::new(epoch - 1)));
        table.write(&chunk).unwrap();
        let epoch = Epoch(epoch);
        let log = vec![LogChunk { table: TableId(1), epoch, chunk, vnodes }];
        store.commit(JobCommit { job: INPUT, epoch, tables: vec![table.seal(epoch)], log }).unwrap();
    }

    async fn open(store: &Arc<Store>, vnodes: VnodeSet) -> Scan {
        let committed = Arc::new(AtomicU64::new(store.frontier(READER).unwrap().map_or(0, |f| f.0)));
        let table = progress_table(TableId(2));
        let progress = StateTable::open(store.clone(), table.clone(), VnodeSet::ALL, committed);
        let schema = relation().schema;
        let plan = plan::Scan {
            job: INPUT,
            table: relation(),
            columns: vec![0],
            append_only: true,
            from_now: false,
            after: vec![],
            progress: table,
        };
        let limit = RateLimit::new(None);
        let order = BackfillOrder::new(&plan::JobPlan {
            version: plan::PLAN_VERSION,
            fragments: vec![],
            relation: None,
            inputs: vec![],
            parallelism: 1,
        });
        Scan::open(&plan, schema, store.clone(), vnodes, progress, Epoch::ZERO, limit, order, Arc::default())
            .await
            .unwrap()
    }

    /// A barrier of a job that is being created. The keys that come out.
    async fn barrier(scan: &mut Scan) -> Vec<i64> {
        let (sender, mut receiver) = mpsc::channel(1000);
        let mut out = Output::edge(sender);
        scan.finish(Barrier { epoch: Epoch(9), aligned: false }, &mut out).await.unwrap();
        drop(out);
        let mut keys = Vec::new();
        while let Ok(Message::Chunk(chunk)) = receiver.try_recv() {
            keys.extend(chunk.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
        keys.sort_unstable();
        keys
    }

    fn save(store: &Arc<Store>, scans: &mut [Scan], epoch: u64) {
        let epoch = Epoch(epoch);
        let tables = scans.iter_mut().flat_map(|scan| scan.tables()).map(|table| table.seal(epoch)).collect();
        store.commit(JobCommit { job: READER, epoch, tables, log: vec![] }).unwrap();
    }

    #[tokio::test]
    async fn vnodes_of_readers_with_different_offsets_come_together() {
        let dir = tempfile::tempdir().unwrap();
        let store = open_store(&dir);
        commit(&store, 1);
        let mut readers = Vec::new();
        for vnodes in VnodeSet::split(2) {
            readers.push(open(&store, vnodes).await);
        }
        let mut seen = Vec::new();
        for reader in &mut readers {
            while !reader.finished() {
                seen.extend(barrier(reader).await);
            }
        }
        // One of them goes on to the next epoch before the job is stopped.
        commit(&store, 2);
        seen.extend(barrier(&mut readers[1]).await);
        assert!(readers[0].offset < readers[1].offset);
        save(&store, &mut readers, 1);
        commit(&store, 3);
        let mut one = [open(&store, VnodeSet::ALL).await];
        seen.extend(barrier(&mut one[0]).await);
        save(&store, &mut one, 2);
        // And apart again.
        commit(&store, 4);
        for vnodes in VnodeSet::split(3) {
            seen.extend(barrier(&mut open(&store, vnodes).await).await);
        }
        seen.sort_unstable();
        assert_eq!(seen, (100..500).collect::<Vec<i64>>());
    }
}
