//! Keys of a relation's rows, as the store has them.

use arrow::array::ArrayRef;
use weir_common::key::{KeyOrder, encode_keys};
use weir_common::row::ByteRows;
use weir_common::{TableDef, Vnode};

use crate::error::{Result, SqlError};

/// The memcomparable keys of rows, without the vnode. `column(i)` is column `i` of the table.
pub(crate) fn relation_keys<'a>(def: &TableDef, column: impl Fn(usize) -> &'a ArrayRef) -> Result<ByteRows> {
    let columns: Vec<_> = def.key.iter().map(|k| column(k.column).clone()).collect();
    encode(&columns, &def.key_orders())
}

/// The full keys of rows: vnode, then the memcomparable key.
pub(super) fn full_keys<'a>(def: &TableDef, column: impl Fn(usize) -> &'a ArrayRef) -> Result<ByteRows> {
    let keys = relation_keys(def, &column)?;
    let vnodes = if def.distribution.is_empty() {
        None
    } else {
        let columns: Vec<_> = def.distribution.iter().map(|i| column(*i).clone()).collect();
        Some(encode(&columns, &vec![KeyOrder::ASC; columns.len()])?)
    };
    let mut full = ByteRows::with_capacity(keys.len(), keys.len() * 32);
    for (i, key) in keys.iter().enumerate() {
        let vnode = vnodes.as_ref().map_or(Vnode(0), |v| Vnode::of(v.get(i)));
        full.push_joined(&vnode.prefix(), key);
    }
    Ok(full)
}

fn encode(columns: &[ArrayRef], orders: &[KeyOrder]) -> Result<ByteRows> {
    encode_keys(columns, orders).map_err(|e| SqlError::internal(format!("encode keys: {e}")))
}
