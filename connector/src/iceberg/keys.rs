//! What has become of each key that the open commit has touched.
//!
//! A row that is in the table already is deleted by its key, a row that this commit has written by its position. Which
//! it is, is known from the changes of a key in their order:
//!
//! | | first change of the key | row written by this commit | gone |
//! |---|---|---|---|
//! | delete | delete by key | delete by position | nothing |
//! | insert | delete by key (see below), write | delete by position, write | write |
//!
//! A key that is inserted first may be in the table: the sink may have been made anew on a table that has its rows already.
//! Only if the table was empty when the writer began, no such key can be there.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::Result;

/// Where the open commit has written a row: the number of a file, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    pub file: u32,
    pub position: u64,
}

/// The keys of the open commit.
pub struct Keys {
    converter: RowConverter,
    /// `None`: there is no row any more.
    rows: HashMap<Box<[u8]>, Option<Written>>,
    key_bytes: usize,
}

impl Keys {
    /// Keys with these columns.
    pub fn new(columns: &Schema) -> Result<Keys> {
        let fields = columns.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        Ok(Keys { converter: RowConverter::new(fields)?, rows: HashMap::new(), key_bytes: 0 })
    }

    /// The keys of rows, given their columns.
    pub fn of(&self, columns: &RecordBatch) -> Result<Rows> {
        Ok(self.converter.convert_columns(columns.columns())?)
    }

    /// A row was written. `Ok`: the row of this commit that it takes the place of, if there is one; `Err`: its key may be in
    /// the table.
    pub fn insert(&mut self, key: &[u8], written: Written) -> std::result::Result<Option<Written>, ()> {
        self.put(key, Some(written)).ok_or(())
    }

    /// A row goes. `Ok`: the row of this commit that it is, if it is one; `Err`: it is to be deleted by key.
    pub fn delete(&mut self, key: &[u8]) -> std::result::Result<Option<Written>, ()> {
        self.put(key, None).ok_or(())
    }

    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> usize {
        self.key_bytes + self.rows.capacity() * size_of::<(Box<[u8]>, Option<Written>)>()
    }

    /// The commit has ended.
    pub fn clear(&mut self) {
        self.rows = HashMap::new();
        self.key_bytes = 0;
    }

    fn put(&mut self, key: &[u8], row: Option<Written>) -> Option<Option<Written>> {
        if let Some(known) = self.rows.get_mut(key) {
            return Some(std::mem::replace(known, row));
        }
        self.key_bytes += key.len();
        self.rows.insert(key.into(), row);
        None
    }
}
