//! The store of a process: commits, frontiers, change logs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{ColumnFamily, DB, Direction, IteratorMode, Range, WriteBatch, WriteOptions};
use weir_common::{Epoch, JobId, TableId};

use crate::buffer::Buffer;
use crate::change_log::{EpochEntry, LogChunk, LogIndex, LogReader, LogStats, Rest, encode_chunk};
use crate::error::StorageError;
use crate::layout::{
    CHANGELOG, FRONTIER, LOG_EPOCH, LOG_TRUNCATED, PROGRESS, STATE, after_prefix, frontier_key, log_epoch_key, log_key,
    log_truncated_key, read_u32, read_u64, table_end, table_start,
};
use crate::open::open;
use crate::snapshot::Snapshot;
use crate::tail::Tail;
use crate::uncommitted::Uncommitted;

/// Truncating more chunks than this at once takes a range delete. One for each truncation would be cheap to write, but
/// reads of the log would have to look at all of them.
const POINT_DELETES_MAX: usize = 1_000;

/// How to open a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Memory for blocks of files, decompressed, and for what is not in files yet.
    pub block_cache_bytes: usize,
    /// Memory for the newest chunks of change logs.
    pub tail_bytes: usize,
    /// Memory for what is written and not committed yet; see [`Uncommitted`].
    pub uncommitted_bytes: usize,
    /// What an actor may write to one table in one epoch; an epoch that needs more fails.
    pub epoch_bytes: usize,
    /// Whether a commit is on disk when it returns. Without, a crash of the machine (not of the process) may lose it.
    pub sync: bool,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            block_cache_bytes: 256 << 20,
            tail_bytes: 128 << 20,
            uncommitted_bytes: 128 << 20,
            epoch_bytes: 1 << 30,
            sync: true,
        }
    }
}

/// The writes of one actor to one state table in one epoch, ready to be committed.
#[derive(Clone, Debug)]
pub struct SealedTable {
    pub(crate) table: TableId,
    pub(crate) writes: Arc<Buffer>,
}

impl SealedTable {
    /// The table that was written to.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// How many rows were written or deleted.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the writes take in memory.
    pub fn bytes(&self) -> usize {
        self.writes.bytes()
    }
}

/// All that a job changed in an epoch.
#[derive(Clone, Debug)]
pub struct JobCommit {
    pub job: JobId,
    pub epoch: Epoch,
    pub tables: Vec<SealedTable>,
    /// The chunks of a table are in the order in which they happened. All are of this epoch.
    pub log: Vec<LogChunk>,
}

/// One RocksDB with the state of all jobs. See the crate's documentation.
pub struct Store {
    pub(crate) db: DB,
    sync: bool,
    pub(crate) epoch_bytes_max: usize,
    jobs: Mutex<HashMap<JobId, Arc<JobFrontier>>>,
    logs: Mutex<Logs>,
    uncommitted: Arc<Uncommitted>,
}

/// How far a job has committed.
#[derive(Default)]
struct JobFrontier {
    /// Held by a commit: of two for one job, the later one sees what the earlier one did. Those of different jobs go on
    /// side by side.
    commit: Mutex<()>,
    /// The newest committed epoch, 0 if there is none.
    epoch: AtomicU64,
}

impl JobFrontier {
    fn get(&self) -> Option<Epoch> {
        Some(Epoch(self.epoch.load(Ordering::Acquire))).filter(|epoch| *epoch != Epoch::ZERO)
    }

    fn set(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Release);
    }
}

/// The change logs, as far as they are in memory. An epoch is entered before it becomes visible on disk, so that whoever
/// sees a frontier finds all chunks up to it here.
struct Logs {
    index: LogIndex,
    tail: Tail,
}

impl Store {
    /// Opens the store in a directory, or makes a new one if the directory is empty or not there. Only one process can
    /// have it open.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Arc<Store>, StorageError> {
        let db = open(path, &options)?;
        let (frontiers, index) = load_progress(&db)?;
        let opened_at = frontiers.values().max().copied().unwrap_or(Epoch::ZERO);
        let mut jobs = HashMap::new();
        for (job, epoch) in frontiers {
            jobs.entry(job).or_insert_with(Arc::<JobFrontier>::default).set(epoch);
        }
        Ok(Arc::new(Store {
            db,
            sync: options.sync,
            epoch_bytes_max: options.epoch_bytes,
            jobs: Mutex::new(jobs),
            logs: Mutex::new(Logs { index, tail: Tail::new(options.tail_bytes, opened_at) }),
            uncommitted: Arc::new(Uncommitted::new(options.uncommitted_bytes)),
        }))
    }

    /// What is written and not committed yet.
    pub fn uncommitted(&self) -> &Arc<Uncommitted> {
        &self.uncommitted
    }

    /// One view of all jobs, each at the frontier it has now.
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        Snapshot::new(self.clone())
    }

    /// Makes all changes of a job's epoch durable and visible at once, and moves the frontier of the job, even if there
    /// are no changes. Blocks.
    ///
    /// Panics when the epoch is zero, or a chunk of the log is of another epoch.
    pub fn commit(&self, commit: JobCommit) -> Result<(), StorageError> {
        let JobCommit { job, epoch, tables, log } = commit;
        assert_ne!(epoch, Epoch::ZERO, "epoch zero is before everything that is committed");
        let known = locked(&self.jobs).entry(job).or_default().clone();
        let _commit = locked(&known.commit);
        if let Some(frontier) = known.get().filter(|f| epoch <= *f) {
            return Err(StorageError::Fenced { job, epoch, frontier });
        }
        fail::fail_point!("storage::commit::before", |_| std::process::abort());
        let mut batch = WriteBatch::default();
        for sealed in &tables {
            self.add_writes(&mut batch, sealed);
        }
        batch.put_cf(self.progress(), frontier_key(job), epoch.0.to_be_bytes());
        let log = by_table(log, epoch);
        let entries = self.add_log(&mut batch, epoch, &log)?;

        let logged: Vec<_> = log.keys().copied().collect();
        locked(&self.logs).enter(epoch, log, &entries);
        if let Err(source) = self.write(batch) {
            locked(&self.logs).withdraw(epoch, &logged);
            return Err(StorageError::Commit { job, epoch, source });
        }
        known.set(epoch);
        fail::fail_point!("storage::commit::after", |_| std::process::abort());
        Ok(())
    }

    fn add_writes(&self, batch: &mut WriteBatch, sealed: &SealedTable) {
        let mut key = table_start(sealed.table);
        let prefix = key.len();
        for (rest, value) in sealed.writes.iter() {
            key.truncate(prefix);
            key.extend_from_slice(rest);
            match value {
                Some(value) => batch.put_cf(self.state(), &key, value),
                None => batch.delete_cf(self.state(), &key),
            }
        }
    }

    fn add_log(
        &self,
        batch: &mut WriteBatch,
        epoch: Epoch,
        log: &BTreeMap<TableId, Vec<LogChunk>>,
    ) -> Result<Vec<(TableId, EpochEntry)>, StorageError> {
        let mut entries = Vec::with_capacity(log.len());
        for (table, chunks) in log {
            let mut entry = EpochEntry::default();
            for chunk in chunks {
                let bytes = encode_chunk(chunk).map_err(|source| StorageError::LogChunk { table: *table, source })?;
                batch.put_cf(self.changelog(), log_key(*table, epoch, entry.parts), &bytes);
                entry.parts += 1;
                entry.rows += chunk.chunk.len() as u64;
                entry.bytes += bytes.len() as u64;
            }
            batch.put_cf(self.progress(), log_epoch_key(*table, epoch), entry.to_bytes());
            entries.push((*table, entry));
        }
        Ok(entries)
    }

    /// The newest committed epoch of a job.
    pub fn frontier(&self, job: JobId) -> Result<Option<Epoch>, StorageError> {
        Ok(locked(&self.jobs).get(&job).and_then(|known| known.get()))
    }

    /// The newest frontier of all jobs; zero if there is none.
    pub fn max_frontier(&self) -> Result<Epoch, StorageError> {
        Ok(locked(&self.jobs).values().filter_map(|known| known.get()).max().unwrap_or(Epoch::ZERO))
    }

    /// The chunks of the epochs in `(after, up_to]` in order, where `up_to` is at most the frontier of the table's job:
    /// from memory if all of them are there, else from disk.
    ///
    /// Fails when epochs after `after` were truncated, but for `after` zero, which means "whatever there is".
    pub fn read_log(self: &Arc<Self>, table: TableId, after: Epoch, up_to: Epoch) -> Result<LogReader, StorageError> {
        let logs = locked(&self.logs);
        let truncated = logs.index.truncated(table);
        if after < truncated && after != Epoch::ZERO {
            return Err(StorageError::TruncatedLog { table, after, truncated });
        }
        let rest = match logs.tail.read(table, after, up_to) {
            Some(chunks) => Rest::Memory(chunks.into_iter()),
            None => Rest::Disk { epochs: logs.index.parts(table, after, up_to).into_iter(), current: None },
        };
        Ok(LogReader { store: self.clone(), table, rest })
    }

    /// Drops the epochs up to `up_to` from the change log of a table.
    pub fn truncate_log(&self, table: TableId, up_to: Epoch) -> Result<(), StorageError> {
        let dropped = locked(&self.logs).truncate(table, up_to);
        let Some((last, _)) = dropped.last() else { return Ok(()) };
        fail::fail_point!("storage::truncate_log::before", |_| std::process::abort());
        let mut batch = WriteBatch::default();
        self.delete_log(&mut batch, table, &dropped);
        batch.put_cf(self.progress(), log_truncated_key(table), last.0.to_be_bytes());
        // Not synced, and not taken back if it fails: what stays on disk is there again after a restart, and truncated
        // again.
        let written = self.db.write_opt(batch, &WriteOptions::default());
        written.map_err(|source| StorageError::TruncateLog { table, source })?;
        fail::fail_point!("storage::truncate_log::after", |_| std::process::abort());
        Ok(())
    }

    fn delete_log(&self, batch: &mut WriteBatch, table: TableId, epochs: &[(Epoch, u32)]) {
        let keys = epochs.iter().map(|(_, parts)| *parts as usize).sum::<usize>();
        let (Some((first, _)), Some((last, _))) = (epochs.first(), epochs.last()) else { return };
        if keys > POINT_DELETES_MAX {
            let after_last = |key: Vec<u8>| after_prefix(&key).expect("no key of a log is all ones");
            let end = after_last(log_key(table, *last, u32::MAX));
            batch.delete_range_cf(self.changelog(), log_key(table, *first, 0), end);
            let end = after_last(log_epoch_key(table, *last));
            batch.delete_range_cf(self.progress(), log_epoch_key(table, *first), end);
            return;
        }
        for (epoch, parts) in epochs {
            (0..*parts).for_each(|part| batch.delete_cf(self.changelog(), log_key(table, *epoch, part)));
            batch.delete_cf(self.progress(), log_epoch_key(table, *epoch));
        }
    }

    /// The epoch up to which the log of a table would have to be dropped to have at most so many bytes; `None`: it has.
    pub fn log_excess(&self, table: TableId, bytes_max: u64) -> Option<Epoch> {
        locked(&self.logs).index.excess(table, bytes_max)
    }

    /// The last epoch up to which the log of a table after `after` has at most so many bytes, or is one epoch; `None`: all
    /// of it has.
    pub fn log_step(&self, table: TableId, after: Epoch, bytes_max: u64) -> Option<Epoch> {
        locked(&self.logs).index.step(table, after, bytes_max)
    }

    /// What the change log of a table holds.
    pub fn log_stats(&self, table: TableId) -> Result<LogStats, StorageError> {
        Ok(locked(&self.logs).index.stats(table))
    }

    /// What the change log of a table holds after an epoch.
    pub fn log_stats_after(&self, table: TableId, after: Epoch) -> LogStats {
        locked(&self.logs).index.stats_after(table, after)
    }

    /// Deletes tables with their change logs, and the frontier of the job they belong to.
    pub fn drop_tables(&self, job: JobId, tables: &[TableId]) -> Result<(), StorageError> {
        fail::fail_point!("storage::drop_tables::before", |_| std::process::abort());
        self.delete(&[job], tables)?;
        fail::fail_point!("storage::drop_tables::after", |_| std::process::abort());
        Ok(())
    }

    /// Deletes all jobs and tables but these. For the start of a process, when a crash may have left behind what the
    /// catalog has no entry for.
    pub fn retain(&self, jobs: &[JobId], tables: &[TableId]) -> Result<(), StorageError> {
        let known: Vec<_> = locked(&self.jobs).keys().copied().collect();
        let jobs: Vec<_> = known.into_iter().filter(|job| !jobs.contains(job)).collect();
        let mut found = BTreeSet::new();
        for (family, offset) in [(self.state(), 0), (self.changelog(), 0), (self.progress(), 1)] {
            found.extend(self.tables_in(family, offset)?);
        }
        let tables: Vec<_> = found.into_iter().filter(|table| !tables.contains(table)).collect();
        if jobs.is_empty() && tables.is_empty() {
            return Ok(());
        }
        tracing::info!(?jobs, ?tables, "deleting what no catalog entry owns");
        fail::fail_point!("storage::retain::before", |_| std::process::abort());
        self.delete(&jobs, &tables)?;
        fail::fail_point!("storage::retain::after", |_| std::process::abort());
        Ok(())
    }

    /// The tables that have keys in a column family, where the table id is at `offset`.
    fn tables_in(&self, family: &ColumnFamily, offset: usize) -> Result<Vec<TableId>, StorageError> {
        let failed = |source| StorageError::ReadProgress { source };
        let mut tables = Vec::new();
        let prefixes = if offset == 0 { vec![vec![]] } else { vec![vec![LOG_EPOCH], vec![LOG_TRUNCATED]] };
        for prefix in prefixes {
            let mut next = Some(prefix.clone());
            while let Some(start) = next {
                let mut iterator = self.db.raw_iterator_cf(family);
                iterator.seek(&start);
                iterator.status().map_err(failed)?;
                let key = iterator.key().filter(|key| key.starts_with(&prefix));
                let Some(table) = key.and_then(|key| read_u32(key, offset)) else { break };
                tables.push(TableId(table));
                next = after_prefix(&[&prefix[..], &table.to_be_bytes()].concat());
            }
        }
        Ok(tables)
    }

    fn delete(&self, jobs: &[JobId], tables: &[TableId]) -> Result<(), StorageError> {
        let mut batch = WriteBatch::default();
        for table in tables {
            batch.delete_range_cf(self.state(), table_start(*table), table_end(*table));
            batch.delete_range_cf(self.changelog(), table_start(*table), table_end(*table));
            let epochs = (log_epoch_key(*table, Epoch::ZERO), log_epoch_key(*table, Epoch::MAX));
            batch.delete_range_cf(self.progress(), epochs.0, epochs.1);
            batch.delete_cf(self.progress(), log_truncated_key(*table));
        }
        jobs.iter().for_each(|job| batch.delete_cf(self.progress(), frontier_key(*job)));
        self.write(batch).map_err(|source| StorageError::DropTables { tables: tables.len(), source })?;

        let mut known = locked(&self.jobs);
        jobs.iter().for_each(|job| drop(known.remove(job)));
        drop(known);
        let mut logs = locked(&self.logs);
        for table in tables {
            logs.index.forget(*table);
            logs.tail.forget(*table);
        }
        Ok(())
    }

    /// Roughly how many bytes a table takes on disk, its change log included. What was written lately does not count yet.
    pub fn table_bytes(&self, table: TableId) -> u64 {
        let (start, end) = (table_start(table), table_end(table));
        let range = [Range::new(&start, &end)];
        let state = self.db.get_approximate_sizes_cf(self.state(), &range);
        state.iter().sum::<u64>() + locked(&self.logs).index.stats(table).bytes
    }

    fn write(&self, batch: WriteBatch) -> Result<(), rocksdb::Error> {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        self.db.write_opt(batch, &options)
    }

    pub(crate) fn state(&self) -> &ColumnFamily {
        self.family(STATE)
    }

    pub(crate) fn changelog(&self) -> &ColumnFamily {
        self.family(CHANGELOG)
    }

    pub(crate) fn progress(&self) -> &ColumnFamily {
        self.family(PROGRESS)
    }

    fn family(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("open opens all column families")
    }
}

impl Logs {
    fn enter(&mut self, epoch: Epoch, log: BTreeMap<TableId, Vec<LogChunk>>, entries: &[(TableId, EpochEntry)]) {
        for (table, entry) in entries {
            self.index.insert(*table, epoch, *entry);
        }
        for (table, chunks) in log {
            self.tail.push(table, epoch, chunks);
        }
    }

    /// Returns the epochs that are to be deleted, with their parts.
    fn truncate(&mut self, table: TableId, up_to: Epoch) -> Vec<(Epoch, u32)> {
        let dropped = self.index.parts(table, Epoch::ZERO, up_to);
        for (epoch, _) in &dropped {
            self.index.remove(table, *epoch);
            self.index.set_truncated(table, *epoch);
        }
        self.tail.truncate(table, up_to);
        dropped
    }

    fn withdraw(&mut self, epoch: Epoch, tables: &[TableId]) {
        for table in tables {
            self.index.remove(*table, epoch);
            self.tail.withdraw(*table, epoch);
        }
    }
}

/// The chunks of each table in order. Empty ones are left out.
fn by_table(log: Vec<LogChunk>, epoch: Epoch) -> BTreeMap<TableId, Vec<LogChunk>> {
    let mut tables: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for chunk in log {
        assert_eq!(chunk.epoch, epoch, "a commit holds log chunks of its own epoch");
        if !chunk.chunk.is_empty() {
            tables.entry(chunk.table).or_default().push(chunk);
        }
    }
    tables
}

/// The frontiers of all jobs, and what the change logs hold.
fn load_progress(db: &DB) -> Result<(HashMap<JobId, Epoch>, LogIndex), StorageError> {
    let family = db.cf_handle(PROGRESS).expect("open opens all column families");
    let (mut frontiers, mut index) = (HashMap::new(), LogIndex::default());
    for item in db.iterator_cf(family, IteratorMode::From(&[], Direction::Forward)) {
        let (key, value) = item.map_err(|source| StorageError::ReadProgress { source })?;
        let loaded = match key.first() {
            Some(&FRONTIER) => read_u32(&key, 1).zip(read_u64(&value, 0)).map(|(job, epoch)| {
                frontiers.insert(JobId(job), Epoch(epoch));
            }),
            Some(&LOG_EPOCH) => read_u32(&key, 1)
                .zip(read_u64(&key, 5))
                .zip(EpochEntry::from_bytes(&value))
                .map(|((table, epoch), entry)| index.insert(TableId(table), Epoch(epoch), entry)),
            Some(&LOG_TRUNCATED) => read_u32(&key, 1).zip(read_u64(&value, 0)).map(|(table, epoch)| {
                index.set_truncated(TableId(table), Epoch(epoch));
            }),
            _ => None,
        };
        loaded.ok_or_else(|| StorageError::CorruptProgress { key: key.to_vec() })?;
    }
    Ok((frontiers, index))
}

/// The contents of a lock. Those of the store are whole at every point where a holder may panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
