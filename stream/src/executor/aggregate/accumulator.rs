//! Accumulators: the state of one call, a column with a value per group.
//!
//! Groups are named by their slot, a dense number that [`super::groups`] gives out. Every accumulator is exact under
//! retraction: taking back what was added restores the earlier state, so a group without rows is back in its initial
//! state and needs no cleaning.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use weir_common::plan::{AggCall, AggFunction};

use super::booleans::Booleans;
use super::float_sums::FloatSums;
use super::interval_sums::IntervalSums;
use super::peaks::peaks;
use super::sums::{IntSums, WideSums};
use crate::Result;
use crate::cache;

/// A name and type of a column of the groups table.
pub(super) type StateField = (&'static str, DataType);

/// The state of one call for every group in memory.
pub(super) trait GroupState: Send + Sync {
    /// Columns that it adds to the groups table.
    fn fields(&self) -> Vec<StateField>;

    /// Makes room for `slots` groups; new ones are in the initial state.
    fn grow(&mut self, slots: usize);

    /// Sets groups to what the groups table holds: row `i` of the columns of [`GroupState::fields`] is for `slots[i]`.
    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()>;

    /// The columns of [`GroupState::fields`] for these groups.
    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>>;

    /// The results for these groups. One that its type can't hold is NULL and counted in `errors`.
    fn results(&self, slots: &[u32], errors: &mut u64) -> Result<ArrayRef>;

    /// Keeps these groups only, which are in ascending order; group `keep[i]` gets slot `i`.
    fn retain(&mut self, keep: &[u32]);

    /// Bytes in memory.
    fn bytes(&self) -> usize;
}

/// A state that needs nothing but the changes themselves.
pub(super) trait Accumulator: GroupState {
    /// Adds and takes back rows.
    fn add(&mut self, rows: &Rows<'_>);
}

/// Changes for one call: row `i` of `args` comes to group `groups[i]` or leaves it.
pub(super) struct Rows<'a> {
    pub groups: &'a [u32],
    /// `None`: every row comes.
    pub signs: Option<&'a [i8]>,
    pub args: Vec<ArrayRef>,
}

impl Rows<'_> {
    /// Calls `f(row, group, sign)` for every row that is valid.
    #[inline(always)]
    pub fn each(&self, valid: Option<&NullBuffer>, mut f: impl FnMut(usize, usize, i64)) {
        let valid = valid.filter(|v| v.null_count() > 0);
        match (self.signs, valid) {
            (None, None) => self.groups.iter().enumerate().for_each(|(i, g)| f(i, *g as usize, 1)),
            (Some(signs), None) => {
                self.groups.iter().zip(signs).enumerate().for_each(|(i, (g, s))| f(i, *g as usize, i64::from(*s)));
            }
            (None, Some(valid)) => valid.valid_indices().for_each(|i| f(i, self.groups[i] as usize, 1)),
            (Some(signs), Some(valid)) => {
                valid.valid_indices().for_each(|i| f(i, self.groups[i] as usize, i64::from(signs[i])));
            }
        }
    }
}

/// The accumulator of a call whose state is in the groups table alone, fed with arguments of these types. `None`: the
/// function does not take them, or needs more than this.
pub(super) fn plain(call: &AggCall, args: &[DataType]) -> Option<Box<dyn Accumulator>> {
    use DataType::{Boolean, Decimal128, Decimal256, Float32, Float64, Int8, Int16, Int32, Int64, Interval};
    use DataType::{UInt8, UInt16, UInt32, UInt64};
    let average = call.function == AggFunction::Avg;
    let output = call.output.clone();
    Some(match (call.function, args) {
        (AggFunction::Count, _) => Box::new(Count::default()),
        (AggFunction::Sum | AggFunction::Avg, [arg]) => match arg {
            Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => {
                Box::new(IntSums::new(0, average, output))
            }
            Decimal128(precision, scale) if *precision <= IntSums::PRECISION_MAX => {
                Box::new(IntSums::new(*scale, average, output))
            }
            Decimal128(_, scale) | Decimal256(_, scale) => Box::new(WideSums::new(*scale, average, output)),
            Float32 | Float64 => Box::new(FloatSums::new(average, output)),
            Interval(_) => Box::new(IntervalSums::new(average)),
            _ => return None,
        },
        (AggFunction::BoolAnd, [Boolean]) => Box::new(Booleans::all()),
        (AggFunction::BoolOr, [Boolean]) => Box::new(Booleans::any()),
        (AggFunction::Min | AggFunction::Max, [arg]) => return peaks(arg, call.function == AggFunction::Max),
        _ => return None,
    })
}

/// `count`: rows whose arguments are all not null.
#[derive(Default)]
struct Count {
    counts: Vec<i64>,
}

impl GroupState for Count {
    fn fields(&self) -> Vec<StateField> {
        vec![("rows", DataType::Int64)]
    }

    fn grow(&mut self, slots: usize) {
        self.counts.resize(slots, 0);
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        load_i64(slots, &columns[0], |slot, count| self.counts[slot] = count);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![store_i64(slots, |slot| self.counts[slot])])
    }

    fn results(&self, slots: &[u32], _errors: &mut u64) -> Result<ArrayRef> {
        Ok(store_i64(slots, |slot| self.counts[slot]))
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.counts, keep);
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
    }
}

impl Accumulator for Count {
    fn add(&mut self, rows: &Rows<'_>) {
        let valid =
            rows.args.iter().fold(None, |all, arg| NullBuffer::union(all.as_ref(), arg.logical_nulls().as_ref()));
        rows.each(valid.as_ref(), |_, group, sign| self.counts[group] += sign);
    }
}

/// Calls `f(slot, value)` for each row of a bigint column of a table.
pub(super) fn load_i64(slots: &[u32], column: &ArrayRef, mut f: impl FnMut(usize, i64)) {
    let values = primitive::<Int64Array>(column).values();
    slots.iter().zip(values).for_each(|(slot, value)| f(*slot as usize, *value));
}

/// The values of these slots as a bigint column.
pub(super) fn store_i64(slots: &[u32], value: impl Fn(usize) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(slots.iter().map(|slot| value(*slot as usize))))
}

/// A column as the array type that its table or plan declares.
pub(super) fn primitive<T: Array + 'static>(column: &ArrayRef) -> &T {
    column.as_any().downcast_ref::<T>().expect("a column has the type that its table or plan declares")
}
