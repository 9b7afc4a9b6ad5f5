//! Keys and small values as they are on disk. See the crate's documentation for the whole layout.
//!
//! ```text
//! progress   'f' | job u32                ->  frontier u64
//!            'l' | table u32 | epoch u64  ->  parts u32 | rows u64 | bytes u64, of the change log
//!            't' | table u32              ->  epoch u64, the last one that was dropped from the change log
//! ```

use weir_common::{Epoch, JobId, TableId, Vnode};

/// Version of the layout. A store with a newer one is refused.
pub(crate) const STORE_FORMAT: u32 = 1;
/// The key of the version, in the default column family.
pub(crate) const FORMAT_KEY: &[u8] = b"weir format";

pub(crate) const STATE: &str = "state";
pub(crate) const CHANGELOG: &str = "changelog";
pub(crate) const PROGRESS: &str = "progress";

pub(crate) const FRONTIER: u8 = b'f';
pub(crate) const LOG_EPOCH: u8 = b'l';
pub(crate) const LOG_TRUNCATED: u8 = b't';

/// Bytes of a table id at the start of a key.
pub(crate) const TABLE_BYTES: usize = 4;
/// Bytes of a vnode at the start of what follows the table id.
pub(crate) const VNODE_BYTES: usize = 2;

/// A vnode as it is in keys.
pub(crate) fn vnode_bytes(vnode: Vnode) -> [u8; VNODE_BYTES] {
    (vnode.0 as u16).to_be_bytes()
}

/// The key of `rest` (vnode and memcomparable key) in a table.
pub(crate) fn state_key(table: TableId, rest: &[u8]) -> Vec<u8> {
    [&table.0.to_be_bytes(), rest].concat()
}

/// The first bytes of all keys of a table, in `state` and `changelog`.
pub(crate) fn table_start(table: TableId) -> Vec<u8> {
    table.0.to_be_bytes().to_vec()
}

/// After all keys of a table, in `state` and `changelog`.
pub(crate) fn table_end(table: TableId) -> Vec<u8> {
    after_prefix(&table.0.to_be_bytes()).unwrap_or_else(|| vec![0xff; 2 * TABLE_BYTES])
}

/// The key of a chunk of a change log.
pub(crate) fn log_key(table: TableId, epoch: Epoch, part: u32) -> Vec<u8> {
    [&table.0.to_be_bytes()[..], &epoch.0.to_be_bytes(), &part.to_be_bytes()].concat()
}

/// The key of a job's frontier.
pub(crate) fn frontier_key(job: JobId) -> Vec<u8> {
    [&[FRONTIER][..], &job.0.to_be_bytes()].concat()
}

/// The key of what the change log of a table holds of an epoch.
pub(crate) fn log_epoch_key(table: TableId, epoch: Epoch) -> Vec<u8> {
    [&[LOG_EPOCH][..], &table.0.to_be_bytes(), &epoch.0.to_be_bytes()].concat()
}

/// The key of how far the change log of a table is truncated.
pub(crate) fn log_truncated_key(table: TableId) -> Vec<u8> {
    [&[LOG_TRUNCATED][..], &table.0.to_be_bytes()].concat()
}

/// The smallest bytes that are after all that start with the prefix; `None` when there are none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The big-endian number of four bytes at `at`, if they are there.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The big-endian number of eight bytes at `at`, if they are there.
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_starts_with_it() {
        assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after_prefix(&[1, 0xff]), Some(vec![2]));
        assert_eq!(after_prefix(&[0xff]), None);
        assert_eq!(after_prefix(&[]), None);
        assert_eq!(table_end(TableId(6)), table_start(TableId(7)));
        assert!(table_end(TableId(u32::MAX)) > state_key(TableId(u32::MAX), &[0, 0xff, 0xff, 0xff, 0xff]));
    }
}
