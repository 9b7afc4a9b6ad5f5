//! `sum` and `avg` of intervals: months, days and time are summed apart, as PostgreSQL does.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Decimal128Array, IntervalMonthDayNanoArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};

use super::accumulator::{Accumulator, GroupState, Rows, StateField, load_i64, primitive, store_i64};
use crate::Result;
use crate::cache;

const NANOS_PER_SECOND: f64 = 1e9;
const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_MONTH: f64 = 30.0;

pub(super) struct IntervalSums {
    average: bool,
    sums: Vec<Sum>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    months: i64,
    days: i64,
    nanos: i128,
    /// Rows that are not null.
    values: i64,
}

impl IntervalSums {
    pub fn new(average: bool) -> IntervalSums {
        IntervalSums { average, sums: Vec::new() }
    }

    /// The result of a group, `None` for NULL.
    fn result(&self, slot: u32, errors: &mut u64) -> Option<IntervalMonthDayNano> {
        let Sum { months, days, nanos, values } = self.sums[slot as usize];
        if values == 0 {
            return None;
        }
        let result = if self.average { divide(months, days, nanos, values) } else { fit(months, days, nanos) };
        if result.is_none() {
            *errors += 1;
        }
        result
    }
}

fn fit(months: i64, days: i64, nanos: i128) -> Option<IntervalMonthDayNano> {
    let (months, days, nanos) = (months.try_into().ok()?, days.try_into().ok()?, nanos.try_into().ok()?);
    Some(IntervalMonthDayNano::new(months, days, nanos))
}

/// An interval over a count. What is left of the months goes to the days at 30 to a month, and what is left of the days to
/// the time at 24 hours to a day; the time is rounded to microseconds.
fn divide(months: i64, days: i64, nanos: i128, count: i64) -> Option<IntervalMonthDayNano> {
    let round_micros = |v: f64| (v * 1e6).round_ties_even() / 1e6;
    let whole_months = months / count;
    let month_rest_days = round_micros((months % count) as f64 / count as f64 * DAYS_PER_MONTH);
    let mut whole_days = days / count;
    let day_rest = (days % count) as f64 / count as f64 + month_rest_days - month_rest_days.trunc();
    let mut seconds = round_micros(day_rest * SECONDS_PER_DAY);
    if seconds.abs() >= SECONDS_PER_DAY {
        whole_days += (seconds / SECONDS_PER_DAY) as i64;
        seconds -= (seconds / SECONDS_PER_DAY).trunc() * SECONDS_PER_DAY;
    }
    whole_days += month_rest_days as i64;
    let time = nanos as f64 / count as f64 + seconds * NANOS_PER_SECOND;
    let micros = (time / 1e3).round_ties_even();
    fit(whole_months, whole_days, micros as i128 * 1000)
}

impl GroupState for IntervalSums {
    fn fields(&self) -> Vec<StateField> {
        vec![
            ("months", DataType::Int64),
            ("days", DataType::Int64),
            ("nanoseconds", DataType::Decimal128(38, 0)),
            ("values", DataType::Int64),
        ]
    }

    fn grow(&mut self, slots: usize) {
        self.sums.resize(slots, Sum::default());
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        load_i64(slots, &columns[0], |slot, months| self.sums[slot].months = months);
        load_i64(slots, &columns[1], |slot, days| self.sums[slot].days = days);
        let nanos = primitive::<Decimal128Array>(&columns[2]);
        for (slot, nanos) in slots.iter().zip(nanos.values()) {
            self.sums[*slot as usize].nanos = *nanos;
        }
        load_i64(slots, &columns[3], |slot, values| self.sums[slot].values = values);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let nanos = Decimal128Array::from_iter_values(slots.iter().map(|slot| self.sums[*slot as usize].nanos));
        Ok(vec![
            store_i64(slots, |slot| self.sums[slot].months),
            store_i64(slots, |slot| self.sums[slot].days),
            Arc::new(nanos.with_data_type(DataType::Decimal128(38, 0))),
            store_i64(slots, |slot| self.sums[slot].values),
        ])
    }

    fn results(&self, slots: &[u32], errors: &mut u64) -> Result<ArrayRef> {
        let results = slots.iter().map(|s| self.result(*s, errors)).collect::<IntervalMonthDayNanoArray>();
        debug_assert_eq!(results.data_type(), &DataType::Interval(IntervalUnit::MonthDayNano));
        Ok(Arc::new(results))
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.sums, keep);
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<Sum>()
    }
}

impl Accumulator for IntervalSums {
    fn add(&mut self, rows: &Rows<'_>) {
        let arg = primitive::<IntervalMonthDayNanoArray>(&rows.args[0]);
        let args = arg.values();
        rows.each(arg.nulls(), |i, group, sign| {
            let sum = &mut self.sums[group];
            sum.months += sign * i64::from(args[i].months);
            sum.days += sign * i64::from(args[i].days);
            sum.nanos += i128::from(sign) * i128::from(args[i].nanoseconds);
            sum.values += sign;
        });
    }
}
