//! The writes of an open transaction block on a table, laid over what is committed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, interleave_record_batch};
use weir_common::row::ByteRows;
use weir_common::{Chunk, TableDef};
use weir_storage::Snapshot;

use super::keys::{key_columns, relation_keys};
use crate::error::Result;

/// What a block has done to the rows of a table, by key.
#[derive(Debug)]
pub struct Overlay {
    /// Committed rows with these keys are not what the block sees.
    hidden: HashSet<Box<[u8]>>,
    /// The rows that it sees instead.
    rows: RecordBatch,
    /// Rows that count only where no row with their key is committed (ON CONFLICT DO NOTHING). Settled by `settle`.
    tentative: RecordBatch,
    settled: Mutex<Option<RecordBatch>>,
}

/// The last that a block did to a key.
struct Change {
    /// `None`: deleted.
    row: Option<(usize, usize)>,
    /// Nothing was deleted before the first insert.
    tentative: bool,
}

impl Overlay {
    /// From the changes of a block, in order. `keep_old`: an insert of a key that is there is ignored.
    pub fn new(def: &TableDef, chunks: &[Chunk], keep_old: bool) -> Result<Overlay> {
        let mut changes: HashMap<Box<[u8]>, Change> = HashMap::new();
        let mut order: Vec<Box<[u8]>> = Vec::new();
        for (c, chunk) in chunks.iter().enumerate() {
            let keys = relation_keys(def, |i| chunk.column(i))?;
            for (r, key) in keys.iter().enumerate() {
                let inserted = chunk.sign(r) > 0;
                match changes.get_mut(key) {
                    Some(change) if inserted && keep_old && change.row.is_some() => {}
                    Some(change) => {
                        change.row = inserted.then_some((c, r));
                        change.tentative &= inserted;
                    }
                    None => {
                        let key: Box<[u8]> = key.into();
                        order.push(key.clone());
                        let row = inserted.then_some((c, r));
                        changes.insert(key, Change { row, tentative: inserted && keep_old });
                    }
                }
            }
        }
        let batches: Vec<&RecordBatch> = chunks.iter().map(Chunk::batch).collect();
        let pick = |tentative: bool| {
            let rows = order.iter().filter_map(|k| changes.get(k)).filter(|c| c.tentative == tentative);
            let rows: Vec<_> = rows.filter_map(|c| c.row).collect();
            if rows.is_empty() {
                return Ok(RecordBatch::new_empty(def.schema.clone()));
            }
            interleave_record_batch(&batches, &rows)
        };
        let (rows, tentative) = (pick(false)?, pick(true)?);
        let hidden = changes.into_iter().filter(|(_, c)| !c.tentative).map(|(key, _)| key).collect();
        Ok(Overlay { hidden, rows, tentative, settled: Mutex::new(None) })
    }

    /// Whether a committed row is seen no more.
    pub fn hides(&self, key: &[u8]) -> bool {
        self.hidden.contains(key)
    }

    /// The keys of rows that the block sees and that are not committed.
    fn shown_keys(&self, def: &TableDef) -> Result<HashSet<Box<[u8]>>> {
        let mut keys = HashSet::new();
        for rows in [&self.rows, &self.tentative] {
            keys.extend(relation_keys(def, |i| rows.column(i))?.iter().map(Box::from));
        }
        Ok(keys)
    }

    /// The committed rows that are still seen. The batch has all columns of the table.
    pub fn filter(&self, def: &TableDef, batch: RecordBatch) -> Result<RecordBatch> {
        if self.hidden.is_empty() || batch.num_rows() == 0 {
            return Ok(batch);
        }
        let keys: ByteRows = relation_keys(def, |i| batch.column(i))?;
        let mask: BooleanArray = keys.iter().map(|key| Some(!self.hides(key))).collect();
        Ok(filter_record_batch(&batch, &mask)?)
    }

    /// The rows of the block. Reads from the store, so it may block.
    pub fn rows(&self, def: &TableDef, snapshot: &Snapshot) -> Result<Vec<RecordBatch>> {
        let mut rows = vec![self.rows.clone()];
        if self.tentative.num_rows() > 0 {
            rows.push(self.settle(def, snapshot)?);
        }
        Ok(rows)
    }

    /// The tentative rows whose keys are not committed.
    fn settle(&self, def: &TableDef, snapshot: &Snapshot) -> Result<RecordBatch> {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = settled.as_ref() {
            return Ok(rows.clone());
        }
        let keys = snapshot.keys(def, &key_columns(def, |i| self.tentative.column(i)))?;
        let found = snapshot.get_many(def, &keys)?;
        let mask: BooleanArray = found.index.iter().map(|row| Some(row.is_none())).collect();
        let rows = filter_record_batch(&self.tentative, &mask)?;
        *settled = Some(rows.clone());
        Ok(rows)
    }
}

/// For each row of a batch, whether a row with its key is there. Reads from the store, so it may block.
pub(crate) fn existing(
    def: &TableDef,
    snapshot: &Snapshot,
    overlay: Option<&Overlay>,
    rows: &RecordBatch,
) -> Result<Vec<bool>> {
    let keys = relation_keys(def, |i| rows.column(i))?;
    let full_keys = snapshot.keys(def, &key_columns(def, |i| rows.column(i)))?;
    let found = snapshot.get_many(def, &full_keys)?;
    let shown = overlay.map(|o| o.shown_keys(def)).transpose()?.unwrap_or_default();
    let is_there = |(key, committed): (&[u8], &Option<u32>)| {
        shown.contains(key) || committed.is_some() && !overlay.is_some_and(|o| o.hides(key))
    };
    Ok(keys.iter().zip(&found.index).map(is_there).collect())
}

/// What a reader lays over the committed rows.
pub(super) type SharedOverlay = Option<Arc<Overlay>>;
/// Likewise several, the lowest first.
pub(super) type Overlays = Vec<Arc<Overlay>>;
