//! Rows of a state table to keys and values, and back.
//!
//! A key column is not stored in the value again, unless what comes back from the key would not be exactly what was
//! written (`-0`, `30 days` as `1 mon`; see [`weir_common::key::is_exact`]). Columns of such types come first in the value,
//! null wherever the key gives the exact value, which is nearly always.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{is_not_null, nullif};
use arrow::datatypes::DataType;
use weir_common::key::{KeyOrder, decode_keys, encode_keys, is_exact};
use weir_common::row::{ByteRows, decode_rows, encode_rows};
use weir_common::{CodecError, TableDef, TableId, Vnode};

use crate::error::StorageError;
use crate::layout::{VNODE_BYTES, vnode_bytes};

/// Rows that were looked up by key.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rows that are there, with all columns.
    pub rows: RecordBatch,
    /// For each key its row in `rows`, if it is there.
    pub index: Vec<Option<u32>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RowCodec {
    def: TableDef,
    key: Vec<usize>,
    orders: Vec<KeyOrder>,
    key_types: Vec<DataType>,
    /// Positions in the key of the columns that are also in the value.
    inexact: Vec<usize>,
    /// Columns that are not in the key.
    rest: Vec<usize>,
    /// Types of all columns of the value.
    value_types: Vec<DataType>,
    /// Positions in the key of the distribution columns.
    distribution: Vec<usize>,
}

impl RowCodec {
    /// Panics when the distribution is not part of the key.
    pub fn new(def: &TableDef) -> RowCodec {
        let (key, key_types, rest) = (def.key_indices(), def.key_types(), def.value_indices());
        let inexact: Vec<_> = (0..key.len()).filter(|i| !is_exact(&key_types[*i])).collect();
        let mut value_types: Vec<_> = inexact.iter().map(|i| key_types[*i].clone()).collect();
        value_types.extend(def.value_types());
        let in_key = |column: &usize| {
            key.iter().position(|k| k == column).expect("a table is distributed by columns of its key")
        };
        let distribution = def.distribution.iter().map(in_key).collect();
        RowCodec {
            def: def.clone(),
            orders: def.key_orders(),
            key,
            key_types,
            inexact,
            rest,
            value_types,
            distribution,
        }
    }

    pub fn def(&self) -> &TableDef {
        &self.def
    }

    /// The keys, each after its vnode, of rows that are given by the first columns of the key. All columns that the
    /// table is distributed by must be among them.
    pub fn keys(&self, columns: &[ArrayRef], rows: usize) -> Result<ByteRows, StorageError> {
        assert!(columns.len() <= self.key.len(), "a key has {} columns, not {}", self.key.len(), columns.len());
        for (column, expected) in columns.iter().zip(&self.key_types) {
            self.check_type(column, expected);
        }
        self.keys_of(columns, rows).map_err(|source| self.codec_error(source))
    }

    fn keys_of(&self, columns: &[ArrayRef], rows: usize) -> Result<ByteRows, CodecError> {
        let distribution: Vec<_> = self.distribution.iter().map(|i| columns[*i].clone()).collect();
        let vnodes = Vnode::of_columns(&distribution, rows)?;
        if columns.is_empty() {
            // The table has one row at most, in the vnode of rows without distribution.
            return Ok(std::iter::repeat_n(&vnode_bytes(Vnode(0))[..], rows).collect());
        }
        let keys = encode_keys(columns, &self.orders[..columns.len()])?;
        let mut all = ByteRows::with_capacity(rows, keys.bytes() + rows * VNODE_BYTES);
        for (vnode, key) in vnodes.into_iter().zip(keys.iter()) {
            all.push_joined(&vnode_bytes(vnode), key);
        }
        Ok(all)
    }

    /// Keys and values of whole rows.
    pub fn encode(&self, batch: &RecordBatch) -> Result<(ByteRows, ByteRows), StorageError> {
        assert_eq!(batch.num_columns(), self.def.schema.fields().len(), "a row has all columns of its table");
        for (column, field) in batch.columns().iter().zip(self.def.schema.fields()) {
            self.check_type(column, field.data_type());
        }
        let encoded = || {
            let key_columns: Vec<_> = self.key.iter().map(|i| batch.column(*i).clone()).collect();
            let mut value_columns = Vec::with_capacity(self.value_types.len());
            for i in &self.inexact {
                value_columns.push(lost_in_key(&key_columns[*i])?);
            }
            value_columns.extend(self.rest.iter().map(|i| batch.column(*i).clone()));
            let keys = self.keys_of(&key_columns, batch.num_rows())?;
            Ok((keys, encode_rows(&value_columns, batch.num_rows())?))
        };
        encoded().map_err(|source| self.codec_error(source))
    }

    /// Whole rows of keys, each after its vnode, and values.
    pub fn decode<'a>(
        &self,
        keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
        values: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<RecordBatch, StorageError> {
        let decoded = || {
            let rows = keys.len();
            let mut columns = vec![None; self.def.schema.fields().len()];
            let key_columns = decode_keys(keys.map(|k| &k[VNODE_BYTES.min(k.len())..]), &self.key_types, &self.orders)?;
            let mut value_columns = decode_rows(values, &self.value_types)?.into_iter();
            for (i, column) in self.key.iter().zip(&key_columns) {
                columns[*i] = Some(column.clone());
            }
            for (i, lost) in self.inexact.iter().zip(&mut value_columns) {
                if lost.null_count() < rows {
                    columns[self.key[*i]] = Some(zip(&is_not_null(&lost)?, &lost, &key_columns[*i])?);
                }
            }
            for (i, column) in self.rest.iter().zip(value_columns) {
                columns[*i] = Some(column);
            }
            let columns = columns.into_iter().map(|c| c.expect("a column is in the key or in the rest")).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            Ok(RecordBatch::try_new_with_options(self.def.schema.clone(), columns, &options)?)
        };
        decoded().map_err(|source| self.codec_error(source))
    }

    /// The rows of those keys that have a value.
    pub fn found<'a>(
        &self,
        keys: &'a ByteRows,
        values: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Result<Found, StorageError> {
        let mut index = Vec::with_capacity(keys.len());
        let mut rows = Vec::new();
        for (key, value) in keys.iter().zip(values) {
            index.push(value.map(|_| rows.len() as u32));
            rows.extend(value.map(|value| (key, value)));
        }
        let rows = self.decode(rows.iter().map(|row| row.0), rows.iter().map(|row| row.1))?;
        Ok(Found { rows, index })
    }

    fn check_type(&self, column: &ArrayRef, expected: &DataType) {
        let (table, given) = (self.def.id, column.data_type());
        assert!(given.equals_datatype(expected), "table {table} has a column of {expected}, not of {given}");
    }

    fn codec_error(&self, source: CodecError) -> StorageError {
        let table: TableId = self.def.id;
        StorageError::Codec { table, source }
    }
}

/// The values of a key column that do not come back from the key exactly as they are; null for the others.
fn lost_in_key(column: &ArrayRef) -> Result<ArrayRef, CodecError> {
    let keys = encode_keys(std::slice::from_ref(column), &[KeyOrder::ASC])?;
    let returned = decode_keys(keys.iter(), &[column.data_type().clone()], &[KeyOrder::ASC])?;
    let exact = |columns: &[ArrayRef]| encode_rows(columns, column.len());
    let (written, returned) = (exact(std::slice::from_ref(column))?, exact(&returned)?);
    let same: BooleanArray = written.iter().zip(returned.iter()).map(|(a, b)| Some(a == b)).collect();
    Ok(nullif(column, &same)?)
}
