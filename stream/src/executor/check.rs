//! Tests of executors as text.
//!
//! A script has a line per change, `port sign values…` (the port may be left out where there is one), and lines
//! `barrier` (ends the epoch and commits it) and `restart` (drops the executor and builds it anew on the same store; what
//! came after the last barrier is lost). `NULL` is null, `''` the empty text, `_` in a value stands for a blank.
//!
//! What comes out is compared by epoch: the net changes, sorted, each epoch ended by `barrier`. On the way every output is
//! checked to be a change log: a delete has the row that it deletes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tokio::sync::mpsc;
use weir_common::{Chunk, Epoch, JobId, TableDef, VnodeSet};
use weir_storage::{JobCommit, MemoryLimit, StateTable, Store, StoreOptions};

use super::Executor;
use crate::message::{Message, Output};

const JOB: JobId = JobId(1);

/// A store for an executor under test.
pub struct Bench {
    _dir: tempfile::TempDir,
    store: Arc<Store>,
    committed: Arc<AtomicU64>,
    /// To be put under pressure by tests that force evictions.
    pub memory: Arc<MemoryLimit>,
    epoch: u64,
}

/// An empty store in a directory.
pub fn open_store(dir: &tempfile::TempDir) -> Arc<Store> {
    let options = StoreOptions {
        block_cache_bytes: 8 << 20,
        tail_bytes: 1 << 20,
        uncommitted_bytes: 8 << 20,
        epoch_bytes: 64 << 20,
        sync: false,
    };
    Store::open(&dir.path().join("store"), options).unwrap()
}

impl Bench {
    /// An empty store with a memory limit that nothing reaches.
    pub fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let store = open_store(&dir);
        Bench {
            _dir: dir,
            store,
            committed: Arc::new(AtomicU64::new(0)),
            memory: Arc::new(MemoryLimit::new(1 << 30)),
            epoch: 0,
        }
    }

    /// Opens a state table that owns every vnode.
    pub fn table(&self, def: &TableDef) -> StateTable {
        StateTable::open(self.store.clone(), def.clone(), VnodeSet::ALL, self.committed.clone())
    }
}

/// A schema of nullable columns, e.g. `[("id", Int64), ("name", Utf8)]`.
pub fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

/// One executor with its inputs, driven as the engine does.
pub struct Driven<E> {
    executor: E,
    inputs: Vec<SchemaRef>,
    /// Net rows that have come out since the first epoch.
    relation: BTreeMap<String, i64>,
    /// Net changes of the open epoch.
    changes: BTreeMap<String, i64>,
}

impl<E: Executor> Driven<E> {
    /// `inputs[p]` is the schema of port `p`.
    pub fn new(executor: E, inputs: &[SchemaRef]) -> Driven<E> {
        Driven { executor, inputs: inputs.to_vec(), relation: BTreeMap::new(), changes: BTreeMap::new() }
    }

    /// Feeds a chunk.
    pub async fn apply(&mut self, port: usize, chunk: Chunk) {
        let (mut out, mut receiver) = output();
        self.executor.apply(port, chunk, &mut out).await.unwrap();
        drop(out);
        self.take(&mut receiver);
    }

    /// Ends and commits the epoch. Returns the net changes, as text with their count.
    pub async fn barrier(&mut self, bench: &mut Bench) -> BTreeMap<String, i64> {
        let (mut out, mut receiver) = output();
        self.executor.flush(&mut out).await.unwrap();
        drop(out);
        self.take(&mut receiver);
        bench.epoch += 1;
        let epoch = Epoch(bench.epoch);
        let tables = self.executor.tables().into_iter().map(|t| t.seal(epoch)).collect();
        bench.store.commit(JobCommit { job: JOB, epoch, tables, log: vec![] }).unwrap();
        bench.committed.store(epoch.0, Ordering::Release);
        std::mem::take(&mut self.changes)
    }

    /// Replaces the executor by one built anew; what came after the last barrier is lost.
    pub fn restart(&mut self, executor: E) {
        for (row, count) in std::mem::take(&mut self.changes) {
            *self.relation.entry(row).or_default() -= count;
        }
        self.executor = executor;
    }

    /// The rows that have come out and not been deleted, as text with their count.
    pub fn relation(&self) -> BTreeMap<String, i64> {
        self.relation.iter().filter(|(_, count)| **count != 0).map(|(row, count)| (row.clone(), *count)).collect()
    }

    fn take(&mut self, receiver: &mut mpsc::Receiver<Message>) {
        while let Ok(message) = receiver.try_recv() {
            let Message::Chunk(chunk) = message else { panic!("an executor sends no barrier") };
            for (i, row) in rows(chunk.batch()).into_iter().enumerate() {
                let sign = i64::from(chunk.sign(i));
                let count = self.relation.entry(row.clone()).or_default();
                *count += sign;
                assert!(*count >= 0, "deleted a row that is not there: {row}");
                *self.changes.entry(row).or_default() += sign;
            }
        }
    }
}

fn output() -> (Output, mpsc::Receiver<Message>) {
    let (sender, receiver) = mpsc::channel(1 << 16);
    (Output::edge(sender), receiver)
}

/// The rows of a batch as text, as scripts write them.
pub fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let formatters: Vec<_> =
        batch.columns().iter().map(|c| ArrayFormatter::try_new(c.as_ref(), &options).unwrap()).collect();
    let cell = |f: &ArrayFormatter<'_>, row| match f.value(row).to_string() {
        text if text.is_empty() => "''".to_owned(),
        text => text.replace(' ', "_"),
    };
    (0..batch.num_rows()).map(|row| formatters.iter().map(|f| cell(f, row)).collect::<Vec<_>>().join(" ")).collect()
}

/// A chunk from lines `sign values…`.
pub fn chunk(schema: &SchemaRef, lines: &[&str]) -> Chunk {
    let mut signs = Vec::new();
    let mut cells: Vec<Vec<Option<String>>> = vec![Vec::new(); schema.fields().len()];
    for line in lines {
        let mut words = line.split_whitespace();
        signs.push(match words.next() {
            Some("+") => 1,
            Some("-") => -1,
            other => panic!("a change starts with + or -, not {other:?}: {line}"),
        });
        let values: Vec<_> = words.collect();
        assert_eq!(values.len(), cells.len(), "one value per column: {line}");
        for (column, value) in cells.iter_mut().zip(values) {
            column.push(match value {
                "NULL" => None,
                "''" => Some(String::new()),
                text => Some(text.replace('_', " ")),
            });
        }
    }
    let columns: Vec<ArrayRef> = cells
        .into_iter()
        .zip(schema.fields())
        .map(|(column, field)| cast(&StringArray::from(column), field.data_type()).unwrap())
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
    Chunk::new(RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap(), signs)
}

/// Runs a script through executors made by `make` and compares what comes out, epoch by epoch.
pub async fn check<E: Executor>(inputs: &[SchemaRef], make: impl Fn(&Bench) -> E, script: &str, expected: &str) {
    let mut bench = Bench::new();
    let mut driven = Driven::new(make(&bench), inputs);
    let mut got = String::new();
    let mut pending: Option<(usize, Vec<String>)> = None;
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (port, change) = match line.split_once(' ') {
            Some((port, rest)) if port.parse::<usize>().is_ok() => (port.parse().unwrap(), rest),
            _ => (0, line),
        };
        let is_change = change.starts_with(['+', '-']);
        if let Some((of, lines)) = pending.take_if(|(of, _)| !is_change || *of != port) {
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            let chunk = chunk(&driven.inputs[of], &lines);
            driven.apply(of, chunk).await;
        }
        match change {
            _ if is_change => pending.get_or_insert((port, Vec::new())).1.push(change.to_owned()),
            "barrier" => {
                for (row, count) in driven.barrier(&mut bench).await {
                    for _ in 0..count.abs() {
                        got += &format!("{} {row}\n", if count > 0 { '+' } else { '-' });
                    }
                }
                got += "barrier\n";
            }
            "restart" => driven.restart(make(&bench)),
            other => panic!("no such command: {other}"),
        }
    }
    let wanted: Vec<_> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let sorted = |lines: &[&str]| {
        let mut epochs: Vec<Vec<String>> = vec![Vec::new()];
        for line in lines {
            if *line == "barrier" {
                epochs.push(Vec::new());
            } else if let Some(epoch) = epochs.last_mut() {
                epoch.push((*line).to_owned());
            }
        }
        epochs.iter_mut().for_each(|e| e.sort());
        epochs
    };
    let got: Vec<_> = got.lines().collect();
    assert_eq!(sorted(&got), sorted(&wanted), "got:\n{}", got.join("\n"));
}
