//! Commits, snapshots, frontiers, dropping and reopening.

use std::sync::atomic::Ordering;

use arrow::array::{Float64Array, IntervalMonthDayNanoArray};
use arrow::datatypes::{IntervalMonthDayNano, IntervalUnit};
use weir_common::row::ByteRows;

use super::*;
use crate::{Remedy, ScanRange, StorageError};

/// Commits rows into a table in an epoch.
fn commit_rows(store: &Arc<Store>, job: u32, epoch: u64, def: &TableDef, inserted: &[Row]) {
    let (mut table, _) = state_table(store, def);
    table.write(&Chunk::inserts(batch(inserted))).unwrap();
    let tables = vec![table.seal(Epoch(epoch))];
    store.commit(JobCommit { tables, ..empty_commit(job, epoch) }).unwrap();
}

fn scan_all(store: &Arc<Store>, def: &TableDef) -> Vec<Row> {
    let (batch, rest) = store.snapshot().scan_table(def, None, usize::MAX).unwrap();
    assert_eq!(rest, None);
    let mut rows = rows(&batch);
    rows.sort();
    rows
}

#[test]
fn frontiers_only_grow() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!((store.frontier(JobId(1)).unwrap(), store.max_frontier().unwrap()), (None, Epoch::ZERO));
    store.commit(empty_commit(1, 5)).unwrap();
    store.commit(empty_commit(2, 3)).unwrap();
    for stale in [4, 5] {
        let error = store.commit(empty_commit(1, stale)).unwrap_err();
        assert!(matches!(error, StorageError::Fenced { frontier: Epoch(5), .. }), "{error}");
        assert_eq!(error.remedy(), Remedy::Stop);
    }
    store.commit(empty_commit(1, 6)).unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.frontier(JobId(1)).unwrap(), Some(Epoch(6)));
    assert_eq!(store.frontier(JobId(2)).unwrap(), Some(Epoch(3)));
    assert_eq!(store.max_frontier().unwrap(), Epoch(6));
    assert!(store.commit(empty_commit(1, 6)).is_err());
}

#[test]
fn a_snapshot_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let def = def(7);
    commit_rows(&store, 1, 10, &def, &[row(1, 1, "old"), row(2, 1, "two")]);
    let snapshot = store.snapshot();
    commit_rows(&store, 1, 20, &def, &[row(1, 1, "new"), row(3, 1, "three")]);

    assert_eq!(snapshot.frontier(JobId(1)).unwrap(), Some(Epoch(10)));
    assert_eq!(snapshot.frontier(JobId(9)).unwrap(), None);
    let keys = snapshot.keys(&def, &[ints([3, 1, 2]), ints([1, 1, 1])]).unwrap();
    let found = snapshot.get_many(&def, &keys).unwrap();
    assert_eq!(found.index, [None, Some(0), Some(1)]);
    assert_eq!(rows(&found.rows), [row(1, 1, "old"), row(2, 1, "two")]);

    assert_eq!(snapshot.get_many(&def, &ByteRows::new()).unwrap().rows.num_rows(), 0);

    let now = store.snapshot();
    drop(store);
    let found = now.clone().get_many(&def, &keys).unwrap();
    assert_eq!(rows(&found.rows), [row(3, 1, "three"), row(1, 1, "new"), row(2, 1, "two")]);
    assert_eq!(now.frontier(JobId(1)).unwrap(), Some(Epoch(20)));
}

#[test]
fn a_vnode_is_scanned_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let def = def(7);
    let inserted: Vec<_> = (0..25).map(|b| row(1, b - 12, "x")).collect();
    commit_rows(&store, 1, 10, &def, &inserted);
    commit_rows(&store, 1, 11, &super::def(8), &[row(1, 1, "other table")]);
    let snapshot = store.snapshot();
    for limit in [1, 4, 5, 24, 25, 26] {
        let (mut seen, mut position) = (Vec::new(), None);
        loop {
            let (batch, next) = snapshot.scan(&def, vnode(1), position.as_deref(), limit).unwrap();
            assert!(batch.num_rows() <= limit);
            seen.extend(rows(&batch));
            position = next;
            if position.is_none() {
                break;
            }
        }
        assert_eq!(seen, inserted, "limit {limit}");
    }
    let other = Vnode(vnode(1).0.wrapping_add(1));
    let (batch, next) = snapshot.scan(&def, other, None, 10).unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns(), next), (0, 3, None));
}

#[test]
fn the_whole_table_is_scanned_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let def = def(7);
    let inserted: Vec<_> = (0..40).map(|a| row(a, a, "x")).collect();
    commit_rows(&store, 1, 10, &def, &inserted);
    let (mut seen, mut position) = (Vec::new(), None);
    loop {
        let (batch, next) = store.snapshot().scan_table(&def, position.as_deref(), 7).unwrap();
        seen.extend(rows(&batch));
        position = next;
        if position.is_none() {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, inserted);
}

#[test]
fn dropping_tables_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for job in [1, 2] {
        commit_rows(&store, job, 10, &def(job * 10), &[row(1, 1, "x"), row(2, 2, "y")]);
        let log = vec![log_chunk(job * 10, 11, &[1, 2])];
        store.commit(JobCommit { log, ..empty_commit(job, 11) }).unwrap();
    }
    store.drop_tables(JobId(1), &[TableId(10)]).unwrap();
    let check = |store: &Arc<Store>| {
        assert_eq!(scan_all(store, &def(10)), []);
        assert_eq!(scan_all(store, &def(20)).len(), 2);
        assert_eq!(store.frontier(JobId(1)).unwrap(), None);
        assert_eq!(store.snapshot().frontier(JobId(1)).unwrap(), None);
        assert_eq!(store.frontier(JobId(2)).unwrap(), Some(Epoch(11)));
        assert_eq!(store.log_stats(TableId(10)).unwrap(), Default::default());
        assert_eq!(store.log_stats(TableId(20)).unwrap().rows, 2);
        assert_eq!(store.read_log(TableId(10), Epoch::ZERO, Epoch(20)).unwrap().count(), 0);
    };
    check(&store);
    drop(store);
    check(&open(dir.path()));
}

#[test]
fn start_up_removes_what_nobody_owns() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for job in [1, 2, 3] {
        commit_rows(&store, job, 10, &def(job * 10), &[row(1, 1, "x")]);
        let log = vec![log_chunk(job * 10, 11, &[1])];
        store.commit(JobCommit { log, ..empty_commit(job, 11) }).unwrap();
    }
    commit_rows(&store, 2, 12, &def(u32::MAX), &[row(1, 1, "last")]);
    store.retain(&[JobId(2)], &[TableId(20)]).unwrap();
    store.retain(&[JobId(2)], &[TableId(20)]).unwrap();
    for table in [10, 30, u32::MAX] {
        assert_eq!(scan_all(&store, &def(table)), []);
        assert_eq!(store.log_stats(TableId(table)).unwrap().epochs, 0);
    }
    assert_eq!(scan_all(&store, &def(20)).len(), 1);
    assert_eq!(store.log_stats(TableId(20)).unwrap().epochs, 1);
    assert_eq!(store.frontier(JobId(3)).unwrap(), None);
    assert_eq!(store.frontier(JobId(2)).unwrap(), Some(Epoch(12)));
}

#[test]
fn directories_of_others_are_refused() {
    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("notes.txt"), "mine").unwrap();
    let refused = Store::open(foreign.path(), options()).err().unwrap();
    assert!(matches!(refused, StorageError::ForeignDirectory { .. }), "{refused}");
    assert_eq!(refused.remedy(), Remedy::Reject);

    let rocks = tempfile::tempdir().unwrap();
    rocksdb::DB::open_default(rocks.path()).unwrap().put("k", "v").unwrap();
    assert!(matches!(Store::open(rocks.path(), options()), Err(StorageError::ForeignDirectory { .. })));

    let newer = tempfile::tempdir().unwrap();
    open(newer.path()).db.put(crate::layout::FORMAT_KEY, 99u32.to_be_bytes()).unwrap();
    assert!(matches!(Store::open(newer.path(), options()), Err(StorageError::NewerFormat { found: 99, .. })));

    let taken = tempfile::tempdir().unwrap();
    let _store = open(taken.path());
    assert!(matches!(Store::open(taken.path(), options()), Err(StorageError::Open { .. })));
}

#[tokio::test]
async fn keys_that_are_equal_but_not_identical_come_back_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let fields = vec![Field::new("f", DataType::Float64, true), Field::new("i", interval, true)];
    let def = TableDef::ascending(TableId(5), Schema::new(fields), &[0, 1], &[0]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(vec![Some(-0.0), Some(0.5), None])),
        Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(IntervalMonthDayNano::new(1, 0, 0)),
            Some(IntervalMonthDayNano::new(0, 30, 0)),
            None,
        ])),
    ];
    let written = RecordBatch::try_new(def.schema.clone(), columns).unwrap();
    let (mut table, _) = state_table(&store, &def);
    table.write(&Chunk::inserts(written.clone())).unwrap();
    let keys = table.keys(written.columns()).unwrap();
    let found = table.get_many(&keys).await.unwrap();
    assert_eq!(found.rows, written);
    let zero = found.rows.column(0).as_primitive::<arrow::datatypes::Float64Type>().value(0);
    assert!(zero.is_sign_negative());
    // The same row, written otherwise.
    let same: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(vec![0.0])),
        Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, 30, 0)])),
    ];
    assert_eq!(table.keys(&same).unwrap().get(0), keys.get(0));
}

#[tokio::test]
async fn a_table_without_key_has_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let def = TableDef::ascending(TableId(5), Schema::new(vec![Field::new("n", DataType::Int64, true)]), &[], &[]);
    let (mut table, committed) = state_table(&store, &def);
    let keys = table.keys(&[]).unwrap();
    assert_eq!(table.get_many(&keys).await.unwrap().index, [None]);
    let batch = |n: &[i64]| RecordBatch::try_new(def.schema.clone(), vec![ints(n.iter().copied())]).unwrap();
    table.write(&Chunk::new(batch(&[1, 1, 2]), vec![1, -1, 1])).unwrap();
    let tables = vec![table.seal(Epoch(1))];
    store.commit(JobCommit { tables, ..empty_commit(1, 1) }).unwrap();
    committed.store(1, Ordering::Release);
    assert!(table.seal(Epoch(2)).is_empty());
    assert_eq!(table.pending_bytes(), 0);
    assert_eq!(table.get_many(&keys).await.unwrap().rows, batch(&[2]));
    let scanned = table.scan(&[ScanRange::prefix(&[])]).await.unwrap();
    assert_eq!((scanned.rows, scanned.range), (batch(&[2]), vec![0]));
}

#[tokio::test]
async fn an_all_key_table_has_empty_values() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let def = TableDef::ascending(TableId(5), Schema::new(vec![Field::new("n", DataType::Int64, true)]), &[0], &[0]);
    let (mut table, _) = state_table(&store, &def);
    let batch = |n: &[i64]| RecordBatch::try_new(def.schema.clone(), vec![ints(n.iter().copied())]).unwrap();
    table.write(&Chunk::inserts(batch(&[4, 5]))).unwrap();
    let tables = vec![table.seal(Epoch(1))];
    store.commit(JobCommit { tables, ..empty_commit(1, 1) }).unwrap();
    let keys = table.keys(&[ints([5, 6])]).unwrap();
    let found = store.snapshot().get_many(&def, &keys).unwrap();
    assert_eq!((found.rows, found.index), (batch(&[5]), vec![Some(0), None]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reads_work_on_a_multi_thread_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    commit_rows(&store, 1, 1, &def(7), &[row(1, 1, "x")]);
    let task = async move {
        let (mut table, _) = state_table(&store, &def(7));
        let prefix = table.prefixes(&[ints([1])]).unwrap();
        table.scan(&[ScanRange::prefix(prefix.get(0))]).await.unwrap().rows.num_rows()
    };
    assert_eq!(tokio::spawn(task).await.unwrap(), 1);
}

#[test]
#[should_panic(expected = "does not own")]
fn writing_to_a_vnode_of_somebody_else_panics() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut table = StateTable::open(store, def(7), VnodeSet::EMPTY, Default::default());
    table.write(&Chunk::inserts(batch(&[row(1, 1, "x")]))).unwrap();
}

#[tokio::test]
#[should_panic(expected = "not all owned")]
async fn scanning_a_vnode_of_somebody_else_panics() {
    let dir = tempfile::tempdir().unwrap();
    let mut vnodes = VnodeSet::EMPTY;
    vnodes.insert(Vnode(4));
    let mut table = StateTable::open(open(dir.path()), def(7), vnodes, Default::default());
    assert_eq!(table.scan(&[ScanRange::prefix(&[0, 4])]).await.unwrap().rows.num_rows(), 0);
    assert_eq!(table.get_many(&ByteRows::new()).await.unwrap().rows.num_rows(), 0);
    let _ = table.scan(&[ScanRange::prefix(&[])]).await;
}

#[test]
fn a_vnode_of_a_descending_key_is_that_of_the_ascending_one() {
    let dir = tempfile::tempdir().unwrap();
    let (mut descending, plain) = (def(7), def(7));
    descending.key[0].order = weir_common::key::KeyOrder::DESC;
    let snapshot = open(dir.path()).snapshot();
    let columns = [ints([5]), ints([6])];
    let (a, b) = (snapshot.keys(&descending, &columns).unwrap(), snapshot.keys(&plain, &columns).unwrap());
    assert_eq!(a.get(0)[..2], b.get(0)[..2]);
    assert_ne!(a.get(0), b.get(0));
}
