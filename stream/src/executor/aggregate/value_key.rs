//! How the values of a call become the part of a key that follows the group, and come back from it.
//!
//! ```text
//! value columns, memcomparable | for each argument that a key does not keep exactly: its row bytes
//! ```
//!
//! A key keeps what compares equal equal, so `-0` comes back from it as `0` and `1 mon` as `30 days`. Where results show
//! single values, the arguments' exact bytes are therefore a further column of the key, so that the value which is taken
//! back is the one that came. DISTINCT wants equal values to be one, and goes without.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use weir_common::key::{KeyOrder, SortColumn, decode_keys, encode_keys, is_exact};
use weir_common::plan::AggCall;
use weir_common::row::{ByteRows, decode_rows, encode_rows};

use super::accumulator::primitive;
use super::layout::{folds_equals, value_columns};
use crate::Result;

/// See the module.
pub(super) struct ValueKey {
    /// Input columns that are encoded, in order.
    columns: Vec<SortColumn>,
    types: Vec<DataType>,
    names: Vec<String>,
    /// For each argument: its place among the columns and, if its row bytes are there, theirs.
    args: Vec<(usize, Option<usize>)>,
}

impl ValueKey {
    /// The key of a call's values.
    pub fn new(call: &AggCall, input: &Schema) -> ValueKey {
        let columns = value_columns(call);
        let mut types: Vec<DataType> = columns.iter().map(|c| input.field(c.column).data_type().clone()).collect();
        let mut names: Vec<String> = columns.iter().map(|c| input.field(c.column).name().clone()).collect();
        let mut args = Vec::new();
        for arg in &call.args {
            let place = columns.iter().position(|c| c.column == *arg).expect("arguments are value columns");
            let exact = (!folds_equals(call) && !is_exact(&types[place])).then(|| {
                names.push(format!("{}_exact", names[place]));
                types.push(DataType::Binary);
                types.len() - 1
            });
            args.push((place, exact));
        }
        ValueKey { columns, types, names, args }
    }

    /// Name, type and order of each key column.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &DataType, KeyOrder)> {
        let orders = self.orders();
        self.names
            .iter()
            .zip(&self.types)
            .zip(orders)
            .map(|((name, data_type), order)| (name.as_str(), data_type, order))
    }

    /// The keys of rows, from all columns of the input.
    pub fn encode(&self, input: &RecordBatch) -> Result<ByteRows> {
        let mut columns: Vec<ArrayRef> = self.columns.iter().map(|c| input.column(c.column).clone()).collect();
        for (place, exact) in &self.args {
            if exact.is_some() {
                let rows = encode_rows(&columns[*place..=*place], input.num_rows())?;
                columns.push(Arc::new(rows.iter().map(Some).collect::<BinaryArray>()));
            }
        }
        Ok(encode_keys(&columns, &self.orders())?)
    }

    /// Argument `arg` of keys.
    pub fn decode<'a>(&self, keys: impl Iterator<Item = &'a [u8]> + Clone, arg: usize) -> Result<ArrayRef> {
        let (place, exact) = self.args[arg];
        let needed = exact.unwrap_or(place) + 1;
        let columns = decode_keys(keys, &self.types[..needed], &self.orders()[..needed])?;
        self.exact(columns, arg)
    }

    /// Argument `arg` from all key columns.
    pub fn exact(&self, columns: Vec<ArrayRef>, arg: usize) -> Result<ArrayRef> {
        let (place, exact) = self.args[arg];
        let Some(exact) = exact else { return Ok(columns[place].clone()) };
        let rows = primitive::<BinaryArray>(&columns[exact]);
        let rows = (0..rows.len()).map(|i| rows.value(i));
        let mut columns = decode_rows(rows, &self.types[place..=place])?;
        Ok(columns.swap_remove(0))
    }

    fn orders(&self) -> Vec<KeyOrder> {
        let orders = self.columns.iter().map(|c| c.order);
        orders.chain(std::iter::repeat(KeyOrder::ASC)).take(self.types.len()).collect()
    }
}
