//! Rows by partition: directories named after values, as Hive has them, `day=2024-02-29/kind=a%2Fb`.

use std::collections::HashMap;

use arrow::array::{Array, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use weir_common::text::{TextFormat, write_cast};

use crate::error::{ConnectorError, Result};

/// The directory of NULL.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// What a file system takes as one name.
const NAME_BYTES_MAX: usize = 255;

/// Divides rows by the values of columns.
pub struct Partitioner {
    by: Vec<usize>,
    /// The columns that are not in the names of directories.
    others: Vec<usize>,
}

impl Partitioner {
    /// By these of so many columns.
    pub fn new(by: Vec<usize>, columns: usize) -> Partitioner {
        let others = (0..columns).filter(|column| !by.contains(column)).collect();
        Partitioner { by, others }
    }

    /// Columns that stay, by index.
    pub fn others(&self) -> &[usize] {
        &self.others
    }

    /// The directories in the order of their first rows, with their rows in order, without the columns divided by.
    pub fn divide(&self, batch: &RecordBatch) -> Result<Vec<(String, RecordBatch)>> {
        if self.by.is_empty() {
            return Ok(vec![(String::new(), batch.clone())]);
        }
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut rows: Vec<Vec<u32>> = vec![];
        let mut directory = String::new();
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            directory.clear();
            self.write_directory(batch, row, &mut text, &mut directory)?;
            let place = match places.get(&directory) {
                Some(place) => *place,
                None => {
                    places.insert(directory.clone(), rows.len());
                    rows.push(vec![]);
                    rows.len() - 1
                }
            };
            rows[place].push(row as u32);
        }
        let batch = batch.project(&self.others)?;
        let mut directories: Vec<(usize, String)> = places.into_iter().map(|(name, place)| (place, name)).collect();
        directories.sort_unstable();
        let divided = directories.into_iter().zip(rows).map(|((_, directory), rows)| {
            let whole = rows.len() == batch.num_rows();
            let part = if whole { batch.clone() } else { take_record_batch(&batch, &UInt32Array::from(rows))? };
            Ok((directory, part))
        });
        divided.collect()
    }

    fn write_directory(&self, batch: &RecordBatch, row: usize, text: &mut String, out: &mut String) -> Result<()> {
        let format = TextFormat::default();
        for (i, column) in self.by.iter().enumerate() {
            if i > 0 {
                out.push('/');
            }
            let start = out.len();
            let array = batch.column(*column);
            escape(batch.schema_ref().field(*column).name(), out);
            out.push('=');
            if array.is_null(row) {
                out.push_str(NULL);
            } else {
                text.clear();
                write_cast(array, row, &format, text);
                escape(text, out);
            }
            if out.len() - start > NAME_BYTES_MAX {
                return Err(ConnectorError::Refused {
                    what: "the file system".into(),
                    reason: format!("a directory name of more than {NAME_BYTES_MAX} bytes: {}", &out[start..]),
                });
            }
        }
        Ok(())
    }
}

/// Appends text with all but letters, digits, `-`, `_`, `.` and space as `%` and two digits.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.' | ' ') {
            out.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
}
