//! What a state table looks like.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::id::TableId;
use crate::key::{KeyOrder, SortColumn};

/// A state table: rows that an executor must remember, keyed by vnode.
///
/// ```text
/// key    table_id u32 BE | vnode u8 widened to u16 BE | key columns, memcomparable      value   the other columns
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDef {
    /// Its id in the store.
    pub id: TableId,
    /// All columns of a row, in the order in which rows are given to the table and come back from it.
    pub schema: SchemaRef,
    /// The columns of the key, in order. They identify a row.
    pub key: Vec<SortColumn>,
    /// The columns that the vnode of a row is hashed from; a subset of the key. Empty: every row is in vnode 0.
    pub distribution: Vec<usize>,
}

impl TableDef {
    /// Indices of the key columns.
    pub fn key_indices(&self) -> Vec<usize> {
        self.key.iter().map(|k| k.column).collect()
    }

    /// Orders of the key columns.
    pub fn key_orders(&self) -> Vec<KeyOrder> {
        self.key.iter().map(|k| k.order).collect()
    }

    /// Types of the key columns.
    pub fn key_types(&self) -> Vec<DataType> {
        self.key.iter().map(|k| self.schema.field(k.column).data_type().clone()).collect()
    }

    /// Indices of the columns that are not in the key, in order; the value of a row.
    pub fn value_indices(&self) -> Vec<usize> {
        (0..self.schema.fields().len()).filter(|i| self.key.iter().all(|k| k.column != *i)).collect()
    }

    /// Types of the columns that are not in the key.
    pub fn value_types(&self) -> Vec<DataType> {
        self.value_indices().into_iter().map(|i| self.schema.field(i).data_type().clone()).collect()
    }

    /// A table with ascending keys.
    pub fn ascending(id: TableId, schema: Schema, key: &[usize], distribution: &[usize]) -> TableDef {
        let key = key.iter().map(|i| SortColumn { column: *i, order: KeyOrder::ASC }).collect();
        TableDef { id, schema: Arc::new(schema), key, distribution: distribution.to_vec() }
    }
}
