//! From old and new rows of groups to the changes between them.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, make_comparator};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{self, SortOptions, interleave, take};
use arrow::datatypes::SchemaRef;
use weir_common::Chunk;

use crate::Result;

/// Old and new rows of some groups.
pub(super) struct Changes {
    /// How many of the columns are group columns.
    pub group_columns: usize,
    /// All columns of the new rows, one row per group.
    pub new: Vec<ArrayRef>,
    /// The results of the old rows: one row for each group that has one. `None`: there are no old rows.
    pub old: Vec<Option<ArrayRef>>,
    /// The group has an old row.
    pub existed: Vec<bool>,
    /// The group has a new row.
    pub alive: Vec<bool>,
}

impl Changes {
    /// For each group that differs, the delete of its old row and the insert of its new one.
    pub fn chunk(&self, schema: &SchemaRef) -> Result<Chunk> {
        let groups = self.existed.len();
        if !self.existed.contains(&true) && !self.alive.contains(&false) {
            return Ok(Chunk::inserts(batch(schema, self.new.clone(), groups)?));
        }
        let same = self.same()?;
        // Where each row of the output comes from: the old rows or the new ones.
        let (mut sources, mut group_rows, mut signs) = (Vec::new(), Vec::new(), Vec::new());
        let mut old = 0;
        for group in 0..groups {
            let (existed, alive) = (self.existed[group], self.alive[group]);
            let unchanged = existed && alive && same.value(old);
            if existed && !unchanged {
                sources.push((0, old));
                group_rows.push(group as u32);
                signs.push(-1);
            }
            if alive && !unchanged {
                sources.push((1, group));
                group_rows.push(group as u32);
                signs.push(1);
            }
            old += usize::from(existed);
        }
        let group_rows = UInt32Array::from(group_rows);
        let (keys, results) = self.new.split_at(self.group_columns);
        let mut columns = keys.iter().map(|key| Ok(take(key, &group_rows, None)?)).collect::<Result<Vec<_>>>()?;
        for (new, old) in results.iter().zip(&self.old) {
            let column = match old {
                Some(old) => interleave(&[old.as_ref(), new.as_ref()], &sources)?,
                None => take(new, &group_rows, None)?,
            };
            columns.push(column);
        }
        Ok(Chunk::new(batch(schema, columns, signs.len())?, signs))
    }

    /// For each old row, whether the new row of its group has the same results.
    fn same(&self) -> Result<BooleanBuffer> {
        let rows: UInt32Array = (0..self.existed.len() as u32).filter(|group| self.existed[*group as usize]).collect();
        let mut same = BooleanBuffer::new_set(rows.len());
        for (new, old) in self.new[self.group_columns..].iter().zip(&self.old) {
            if let Some(old) = old {
                let new = if rows.len() == new.len() { new.clone() } else { take(new, &rows, None)? };
                same = &same & &equal(old, &new)?;
            }
        }
        Ok(same)
    }
}

/// Which rows are the same, NULL being the same as NULL.
fn equal(old: &ArrayRef, new: &ArrayRef) -> Result<BooleanBuffer> {
    if old.data_type().is_nested() {
        let compare = make_comparator(old, new, SortOptions::default())?;
        return Ok(BooleanBuffer::collect_bool(old.len(), |row| compare(row, row).is_eq()));
    }
    let equal: BooleanArray = compute::kernels::cmp::not_distinct(old, new)?;
    Ok(equal.values().clone())
}

/// One column from pieces of it; `None` without pieces.
pub(super) fn concat(pieces: Vec<ArrayRef>) -> Result<Option<ArrayRef>> {
    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
    Ok(match pieces[..] {
        [] => None,
        _ => Some(compute::concat(&pieces)?),
    })
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
