//! `string_agg`, `array_agg`: all values of a group in an order.
//!
//! State     all values in `values`, and the result in the groups row: what is downstream must be known when it changes.
//! At a flush the values of each group that changed are read in order and the result is made anew; the result is as large
//! as what is read, so keeping the values in memory would not change the cost.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, GenericByteArray, ListArray, RecordBatch, StringArray, UInt32Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{BinaryType, ByteArrayType, DataType, Field, Schema, Utf8Type};
use weir_common::Chunk;
use weir_common::plan::{AggCall, AggFunction};
use weir_common::row::{ByteRows, decode_rows, encode_rows};
use weir_storage::{ScanRange, StateTable};

use super::accumulator::{GroupState, StateField, primitive};
use super::groups::Groups;
use super::value_key::ValueKey;
use super::values::{CountedValues, count_column, value_columns_of};
use crate::Result;
use crate::cache;

/// Groups whose values are read in one scan.
const SCAN_GROUPS: usize = 256;

/// See the module.
pub(super) struct Collected {
    function: AggFunction,
    key: ValueKey,
    arg: usize,
    output: DataType,
    distinct: bool,
    pub values: CountedValues,
    /// The row bytes of each group's result.
    results: Vec<Box<[u8]>>,
    /// The values of the group changed in this epoch.
    changed: Vec<bool>,
    /// The row bytes of NULL.
    null: Box<[u8]>,
}

impl Collected {
    /// The state of a call.
    pub fn new(call: &AggCall, input: &Schema, values: StateTable) -> Result<Collected> {
        let null = encode_rows(&[new_null_array(&call.output, 1)], 1)?;
        Ok(Collected {
            function: call.function,
            key: ValueKey::new(call, input),
            arg: call.args[0],
            output: call.output.clone(),
            distinct: call.distinct,
            values: CountedValues::new(values),
            results: Vec::new(),
            changed: Vec::new(),
            null: null.get(0).into(),
        })
    }

    /// The state columns of a call with this result type.
    pub fn state_fields(output: &DataType) -> Vec<StateField> {
        vec![("result", output.clone())]
    }

    /// Takes changes: row `i` of the chunk is in group `slots[i]`.
    pub async fn add(&mut self, chunk: &Chunk, slots: &[u32], groups: &Groups) -> Result<()> {
        let skips_nulls = self.function == AggFunction::StringAgg;
        let nulls = chunk.column(self.arg).logical_nulls().filter(|n| skips_nulls && n.null_count() > 0);
        let keys = self.key.encode(chunk.batch())?;
        let mut full = ByteRows::with_capacity(keys.len(), 2 * keys.bytes());
        let mut rows = Vec::with_capacity(keys.len());
        for (row, (slot, key)) in slots.iter().zip(keys.iter()).enumerate() {
            if nulls.as_ref().is_none_or(|n| n.is_valid(row)) {
                full.push_joined(groups.key(*slot), key);
                rows.push(row);
            }
        }
        let counted = self.values.resolve(&full).await?;
        for (row, value) in rows.into_iter().zip(counted) {
            let turn = self.values.count(0, value, chunk.sign(row));
            self.changed[slots[row] as usize] |= !self.distinct || turn != 0;
        }
        Ok(())
    }

    /// Writes the values, and makes the results of those groups among `dirty` anew whose values changed.
    pub async fn flush(&mut self, dirty: &[u32], groups: &Groups) -> Result<()> {
        self.values.flush()?;
        let changed: Vec<u32> = dirty.iter().copied().filter(|slot| self.changed[*slot as usize]).collect();
        for slots in changed.chunks(SCAN_GROUPS) {
            let ranges: Vec<ScanRange> = slots.iter().map(|slot| ScanRange::prefix(groups.key(*slot))).collect();
            let scanned = self.values.table().scan(&ranges).await?;
            let results = self.collect(&scanned.rows, &scanned.range, slots.len(), groups.columns())?;
            let results = encode_rows(&[results], slots.len())?;
            for (slot, result) in slots.iter().zip(results.iter()) {
                self.results[*slot as usize] = result.into();
                self.changed[*slot as usize] = false;
            }
        }
        Ok(())
    }

    /// The results of `ranges` groups, from their values: row `i` belongs to group `range[i]`.
    fn collect(&self, rows: &RecordBatch, range: &[u32], ranges: usize, group_columns: usize) -> Result<ArrayRef> {
        let counts = count_column(rows);
        let columns = value_columns_of(rows, group_columns);
        let times = |row: usize| if self.distinct { 1 } else { counts.value(row) as usize };
        // Each value as often as it is there.
        let indices = || (0..rows.num_rows()).flat_map(|row| std::iter::repeat_n(row as u32, times(row)));
        let mut lengths = vec![0; ranges];
        range.iter().enumerate().for_each(|(row, range)| lengths[*range as usize] += times(row));
        let values = self.key.exact(columns.clone(), 0)?;
        if self.function == AggFunction::ArrayAgg {
            let values = take(&values, &indices().collect::<UInt32Array>(), None)?;
            return Ok(Arc::new(list(&self.output, lengths, values)));
        }
        let separators = self.key.exact(columns, 1)?;
        Ok(match self.output {
            DataType::Binary => {
                let (values, separators) = (primitive::<BinaryArray>(&values), primitive::<BinaryArray>(&separators));
                Arc::new(joined::<BinaryType>(values, separators, indices(), &lengths))
            }
            _ => {
                let (values, separators) = (primitive::<StringArray>(&values), primitive::<StringArray>(&separators));
                Arc::new(joined::<Utf8Type>(values, separators, indices(), &lengths))
            }
        })
    }
}

/// Lists of these lengths over the values; NULL where there is no value.
fn list(output: &DataType, lengths: Vec<usize>, values: ArrayRef) -> ListArray {
    let field = match output {
        DataType::List(field) => Arc::clone(field),
        _ => Arc::new(Field::new("item", values.data_type().clone(), true)),
    };
    let nulls: NullBuffer = lengths.iter().map(|l| *l > 0).collect();
    ListArray::new(field, OffsetBuffer::from_lengths(lengths), values, Some(nulls))
}

/// For each length so many of the values, with the separator of each between it and the one before; NULL where there is no
/// value.
fn joined<T: ByteArrayType<Offset = i32>>(
    values: &GenericByteArray<T>,
    separators: &GenericByteArray<T>,
    mut rows: impl Iterator<Item = u32>,
    lengths: &[usize],
) -> GenericByteArray<T> {
    let (mut bytes, mut ends) = (Vec::new(), vec![0]);
    for length in lengths {
        for (i, row) in rows.by_ref().take(*length).enumerate() {
            let row = row as usize;
            if i > 0 && separators.is_valid(row) {
                let separator: &[u8] = separators.value(row).as_ref();
                bytes.extend_from_slice(separator);
            }
            let value: &[u8] = values.value(row).as_ref();
            bytes.extend_from_slice(value);
        }
        ends.push(bytes.len() as i32);
    }
    let nulls: NullBuffer = lengths.iter().map(|l| *l > 0).collect();
    GenericByteArray::new(OffsetBuffer::new(ends.into()), bytes.into(), Some(nulls))
}

impl GroupState for Collected {
    fn fields(&self) -> Vec<StateField> {
        Collected::state_fields(&self.output)
    }

    fn grow(&mut self, slots: usize) {
        let null = &self.null;
        self.results.resize_with(slots, || null.clone());
        self.changed.resize(slots, false);
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let results = encode_rows(columns, slots.len())?;
        for (slot, result) in slots.iter().zip(results.iter()) {
            self.results[*slot as usize] = result.into();
        }
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let results = slots.iter().map(|slot| &*self.results[*slot as usize]);
        Ok(decode_rows(results, std::slice::from_ref(&self.output))?)
    }

    fn results(&self, slots: &[u32], _errors: &mut u64) -> Result<ArrayRef> {
        let mut columns = self.store(slots)?;
        Ok(columns.swap_remove(0))
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.results, keep);
        cache::retain(&mut self.changed, keep);
    }

    fn bytes(&self) -> usize {
        let results = cache::estimate(&self.results, |row| row.len() + size_of::<Box<[u8]>>() + size_of::<bool>());
        results + self.values.bytes()
    }
}
