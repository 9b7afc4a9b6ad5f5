//! Windows of time: where those start that a moment is in.
//!
//! Windows are aligned to 1970-01-01 00:00 (UTC, for a timestamptz) plus the offset. They include their start and not
//! their end.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, PrimitiveArray, TimestampMicrosecondBuilder};
use arrow::datatypes::{
    DataType, Field, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::error::Result;
use weir_common::SqlState;
use weir_common::calendar::MICROS_PER_DAY;

use super::cast::INTERVAL;
use super::function::{Arguments, Call, Function, argument, convert, no_such_function, refuse};

/// Windows that a moment may be in.
const WINDOWS_MAX: i64 = 100_000;

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("tumble_start", &[2, 3], |args| time_type("tumble_start", args), tumble_start),
        Function::new("hop_starts", &[3, 4], |args| Ok(list_of(time_type("hop_starts", args)?)), hop_starts),
    ]
}

/// The type of the moment, of which a window's start is one.
fn time_type(name: &str, args: &Arguments<'_>) -> Result<DataType> {
    match argument(args, 0) {
        DataType::Timestamp(_, zone) => Ok(DataType::Timestamp(TimeUnit::Microsecond, zone.clone())),
        DataType::Date32 | DataType::Null => Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
        _ => Err(no_such_function(name, args)),
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

/// The moments, in microseconds.
fn moments(call: &Call<'_>) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    let data_type = match call.type_of(0) {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone),
        _ => DataType::Timestamp(TimeUnit::Microsecond, None),
    };
    Ok(call.array_as(0, &data_type)?.as_primitive().clone())
}

/// Lengths of time in microseconds.
struct Lengths(Option<PrimitiveArray<IntervalMonthDayNanoType>>);

impl Lengths {
    /// Of argument `i`; 0 if it is not there.
    fn of(call: &Call<'_>, i: usize) -> Result<Lengths> {
        let array = (call.len() > i).then(|| call.array(i)).transpose()?;
        let array = array.map(|a| convert(&a, &INTERVAL)).transpose()?;
        Ok(Lengths(array.map(|a| a.as_primitive().clone())))
    }

    fn get(&self, row: usize) -> Result<Option<i64>> {
        match &self.0 {
            None => Ok(Some(0)),
            Some(array) if array.is_null(row) => Ok(None),
            Some(array) => micros(array.value(row)).map(Some),
        }
    }

    /// Likewise; not 0 nor less.
    fn positive(&self, row: usize) -> Result<Option<i64>> {
        match self.get(row)? {
            Some(..=0) => Err(invalid("the length of a window must be positive")),
            length => Ok(length),
        }
    }
}

fn invalid(message: &str) -> datafusion::error::DataFusionError {
    refuse(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn micros(interval: IntervalMonthDayNano) -> Result<i64> {
    if interval.months != 0 {
        return Err(invalid("the length of a window must not contain months, which differ in length"));
    }
    let days = i64::from(interval.days).checked_mul(MICROS_PER_DAY);
    days.and_then(|days| days.checked_add(interval.nanoseconds / 1_000))
        .ok_or_else(|| invalid("the length of a window is out of range"))
}

/// The last start at or before a moment; `None` where there is none in range.
fn start(moment: i64, step: i64, offset: i64) -> Option<i64> {
    let finite = !matches!(moment, i64::MIN | i64::MAX);
    let since = moment.checked_sub(offset).filter(|_| finite)?;
    moment.checked_sub(since.rem_euclid(step))
}

fn tumble_start(call: &Call<'_>) -> Result<ArrayRef> {
    let (moments, sizes, offsets) = (moments(call)?, Lengths::of(call, 1)?, Lengths::of(call, 2)?);
    let starts = (0..moments.len()).map(|row| {
        let (Some(size), Some(offset)) = (sizes.positive(row)?, offsets.get(row)?) else { return Ok(None) };
        Ok(moments.is_valid(row).then(|| moments.value(row)).and_then(|m| start(m, size, offset)))
    });
    let starts = starts.collect::<Result<PrimitiveArray<TimestampMicrosecondType>>>()?;
    Ok(Arc::new(starts.with_data_type(call.result_type().clone())))
}

fn hop_starts(call: &Call<'_>) -> Result<ArrayRef> {
    let moments = moments(call)?;
    let (slides, sizes, offsets) = (Lengths::of(call, 1)?, Lengths::of(call, 2)?, Lengths::of(call, 3)?);
    let item = moments.data_type().clone();
    let values = TimestampMicrosecondBuilder::new().with_data_type(item.clone());
    let mut lists = ListBuilder::new(values).with_field(Field::new("item", item, true));
    for row in 0..moments.len() {
        let lengths = (slides.positive(row)?, sizes.positive(row)?, offsets.get(row)?);
        let ((Some(slide), Some(size), Some(offset)), true) = (lengths, moments.is_valid(row)) else {
            lists.append_null();
            continue;
        };
        if size / slide > WINDOWS_MAX {
            return Err(invalid("a moment would be in too many windows"));
        }
        let moment = moments.value(row);
        let Some(last) = start(moment, slide, offset) else {
            lists.append_null();
            continue;
        };
        // How many of the windows before that still reach the moment.
        let before = (size - 1 - (moment - last)).div_euclid(slide);
        for back in (0..=before).rev() {
            lists.values().append_option(last.checked_sub(back.saturating_mul(slide)));
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}
