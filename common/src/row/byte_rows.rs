//! Many byte strings in one buffer.

/// Byte strings of varying length, kept one after the other in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteRows {
    data: Vec<u8>,
    /// Where each string ends.
    ends: Vec<usize>,
}

impl ByteRows {
    /// No strings.
    pub fn new() -> ByteRows {
        ByteRows::default()
    }

    /// No strings, with room for as many strings and bytes.
    pub fn with_capacity(rows: usize, bytes: usize) -> ByteRows {
        ByteRows { data: Vec::with_capacity(bytes), ends: Vec::with_capacity(rows) }
    }

    /// The strings that lie one after the other in `data`, with their ends.
    ///
    /// Panics unless the ends grow and the last one is the end of the data.
    pub(crate) fn from_parts(data: Vec<u8>, ends: Vec<usize>) -> ByteRows {
        assert_eq!(ends.last().copied().unwrap_or(0), data.len(), "the last string ends where the data ends");
        debug_assert!(ends.is_sorted());
        ByteRows { data, ends }
    }

    /// Appends a string.
    #[inline]
    pub fn push(&mut self, row: &[u8]) {
        self.data.extend_from_slice(row);
        self.ends.push(self.data.len());
    }

    /// Appends the concatenation of two strings.
    pub fn push_joined(&mut self, head: &[u8], tail: &[u8]) {
        self.data.extend_from_slice(head);
        self.push(tail);
    }

    /// How many strings there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all strings together.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// String `i`.
    #[inline]
    pub fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.data[start..self.ends[i]]
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl<'a> FromIterator<&'a [u8]> for ByteRows {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(rows: I) -> ByteRows {
        let mut all = ByteRows::new();
        rows.into_iter().for_each(|row| all.push(row));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_one_by_one() {
        let mut rows = ByteRows::with_capacity(3, 8);
        rows.push(b"ab");
        rows.push(b"");
        rows.push_joined(b"c", b"de");
        assert_eq!((rows.len(), rows.bytes(), rows.get(1)), (3, 5, &b""[..]));
        assert_eq!(rows.iter().collect::<Vec<_>>(), [&b"ab"[..], b"", b"cde"]);
        assert_eq!(rows.iter().collect::<ByteRows>(), rows);
        assert!(ByteRows::new().is_empty());
    }
}
