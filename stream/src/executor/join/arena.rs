//! Rows in memory, as columns.
//!
//! ```text
//! RowId ──> Place ──> Block: a few thousand rows as Arrow columns
//!             ^          ids: which row is at each position (NONE: dead)
//!             └──────────┘
//! ```
//!
//! A chunk's rows become a block as they are. A row keeps its id while blocks are rewritten: small blocks are merged,
//! [`FAN_IN`] of one level into one of the next, and a block that is mostly dead is copied without its dead rows. So a row
//! is copied a few times at most, and any rows are gathered by one `interleave` per column.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::SchemaRef;
use weir_common::key::{KeyOrder, encode_keys};
use weir_common::row::ByteRows;

use crate::Result;

/// Blocks of a level that are merged into one.
const FAN_IN: usize = 16;
/// Rows from which on a block is of the next level. Blocks above the last level are large enough.
const LEVEL_ROWS: [usize; 3] = [16, 256, 4096];
/// Bytes of a chunk's buffers, relative to what its rows need, up to which they are kept without a copy.
const SHARE_FACTOR_MAX: usize = 2;

/// A row in memory. Ids of removed rows are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowId(pub u32);

impl RowId {
    /// No row; gathered as NULLs.
    pub const NONE: RowId = RowId(u32::MAX);

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Rows in memory; see the module.
pub(super) struct Arena {
    schema: SchemaRef,
    blocks: Vec<Option<Block>>,
    free_blocks: Vec<u32>,
    places: Vec<Place>,
    free_rows: Vec<RowId>,
    /// Blocks to merge, by level.
    levels: [Vec<u32>; LEVEL_ROWS.len()],
    /// Blocks that were mostly dead when a row of theirs was removed.
    sparse: Vec<u32>,
    /// Columns whose encoded values [`Arena::key`] gives, if anyone asks for them.
    key: Vec<usize>,
    keeps_keys: bool,
    block_bytes: usize,
    /// One NULL of each column.
    nulls: Vec<ArrayRef>,
    /// For [`Arena::gather`]: position of a block among its sources, by block. All `u32::MAX` between calls.
    sources: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Place {
    block: u32,
    row: u32,
}

struct Block {
    rows: RecordBatch,
    ids: Vec<RowId>,
    live: usize,
    keys: Option<ByteRows>,
    bytes: usize,
    /// Is in `sparse`.
    queued: bool,
}

impl Block {
    fn level(&self) -> Option<usize> {
        LEVEL_ROWS.iter().position(|limit| self.ids.len() < *limit)
    }

    fn is_sparse(&self) -> bool {
        self.live * 2 < self.ids.len()
    }
}

impl Arena {
    /// Empty. `key` are the columns that tell rows apart which have the same join key.
    pub fn new(schema: SchemaRef, key: Vec<usize>) -> Arena {
        let nulls = schema.fields().iter().map(|f| new_null_array(f.data_type(), 1)).collect();
        Arena {
            schema,
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            places: Vec::new(),
            free_rows: Vec::new(),
            levels: Default::default(),
            sparse: Vec::new(),
            key,
            keeps_keys: false,
            block_bytes: 0,
            nulls,
            sources: Vec::new(),
        }
    }

    /// Rows that are there.
    pub fn len(&self) -> usize {
        self.places.len() - self.free_rows.len()
    }

    /// One more than the largest row id given out.
    pub fn ids(&self) -> usize {
        self.places.len()
    }

    /// Bytes of the rows in memory.
    pub fn bytes(&self) -> usize {
        self.block_bytes + self.len() * (size_of::<Place>() + size_of::<RowId>())
    }

    /// Takes in the rows of a batch. Row `i` gets id `i` of the result.
    pub fn insert(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<RowId>> {
        if rows == 0 {
            return Ok(Vec::new());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = unshared(RecordBatch::try_new_with_options(self.schema.clone(), columns.to_vec(), &options)?)?;
        let ids: Vec<RowId> = (0..rows).map(|_| self.new_id()).collect();
        self.add_block(batch, ids.clone())?;
        Ok(ids)
    }

    /// Forgets a row.
    pub fn remove(&mut self, row: RowId) {
        let Place { block: id, row: at } = self.places[row.index()];
        let block = self.blocks[id as usize].as_mut().expect("a row is in a block that is there");
        assert_eq!(block.ids[at as usize], row, "a row is removed once");
        block.ids[at as usize] = RowId::NONE;
        block.live -= 1;
        self.free_rows.push(row);
        if block.live == 0 {
            self.drop_block(id);
        } else if block.is_sparse() && !block.queued {
            block.queued = true;
            self.sparse.push(id);
        }
    }

    /// The columns of these rows, in this order; NULLs for [`RowId::NONE`].
    pub fn gather(&mut self, rows: &[RowId]) -> Result<Vec<ArrayRef>> {
        self.sources.resize(self.blocks.len(), u32::MAX);
        let mut used: Vec<u32> = Vec::new();
        // Source 0 is the row of NULLs.
        let mut at = Vec::with_capacity(rows.len());
        let mut padded = false;
        for row in rows {
            if *row == RowId::NONE {
                padded = true;
                at.push((0, 0));
                continue;
            }
            let place = self.places[row.index()];
            let source = &mut self.sources[place.block as usize];
            if *source == u32::MAX {
                *source = used.len() as u32;
                used.push(place.block);
            }
            at.push((*source as usize + 1, place.row as usize));
        }
        used.iter().for_each(|block| self.sources[*block as usize] = u32::MAX);
        let blocks: Vec<&RecordBatch> = used.iter().map(|b| &self.block(*b).rows).collect();
        if let ([block], false) = (&blocks[..], padded) {
            let at = UInt32Array::from_iter_values(at.iter().map(|(_, row)| *row as u32));
            return Ok(block.columns().iter().map(|c| take(c, &at, None)).collect::<std::result::Result<_, _>>()?);
        }
        let column = |i: usize| {
            let mut sources: Vec<&dyn Array> = Vec::with_capacity(blocks.len() + 1);
            sources.push(&self.nulls[i]);
            sources.extend(blocks.iter().map(|b| b.column(i) as &dyn Array));
            interleave(&sources, &at)
        };
        Ok((0..self.nulls.len()).map(column).collect::<std::result::Result<_, _>>()?)
    }

    /// From now on [`Arena::key`] may be asked.
    pub fn keep_keys(&mut self) -> Result<()> {
        self.keeps_keys = true;
        for block in self.blocks.iter_mut().flatten() {
            let keys = encode(&block.rows, &self.key)?;
            let bytes = keys_bytes(&keys);
            block.keys = Some(keys);
            block.bytes += bytes;
            self.block_bytes += bytes;
        }
        Ok(())
    }

    /// The encoded key columns of the rows of a batch.
    pub fn encode_key(&self, batch: &RecordBatch) -> Result<ByteRows> {
        encode(batch, &self.key)
    }

    /// The encoded key columns of a row.
    pub fn key(&self, row: RowId) -> &[u8] {
        let place = self.places[row.index()];
        let keys = self.block(place.block).keys.as_ref().expect("keep_keys was called before");
        keys.get(place.row as usize)
    }

    /// Rewrites blocks that are mostly dead, and merges small ones.
    pub fn compact(&mut self) -> Result<()> {
        for block in std::mem::take(&mut self.sparse) {
            // It may be gone by now, and its number may be another block's.
            if self.blocks[block as usize].as_ref().is_some_and(Block::is_sparse) {
                self.rewrite(&[block])?;
            }
        }
        for level in 0..LEVEL_ROWS.len() {
            if self.levels[level].len() >= FAN_IN {
                let blocks = self.levels[level].clone();
                self.rewrite(&blocks)?;
            }
        }
        Ok(())
    }

    /// Copies the living rows of these blocks into one.
    fn rewrite(&mut self, blocks: &[u32]) -> Result<()> {
        let mut ids = Vec::new();
        blocks.iter().for_each(|b| ids.extend(self.block(*b).ids.iter().filter(|id| **id != RowId::NONE)));
        let columns = self.gather(&ids)?;
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        blocks.iter().for_each(|b| self.drop_block(*b));
        self.add_block(batch, ids)
    }

    fn add_block(&mut self, rows: RecordBatch, ids: Vec<RowId>) -> Result<()> {
        let keys = if self.keeps_keys { Some(encode(&rows, &self.key)?) } else { None };
        let bytes = rows.get_array_memory_size() + keys.as_ref().map_or(0, keys_bytes);
        let block = Block { live: ids.len(), rows, ids, keys, bytes, queued: false };
        let id = self.free_blocks.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            self.blocks.len() as u32 - 1
        });
        for (row, row_id) in block.ids.iter().enumerate() {
            self.places[row_id.index()] = Place { block: id, row: row as u32 };
        }
        if let Some(level) = block.level() {
            self.levels[level].push(id);
        }
        self.block_bytes += bytes;
        self.blocks[id as usize] = Some(block);
        Ok(())
    }

    fn drop_block(&mut self, id: u32) {
        let block = self.blocks[id as usize].take().expect("a block is dropped once");
        if let Some(level) = block.level() {
            self.levels[level].retain(|b| *b != id);
        }
        self.block_bytes -= block.bytes;
        self.free_blocks.push(id);
    }

    fn block(&self, id: u32) -> &Block {
        self.blocks[id as usize].as_ref().expect("a row is in a block that is there")
    }

    fn new_id(&mut self) -> RowId {
        self.free_rows.pop().unwrap_or_else(|| {
            assert!(self.places.len() < u32::MAX as usize, "a side holds at most 2^32 - 1 rows in memory");
            self.places.push(Place { block: 0, row: 0 });
            RowId(self.places.len() as u32 - 1)
        })
    }
}

/// The batch itself, or a copy when it is a small part of large buffers, which it would keep alive.
fn unshared(batch: RecordBatch) -> Result<RecordBatch> {
    let needed: usize =
        batch.columns().iter().map(|c| c.to_data().get_slice_memory_size()).sum::<std::result::Result<_, _>>()?;
    let held: usize = batch.columns().iter().map(|c| c.get_buffer_memory_size()).sum();
    if held <= needed.saturating_mul(SHARE_FACTOR_MAX) {
        return Ok(batch);
    }
    let all = UInt32Array::from_iter_values(0..batch.num_rows() as u32);
    let columns = batch.columns().iter().map(|c| take(c, &all, None)).collect::<std::result::Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

fn encode(rows: &RecordBatch, key: &[usize]) -> Result<ByteRows> {
    let columns: Vec<ArrayRef> = key.iter().map(|i| Arc::clone(rows.column(*i))).collect();
    Ok(encode_keys(&columns, &vec![KeyOrder::ASC; key.len()])?)
}

fn keys_bytes(keys: &ByteRows) -> usize {
    keys.bytes() + keys.len() * size_of::<usize>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn columns(values: &[i64]) -> Vec<ArrayRef> {
        let texts = values.iter().map(|v| (v % 3 != 0).then(|| v.to_string()));
        vec![Arc::new(Int64Array::from(values.to_vec())), Arc::new(texts.collect::<StringArray>())]
    }

    fn arena() -> Arena {
        let fields = vec![Field::new("v", DataType::Int64, false), Field::new("t", DataType::Utf8, true)];
        Arena::new(Arc::new(Schema::new(fields)), vec![0])
    }

    fn check(arena: &mut Arena, rows: &BTreeMap<u32, i64>) {
        assert_eq!(arena.len(), rows.len());
        let ids: Vec<_> = rows.keys().map(|id| RowId(*id)).chain([RowId::NONE]).collect();
        let gathered = arena.gather(&ids).unwrap();
        let values: Vec<_> = rows.values().copied().collect();
        let expected = columns(&values);
        assert_eq!(gathered[0].as_primitive::<Int64Type>().values()[..rows.len()], values);
        assert_eq!(&gathered[1].slice(0, rows.len()), &expected[1]);
        assert!(gathered.iter().all(|c| c.is_null(rows.len())));
        for (id, value) in rows {
            let key = encode_keys(&columns(&[*value])[..1], &[KeyOrder::ASC]).unwrap();
            assert_eq!(arena.key(RowId(*id)), key.get(0));
        }
    }

    #[test]
    fn rows_keep_their_ids_while_blocks_are_rewritten() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut arena = arena();
        let mut rows = BTreeMap::new();
        let ids = arena.insert(&columns(&[7, 8]), 2).unwrap();
        rows.extend(ids.iter().map(|id| id.0).zip([7, 8]));
        arena.keep_keys().unwrap();
        for _ in 0..400 {
            let values: Vec<i64> = (0..rng.random_range(0..40)).map(|_| rng.random_range(0..1000)).collect();
            let ids = arena.insert(&columns(&values), values.len()).unwrap();
            ids.iter().zip(&values).for_each(|(id, v)| assert_eq!(rows.insert(id.0, *v), None));
            for _ in 0..rng.random_range(0..40) {
                let at = rng.random_range(0..=arena.ids() as u32);
                if let Some((id, _)) = rows.range(at..).next().map(|(id, v)| (*id, *v)) {
                    arena.remove(RowId(id));
                    rows.remove(&id);
                }
            }
            arena.compact().unwrap();
            check(&mut arena, &rows);
            assert!(arena.levels.iter().all(|level| level.len() < FAN_IN));
            assert!(arena.blocks.iter().flatten().all(|block| !block.is_sparse()));
        }
        rows.keys().for_each(|id| arena.remove(RowId(*id)));
        assert_eq!((arena.len(), arena.bytes()), (0, 0));
    }

    #[test]
    fn a_small_part_of_a_large_batch_is_copied() {
        let mut arena = arena();
        let large: Vec<i64> = (0..10_000).collect();
        let slices: Vec<_> = columns(&large).iter().map(|c| c.slice(17, 3)).collect();
        let ids = arena.insert(&slices, 3).unwrap();
        assert!(arena.bytes() < 2_000, "{}", arena.bytes());
        assert_eq!(arena.gather(&ids).unwrap()[0].as_primitive::<Int64Type>().values()[..], [17, 18, 19]);
    }
}
