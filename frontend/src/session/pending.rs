//! The writes of an open block on one table.
//!
//! Rows of a table without primary key get their row ids when they are committed. Until then, inside the block, they are
//! told apart by negative ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef};
use weir_common::catalog::{Object, ROW_ID};
use weir_common::plan::{Conflict, Node};
use weir_common::{Chunk, TableDef};

use crate::batch::Overlay;
use crate::error::{Result, SqlError};

/// Changes, in order.
pub(super) struct Pending {
    table: WrittenTable,
    chunks: Vec<Chunk>,
    /// The next id of a row that has none.
    next_row_id: i64,
}

/// What a writer must know of a table.
#[derive(Clone)]
pub(super) struct WrittenTable {
    pub def: TableDef,
    /// The columns of a chunk of changes.
    pub schema: SchemaRef,
    /// The hidden column that is filled in when a row is committed.
    pub row_id: Option<usize>,
    /// An insert of a key that is there is ignored.
    pub keeps_old: bool,
}

impl WrittenTable {
    /// From the plan of the table's job.
    pub fn new(object: &Object) -> Result<WrittenTable> {
        let no_plan = || SqlError::internal(format!("table \"{}\" has no plan", object.name));
        let plan = object.plan.as_ref().ok_or_else(no_plan)?;
        let def = plan.relation.clone().ok_or_else(no_plan)?;
        let mut keeps_old = false;
        for fragment in &plan.fragments {
            fragment.plan.visit(&mut |plan| {
                if let Node::Materialize(m) = &plan.node {
                    keeps_old = m.conflict == Conflict::DoNothing;
                }
            });
        }
        let row_id = object.columns.iter().position(|c| c.hidden && c.name == ROW_ID);
        Ok(WrittenTable {
            schema: plan.dml().map_or(&def.schema, |(_, schema)| schema).clone(),
            def,
            row_id,
            keeps_old,
        })
    }
}

impl Pending {
    pub fn new(table: WrittenTable) -> Pending {
        Pending { table, chunks: vec![], next_row_id: -1 }
    }

    /// Adds the changes of a statement.
    pub fn add(&mut self, chunk: Chunk) -> Result<()> {
        let Some(row_id) = self.table.row_id else {
            self.chunks.push(chunk);
            return Ok(());
        };
        let ids = chunk.column(row_id).as_primitive::<Int64Type>();
        let ids: Int64Array = ids
            .iter()
            .map(|id| {
                id.or_else(|| {
                    self.next_row_id -= 1;
                    Some(self.next_row_id + 1)
                })
            })
            .collect();
        self.chunks.push(chunk.with_batch(replace_column(chunk.batch(), row_id, Arc::new(ids))?));
        Ok(())
    }

    /// The changes as reads in the block see them.
    pub fn overlay(&self) -> Result<Overlay> {
        Overlay::new(&self.table.def, &self.chunks, self.table.keeps_old)
    }

    /// The changes to hand over.
    pub fn into_chunks(self) -> Result<Vec<Chunk>> {
        let Some(row_id) = self.table.row_id else { return Ok(self.chunks) };
        let mut out = Vec::new();
        // What became of rows that have no id of the table's yet.
        let mut new_rows: BTreeMap<std::cmp::Reverse<i64>, Option<(usize, usize)>> = BTreeMap::new();
        for (c, chunk) in self.chunks.iter().enumerate() {
            let ids = chunk.column(row_id).as_primitive::<Int64Type>();
            for (r, id) in ids.values().iter().enumerate().filter(|(_, id)| **id < 0) {
                new_rows.insert(std::cmp::Reverse(*id), (chunk.sign(r) > 0).then_some((c, r)));
            }
            let committed: BooleanArray = ids.values().iter().map(|id| Some(*id >= 0)).collect();
            out.push(chunk.filter(&committed)?);
        }
        let live: Vec<_> = new_rows.into_values().flatten().collect();
        if !live.is_empty() {
            let batches: Vec<&RecordBatch> = self.chunks.iter().map(Chunk::batch).collect();
            let rows = interleave_record_batch(&batches, &live)?;
            let no_ids = Arc::new(Int64Array::new_null(rows.num_rows()));
            out.push(Chunk::inserts(replace_column(&rows, row_id, no_ids)?));
        }
        out.retain(|chunk| !chunk.is_empty());
        Ok(out)
    }
}

fn replace_column(batch: &RecordBatch, i: usize, column: ArrayRef) -> Result<RecordBatch> {
    let mut columns = batch.columns().to_vec();
    columns[i] = column;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow::array::{Array, Int32Array};
    use arrow::datatypes::{DataType, Field, Schema};
    use weir_common::TableId;

    use super::*;

    fn table() -> WrittenTable {
        let fields = vec![Field::new("v", DataType::Int32, true), Field::new(ROW_ID, DataType::Int64, true)];
        let def = TableDef::ascending(TableId(1), Schema::new(fields), &[1], &[1]);
        WrittenTable { schema: def.schema.clone(), def, row_id: Some(1), keeps_old: false }
    }

    fn chunk(rows: &[(i8, i32, Option<i64>)]) -> Chunk {
        let values: Int32Array = rows.iter().map(|r| Some(r.1)).collect();
        let ids: Int64Array = rows.iter().map(|r| r.2).collect();
        let batch = RecordBatch::try_new(table().schema, vec![Arc::new(values), Arc::new(ids)]).unwrap();
        Chunk::new(batch, rows.iter().map(|r| r.0).collect())
    }

    fn rows(chunks: &[Chunk]) -> Vec<(i8, i32, Option<i64>)> {
        let mut rows = Vec::new();
        for chunk in chunks {
            let (values, ids) = (chunk.column(0).as_primitive::<arrow::datatypes::Int32Type>(), chunk.column(1));
            let ids = ids.as_primitive::<Int64Type>();
            rows.extend(
                (0..chunk.len()).map(|i| (chunk.sign(i), values.value(i), ids.is_valid(i).then(|| ids.value(i)))),
            );
        }
        rows
    }

    #[test]
    fn rows_that_come_and_go_in_a_block_are_not_handed_over() {
        let mut pending = Pending::new(table());
        pending.add(chunk(&[(1, 10, None), (1, 20, None), (1, 30, None)])).unwrap();
        // The block updates its second row and deletes its first; it updates a committed row as well.
        pending.add(chunk(&[(-1, 20, Some(-2)), (1, 21, Some(-2)), (-1, 10, Some(-1))])).unwrap();
        pending.add(chunk(&[(-1, 5, Some(7)), (1, 6, Some(7))])).unwrap();
        let chunks = pending.into_chunks().unwrap();
        assert_eq!(rows(&chunks), [(-1, 5, Some(7)), (1, 6, Some(7)), (1, 21, None), (1, 30, None)]);
    }
}
