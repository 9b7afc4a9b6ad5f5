//! The join keys of a chunk.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use weir_common::CodecError;
use weir_common::key::{KeyOrder, encode_keys};
use weir_common::row::ByteRows;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Not the hash of vnodes: the rows of an actor have few of those, and would crowd in a few buckets.
const SEED: u64 = 0x7765_6972_6a6f_696e;

/// Which keys can match at all.
#[derive(Clone, Debug)]
pub(super) struct KeyRule {
    /// NULLs match each other.
    pub null_equals_null: bool,
    /// Positions in the key whose values must be equal, because the other side has the same column there.
    pub equal: Vec<(usize, usize)>,
}

impl KeyRule {
    /// For the keys of one side, given the join key columns of the other.
    pub fn new(null_equals_null: bool, other_on: &[usize]) -> KeyRule {
        let first = |p: usize| other_on.iter().position(|c| *c == other_on[p]).filter(|first| *first < p);
        let equal = (0..other_on.len()).filter_map(|p| first(p).map(|first| (first, p))).collect();
        KeyRule { null_equals_null, equal }
    }

    /// The rows that can match; `None`: all.
    fn matchable(&self, columns: &[ArrayRef]) -> Result<Option<BooleanBuffer>, CodecError> {
        let mut valid: Option<NullBuffer> = None;
        if !self.null_equals_null {
            for column in columns {
                valid = NullBuffer::union(valid.as_ref(), column.logical_nulls().as_ref());
            }
        }
        for (a, b) in &self.equal {
            let a = encode_keys(&columns[*a..=*a], &[KeyOrder::ASC])?;
            let b = encode_keys(&columns[*b..=*b], &[KeyOrder::ASC])?;
            let same = BooleanBuffer::collect_bool(a.len(), |i| a.get(i) == b.get(i));
            valid = NullBuffer::union(valid.as_ref(), Some(&NullBuffer::new(same)));
        }
        Ok(valid.filter(|v| v.null_count() > 0).map(|v| v.inner().clone()))
    }
}

/// The join keys of the rows of a chunk.
pub(super) struct Keys {
    /// `None`: the key has no columns, and all rows the same empty key.
    bytes: Option<ByteRows>,
    hashes: Vec<u64>,
    matchable: Option<BooleanBuffer>,
}

impl Keys {
    /// Encodes the key columns of `rows` rows.
    pub fn new(columns: &[ArrayRef], rows: usize, rule: &KeyRule) -> Result<Keys, CodecError> {
        if columns.is_empty() {
            return Ok(Keys { bytes: None, hashes: vec![xxh3_64_with_seed(&[], SEED); rows], matchable: None });
        }
        let bytes = encode_keys(columns, &vec![KeyOrder::ASC; columns.len()])?;
        let hashes = bytes.iter().map(|key| xxh3_64_with_seed(key, SEED)).collect();
        Ok(Keys { bytes: Some(bytes), hashes, matchable: rule.matchable(columns)? })
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The key of a row.
    pub fn get(&self, row: usize) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |b| b.get(row))
    }

    /// The hash of the key of a row.
    pub fn hash(&self, row: usize) -> u64 {
        self.hashes[row]
    }

    /// Whether the row can match a row at all. Rows that can't are not kept.
    pub fn matchable(&self, row: usize) -> bool {
        self.matchable.as_ref().is_none_or(|m| m.value(row))
    }

    /// The rows that can match; `None`: all.
    pub fn matchable_rows(&self) -> Option<&BooleanBuffer> {
        self.matchable.as_ref()
    }
}
