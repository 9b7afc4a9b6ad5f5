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
    /// Of the finite values.
    sums: Vec<ExactSum>,
    nans: Vec<i64>,
    infinities: Vec<i64>,
    negative_infinities: Vec<i64>,
    /// Rows that are not null.
    values: Vec<i64>,
}

impl FloatSums {
    pub fn new(average: bool, output: DataType) -> FloatSums {
        FloatSums {
            average,
            output,
            sums: Vec::new(),
            nans: Vec::new(),
            infinities: Vec::new(),
            negative_infinities: Vec::new(),
            values: Vec::new(),
        }
    }

    #[inline]
    fn add_value(&mut self, group: usize, value: f64, sign: i64) {
        self.values[group] += sign;
        if value.is_finite() {
            self.sums[group].add(value, sign);
        } else if value.is_nan() {
            self.nans[group] += sign;
        } else if value > 0.0 {
            self.infinities[group] += sign;
        } else {
            self.negative_infinities[group] += sign;
        }
    }

    /// The result of a group, `None` for NULL.
    fn result(&self, slot: u32, errors: &mut u64) -> Option<f64> {
        let slot = slot as usize;
        if self.values[slot] == 0 {
            return None;
        }
        let (up, down) = (self.infinities[slot] != 0, self.negative_infinities[slot] != 0);
        if self.nans[slot] != 0 || (up && down) {
            return Some(f64::NAN);
        }
        if up {
            return Some(f64::INFINITY);
        }
        if down {
            return Some(f64::NEG_INFINITY);
        }
        let sum = self.sums[slot].to_f64();
        if sum.is_none() {
            *errors += 1;
        }
        sum.map(|sum| if self.average { sum / self.values[slot] as f64 } else { sum })
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
        self.sums.resize_with(slots, ExactSum::default);
        self.nans.resize(slots, 0);
        self.infinities.resize(slots, 0);
        self.negative_infinities.resize(slots, 0);
        self.values.resize(slots, 0);
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let sums = primitive::<BinaryArray>(&columns[0]);
        for (i, slot) in slots.iter().enumerate() {
            self.sums[*slot as usize] = ExactSum::read(sums.value(i));
        }
        load_i64(&mut self.nans, slots, &columns[1]);
        load_i64(&mut self.infinities, slots, &columns[2]);
        load_i64(&mut self.negative_infinities, slots, &columns[3]);
        load_i64(&mut self.values, slots, &columns[4]);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut sums = BinaryBuilder::with_capacity(slots.len(), slots.len() * SUM_BYTES);
        let mut bytes = Vec::new();
        for slot in slots {
            bytes.clear();
            self.sums[*slot as usize].write(&mut bytes);
            sums.append_value(&bytes);
        }
        let counts = [&self.nans, &self.infinities, &self.negative_infinities, &self.values];
        let sums: ArrayRef = Arc::new(sums.finish());
        Ok(std::iter::once(sums).chain(counts.map(|c| store_i64(c, slots))).collect())
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
        cache::retain(&mut self.nans, keep);
        cache::retain(&mut self.infinities, keep);
        cache::retain(&mut self.negative_infinities, keep);
        cache::retain(&mut self.values, keep);
    }

    fn bytes(&self) -> usize {
        let fixed = size_of::<ExactSum>() + 4 * size_of::<i64>();
        cache::estimate(&self.sums, |sum| fixed + sum.heap_bytes())
    }
}

impl Accumulator for FloatSums {
    fn add(&mut self, rows: &Rows<'_>) {
        let arg = &rows.args[0];
        if let DataType::Float32 = arg.data_type() {
            let args = primitive::<Float32Array>(arg).values();
            rows.each(arg.nulls(), |i, group, sign| self.add_value(group, f64::from(args[i]), sign));
        } else {
            let args = primitive::<Float64Array>(arg).values();
            rows.each(arg.nulls(), |i, group, sign| self.add_value(group, args[i], sign));
        }
    }
}
