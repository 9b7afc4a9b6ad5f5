//! Keys of a relation's rows, as the store has them.

use arrow::array::ArrayRef;
use weir_common::TableDef;
use weir_common::key::encode_keys;
use weir_common::row::ByteRows;

use crate::error::{Result, SqlError};

/// The memcomparable keys of rows, without the vnode. `column(i)` is column `i` of the table.
pub(crate) fn relation_keys<'a>(def: &TableDef, column: impl Fn(usize) -> &'a ArrayRef) -> Result<ByteRows> {
    let keys = encode_keys(&key_columns(def, column), &def.key_orders());
    keys.map_err(|e| SqlError::internal(format!("encode keys: {e}")))
}

/// The key columns of rows, in the order of the key.
pub(super) fn key_columns<'a>(def: &TableDef, column: impl Fn(usize) -> &'a ArrayRef) -> Vec<ArrayRef> {
    def.key.iter().map(|k| column(k.column).clone()).collect()
}
