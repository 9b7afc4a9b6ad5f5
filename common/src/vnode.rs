//! Virtual nodes: 256 hash buckets, the unit of ownership, of backfill progress and of rescaling.

use arrow::array::ArrayRef;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::CodecError;
use crate::key::{KeyOrder, encode_keys};

/// How many vnodes there are. Part of the on-disk format.
pub const VNODE_COUNT: usize = 256;

/// One of the 256 buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vnode(pub u8);

impl Vnode {
    /// The vnode of a row, by the memcomparable bytes of its distribution key (see [`crate::key`]). Rows without a
    /// distribution key (an empty one) are in vnode 0. The hash is part of the on-disk format: XXH3, low 8 bits.
    pub fn of(distribution_key: &[u8]) -> Vnode {
        if distribution_key.is_empty() { Vnode(0) } else { Vnode(xxh3_64(distribution_key) as u8) }
    }

    /// The two bytes that keys of this vnode start with in the store.
    pub fn prefix(self) -> [u8; 2] {
        (self.0 as u16).to_be_bytes()
    }

    /// The vnodes of `rows` rows, by the columns that they are distributed by. The order in which a table sorts these
    /// columns does not matter. Without columns every row is in vnode 0.
    pub fn of_columns(columns: &[ArrayRef], rows: usize) -> Result<Vec<Vnode>, CodecError> {
        if columns.is_empty() {
            return Ok(vec![Vnode(0); rows]);
        }
        let keys = encode_keys(columns, &vec![KeyOrder::ASC; columns.len()])?;
        assert_eq!(keys.len(), rows, "distribution columns have one value per row");
        Ok(keys.iter().map(Vnode::of).collect())
    }

    /// All vnodes in order.
    pub fn all() -> impl Iterator<Item = Vnode> {
        (0..VNODE_COUNT).map(|v| Vnode(v as u8))
    }
}

/// A set of vnodes, as owned by an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VnodeSet([u64; VNODE_COUNT / 64]);

impl VnodeSet {
    /// No vnode.
    pub const EMPTY: VnodeSet = VnodeSet([0; VNODE_COUNT / 64]);
    /// Every vnode.
    pub const ALL: VnodeSet = VnodeSet([u64::MAX; VNODE_COUNT / 64]);

    /// Adds a vnode.
    pub fn insert(&mut self, vnode: Vnode) {
        self.0[vnode.0 as usize / 64] |= 1 << (vnode.0 % 64);
    }

    /// Whether the vnode is in the set.
    pub fn contains(&self, vnode: Vnode) -> bool {
        self.0[vnode.0 as usize / 64] & (1 << (vnode.0 % 64)) != 0
    }

    /// The vnodes of the set in order.
    pub fn iter(&self) -> impl Iterator<Item = Vnode> + '_ {
        Vnode::all().filter(|v| self.contains(*v))
    }

    /// How many vnodes are in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set has no vnode.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shares all vnodes out among `parts` owners, contiguously and as evenly as possible. Owner `i` gets set `i`.
    pub fn split(parts: usize) -> Vec<VnodeSet> {
        assert!((1..=VNODE_COUNT).contains(&parts), "parallelism is between 1 and the number of vnodes, not {parts}");
        let mut sets = vec![VnodeSet::EMPTY; parts];
        for vnode in Vnode::all() {
            sets[vnode.0 as usize * parts / VNODE_COUNT].insert(vnode);
        }
        sets
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_vnode_has_exactly_one_owner() {
        for parts in [1, 2, 3, 7, 255, 256] {
            let sets = VnodeSet::split(parts);
            for vnode in Vnode::all() {
                assert_eq!(sets.iter().filter(|s| s.contains(vnode)).count(), 1);
            }
            let sizes: Vec<_> = sets.iter().map(VnodeSet::len).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }

    #[test]
    fn the_hash_is_stable() {
        assert_eq!(Vnode::of(b""), Vnode(0));
        assert_eq!(Vnode::of(b"weir"), Vnode(xxh3_64(b"weir") as u8));
    }
}
