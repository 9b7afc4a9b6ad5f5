//! Writes that are not committed yet, as layers over what is.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use weir_common::Epoch;

/// What a write costs in memory beside its bytes.
const WRITE_OVERHEAD_BYTES: usize = 100;

/// The writes of one epoch to one table. Key: vnode and memcomparable key. Value: the row's, or `None` if deleted.
///
/// Keys and values are parts of the buffers that a whole chunk was encoded into: no allocation per row.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    writes: BTreeMap<Bytes, Option<Bytes>>,
    bytes: usize,
}

impl Buffer {
    /// The newest write of a key is the one that counts.
    pub fn write(&mut self, key: Bytes, value: Option<Bytes>) {
        // An older write of the key still counts, because the buffer that it is part of is still there.
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len) + WRITE_OVERHEAD_BYTES;
        self.writes.insert(key, value);
    }

    /// Bytes that the writes take in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many keys are written.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// All writes in key order.
    pub fn iter(&self) -> impl Iterator<Item = Write<'_>> {
        self.writes.iter().map(|(key, value)| (&key[..], value.as_deref()))
    }

    fn range<'a>(&'a self, range: Range<'_>, reverse: bool) -> Box<dyn Iterator<Item = Write<'a>> + 'a> {
        let writes = self.writes.range::<[u8], _>(range).map(|(key, value)| (&key[..], value.as_deref()));
        if reverse { Box::new(writes.rev()) } else { Box::new(writes) }
    }
}

/// A key and its value; without one it is deleted.
pub(crate) type Write<'a> = (&'a [u8], Option<&'a [u8]>);
/// Bounds of keys. Not empty by construction: the start is before the end.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The writes of the current epoch over those of epochs that are sealed but not known to be committed.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub pending: Buffer,
    /// Oldest first.
    sealed: VecDeque<(Epoch, Arc<Buffer>)>,
}

impl Layers {
    /// Forgets what is committed.
    pub fn retire(&mut self, committed: Epoch) {
        while self.sealed.front().is_some_and(|(epoch, _)| *epoch <= committed) {
            self.sealed.pop_front();
        }
    }

    /// The pending writes become those of the epoch.
    pub fn seal(&mut self, epoch: Epoch) -> Arc<Buffer> {
        assert!(self.sealed.back().is_none_or(|(last, _)| *last < epoch), "epochs are sealed in order");
        let buffer = Arc::new(std::mem::take(&mut self.pending));
        if buffer.len() > 0 {
            self.sealed.push_back((epoch, buffer.clone()));
        }
        buffer
    }

    /// Bytes that all layers take in memory.
    pub fn bytes(&self) -> usize {
        self.pending.bytes + self.sealed.iter().map(|(_, buffer)| buffer.bytes).sum::<usize>()
    }

    /// The newest write of a key: `Some(None)` if it is deleted, `None` if no layer knows.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.newest_first().find_map(|buffer| buffer.writes.get(key)).map(Option::as_deref)
    }

    /// Whether there is no write.
    pub fn is_empty(&self) -> bool {
        self.newest_first().all(|buffer| buffer.writes.is_empty())
    }

    /// The newest write of each key in the range, in key order.
    pub fn range<'a>(&'a self, range: Range<'_>, reverse: bool) -> Merged<'a> {
        let layers = self.newest_first().filter(|b| b.len() > 0).map(|b| b.range(range, reverse).peekable()).collect();
        Merged { layers, reverse }
    }

    fn newest_first(&self) -> impl Iterator<Item = &Buffer> {
        std::iter::once(&self.pending).chain(self.sealed.iter().rev().map(|(_, buffer)| buffer.as_ref()))
    }
}

/// Compares keys in the order of a scan.
pub(crate) fn scan_order(a: &[u8], b: &[u8], reverse: bool) -> Ordering {
    if reverse { b.cmp(a) } else { a.cmp(b) }
}

/// Several layers as one: see [`Layers::range`].
pub(crate) struct Merged<'a> {
    /// Newest first.
    layers: Vec<Peekable<Box<dyn Iterator<Item = Write<'a>> + 'a>>>,
    reverse: bool,
}

impl<'a> Iterator for Merged<'a> {
    type Item = Write<'a>;

    fn next(&mut self) -> Option<Write<'a>> {
        let reverse = self.reverse;
        // Of equal keys `min_by` takes the first, which is in the newest layer.
        let heads = self.layers.iter_mut().filter_map(|layer| layer.peek().copied());
        let (key, value) = heads.min_by(|a, b| scan_order(a.0, b.0, reverse))?;
        for layer in &mut self.layers {
            layer.next_if(|head| head.0 == key);
        }
        Some((key, value))
    }
}
