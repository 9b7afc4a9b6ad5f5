#![allow(clippy::unwrap_used)]
//! The store as its callers see it.

#[cfg(feature = "failpoints")]
mod crash;
mod log;
mod model;
mod store;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use weir_common::{Chunk, Epoch, JobId, TableDef, TableId, Vnode, VnodeSet};

use crate::{JobCommit, LogChunk, StateTable, Store, StoreOptions};

/// A row of the tests' tables: key `a, b`, value `v`.
type Row = (i64, i64, Option<String>);

fn options() -> StoreOptions {
    StoreOptions {
        block_cache_bytes: 8 << 20,
        tail_bytes: 1 << 20,
        uncommitted_bytes: 8 << 20,
        epoch_bytes: 64 << 20,
        sync: false,
    }
}

fn open(path: &Path) -> Arc<Store> {
    Store::open(path, options()).unwrap()
}

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("a", DataType::Int64, false),
        Field::new("v", DataType::Utf8, true),
        Field::new("b", DataType::Int64, false),
    ])
}

/// Keyed by `a, b`, distributed by `a`.
fn def(table: u32) -> TableDef {
    TableDef::ascending(TableId(table), schema(), &[0, 2], &[0])
}

fn state_table(store: &Arc<Store>, def: &TableDef) -> (StateTable, Arc<AtomicU64>) {
    let committed = Arc::new(AtomicU64::new(0));
    (StateTable::open(store.clone(), def.clone(), VnodeSet::ALL, committed.clone()), committed)
}

fn ints(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns = vec![
        ints(rows.iter().map(|r| r.0)),
        Arc::new(rows.iter().map(|r| r.2.as_deref()).collect::<StringArray>()) as ArrayRef,
        ints(rows.iter().map(|r| r.1)),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns).unwrap()
}

fn rows(batch: &RecordBatch) -> Vec<Row> {
    let (a, v, b) = (batch.column(0), batch.column(1).as_string::<i32>(), batch.column(2));
    let int = |column: &ArrayRef, i| column.as_primitive::<Int64Type>().value(i);
    let text = |i| v.is_valid(i).then(|| v.value(i).to_string());
    (0..batch.num_rows()).map(|i| (int(a, i), int(b, i), text(i))).collect()
}

fn row(a: i64, b: i64, v: &str) -> Row {
    (a, b, Some(v.to_string()))
}

/// What a job that does nothing commits.
fn empty_commit(job: u32, epoch: u64) -> JobCommit {
    JobCommit { job: JobId(job), epoch: Epoch(epoch), tables: vec![], log: vec![] }
}

/// A chunk of a log that inserts rows `(a, a)`.
fn log_chunk(table: u32, epoch: u64, values: &[i64]) -> LogChunk {
    let rows: Vec<_> = values.iter().map(|a| row(*a, *a, "x")).collect();
    let vnodes = values.iter().map(|a| *a as u8).collect();
    LogChunk { table: TableId(table), epoch: Epoch(epoch), chunk: Chunk::inserts(batch(&rows)), vnodes }
}

/// The vnode of the rows with this `a`.
fn vnode(a: i64) -> Vnode {
    Vnode::of_columns(&[ints([a])], 1).unwrap()[0]
}
