//! Writes that are not committed yet, as layers over what is.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use weir_common::Epoch;
use weir_common::row::ByteRows;

use crate::uncommitted::Uncommitted;

/// How many bytes of a key an [`Entry`] holds.
const HEAD_BYTES: usize = size_of::<u128>();
/// What a write costs in memory beside its bytes: its entry, once it is arranged, and two ends in [`ByteRows`].
const WRITE_OVERHEAD_BYTES: usize = size_of::<Entry>() + 2 * size_of::<usize>();
/// In [`Entry::row`]: the key is deleted.
const DELETED: u32 = 1 << 31;

/// The writes of one epoch to one table. Key: vnode and memcomparable key. Value: the row's, or `None` if deleted.
///
/// A write is appended; nothing is compared before somebody reads or the epoch ends. What is written by then becomes a
/// sorted run, and runs are merged when they are about as large as each other, as in a log-structured merge tree (O'Neil et
/// al. 1996): a write takes part in a logarithmic number of merges, and a read looks into as many runs.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// As whole chunks were encoded: no allocation per row.
    parts: Vec<Part>,
    /// Oldest first. Each is sorted by key and has a key once.
    runs: Vec<Vec<Entry>>,
    /// How many of the parts are in runs. The others are newer.
    arranged: usize,
    bytes: usize,
    uncommitted: Arc<Uncommitted>,
}

/// Writes in order of arrival.
#[derive(Debug)]
struct Part {
    keys: ByteRows,
    /// Not read where a key is deleted.
    values: ByteRows,
    deleted: Deleted,
}

/// Which keys of a part are deleted.
#[derive(Debug)]
pub(crate) enum Deleted {
    None,
    All,
    Rows(Vec<bool>),
}

impl Deleted {
    fn is(&self, row: usize) -> bool {
        match self {
            Deleted::None => false,
            Deleted::All => true,
            Deleted::Rows(rows) => rows[row],
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.uncommitted.sub(self.bytes);
    }
}

/// Where a write is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first bytes of the key, so that most comparisons need nothing else.
    head: u128,
    part: u32,
    /// In the part; with [`DELETED`] where the key is deleted.
    row: u32,
}

impl Buffer {
    /// Nothing is written. What will be is part of `uncommitted` as long as the buffer is there.
    fn new(uncommitted: Arc<Uncommitted>) -> Buffer {
        Buffer { parts: Vec::new(), runs: Vec::new(), arranged: 0, bytes: 0, uncommitted }
    }

    /// Adds writes in order; the newest write of a key is the one that counts.
    pub fn write(&mut self, keys: ByteRows, values: ByteRows, deleted: Deleted) {
        assert!(keys.len() < DELETED as usize, "a chunk has less than 2^31 rows");
        let bytes = keys.bytes() + values.bytes() + keys.len() * WRITE_OVERHEAD_BYTES;
        self.bytes += bytes;
        self.uncommitted.add(bytes);
        self.parts.push(Part { keys, values, deleted });
    }

    /// Bytes that the writes take in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many keys are written. The buffer is [sealed](Buffer::seal).
    pub fn len(&self) -> usize {
        self.sealed().len()
    }

    /// All writes in key order. The buffer is [sealed](Buffer::seal).
    pub fn iter(&self) -> impl Iterator<Item = Write<'_>> {
        self.sealed().iter().map(|entry| (self.key(entry), self.value(entry)))
    }

    /// Makes all writes readable.
    fn arrange(&mut self) {
        let recent = &self.parts[self.arranged..];
        if recent.is_empty() {
            return;
        }
        let mut entries = Vec::with_capacity(recent.iter().map(|part| part.keys.len()).sum());
        for (part, number) in recent.iter().zip(self.arranged as u32..) {
            entries.extend(part.keys.iter().enumerate().map(|(row, key)| {
                let mark = if part.deleted.is(row) { DELETED } else { 0 };
                Entry { head: head(key), part: number, row: row as u32 | mark }
            }));
        }
        self.arranged = self.parts.len();
        let run = self.sorted(entries);
        self.runs.push(run);
        while let [.., older, newer] = &self.runs[..]
            && older.len() <= 2 * newer.len()
        {
            self.merge_last_two();
        }
    }

    /// Makes all writes readable as one run: no more are added.
    fn seal(&mut self) {
        self.arrange();
        while self.runs.len() > 1 {
            self.merge_last_two();
        }
    }

    fn is_arranged(&self) -> bool {
        self.arranged == self.parts.len()
    }

    fn sealed(&self) -> &[Entry] {
        debug_assert!(self.is_arranged() && self.runs.len() <= 1, "the buffer is sealed");
        self.runs.first().map_or(&[], Vec::as_slice)
    }

    /// By key, the newest write of each.
    fn sorted(&self, mut entries: Vec<Entry>) -> Vec<Entry> {
        // In order of arrival, the later of two writes is in a later part or row.
        let arrival = |e: &Entry| (e.part, e.row & !DELETED);
        entries.sort_unstable_by(|a, b| self.compare(a, b).then_with(|| arrival(b).cmp(&arrival(a))));
        entries.dedup_by(|later, first| self.compare(later, first).is_eq());
        entries
    }

    fn merge_last_two(&mut self) {
        let (Some(newer), Some(older)) = (self.runs.pop(), self.runs.pop()) else { return };
        let mut merged = Vec::with_capacity(older.len() + newer.len());
        let (mut old, mut new) = (older.iter().peekable(), newer.iter().peekable());
        while let (Some(a), Some(b)) = (old.peek(), new.peek()) {
            match self.compare(a, b) {
                Ordering::Less => merged.extend(old.next()),
                Ordering::Greater => merged.extend(new.next()),
                Ordering::Equal => {
                    merged.extend(new.next());
                    old.next();
                }
            }
        }
        merged.extend(old.chain(new));
        self.runs.push(merged);
    }

    fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        debug_assert!(self.is_arranged(), "writes are arranged before they are read");
        let head = head(key);
        let found = self.runs.iter().rev().find_map(|run| {
            let at = run.partition_point(|e| self.compare_key(e, head, key).is_lt());
            run.get(at).filter(|e| self.compare_key(e, head, key).is_eq())
        });
        found.map(|entry| self.value(entry))
    }

    /// Each run's writes in the range, newest first.
    fn range<'a>(&'a self, range: Range<'_>, reverse: bool) -> impl Iterator<Item = Run<'a>> {
        debug_assert!(self.is_arranged(), "writes are arranged before they are read");
        let bounds = (range.0.map(|key| (head(key), key)), range.1.map(|key| (head(key), key)));
        self.runs.iter().rev().filter_map(move |run| {
            let start = match bounds.0 {
                Bound::Unbounded => 0,
                Bound::Included((head, key)) => run.partition_point(|e| self.compare_key(e, head, key).is_lt()),
                Bound::Excluded((head, key)) => run.partition_point(|e| self.compare_key(e, head, key).is_le()),
            };
            let end = match bounds.1 {
                Bound::Unbounded => run.len(),
                Bound::Included((head, key)) => run.partition_point(|e| self.compare_key(e, head, key).is_le()),
                Bound::Excluded((head, key)) => run.partition_point(|e| self.compare_key(e, head, key).is_lt()),
            };
            (start < end).then(|| Run { buffer: self, entries: &run[start..end], reverse })
        })
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        self.parts[entry.part as usize].keys.get((entry.row & !DELETED) as usize)
    }

    fn value(&self, entry: &Entry) -> Option<&[u8]> {
        (entry.row & DELETED == 0).then(|| self.parts[entry.part as usize].values.get(entry.row as usize))
    }

    #[inline]
    fn compare(&self, a: &Entry, b: &Entry) -> Ordering {
        a.head.cmp(&b.head).then_with(|| self.key(a).cmp(self.key(b)))
    }

    #[inline]
    fn compare_key(&self, entry: &Entry, head: u128, key: &[u8]) -> Ordering {
        entry.head.cmp(&head).then_with(|| self.key(entry).cmp(key))
    }
}

/// The first bytes of a key as a number; keys whose numbers differ compare like them. The very first byte is left out: as
/// the high one of a vnode it is zero in all keys, and one only in the end of a range.
#[inline]
fn head(key: &[u8]) -> u128 {
    let Some((high, key)) = key.split_first() else { return 0 };
    match key.first_chunk::<HEAD_BYTES>() {
        _ if *high > 0 => u128::MAX,
        Some(head) => u128::from_be_bytes(*head),
        None => {
            let mut padded = [0; HEAD_BYTES];
            padded[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(padded)
        }
    }
}

/// A key and its value; without one it is deleted.
pub(crate) type Write<'a> = (&'a [u8], Option<&'a [u8]>);
/// Bounds of keys. Not empty by construction: the start is before the end.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A part of a run in the order of a scan.
struct Run<'a> {
    buffer: &'a Buffer,
    entries: &'a [Entry],
    reverse: bool,
}

impl<'a> Iterator for Run<'a> {
    type Item = Write<'a>;

    fn next(&mut self) -> Option<Write<'a>> {
        let (entry, rest) = if self.reverse { self.entries.split_last()? } else { self.entries.split_first()? };
        self.entries = rest;
        Some((self.buffer.key(entry), self.buffer.value(entry)))
    }
}

/// The writes of the current epoch over those of epochs that are sealed but not known to be committed.
#[derive(Debug)]
pub(crate) struct Layers {
    pending: Buffer,
    /// Oldest first.
    sealed: VecDeque<(Epoch, Arc<Buffer>)>,
    uncommitted: Arc<Uncommitted>,
}

impl Layers {
    /// Nothing is written.
    pub fn new(uncommitted: Arc<Uncommitted>) -> Layers {
        Layers { pending: Buffer::new(uncommitted.clone()), sealed: VecDeque::new(), uncommitted }
    }

    /// Adds writes of the current epoch; see [`Buffer::write`].
    pub fn write(&mut self, keys: ByteRows, values: ByteRows, deleted: Deleted) {
        self.pending.write(keys, values, deleted);
    }

    /// Makes all writes readable. Comes before [`get`](Layers::get) and [`range`](Layers::range).
    pub fn arrange(&mut self) {
        self.pending.arrange();
    }

    /// Forgets what is committed.
    pub fn retire(&mut self, committed: Epoch) {
        while self.sealed.front().is_some_and(|(epoch, _)| *epoch <= committed) {
            self.sealed.pop_front();
        }
    }

    /// The pending writes become those of the epoch.
    pub fn seal(&mut self, epoch: Epoch) -> Arc<Buffer> {
        assert!(self.sealed.back().is_none_or(|(last, _)| *last < epoch), "epochs are sealed in order");
        let mut buffer = std::mem::replace(&mut self.pending, Buffer::new(self.uncommitted.clone()));
        buffer.seal();
        let buffer = Arc::new(buffer);
        if !buffer.is_empty() {
            self.sealed.push_back((epoch, buffer.clone()));
        }
        buffer
    }

    /// Bytes of the epoch that is not sealed yet.
    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// Bytes that all layers take in memory.
    pub fn bytes(&self) -> usize {
        self.pending.bytes() + self.sealed.iter().map(|(_, buffer)| buffer.bytes()).sum::<usize>()
    }

    /// The newest write of a key: `Some(None)` if it is deleted, `None` if no layer knows.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.newest_first().find_map(|buffer| buffer.get(key))
    }

    /// Whether there is no write.
    pub fn is_empty(&self) -> bool {
        self.newest_first().all(Buffer::is_empty)
    }

    /// The newest write of each key in the range, in key order.
    pub fn range<'a>(&'a self, range: Range<'_>, reverse: bool) -> Merged<'a> {
        let runs =
            self.newest_first().flat_map(|buffer| buffer.range(range, reverse)).map(Iterator::peekable).collect();
        Merged { runs, reverse }
    }

    fn newest_first(&self) -> impl Iterator<Item = &Buffer> {
        std::iter::once(&self.pending).chain(self.sealed.iter().rev().map(|(_, buffer)| buffer.as_ref()))
    }
}

/// Compares keys in the order of a scan.
pub(crate) fn scan_order(a: &[u8], b: &[u8], reverse: bool) -> Ordering {
    if reverse { b.cmp(a) } else { a.cmp(b) }
}

/// Several runs as one: see [`Layers::range`].
pub(crate) struct Merged<'a> {
    /// Newest first.
    runs: Vec<Peekable<Run<'a>>>,
    reverse: bool,
}

impl<'a> Iterator for Merged<'a> {
    type Item = Write<'a>;

    fn next(&mut self) -> Option<Write<'a>> {
        let reverse = self.reverse;
        // Of equal keys `min_by` takes the first, which is in the newest run.
        let heads = self.runs.iter_mut().filter_map(|run| run.peek().copied());
        let (key, value) = heads.min_by(|a, b| scan_order(a.0, b.0, reverse))?;
        for run in &mut self.runs {
            run.next_if(|head| head.0 == key);
        }
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Short and long keys, so that heads are equal, prefixes of each other, and padded.
    fn key(rng: &mut SmallRng) -> Vec<u8> {
        let mut key = vec![0, rng.random_range(0..3)];
        key.resize([2, 5, 17, 18, 30][rng.random_range(0..5)], rng.random_range(0..2));
        key.extend(std::iter::repeat_n(0, rng.random_range(0..2)));
        key
    }

    #[test]
    fn reads_are_those_of_a_map() {
        let mut rng = SmallRng::seed_from_u64(7);
        for _ in 0..200 {
            let uncommitted = Arc::new(Uncommitted::new(1 << 20));
            let mut layers = Layers::new(uncommitted.clone());
            let mut model = BTreeMap::<Vec<u8>, Option<Vec<u8>>>::new();
            for epoch in 1..4 {
                for _ in 0..rng.random_range(0..6) {
                    let rows = rng.random_range(0..20);
                    let keys: Vec<_> = (0..rows).map(|_| key(&mut rng)).collect();
                    let values: Vec<_> = (0..rows).map(|_| vec![rng.random::<u8>(); 2]).collect();
                    let deleted: Vec<_> = (0..rows).map(|_| rng.random_bool(0.3)).collect();
                    for ((key, value), deleted) in keys.iter().zip(&values).zip(&deleted) {
                        model.insert(key.clone(), (!deleted).then(|| value.clone()));
                    }
                    let shared = |rows: &[Vec<u8>]| rows.iter().map(Vec::as_slice).collect::<ByteRows>();
                    layers.write(shared(&keys), shared(&values), Deleted::Rows(deleted));
                    if rng.random_bool(0.5) {
                        check(&mut layers, &model, &mut rng);
                    }
                }
                let sealed = layers.seal(Epoch(epoch));
                let sealed: Vec<_> = sealed.iter().collect();
                assert!(sealed.is_sorted_by(|a, b| a.0 < b.0));
                assert!(sealed.iter().all(|(key, value)| model[*key].as_deref() == *value));
                check(&mut layers, &model, &mut rng);
            }
            assert_eq!(uncommitted.used(), layers.bytes());
            layers.retire(Epoch(3));
            assert_eq!((uncommitted.used(), layers.is_empty()), (0, true));
        }
    }

    fn check(layers: &mut Layers, model: &BTreeMap<Vec<u8>, Option<Vec<u8>>>, rng: &mut SmallRng) {
        layers.arrange();
        for _ in 0..10 {
            let key = key(rng);
            assert_eq!(layers.get(&key), model.get(&key).map(Option::as_deref));
        }
        let (mut a, mut b) = (key(rng), key(rng));
        if a > b {
            std::mem::swap(&mut a, &mut b);
        }
        let start = [Bound::Unbounded, Bound::Included(&a[..]), Bound::Excluded(&a[..])][rng.random_range(0..3)];
        let ends = [Bound::Unbounded, Bound::Included(&b[..]), Bound::Excluded(&b[..]), Bound::Excluded(&[1, 0][..])];
        let end = ends[rng.random_range(0..4)];
        if a == b {
            return;
        }
        let mut expected: Vec<_> =
            model.range::<[u8], _>((start, end)).map(|(key, value)| (&key[..], value.as_deref())).collect();
        let reverse = rng.random_bool(0.5);
        if reverse {
            expected.reverse();
        }
        assert_eq!(layers.range((start, end), reverse).collect::<Vec<_>>(), expected);
    }
}
