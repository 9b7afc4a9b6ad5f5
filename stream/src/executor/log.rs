//! Keeps the change log of a sink.
//!
//! State     none: the log is all there is.
//! Output    the log: the rows of the input; an update is a delete and an insert side by side.
//! Invariant with `consolidate`, an epoch has each row at most once as a delete and once as an insert, and deletes come first:
//!           then it is right for any key of the rows, though the rows of a key come from several places.

use std::collections::HashMap;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute;
use arrow::row::{RowConverter, SortField};
use weir_common::{Chunk, TableDef, Vnode, plan};
use weir_storage::StateTable;

use crate::Result;
use crate::executor::Executor;
use crate::message::Output;

/// See the module.
pub struct Log {
    table: TableDef,
    consolidate: bool,
    /// The epoch so far, if it is to be consolidated.
    held: Vec<Chunk>,
}

impl Log {
    /// Of the log of a plan.
    pub fn new(plan: &plan::Log) -> Log {
        Log { table: plan.table.clone(), consolidate: plan.consolidate, held: Vec::new() }
    }

    fn emit(&self, chunk: Chunk, out: &mut Output) -> Result<()> {
        let vnodes = Vnode::of_columns(&chunk.columns(&self.table.distribution), chunk.len())?;
        out.push_log(self.table.id, chunk, vnodes.iter().map(|v| v.0).collect());
        Ok(())
    }
}

/// The same changes in all: no row is both deleted and inserted, and deletes come first. Rows keep the order of their last
/// change.
fn consolidated(table: &TableDef, chunks: &[Chunk]) -> Result<Chunk> {
    let all = Chunk::concat(&table.schema, chunks)?;
    let fields = table.schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
    let rows = RowConverter::new(fields.collect())?.convert_columns(all.batch().columns())?;
    let mut last: HashMap<_, (i64, usize)> = HashMap::new();
    for (i, row) in rows.iter().enumerate() {
        let (net, at) = last.entry(row).or_default();
        (*net, *at) = (*net + i64::from(all.sign(i)), i);
    }
    let mut left: Vec<(bool, usize, i64)> =
        last.into_values().filter(|(net, _)| *net != 0).map(|(net, at)| (net > 0, at, net)).collect();
    left.sort_unstable();
    let repeat = |(inserted, at, net): &(bool, usize, i64)| {
        std::iter::repeat_n((*at as u32, if *inserted { 1i8 } else { -1 }), net.unsigned_abs() as usize)
    };
    let (rows, signs): (Vec<u32>, Vec<i8>) = left.iter().flat_map(repeat).unzip();
    let batch = compute::take_record_batch(all.batch(), &UInt32Array::from(rows))?;
    Ok(Chunk::new(batch, signs))
}

impl Executor for Log {
    async fn apply(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        // The log has the columns of its table, whatever they are called here.
        let columns: Vec<ArrayRef> = chunk.batch().columns().to_vec();
        let chunk = chunk.with_batch(arrow::array::RecordBatch::try_new(self.table.schema.clone(), columns)?);
        if self.consolidate {
            self.held.push(chunk);
            return Ok(());
        }
        self.emit(chunk, out)
    }

    async fn flush(&mut self, out: &mut Output) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        self.emit(consolidated(&self.table, &held)?, out)
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use weir_common::TableId;

    use super::*;

    #[test]
    fn an_epoch_is_consolidated() {
        let schema = Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("v", DataType::Int64, true)]);
        let table = TableDef::ascending(TableId(1), schema, &[0], &[0]);
        let chunk = |rows: &[(i8, i64, i64)]| {
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1))),
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.2))),
            ];
            let batch = RecordBatch::try_new(table.schema.clone(), columns).unwrap();
            Chunk::new(batch, rows.iter().map(|r| r.0).collect())
        };
        // Key 1 goes from 10 to 12, and the insert comes first; key 2 comes and goes; key 3 is twice the same.
        let chunks = [chunk(&[(1, 1, 12), (1, 2, 20), (1, 3, 30)]), chunk(&[(-1, 2, 20), (-1, 1, 10), (1, 3, 30)])];
        let out = consolidated(&table, &chunks).unwrap();
        let column = |i: usize| out.column(i).as_primitive::<Int64Type>().values().to_vec();
        let rows: Vec<_> = (0..out.len()).map(|i| (out.sign(i), column(0)[i], column(1)[i])).collect();
        assert_eq!(rows, [(-1, 1, 10), (1, 1, 12), (1, 3, 30), (1, 3, 30)]);
    }
}
