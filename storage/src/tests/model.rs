//! Random writes, seals, commits and restarts: a state table reads as a map does.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;
use crate::{ScanRange, SealedTable};

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(i64, i64, Option<u8>, bool)>),
    Delete(i64, i64),
    Seal,
    /// Commits the oldest sealed epoch, and tells the table or not.
    Commit(bool),
    /// Everything after the last commit is lost.
    Restart,
    Get(Vec<(i64, i64)>),
    Scan(i64, Bound<i64>, Bound<i64>, bool, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..4i64;
    let bound =
        || prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)];
    let change = (key(), key(), prop::option::of(any::<u8>()), any::<bool>());
    prop_oneof![
        4 => prop::collection::vec(change, 1..6).prop_map(Step::Write),
        1 => (key(), key()).prop_map(|(a, b)| Step::Delete(a, b)),
        2 => Just(Step::Seal),
        2 => any::<bool>().prop_map(Step::Commit),
        1 => Just(Step::Restart),
        3 => prop::collection::vec((key(), key()), 0..6).prop_map(Step::Get),
        4 => (key(), bound(), bound(), any::<bool>(), 0..6usize).prop_map(|(a, s, e, r, l)| Step::Scan(a, s, e, r, l)),
    ]
}

type Model = BTreeMap<(i64, i64), Option<String>>;

struct Run {
    dir: tempfile::TempDir,
    store: Arc<Store>,
    def: TableDef,
    table: StateTable,
    committed: Arc<AtomicU64>,
    epoch: u64,
    /// Sealed, with what the table looks like then.
    sealed: Vec<(u64, SealedTable, Model)>,
    now: Model,
    durable: Model,
}

impl Run {
    fn new(def: TableDef) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let (table, committed) = state_table(&store, &def);
        let (now, durable) = (Model::new(), Model::new());
        Run { dir, store, def, table, committed, epoch: 0, sealed: vec![], now, durable }
    }

    async fn step(mut self, step: Step) -> Run {
        match step {
            Step::Write(changes) => self.write(&changes),
            Step::Delete(a, b) => {
                self.table.delete(&self.table.keys(&[ints([a]), ints([b])]).unwrap());
                self.now.remove(&(a, b));
            }
            Step::Seal => {
                self.epoch += 1;
                let sealed = self.table.seal(Epoch(self.epoch));
                self.sealed.push((self.epoch, sealed, self.now.clone()));
            }
            Step::Commit(tell) => self.commit(tell),
            Step::Restart => return self.restart(),
            Step::Get(keys) => self.get(&keys).await,
            Step::Scan(a, start, end, reverse, limit) => self.scan(a, start, end, reverse, limit).await,
        }
        self
    }

    fn write(&mut self, changes: &[(i64, i64, Option<u8>, bool)]) {
        let rows: Vec<Row> = changes.iter().map(|c| (c.0, c.1, c.2.map(|v| v.to_string()))).collect();
        let signs = changes.iter().map(|c| if c.3 { 1 } else { -1 }).collect();
        self.table.write(&Chunk::new(batch(&rows), signs)).unwrap();
        for (row, change) in rows.into_iter().zip(changes) {
            match change.3 {
                true => drop(self.now.insert((row.0, row.1), row.2)),
                false => drop(self.now.remove(&(row.0, row.1))),
            }
        }
    }

    fn commit(&mut self, tell: bool) {
        if self.sealed.is_empty() {
            return;
        }
        let (epoch, sealed, model) = self.sealed.remove(0);
        self.store.commit(JobCommit { tables: vec![sealed], ..empty_commit(1, epoch) }).unwrap();
        self.durable = model;
        if tell {
            self.committed.store(epoch, Ordering::Release);
        }
    }

    fn restart(self) -> Run {
        let Run { dir, store, def, table, durable, .. } = self;
        drop((store, table));
        let store = open(dir.path());
        let (table, committed) = state_table(&store, &def);
        let epoch = store.frontier(JobId(1)).unwrap().unwrap_or(Epoch::ZERO).0;
        Run { dir, store, def, table, committed, epoch, sealed: vec![], now: durable.clone(), durable }
    }

    async fn get(&mut self, keys: &[(i64, i64)]) {
        let columns = [ints(keys.iter().map(|k| k.0)), ints(keys.iter().map(|k| k.1))];
        let found = self.table.get_many(&self.table.keys(&columns).unwrap()).await.unwrap();
        let rows = rows(&found.rows);
        for (key, index) in keys.iter().zip(&found.index) {
            let row = index.map(|i| rows[i as usize].clone());
            assert_eq!(row, self.now.get(key).map(|v| (key.0, key.1, v.clone())));
        }
        assert_eq!(found.rows.num_rows(), found.index.iter().flatten().count());
    }

    /// Scans bounds of `b` among the rows of an `a`, then all rows of that `a`.
    async fn scan(&mut self, a: i64, start: Bound<i64>, end: Bound<i64>, reverse: bool, limit: usize) {
        let prefix = self.table.prefixes(&[ints([a])]).unwrap().get(0).to_vec();
        let all = ScanRange::prefix(&prefix);
        let key = |b| self.table.keys(&[ints([a]), ints([b])]).unwrap().get(0).to_vec();
        let or = |bound: Bound<i64>, other: &Bound<Vec<u8>>| {
            if bound == Bound::Unbounded { other.clone() } else { bound.map(key) }
        };
        let range = ScanRange { start: or(start, &all.start), end: or(end, &all.end), reverse, limit };
        let scanned = self.table.scan(&[range, all]).await.unwrap();

        let inside = |b: &i64| (start, end).contains(b);
        let mut expected: Vec<Row> = self.rows_of(a).into_iter().filter(|r| inside(&r.1)).collect();
        if reverse {
            expected.reverse();
        }
        expected.truncate(limit);
        let first = expected.len();
        expected.extend(self.rows_of(a));
        assert_eq!(rows(&scanned.rows), expected);
        assert!(scanned.range[..first].iter().all(|r| *r == 0) && scanned.range[first..].iter().all(|r| *r == 1));
        let keys = self.table.keys(&[scanned.rows.column(0).clone(), scanned.rows.column(2).clone()]).unwrap();
        assert_eq!(scanned.keys, keys);
    }

    fn rows_of(&self, a: i64) -> Vec<Row> {
        self.now.range((a, i64::MIN)..=(a, i64::MAX)).map(|((a, b), v)| (*a, *b, v.clone())).collect()
    }
}

fn check(steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut run = Run::new(def(7));
        for step in steps {
            run = run.step(step).await;
        }
        run.get(&(0..4).flat_map(|a| (0..4).map(move |b| (a, b))).collect::<Vec<_>>()).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_state_table_reads_as_a_map(steps in prop::collection::vec(step(), 1..50)) {
        check(steps);
    }
}
