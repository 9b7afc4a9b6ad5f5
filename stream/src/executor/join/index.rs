//! Which rows have a join key.
//!
//! An entry per key: its bytes, its rows, and whether it was used since the clock hand of eviction last passed.

use hashbrown::HashTable;

use super::arena::RowId;

/// A key in memory. Numbers of removed keys are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId(u32);

impl EntryId {
    /// No entry: no row has the key.
    pub const NONE: EntryId = EntryId(u32::MAX);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Join keys and their rows; see the module.
#[derive(Default)]
pub(super) struct KeyIndex {
    table: HashTable<EntryId>,
    entries: Vec<Option<Entry>>,
    free: Vec<EntryId>,
    /// Where eviction goes on looking.
    hand: usize,
    /// Bytes of keys that are too long to be stored in place.
    heap_bytes: usize,
}

struct Entry {
    hash: u64,
    key: Key,
    rows: Rows,
    used: bool,
}

/// Bytes of a key, in place while short.
enum Key {
    Short { len: u8, bytes: [u8; Key::SHORT] },
    Long(Box<[u8]>),
}

impl Key {
    /// Two integers fit.
    const SHORT: usize = 22;

    fn new(key: &[u8]) -> Key {
        if key.len() > Key::SHORT {
            return Key::Long(key.into());
        }
        let mut bytes = [0; Key::SHORT];
        bytes[..key.len()].copy_from_slice(key);
        Key::Short { len: key.len() as u8, bytes }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Key::Short { len, bytes } => &bytes[..*len as usize],
            Key::Long(bytes) => bytes,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Key::Short { .. } => 0,
            Key::Long(bytes) => bytes.len(),
        }
    }
}

/// Rows of a key. Many keys only ever have one.
enum Rows {
    None,
    One([RowId; 1]),
    Many(Vec<RowId>),
}

impl Rows {
    fn as_slice(&self) -> &[RowId] {
        match self {
            Rows::None => &[],
            Rows::One(row) => row,
            Rows::Many(rows) => rows,
        }
    }

    fn push(&mut self, row: RowId) -> u32 {
        match self {
            Rows::None => *self = Rows::One([row]),
            Rows::One([first]) => *self = Rows::Many(vec![*first, row]),
            Rows::Many(rows) => rows.push(row),
        }
        self.as_slice().len() as u32 - 1
    }

    /// Removes the row of a slot. The last row takes its place and is returned, unless it was the last itself.
    fn swap_remove(&mut self, slot: u32) -> Option<RowId> {
        match self {
            Rows::Many(rows) => {
                rows.swap_remove(slot as usize);
                let moved = rows.get(slot as usize).copied();
                if rows.is_empty() {
                    *self = Rows::None;
                }
                moved
            }
            Rows::None | Rows::One(_) => {
                *self = Rows::None;
                None
            }
        }
    }
}

impl KeyIndex {
    /// Bytes in memory, without the lists of keys that have many rows.
    pub fn bytes(&self) -> usize {
        self.table.len() * (size_of::<Entry>() + 2 * size_of::<EntryId>()) + self.heap_bytes
    }

    /// Bytes that an entry takes, about.
    pub const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * size_of::<EntryId>();

    /// The entry of a key.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<EntryId> {
        self.table.find(hash, |id| self.entry(*id).key.as_slice() == key).copied()
    }

    /// Adds an entry without rows for a key that has none.
    pub fn insert(&mut self, hash: u64, key: &[u8]) -> EntryId {
        let key = Key::new(key);
        self.heap_bytes += key.heap_bytes();
        let entry = Some(Entry { hash, key, rows: Rows::None, used: true });
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id.index()] = entry;
                id
            }
            None => {
                assert!(self.entries.len() < u32::MAX as usize, "a side holds at most 2^32 - 1 keys in memory");
                self.entries.push(entry);
                EntryId(self.entries.len() as u32 - 1)
            }
        };
        let entries = &self.entries;
        let hash_of = |id: &EntryId| entries[id.index()].as_ref().map_or(0, |e| e.hash);
        self.table.insert_unique(hash, id, hash_of);
        id
    }

    /// Removes an entry, whose rows are the caller's to remove.
    pub fn remove(&mut self, id: EntryId) {
        let entry = self.entries[id.index()].take().expect("an entry is removed once");
        self.heap_bytes -= entry.key.heap_bytes();
        self.free.push(id);
        match self.table.find_entry(entry.hash, |other| *other == id) {
            Ok(found) => found.remove(),
            Err(_) => unreachable!("every entry is in the hash table"),
        };
    }

    /// Rows of a key. None for [`EntryId::NONE`].
    pub fn rows(&self, id: EntryId) -> &[RowId] {
        if id == EntryId::NONE { &[] } else { self.entry(id).rows.as_slice() }
    }

    /// The hash of the entry's key.
    pub fn hash(&self, id: EntryId) -> u64 {
        self.entry(id).hash
    }

    /// Eviction spares the entry for one round.
    pub fn touch(&mut self, id: EntryId) {
        self.entry_mut(id).used = true;
    }

    /// Adds a row, and returns its slot.
    pub fn push(&mut self, id: EntryId, row: RowId) -> u32 {
        self.entry_mut(id).rows.push(row)
    }

    /// Removes the row of a slot. Returns the row that is now in the slot, if one moved there.
    pub fn swap_remove(&mut self, id: EntryId, slot: u32) -> Option<RowId> {
        self.entry_mut(id).rows.swap_remove(slot)
    }

    /// The next entry that was not used since the hand last passed it; none when there is no entry at all.
    pub fn next_cold(&mut self) -> Option<EntryId> {
        if self.table.is_empty() {
            return None;
        }
        loop {
            let at = self.hand % self.entries.len();
            self.hand = at + 1;
            if let Some(entry) = &mut self.entries[at] {
                if !entry.used {
                    return Some(EntryId(at as u32));
                }
                entry.used = false;
            }
        }
    }

    fn entry(&self, id: EntryId) -> &Entry {
        self.entries[id.index()].as_ref().expect("an entry id names an entry that is there")
    }

    fn entry_mut(&mut self, id: EntryId) -> &mut Entry {
        self.entries[id.index()].as_mut().expect("an entry id names an entry that is there")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rows_of_a_key_come_and_go() {
        let mut index = KeyIndex::default();
        let long = [7; 100];
        let (a, b) = (index.insert(1, b"a"), index.insert(1, &long));
        assert_eq!((index.find(1, b"a"), index.find(1, &long), index.find(1, b"b")), (Some(a), Some(b), None));
        assert_eq!([1, 2, 3].map(|row| index.push(a, RowId(row))), [0, 1, 2]);
        assert_eq!(index.swap_remove(a, 0), Some(RowId(3)));
        assert_eq!(index.swap_remove(a, 1), None);
        assert_eq!((index.rows(a), index.rows(b), index.rows(EntryId::NONE)), (&[RowId(3)][..], &[][..], &[][..]));
        assert_eq!(index.swap_remove(a, 0), None);
        assert!(index.rows(a).is_empty());
        index.remove(b);
        assert_eq!((index.find(1, &long), index.heap_bytes), (None, 0));
        assert_eq!(index.insert(2, b"c"), b);
    }

    #[test]
    fn the_clock_spares_what_was_used() {
        let mut index = KeyIndex::default();
        let entries: Vec<_> = (0..4_u8).map(|key| index.insert(u64::from(key), &[key])).collect();
        // The first round only takes the marks away.
        assert_eq!(index.next_cold(), Some(entries[0]));
        index.remove(entries[0]);
        index.touch(entries[1]);
        assert_eq!(index.next_cold(), Some(entries[2]));
        index.remove(entries[2]);
        assert_eq!(index.next_cold(), Some(entries[3]));
        index.remove(entries[3]);
        assert_eq!(index.next_cold(), Some(entries[1]));
        index.remove(entries[1]);
        assert_eq!(index.next_cold(), None);
    }
}
