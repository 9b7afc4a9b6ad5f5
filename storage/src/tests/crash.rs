//! A commit that is cut short happened either wholly or not at all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

fn check(point: &str, frontier: Option<Epoch>) {
    let scenario = fail::FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut table, _) = state_table(&store, &def(7));
    table.write(&Chunk::inserts(batch(&[row(1, 1, "x")]))).unwrap();
    let tables = vec![table.seal(Epoch(5))];
    let commit = JobCommit { tables, log: vec![log_chunk(7, 5, &[1])], ..empty_commit(1, 5) };
    fail::cfg(point, "panic").unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| store.commit(commit.clone()))).is_err());
    fail::remove(point);

    let check = |store: &Arc<Store>| {
        let rows = frontier.map_or(0, |_| 1);
        assert_eq!(store.frontier(JobId(1)).unwrap(), frontier);
        assert_eq!(store.snapshot().frontier(JobId(1)).unwrap(), frontier);
        assert_eq!(store.snapshot().scan_table(&def(7), None, 10).unwrap().0.num_rows(), rows);
        assert_eq!(store.read_log(TableId(7), Epoch::ZERO, Epoch(5)).unwrap().count(), rows);
    };
    check(&store);
    drop((store, table));
    let store = open(dir.path());
    check(&store);
    // What did not happen may be tried again, what did may not.
    assert_eq!(store.commit(commit).is_ok(), frontier.is_none());
    scenario.teardown();
}

#[test]
fn cut_short_before_the_write_it_did_not_happen() {
    check("storage::commit::before", None);
}

#[test]
fn cut_short_after_the_write_it_happened() {
    check("storage::commit::after", Some(Epoch(5)));
}
