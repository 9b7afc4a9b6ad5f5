//! Every kind of join against a model: the nested loop.
//!
//! Random changes of both inputs, with few keys, NULLs, equal values, rows that move to another key, restarts, and memory
//! that forgets. After every epoch the changes that came out add up to the model's join, and each of them was valid.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;
use weir_common::plan::{self, JoinKind, Node, Receive, StreamPlan};
use weir_common::{Chunk, FragmentId, JobId, TableDef, TableId, Vnode, VnodeSet};
use weir_storage::{JobCommit, MemoryLimit, StateTable, Store, StoreOptions};

use super::{Join, stream_key, tables};
use crate::executor::Executor;
use crate::expr::Expression;
use crate::message::{Message, Output};

const KINDS: [JoinKind; 6] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::LeftSemi, JoinKind::LeftAnti];

/// A row of an input: `k int, t text, v int, id int`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    k: Option<i32>,
    t: Option<&'static str>,
    v: Option<i32>,
    id: i32,
}

impl Row {
    fn column(&self, i: usize) -> Option<String> {
        match i {
            0 => self.k.map(|k| k.to_string()),
            1 => self.t.map(str::to_owned),
            2 => self.v.map(|v| v.to_string()),
            _ => Some(self.id.to_string()),
        }
    }

    fn cells(row: Option<&Row>) -> Vec<Option<String>> {
        (0..4).map(|i| row.and_then(|r| r.column(i))).collect()
    }
}

/// What is joined how.
#[derive(Clone, Debug)]
struct Setup {
    kind: JoinKind,
    on: Vec<(usize, usize)>,
    null_equals_null: bool,
    residual: Option<Residual>,
    /// Stream keys of the inputs.
    keys: [Vec<usize>; 2],
    memory_bytes: usize,
    append_only: bool,
    /// How many ids there are.
    ids: i32,
    /// Rows of a chunk, at most.
    chunk_rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Residual {
    Never,
    LeftLess,
}

impl Setup {
    fn matches(&self, left: &Row, right: &Row) -> bool {
        let equal = |(l, r): &(usize, usize)| match (left.column(*l), right.column(*r)) {
            (None, None) => self.null_equals_null,
            (l, r) => l == r,
        };
        let residual = match self.residual {
            None => true,
            Some(Residual::Never) => false,
            Some(Residual::LeftLess) => left.v.zip(right.v).is_some_and(|(l, r)| l < r),
        };
        residual && self.on.iter().all(equal)
    }

    fn expected(&self, inputs: &[BTreeMap<Vec<Option<String>>, Row>; 2]) -> Vec<Vec<Option<String>>> {
        let mut rows = Vec::new();
        let [left, right] = inputs;
        for l in left.values() {
            let matched: Vec<&Row> = right.values().filter(|r| self.matches(l, r)).collect();
            let alone = match self.kind {
                JoinKind::LeftSemi => !matched.is_empty(),
                JoinKind::Left | JoinKind::Full | JoinKind::LeftAnti => matched.is_empty(),
                JoinKind::Inner | JoinKind::Right => false,
            };
            match self.kind {
                JoinKind::LeftSemi | JoinKind::LeftAnti if alone => rows.push(Row::cells(Some(l))),
                JoinKind::LeftSemi | JoinKind::LeftAnti => {}
                _ if alone => rows.push([Row::cells(Some(l)), Row::cells(None)].concat()),
                _ => rows.extend(matched.iter().map(|r| [Row::cells(Some(l)), Row::cells(Some(r))].concat())),
            }
        }
        if self.kind.counts_right() {
            let lonely = right.values().filter(|r| left.values().all(|l| !self.matches(l, r)));
            rows.extend(lonely.map(|r| [Row::cells(None), Row::cells(Some(r))].concat()));
        }
        rows.sort();
        rows
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int32, true),
        Field::new("t", DataType::Utf8, true),
        Field::new("v", DataType::Int32, true),
        Field::new("id", DataType::Int32, false),
    ]))
}

fn output_schema(kind: JoinKind) -> SchemaRef {
    let one: Vec<_> = schema().fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    match kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti => Arc::new(Schema::new(one)),
        _ => Arc::new(Schema::new([one.clone(), one].concat())),
    }
}

fn chunk(rows: &[(Row, i8)]) -> Chunk {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|(r, _)| r.k).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|(r, _)| r.t).collect::<StringArray>()),
        Arc::new(rows.iter().map(|(r, _)| r.v).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|(r, _)| Some(r.id)).collect::<Int32Array>()),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    Chunk::new(batch, rows.iter().map(|(_, sign)| *sign).collect())
}

fn residual(residual: Residual) -> Expression {
    let both = Arc::new(Schema::new([schema().fields().to_vec(), schema().fields().to_vec()].concat()));
    let expr: Arc<dyn PhysicalExpr> = match residual {
        Residual::Never => lit(false),
        Residual::LeftLess => {
            Arc::new(BinaryExpr::new(Arc::new(Column::new("v", 2)), Operator::Lt, Arc::new(Column::new("v", 6))))
        }
    };
    Expression::new(expr, &both).unwrap()
}

/// A join on a store, and what has come out of it.
struct Rig {
    setup: Setup,
    plan: plan::Join,
    job: JobId,
    store: Arc<Store>,
    vnodes: VnodeSet,
    committed: Arc<AtomicU64>,
    join: Join,
    out: Output,
    changes: mpsc::Receiver<Message>,
    /// Rows that have come out, by the output's stream key.
    rows: BTreeMap<Vec<Option<String>>, Vec<Option<String>>>,
}

impl Rig {
    /// Rigs with different numbers may share a store.
    fn new(setup: Setup, store: &Arc<Store>, number: u32, vnodes: VnodeSet) -> Rig {
        let mut id = 2 * number;
        let mut next_id = || {
            id += 1;
            TableId(id)
        };
        let (left_rows, right_rows) =
            tables(&schema(), &setup.keys[0], &schema(), &setup.keys[1], setup.kind, &setup.on, &mut next_id);
        let input = || {
            Box::new(StreamPlan { schema: schema(), node: Node::Receive(Receive { from: FragmentId(0), output: 0 }) })
        };
        let plan = plan::Join {
            left: input(),
            right: input(),
            kind: setup.kind,
            on: setup.on.clone(),
            null_equals_null: setup.null_equals_null,
            residual: None,
            left_rows,
            right_rows,
        };
        let committed = Arc::new(AtomicU64::new(0));
        let join = build(&setup, &plan, store, &committed, vnodes);
        let (sender, changes) = mpsc::channel(10_000);
        let (job, store, out) = (JobId(number), store.clone(), Output::edge(sender));
        Rig { setup, plan, job, store, vnodes, committed, join, out, changes, rows: BTreeMap::new() }
    }

    /// Starts the executor anew on its tables.
    fn restart(&mut self) {
        self.join = build(&self.setup, &self.plan, &self.store, &self.committed, self.vnodes);
    }

    async fn apply(&mut self, port: usize, rows: &[(Row, i8)]) {
        self.join.apply(port, chunk(rows), &mut self.out).await.unwrap();
        self.drain();
    }

    async fn flush(&mut self) {
        self.join.flush(&mut self.out).await.unwrap();
        self.drain();
        let epoch = weir_common::Epoch(self.committed.load(Ordering::SeqCst) + 1);
        let tables = self.join.tables().into_iter().map(|t| t.seal(epoch)).collect();
        self.store.commit(JobCommit { job: self.job, epoch, tables, log: vec![] }).unwrap();
        self.committed.store(epoch.0, Ordering::SeqCst);
    }

    /// Checks the changes that have come out, and applies them.
    fn drain(&mut self) {
        let key_columns = stream_key(4, &self.setup.keys[0], &self.setup.keys[1], self.setup.kind, &self.setup.on);
        while let Ok(Message::Chunk(chunk)) = self.changes.try_recv() {
            let options = FormatOptions::default();
            let columns = chunk.batch().columns();
            let format: Vec<_> = columns.iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
            for i in 0..chunk.len() {
                let cell = |c: usize| columns[c].is_valid(i).then(|| format[c].value(i).to_string());
                let row: Vec<_> = (0..columns.len()).map(cell).collect();
                let key: Vec<_> = key_columns.iter().map(|c| row[*c].clone()).collect();
                if chunk.sign(i) > 0 {
                    let old = self.rows.insert(key, row.clone());
                    assert_eq!(old, None, "insert of {row:?} where there is one\n{:?}", self.setup);
                } else {
                    let old = self.rows.remove(&key);
                    assert_eq!(old.as_ref(), Some(&row), "delete of what is not there\n{:?}", self.setup);
                }
            }
        }
    }

    fn output(&self) -> Vec<Vec<Option<String>>> {
        let mut rows: Vec<_> = self.rows.values().cloned().collect();
        rows.sort();
        rows
    }
}

fn build(setup: &Setup, plan: &plan::Join, store: &Arc<Store>, committed: &Arc<AtomicU64>, vnodes: VnodeSet) -> Join {
    let open = |def: &TableDef| StateTable::open(store.clone(), def.clone(), vnodes, committed.clone());
    Join::new(
        plan,
        &schema(),
        &schema(),
        &output_schema(setup.kind),
        open(&plan.left_rows),
        open(&plan.right_rows),
        setup.residual.map(residual),
        Arc::new(MemoryLimit::new(setup.memory_bytes)),
    )
    .unwrap()
}

/// Makes changes that an input may have.
struct Input {
    /// The stream key.
    key: Vec<usize>,
    rows: BTreeMap<Vec<Option<String>>, Row>,
    append_only: bool,
    ids: i32,
}

impl Input {
    fn random_row(&self, rng: &mut StdRng) -> Row {
        Row {
            k: rng.random_bool(0.85).then(|| rng.random_range(0..4)),
            t: rng.random_bool(0.85).then(|| ["", "a", "b\0c"][rng.random_range(0..3)]),
            v: rng.random_bool(0.8).then(|| rng.random_range(0..4)),
            id: rng.random_range(0..self.ids),
        }
    }

    fn changes(&mut self, rng: &mut StdRng, len: usize) -> Vec<(Row, i8)> {
        let mut changes = Vec::new();
        while changes.len() < len {
            let row = self.random_row(rng);
            let key: Vec<_> = self.key.iter().map(|c| row.column(*c)).collect();
            match self.rows.get(&key) {
                None => {
                    changes.push((row.clone(), 1));
                    self.rows.insert(key, row);
                }
                Some(_) if self.append_only => return changes,
                Some(old) => {
                    changes.push((old.clone(), -1));
                    if rng.random_bool(0.5) {
                        changes.push((row.clone(), 1));
                        self.rows.insert(key, row);
                    } else {
                        self.rows.remove(&key);
                    }
                }
            }
        }
        changes
    }
}

/// Changes at random, in a store that other runs may be in.
async fn run(setup: Setup, seed: u64, store: &Arc<Store>, number: u32) {
    let mut rng = StdRng::seed_from_u64(seed);
    let Setup { append_only, ids, chunk_rows, .. } = setup;
    let input = |key: &Vec<usize>| Input { key: key.clone(), rows: BTreeMap::new(), append_only, ids };
    let mut inputs = [input(&setup.keys[0]), input(&setup.keys[1])];
    let mut rig = Rig::new(setup, store, number, VnodeSet::ALL);
    for epoch in 0..12 {
        for _ in 0..rng.random_range(0..4) {
            let port = rng.random_range(0..2);
            let len = rng.random_range(1..=chunk_rows);
            let changes = inputs[port].changes(&mut rng, len);
            rig.apply(port, &changes).await;
        }
        rig.flush().await;
        let rows = [inputs[0].rows.clone(), inputs[1].rows.clone()];
        assert_eq!(rig.output(), rig.setup.expected(&rows), "seed {seed}, epoch {epoch}, {:?}", rig.setup);
        if rng.random_bool(0.2) {
            rig.restart();
        }
    }
}

fn setups() -> Vec<Setup> {
    let mut setups = Vec::new();
    // What is joined on, and the inputs' keys.
    let shapes = [
        (vec![(0, 0)], [vec![3], vec![3]]),
        (vec![(0, 0)], [vec![3, 0], vec![0]]),
        (vec![(1, 1), (0, 0)], [vec![0, 1], vec![3]]),
        (vec![(0, 0)], [vec![0], vec![0, 3]]),
        (vec![(0, 0), (0, 2)], [vec![3], vec![3]]),
        (vec![], [vec![3], vec![3]]),
    ];
    for (on, keys) in shapes {
        for kind in KINDS {
            for residual in [None, Some(Residual::LeftLess), Some(Residual::Never)] {
                for null_equals_null in [false, true] {
                    setups.push(Setup {
                        kind,
                        on: on.clone(),
                        null_equals_null,
                        residual,
                        keys: keys.clone(),
                        memory_bytes: 1 << 30,
                        append_only: false,
                        ids: 12,
                        chunk_rows: 10,
                    });
                }
            }
        }
    }
    setups
}

fn open_store(folder: &tempfile::TempDir) -> Arc<Store> {
    let options = StoreOptions {
        block_cache_bytes: 1 << 20,
        tail_bytes: 0,
        uncommitted_bytes: 8 << 20,
        epoch_bytes: 64 << 20,
        sync: false,
    };
    Store::open(&folder.path().join("store"), options).unwrap()
}

fn run_all(setups: impl Iterator<Item = Setup>, seeds: std::ops::Range<u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder);
    let runs = setups.flat_map(|setup| seeds.clone().map(move |seed| (setup.clone(), seed)));
    for (number, (setup, seed)) in (1..).zip(runs) {
        runtime.block_on(run(setup, seed, &store, number));
    }
}

#[test]
fn output_is_the_join_of_the_inputs() {
    run_all(setups().into_iter(), 0..2);
}

#[test]
fn memory_may_forget_anything_at_any_time() {
    run_all(setups().into_iter().map(|setup| Setup { memory_bytes: 1, ..setup }), 10..11);
    run_all(setups().into_iter().map(|setup| Setup { memory_bytes: 4_000, ..setup }), 20..21);
}

#[test]
fn inputs_may_be_append_only() {
    run_all(setups().into_iter().map(|setup| Setup { append_only: true, ..setup }), 30..31);
}

#[test]
fn many_rows_of_a_key_come_out_in_pieces() {
    let plain = |s: &Setup| {
        s.keys[0] == s.keys[1] && s.on == [(0, 0)] && s.residual != Some(Residual::Never) && !s.null_equals_null
    };
    let large = |s: Setup| Setup { ids: 120, chunk_rows: 300, ..s };
    run_all(setups().into_iter().filter(plain).map(large), 40..41);
    run_all(setups().into_iter().filter(plain).map(|s| Setup { memory_bytes: 30_000, ..large(s) }), 41..42);
}

#[test]
fn one_row_may_have_more_matches_than_a_piece() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for kind in KINDS {
        for residual in [None, Some(Residual::LeftLess)] {
            runtime.block_on(match_many(kind, residual));
        }
    }
}

async fn match_many(kind: JoinKind, residual: Option<Residual>) {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { kind, residual, ..setups().remove(0) };
    let mut rig = Rig::new(setup, &open_store(&folder), 1, VnodeSet::ALL);
    let left: Vec<_> = (0..17_000).map(|id| (Row { k: Some(1), t: None, v: Some(id % 2), id }, 1)).collect();
    for rows in left.chunks(5_000) {
        rig.apply(0, rows).await;
    }
    let all_match = Row { k: Some(1), t: None, v: Some(9), id: 1 };
    rig.apply(1, &[(all_match.clone(), 1)]).await;
    assert_eq!(rig.rows.len(), if kind == JoinKind::LeftAnti { 0 } else { left.len() });
    rig.flush().await;
    rig.restart();
    let half_match = Row { v: Some(1), ..all_match.clone() };
    rig.apply(1, &[(all_match, -1), (half_match.clone(), 1)]).await;
    let expected = match (kind, residual) {
        (JoinKind::LeftAnti, None) => 0,
        (JoinKind::Left | JoinKind::Full, _) | (_, None) => left.len(),
        _ => left.len() / 2,
    };
    assert_eq!(rig.rows.len(), expected);
    rig.flush().await;
    rig.apply(1, &[(half_match, -1)]).await;
    let alone = matches!(kind, JoinKind::Left | JoinKind::Full | JoinKind::LeftAnti);
    assert_eq!(rig.rows.len(), if alone { left.len() } else { 0 });
}

#[test]
fn an_actor_reads_its_own_vnodes_only() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let vnodes = VnodeSet::split(3)[1];
    let mut rig = Rig::new(setups().remove(0), &open_store(&folder), 1, vnodes);
    let row = |k: i32| Row { k: Some(k), t: None, v: None, id: k };
    let columns = |k: i32| [chunk(&[(row(k), 1)]).column(0).clone()];
    let owned = |k: &i32| vnodes.contains(Vnode::of_columns(&columns(*k), 1).unwrap()[0]);
    let rows: Vec<_> = (0..60).filter(owned).map(|k| (row(k), 1)).collect();
    assert!(!rows.is_empty() && rows.len() < 60);
    runtime.block_on(async {
        rig.apply(0, &rows).await;
        rig.flush().await;
        rig.restart();
        rig.apply(1, &rows).await;
    });
    assert_eq!(rig.rows.len(), rows.len());
}
