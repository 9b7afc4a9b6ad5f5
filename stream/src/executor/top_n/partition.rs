//! The first rows of one partition, in order.

use super::arena::At;
use super::window::Window;

/// Lists longer than this are changed by merging, many changes at a time.
const MERGE_MIN: usize = 256;

/// A row in memory.
#[derive(Clone, Debug)]
pub struct Row {
    /// The key in the table, without the partition: it orders the rows of a partition and identifies them.
    pub key: Box<[u8]>,
    /// How much of the key is the columns of the order, so that ties can be told.
    pub order_len: u32,
    pub at: At,
}

impl Row {
    /// The part of the key that ties have in common.
    pub fn order(&self) -> &[u8] {
        &self.key[..self.order_len as usize]
    }
}

/// How much of a partition is in memory: always its first rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    Nothing,
    /// All rows up to this key, inclusive.
    UpTo(Box<[u8]>),
    All,
}

/// A change of a row: where it is now, or `None` for gone.
#[derive(Debug)]
struct Change {
    key: Box<[u8]>,
    order_len: u32,
    at: Option<At>,
}

/// A row of a window with its rank; 0 when ranks don't matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ranked {
    pub at: At,
    pub rank: i64,
}

/// See the module.
#[derive(Debug)]
pub struct Partition {
    rows: Vec<Row>,
    known: Known,
    /// Changes of a long list, in the order in which they came, that are still to be merged into it.
    pending: Vec<Change>,
    /// The window as it was emitted last, if the partition has changed since.
    pub emitted: Option<Vec<Ranked>>,
}

impl Partition {
    /// Of which no row is in memory, unless it has none.
    pub fn new(known: Known) -> Partition {
        Partition { rows: Vec::new(), known, pending: Vec::new(), emitted: None }
    }

    /// The rows in memory.
    pub fn rows(&self) -> &[Row] {
        debug_assert!(self.pending.is_empty());
        &self.rows
    }

    /// Where the rows in memory are.
    pub fn places(&mut self) -> impl Iterator<Item = &mut At> {
        self.rows.iter_mut().map(|r| &mut r.at)
    }

    /// How much is in memory.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Whether rows with this key are in memory, if there are any.
    pub fn knows(&self, key: &[u8]) -> bool {
        match &self.known {
            Known::Nothing => false,
            Known::UpTo(last) => key <= &last[..],
            Known::All => true,
        }
    }

    /// Adds a row that [`Partition::knows`], or replaces the one with this key.
    pub fn insert(&mut self, key: &[u8], order_len: u32, at: At) {
        let key = Box::from(key);
        if self.rows.len() >= MERGE_MIN {
            return self.pending.push(Change { key, order_len, at: Some(at) });
        }
        let row = Row { key, order_len, at };
        match self.rows.binary_search_by(|r| r.key.cmp(&row.key)) {
            Ok(i) => self.rows[i] = row,
            Err(i) => self.rows.insert(i, row),
        }
    }

    /// Removes a row that [`Partition::knows`].
    pub fn remove(&mut self, key: &[u8]) {
        if self.rows.len() >= MERGE_MIN || !self.pending.is_empty() {
            return self.pending.push(Change { key: key.into(), order_len: 0, at: None });
        }
        if let Ok(i) = self.rows.binary_search_by(|r| r.key.as_ref().cmp(key)) {
            self.rows.remove(i);
        }
    }

    /// Whether changes wait to be merged.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Merges the changes that wait.
    pub fn merge(&mut self) {
        let mut changes = std::mem::take(&mut self.pending);
        // Stable: of the changes of a key, the last decides.
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut merged = Vec::with_capacity(self.rows.len() + changes.len());
        let mut rows = std::mem::take(&mut self.rows).into_iter().peekable();
        let mut changes = changes.into_iter().peekable();
        while let Some(change) = changes.next() {
            if changes.peek().is_some_and(|next| next.key == change.key) {
                continue;
            }
            while let Some(row) = rows.next_if(|row| row.key < change.key) {
                merged.push(row);
            }
            rows.next_if(|row| row.key == change.key);
            if let Some(at) = change.at {
                merged.push(Row { key: change.key, order_len: change.order_len, at });
            }
        }
        merged.extend(rows);
        self.rows = merged;
    }

    /// Adds rows read from the table, which follow those in memory. `ended`: there are no more.
    pub fn extend(&mut self, rows: impl Iterator<Item = Row>, ended: bool) {
        let before = self.rows.len();
        self.rows.extend(rows);
        if ended {
            self.known = Known::All;
        } else if let Some(last) = self.rows[before..].last() {
            self.known = Known::UpTo(last.key.clone());
        }
    }

    /// Whether enough is in memory to tell the window.
    pub fn covers(&self, window: &Window) -> bool {
        self.known == Known::All || window.needed(&self.rows).is_some()
    }

    /// Forgets rows at the end when there are many more than the window needs and `spare` ones.
    pub fn trim(&mut self, window: &Window, spare: usize) {
        let Some(needed) = window.needed(&self.rows) else { return };
        if self.rows.len() <= needed + 2 * spare {
            return;
        }
        self.rows.truncate(needed + spare);
        self.known = self.rows.last().map_or(Known::Nothing, |last| Known::UpTo(last.key.clone()));
        if self.rows.capacity() > 2 * self.rows.len() + MERGE_MIN {
            self.rows.shrink_to_fit();
        }
    }

    /// Whether it has no row at all.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.known == Known::All
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let key = self.rows.first().map_or(0, |r| r.key.len() + 16);
        size_of::<Partition>() + self.rows.capacity() * size_of::<Row>() + self.rows.len() * key
    }
}
