//! Rows in the text format of COPY.

use arrow::array::{Array, RecordBatch};
use weir_common::text::{TextFormat, write_value};

/// Writes rows of COPY.
#[derive(Default)]
pub struct CopyRows {
    format: TextFormat,
    /// A value before it is escaped.
    value: String,
}

impl CopyRows {
    /// Appends a row. `change`: its place among the changes of the commit and whether it is an insert, as first fields.
    pub fn write(&mut self, batch: &RecordBatch, row: usize, change: Option<(u64, bool)>, out: &mut String) {
        if let Some((place, insert)) = change {
            out.push_str(&place.to_string());
            out.push_str(if insert { "\tt\t" } else { "\tf\t" });
        }
        for (i, column) in batch.columns().iter().enumerate() {
            if i > 0 {
                out.push('\t');
            }
            if column.is_null(row) {
                out.push_str("\\N");
                continue;
            }
            self.value.clear();
            write_value(column, row, &self.format, &mut self.value);
            escape(&self.value, out);
        }
        out.push('\n');
    }
}

/// Appends text with what COPY gives a meaning escaped.
fn escape(text: &str, out: &mut String) {
    let mut copied = 0;
    for (i, byte) in text.bytes().enumerate() {
        let escaped = match byte {
            b'\\' => "\\\\",
            b'\t' => "\\t",
            b'\n' => "\\n",
            b'\r' => "\\r",
            _ => continue,
        };
        out.push_str(&text[copied..i]);
        out.push_str(escaped);
        copied = i + 1;
    }
    out.push_str(&text[copied..]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use arrow::array::{BinaryArray, StringArray};

    use super::*;

    #[test]
    fn what_has_a_meaning_is_escaped() {
        let texts = StringArray::from(vec![Some("a\tb\\\n\ré"), Some("\\N"), None, Some("")]);
        let bytes = BinaryArray::from(vec![Some(&b"\x01"[..]), None, None, None]);
        let batch = RecordBatch::try_from_iter([("t", Arc::new(texts) as _), ("b", Arc::new(bytes) as _)]).unwrap();
        let mut out = String::new();
        let mut rows = CopyRows::default();
        (0..4).for_each(|row| rows.write(&batch, row, None, &mut out));
        assert_eq!(out, "a\\tb\\\\\\n\\ré\t\\\\x01\n\\\\N\t\\N\n\\N\t\\N\n\t\\N\n");
        out.clear();
        rows.write(&batch, 3, Some((12, false)), &mut out);
        assert_eq!(out, "12\tf\t\t\\N\n");
    }
}
