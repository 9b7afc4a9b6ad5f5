//! For each input row, one row per element of a list column, and its position. Keeps no state.
//!
//! An empty list and NULL give no row; an element that is NULL gives one. As PostgreSQL does, a list of lists is taken
//! apart to its innermost elements.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, SchemaRef};
use weir_common::{Chunk, plan};
use weir_storage::StateTable;

use crate::Result;
use crate::error::StreamError;
use crate::executor::Executor;
use crate::message::Output;

/// See the module.
pub struct Unnest {
    column: usize,
    schema: SchemaRef,
}

/// Elements of the lists of a chunk.
struct Elements {
    /// The input row of each element.
    rows: Vec<u32>,
    /// The place of each element among the values of the list array.
    values: Vec<u32>,
    /// From 1.
    positions: Vec<i64>,
}

impl Unnest {
    /// The output has this schema: the input with the list replaced by its element, then the position.
    pub fn new(plan: &plan::Unnest, schema: SchemaRef) -> Unnest {
        Unnest { column: plan.column, schema }
    }

    fn unnest(&self, chunk: &Chunk) -> Result<Chunk> {
        let (values, elements) = flatten(chunk.column(self.column))?;
        let rows = UInt32Array::from(elements.rows);
        let element_type = self.schema.field(self.column).data_type();
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for (i, column) in chunk.batch().columns().iter().enumerate() {
            columns.push(match i == self.column {
                false => take(column, &rows, None)?,
                true => cast(&take(&values, &UInt32Array::from(elements.values.clone()), None)?, element_type)?,
            });
        }
        columns.push(Arc::new(Int64Array::from(elements.positions)));
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        Ok(match chunk.signs() {
            None => Chunk::inserts(batch),
            Some(signs) => Chunk::new(batch, rows.values().iter().map(|r| signs[*r as usize]).collect()),
        })
    }
}

/// The innermost elements of the lists, and the array that they are in.
fn flatten(lists: &ArrayRef) -> Result<(ArrayRef, Elements)> {
    let rows = (0..lists.len() as u32).collect();
    let values = (0..lists.len() as u32).collect();
    let mut level = (lists.clone(), Elements { rows, values, positions: Vec::new() });
    loop {
        level = match level.0.data_type() {
            DataType::List(_) => open(&level.0, &level.1),
            DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                (cast(&level.0, &DataType::List(item.clone()))?, level.1)
            }
            _ if !level.1.positions.is_empty() || level.1.rows.is_empty() => return Ok(level),
            _ => return Err(StreamError::Plan("UNNEST of a column that is no list")),
        };
    }
}

/// One level down: the elements of those lists. Positions count all elements of an input row.
fn open(lists: &ArrayRef, outer: &Elements) -> (ArrayRef, Elements) {
    let lists = lists.as_list::<i32>();
    let offsets = lists.value_offsets();
    let mut inner = Elements { rows: Vec::new(), values: Vec::new(), positions: Vec::new() };
    let mut position = 0;
    for (row, list) in outer.rows.iter().zip(&outer.values) {
        if inner.rows.last() != Some(row) {
            position = 0;
        }
        let list = *list as usize;
        if lists.is_null(list) {
            continue;
        }
        for value in offsets[list]..offsets[list + 1] {
            position += 1;
            inner.rows.push(*row);
            inner.values.push(value as u32);
            inner.positions.push(position);
        }
    }
    (lists.values().clone(), inner)
}

impl Executor for Unnest {
    async fn apply(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<()> {
        out.push(self.unnest(&chunk)?).await
    }

    async fn flush(&mut self, _out: &mut Output) -> Result<()> {
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut StateTable> {
        vec![]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use arrow::array::{Int64Builder, ListBuilder};
    use arrow::datatypes::Field;

    use super::*;
    use crate::executor::check::{rows, schema};

    fn list_of(item: DataType) -> DataType {
        DataType::List(Arc::new(Field::new("item", item, true)))
    }

    fn unnested(lists: ArrayRef, item: DataType, signs: Vec<i8>) -> (Vec<String>, Vec<i8>) {
        let input = schema(&[("id", DataType::Int64), ("l", lists.data_type().clone())]);
        let output = schema(&[("id", DataType::Int64), ("l", item), ("position", DataType::Int64)]);
        let ids = Arc::new(Int64Array::from_iter_values(1..=lists.len() as i64));
        let chunk = Chunk::new(RecordBatch::try_new(input, vec![ids, lists]).unwrap(), signs);
        let unnest = Unnest { column: 1, schema: output };
        let result = unnest.unnest(&chunk).unwrap();
        (rows(result.batch()), (0..result.len()).map(|i| result.sign(i)).collect())
    }

    #[test]
    fn one_row_per_element() {
        let mut lists = ListBuilder::new(Int64Builder::new());
        lists.append_value([Some(7), None]);
        lists.append_null();
        lists.append_value([]);
        lists.append_value([Some(8)]);
        let (rows, signs) = unnested(Arc::new(lists.finish()), DataType::Int64, vec![1, 1, -1, -1]);
        assert_eq!(rows, ["1 7 1", "1 NULL 2", "4 8 1"]);
        assert_eq!(signs, [1, 1, -1]);
    }

    #[test]
    fn nothing_comes_of_empty_lists() {
        let mut lists = ListBuilder::new(Int64Builder::new());
        lists.append_value([]);
        assert!(unnested(Arc::new(lists.finish()), DataType::Int64, vec![1]).0.is_empty());
        assert!(
            unnested(Arc::new(ListBuilder::new(Int64Builder::new()).finish()), DataType::Int64, vec![]).0.is_empty()
        );
    }

    #[test]
    fn lists_of_lists_are_taken_apart() {
        let mut lists = ListBuilder::new(ListBuilder::new(Int64Builder::new()));
        lists.values().append_value([Some(1), Some(2)]);
        lists.values().append_value([Some(3)]);
        lists.append(true);
        lists.values().append_value([Some(4)]);
        lists.append(true);
        let lists: ArrayRef = Arc::new(lists.finish());
        assert_eq!(*lists.data_type(), list_of(list_of(DataType::Int64)));
        let (rows, _) = unnested(lists, DataType::Int64, vec![1, 1]);
        assert_eq!(rows, ["1 1 1", "1 2 2", "1 3 3", "2 4 1"]);
    }
}
