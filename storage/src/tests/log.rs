//! Reading and truncating change logs, from memory and from disk.

use super::*;
use crate::change_log::Rest;
use crate::{LogReader, Remedy, StorageError};

fn commit_log(store: &Arc<Store>, epoch: u64, chunks: &[&[i64]]) {
    let log = chunks.iter().map(|values| log_chunk(7, epoch, values)).collect();
    store.commit(JobCommit { log, ..empty_commit(1, epoch) }).unwrap();
}

fn in_memory(reader: &LogReader) -> bool {
    matches!(reader.rest, Rest::Memory(_))
}

/// Epoch and values of each chunk.
fn read(reader: LogReader) -> Vec<(u64, Vec<i64>)> {
    let chunk = |c: LogChunk| {
        assert_eq!(c.vnodes.len(), c.chunk.len());
        (c.epoch.0, rows(c.chunk.batch()).iter().map(|r| r.0).collect())
    };
    reader.map(|c| chunk(c.unwrap())).collect()
}

fn reader(store: &Arc<Store>, after: u64, up_to: u64) -> LogReader {
    store.read_log(TableId(7), Epoch(after), Epoch(up_to)).unwrap()
}

#[test]
fn a_log_is_the_same_from_memory_and_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    commit_log(&store, 10, &[&[1, 2], &[3]]);
    commit_log(&store, 20, &[]);
    commit_log(&store, 30, &[&[4], &[]]);
    let all = vec![(10, vec![1, 2]), (10, vec![3]), (30, vec![4])];
    let check = |store: &Arc<Store>, memory: bool| {
        assert_eq!(in_memory(&reader(store, 0, 30)), memory);
        assert_eq!(read(reader(store, 0, 30)), all);
        assert_eq!(read(reader(store, 0, 29)), all[..2]);
        assert_eq!(read(reader(store, 10, 30)), all[2..]);
        assert_eq!(read(reader(store, 10, 29)), []);
        assert_eq!(read(reader(store, 30, 30)), []);
        let stats = store.log_stats(TableId(7)).unwrap();
        assert_eq!((stats.epochs, stats.rows, stats.oldest, stats.newest), (2, 4, Some(Epoch(10)), Some(Epoch(30))));
    };
    check(&store, true);
    drop(store);
    let store = open(dir.path());
    check(&store, false);
    // What comes after the frontier at which the store was opened is in memory.
    assert!(in_memory(&reader(&store, 30, 30)));
    commit_log(&store, 40, &[&[5]]);
    assert!(in_memory(&reader(&store, 30, 40)) && !in_memory(&reader(&store, 29, 40)));
    assert_eq!(read(reader(&store, 30, 40)), [(40, vec![5])]);
    assert_eq!(read(reader(&store, 10, 40)), [(30, vec![4]), (40, vec![5])]);
}

#[test]
fn signs_and_types_survive_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let batch = batch(&[row(1, 1, "old"), (1, 1, None)]);
    let chunk = Chunk::new(batch.clone(), vec![-1, 1]);
    let log = vec![LogChunk { table: TableId(7), epoch: Epoch(1), chunk, vnodes: vec![9, 9].into() }];
    store.commit(JobCommit { log, ..empty_commit(1, 1) }).unwrap();
    drop(store);
    let chunks: Vec<_> = reader(&open(dir.path()), 0, 1).map(Result::unwrap).collect();
    assert_eq!(chunks[0].chunk.batch(), &batch);
    assert_eq!((chunks[0].chunk.signs(), &chunks[0].vnodes[..]), (Some(&[-1i8, 1][..]), &[9u8, 9][..]));
}

#[test]
fn the_tail_forgets_the_oldest_epochs_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions { tail_bytes: 20_000, ..options() }).unwrap();
    let values: Vec<i64> = (0..200).collect();
    for epoch in 1..=10 {
        commit_log(&store, epoch, &[&values]);
    }
    let oldest = (0..=10).find(|after| in_memory(&reader(&store, *after, 10))).unwrap();
    assert!((1..10).contains(&oldest), "{oldest}");
    for after in 0..10 {
        assert_eq!(in_memory(&reader(&store, after, 10)), after >= oldest);
        let epochs: Vec<_> = read(reader(&store, after, 10)).iter().map(|c| c.0).collect();
        assert_eq!(epochs, (after + 1..=10).collect::<Vec<_>>());
    }
}

#[test]
fn a_truncated_log_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for epoch in 1..=5 {
        commit_log(&store, epoch, &[&[epoch as i64], &[-1]]);
    }
    store.truncate_log(TableId(7), Epoch(3)).unwrap();
    store.truncate_log(TableId(7), Epoch(2)).unwrap();
    // Nothing is lost by truncating what is empty.
    store.truncate_log(TableId(99), Epoch::MAX).unwrap();
    assert_eq!(store.read_log(TableId(99), Epoch(1), Epoch(5)).unwrap().count(), 0);
    let check = |store: &Arc<Store>| {
        assert_eq!(read(reader(store, 3, 5)).len(), 4);
        // From zero on: whatever there is.
        assert_eq!(read(reader(store, 0, 5)).len(), 4);
        let error = store.read_log(TableId(7), Epoch(2), Epoch(5)).err().unwrap();
        assert!(matches!(error, StorageError::TruncatedLog { truncated: Epoch(3), .. }), "{error}");
        assert_eq!(error.remedy(), Remedy::Stop);
        let stats = store.log_stats(TableId(7)).unwrap();
        assert_eq!((stats.epochs, stats.oldest), (2, Some(Epoch(4))));
    };
    check(&store);
    drop(store);
    let store = open(dir.path());
    check(&store);
    store.truncate_log(TableId(7), Epoch(5)).unwrap();
    assert_eq!(store.log_stats(TableId(7)).unwrap(), Default::default());
    let family = store.db.iterator_cf(store.changelog(), rocksdb::IteratorMode::Start);
    assert_eq!(family.count(), 0);
}

#[test]
fn many_epochs_are_truncated_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for epoch in 1..=1_500 {
        commit_log(&store, epoch, &[&[1]]);
    }
    store.truncate_log(TableId(7), Epoch(1_400)).unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(read(reader(&store, 1_400, 1_500)).len(), 100);
    assert_eq!(store.log_stats(TableId(7)).unwrap().epochs, 100);
    assert_eq!(store.db.iterator_cf(store.changelog(), rocksdb::IteratorMode::Start).count(), 100);
}

#[test]
fn a_reader_notices_when_its_log_is_truncated_below_it() {
    let dir = tempfile::tempdir().unwrap();
    commit_log(&open(dir.path()), 1, &[&[1]]);
    let store = open(dir.path());
    let mut reader = reader(&store, 0, 1);
    store.truncate_log(TableId(7), Epoch(1)).unwrap();
    assert!(matches!(reader.next(), Some(Err(StorageError::MissingLogChunk { .. }))));
}
