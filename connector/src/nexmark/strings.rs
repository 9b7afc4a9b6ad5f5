//! String columns as two growing buffers.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::buffer::OffsetBuffer;

use super::random::Random;

/// A string column under construction. The string under construction is at the end of the bytes.
///
/// Invariant: `bytes` is ASCII. So is everything that events are made of.
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl Strings {
    /// An empty column with room.
    pub fn with_capacity(rows: usize, bytes: usize) -> Strings {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Strings { bytes: Vec::with_capacity(bytes), ends }
    }

    /// How many bytes all strings have.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends to the string under construction.
    #[inline(always)]
    pub fn bytes(&mut self, ascii: &[u8]) {
        debug_assert!(ascii.is_ascii(), "events are made of ASCII");
        self.bytes.extend_from_slice(ascii);
    }

    /// Appends letters to the string under construction.
    #[inline]
    pub fn letters(&mut self, count: usize, random: &mut Random) {
        let start = self.bytes.len();
        self.bytes.resize(start + count, 0);
        self.bytes[start..].fill_with(|| random.letter());
    }

    /// Ends the string under construction.
    ///
    /// Panics when the column exceeds 2 GiB: batches have some thousand rows of some hundred bytes.
    #[inline(always)]
    pub fn end(&mut self) {
        assert!(self.bytes.len() <= i32::MAX as usize, "a batch of events stays below 2 GiB");
        self.ends.push(self.bytes.len() as i32);
    }

    /// Appends a string.
    #[inline(always)]
    pub fn push(&mut self, ascii: &[u8]) {
        self.bytes(ascii);
        self.end();
    }

    /// The column.
    pub fn finish(self) -> ArrayRef {
        let ends = OffsetBuffer::new(self.ends.into());
        // SAFETY: ASCII is UTF-8 and may be cut anywhere, and the last end is the length of the bytes. To check it again
        // takes a tenth of the time that it takes to make a bid.
        Arc::new(unsafe { StringArray::new_unchecked(ends, self.bytes.into(), None) })
    }
}
