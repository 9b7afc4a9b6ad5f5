//! `sum` and `avg` of floats: no rounding until the result, so taking a row back restores what was.
//!
//! Infinities and NaN are counted beside the sum of the finite values; when the last of them leaves, that sum shows again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, BinaryBuilder, Float32Array, Float64Array};
use arrow::datatypes::DataType;

use super::accumulator::{Accumulator, GroupState, Rows, StateField, load_i64, primitive, store_i64};
use super::exact::ExactSum;
use crate::Result;
use crate::cache;

/// Bytes that an exact sum of everyday numbers takes in the groups table.
const SUM_BYTES: usize = 17;

pub(super) struct FloatSums {
    average: bool,
    output: DataType,
    sums: Vec<Sum>,
}

#[derive(Default)]
struct Sum {
    /// Of the finite values.
    finite: ExactSum,
    nans: i64,
    infinities: i64,
    negative_infinities: i64,
    /// Rows that are not null.
    values: i64,
}

impl Sum {
    #[inline]
    fn add(&mut self, value: f64, sign: i64) {
        self.values += sign;
        if value.is_finite() {
            self.finite.add(value, sign);
        } else if value.is_nan() {
            self.nans += sign;
        } else if value > 0.0 {
            self.infinities += sign;
        } else {
            self.negative_infinities += sign;
        }
    }
}

impl FloatSums {
    pub fn new(average: bool, output: DataType) -> FloatSums {
        FloatSums { average, output, sums: Vec::new() }
    }

    /// The result of a group, `None` for NULL.
    fn result(&self, slot: u32, errors: &mut u64) -> Option<f64> {
        let sum = &self.sums[slot as usize];
        if sum.values == 0 {
            return None;
        }
        let (up, down) = (sum.infinities != 0, sum.negative_infinities != 0);
        if sum.nans != 0 || (up && down) {
            return Some(f64::NAN);
        }
        if up {
            return Some(f64::INFINITY);
        }
        if down {
            return Some(f64::NEG_INFINITY);
        }
        let finite = sum.finite.to_f64();
        *errors += u64::from(finite.is_none());
        finite.map(|finite| if self.average { finite / sum.values as f64 } else { finite })
    }
}

impl GroupState for FloatSums {
    fn fields(&self) -> Vec<StateField> {
        vec![
            ("sum", DataType::Binary),
            ("nans", DataType::Int64),
            ("infinities", DataType::Int64),
            ("negative_infinities", DataType::Int64),
            ("values", DataType::Int64),
        ]
    }

    fn grow(&mut self, slots: usize) {
        self.sums.resize_with(slots, Sum::default);
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let finite = primitive::<BinaryArray>(&columns[0]);
        for (i, slot) in slots.iter().enumerate() {
            self.sums[*slot as usize].finite = ExactSum::read(finite.value(i));
        }
        load_i64(slots, &columns[1], |slot, nans| self.sums[slot].nans = nans);
        load_i64(slots, &columns[2], |slot, infinities| self.sums[slot].infinities = infinities);
        load_i64(slots, &columns[3], |slot, infinities| self.sums[slot].negative_infinities = infinities);
        load_i64(slots, &columns[4], |slot, values| self.sums[slot].values = values);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut finite = BinaryBuilder::with_capacity(slots.len(), slots.len() * SUM_BYTES);
        let mut bytes = Vec::new();
        for slot in slots {
            bytes.clear();
            self.sums[*slot as usize].finite.write(&mut bytes);
            finite.append_value(&bytes);
        }
        Ok(vec![
            Arc::new(finite.finish()),
            store_i64(slots, |slot| self.sums[slot].nans),
            store_i64(slots, |slot| self.sums[slot].infinities),
            store_i64(slots, |slot| self.sums[slot].negative_infinities),
            store_i64(slots, |slot| self.sums[slot].values),
        ])
    }

    fn results(&self, slots: &[u32], errors: &mut u64) -> Result<ArrayRef> {
        let results = slots.iter().map(|s| self.result(*s, errors));
        if self.output != DataType::Float32 {
            return Ok(Arc::new(results.collect::<Float64Array>()));
        }
        let results: Vec<_> = results.collect();
        let mut narrow = |v: f64| {
            let narrow = v as f32;
            let overflows = narrow.is_infinite() && v.is_finite();
            *errors += u64::from(overflows);
            (!overflows).then_some(narrow)
        };
        Ok(Arc::new(results.into_iter().map(|v| v.and_then(&mut narrow)).collect::<Float32Array>()))
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.sums, keep);
    }

    fn bytes(&self) -> usize {
        cache::estimate(&self.sums, |sum| size_of::<Sum>() + sum.finite.heap_bytes())
    }
}

impl Accumulator for FloatSums {
    fn add(&mut self, rows: &Rows<'_>) {
        let arg = &rows.args[0];
        if let DataType::Float32 = arg.data_type() {
            let args = primitive::<Float32Array>(arg).values();
            rows.each(arg.nulls(), |i, group, sign| self.sums[group].add(f64::from(args[i]), sign));
        } else {
            let args = primitive::<Float64Array>(arg).values();
            rows.each(arg.nulls(), |i, group, sign| self.sums[group].add(args[i], sign));
        }
    }
}
