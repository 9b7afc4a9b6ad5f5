//! String columns as two growing buffers.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::error::ArrowError;

/// A string column under construction.
pub struct Strings {
    /// All strings, one after the other. The string under construction is at the end.
    pub bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl Strings {
    /// An empty column with room.
    pub fn with_capacity(rows: usize, bytes: usize) -> Strings {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Strings { bytes: Vec::with_capacity(bytes), ends }
    }

    /// Appends a string.
    #[inline(always)]
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.end();
    }

    /// Ends the string under construction.
    ///
    /// Panics when the column exceeds 2 GiB: batches have some thousand rows of some hundred bytes.
    #[inline(always)]
    pub fn end(&mut self) {
        assert!(self.bytes.len() <= i32::MAX as usize, "a batch of events stays below 2 GiB");
        self.ends.push(self.bytes.len() as i32);
    }

    /// The column.
    pub fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(StringArray::try_new(OffsetBuffer::new(self.ends.into()), self.bytes.into(), None)?))
    }
}
