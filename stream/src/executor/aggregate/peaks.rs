//! `min` and `max` of numbers and times that are never taken back: one value per group.
//!
//! Floats are not here: the order that SQL wants of them is that of their keys, which [`super::first`] compares.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};

use super::accumulator::{Accumulator, GroupState, Rows, StateField, primitive};
use crate::Result;
use crate::cache;

/// Whether there is an accumulator here for arguments of this type.
pub(super) fn takes(arg: &DataType) -> bool {
    peaks(arg, false).is_some()
}

/// The accumulator for arguments of this type.
pub(super) fn peaks(arg: &DataType, greatest: bool) -> Option<Box<dyn Accumulator>> {
    Some(match arg {
        DataType::Int16 => Peaks::<Int16Type>::boxed(arg, greatest),
        DataType::Int32 => Peaks::<Int32Type>::boxed(arg, greatest),
        DataType::Int64 => Peaks::<Int64Type>::boxed(arg, greatest),
        DataType::Date32 => Peaks::<Date32Type>::boxed(arg, greatest),
        DataType::Time64(TimeUnit::Microsecond) => Peaks::<Time64MicrosecondType>::boxed(arg, greatest),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Peaks::<TimestampMicrosecondType>::boxed(arg, greatest),
        DataType::Decimal128(..) => Peaks::<Decimal128Type>::boxed(arg, greatest),
        DataType::Decimal256(..) => Peaks::<Decimal256Type>::boxed(arg, greatest),
        _ => return None,
    })
}

/// The least or greatest value of each group so far.
struct Peaks<T: ArrowPrimitiveType> {
    arg: DataType,
    greatest: bool,
    peaks: Vec<Option<T::Native>>,
}

impl<T: ArrowPrimitiveType> Peaks<T>
where
    T::Native: Ord,
{
    fn boxed(arg: &DataType, greatest: bool) -> Box<dyn Accumulator> {
        Box::new(Peaks::<T> { arg: arg.clone(), greatest, peaks: Vec::new() })
    }

    fn column(&self, slots: &[u32]) -> ArrayRef {
        let peaks = slots.iter().map(|slot| self.peaks[*slot as usize]);
        Arc::new(peaks.collect::<PrimitiveArray<T>>().with_data_type(self.arg.clone()))
    }
}

impl<T: ArrowPrimitiveType> GroupState for Peaks<T>
where
    T::Native: Ord,
{
    fn fields(&self) -> Vec<StateField> {
        vec![("value", self.arg.clone())]
    }

    fn grow(&mut self, slots: usize) {
        self.peaks.resize(slots, None);
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let column = primitive::<PrimitiveArray<T>>(&columns[0]);
        for (row, slot) in slots.iter().enumerate() {
            self.peaks[*slot as usize] = column.is_valid(row).then(|| column.value(row));
        }
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.column(slots)])
    }

    fn results(&self, slots: &[u32], _errors: &mut u64) -> Result<ArrayRef> {
        Ok(self.column(slots))
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.peaks, keep);
    }

    fn bytes(&self) -> usize {
        self.peaks.capacity() * size_of::<Option<T::Native>>()
    }
}

impl<T: ArrowPrimitiveType> Accumulator for Peaks<T>
where
    T::Native: Ord,
{
    fn add(&mut self, rows: &Rows<'_>) {
        assert!(rows.signs.is_none(), "the input of an append-only aggregation has no deletes");
        let column = primitive::<PrimitiveArray<T>>(&rows.args[0]);
        let (values, greatest) = (column.values(), self.greatest);
        rows.each(column.nulls(), |i, group, _| {
            let (peak, value) = (&mut self.peaks[group], values[i]);
            if peak.is_none_or(|peak| if greatest { value > peak } else { value < peak }) {
                *peak = Some(value);
            }
        });
    }
}
