//! `sum`, `avg` and `string_agg` as the binder sees them: with PostgreSQL's result types from the start, so that what is
//! computed with a result is planned for its type.
//!
//! Once bound, [`super::postgres`] puts DataFusion's functions in their place, with casts that give these types. Sums and
//! averages of intervals, which DataFusion does not have, and averages of numerics, which it does not round, are computed
//! here.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use weir_common::plan::AggFunction;
use weir_common::{SqlState, SqlType};
use weir_stream::executor::aggregate::output_type;

use super::averages::Averages;
use crate::error::{SqlError, type_name};

/// Nanoseconds of a day, and days of a month, as PostgreSQL divides intervals.
const DAY_NS: i128 = 86_400_000_000_000;
const MONTH_DAYS: i128 = 30;

/// The aggregate functions that the binder is to know by these types.
pub(super) fn aggregates() -> Vec<Arc<AggregateUDF>> {
    [("sum", AggFunction::Sum), ("avg", AggFunction::Avg), ("string_agg", AggFunction::StringAgg)]
        .into_iter()
        .map(|(name, function)| {
            let args = if function == AggFunction::StringAgg { 2 } else { 1 };
            let signature = Signature::any(args, Volatility::Immutable);
            Arc::new(AggregateUDF::from(Typed { name, function, signature }))
        })
        .collect()
}

/// An aggregate function by its type.
#[derive(Debug)]
struct Typed {
    name: &'static str,
    function: AggFunction,
    signature: Signature,
}

impl PartialEq for Typed {
    fn eq(&self, other: &Typed) -> bool {
        self.name == other.name
    }
}

impl Eq for Typed {}

impl std::hash::Hash for Typed {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl AggregateUDFImpl for Typed {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let arg = match &arg_types[0] {
            DataType::Null if self.function == AggFunction::StringAgg => &DataType::Utf8,
            DataType::Null => &DataType::Float64,
            DataType::Utf8View => &DataType::Utf8,
            other => other,
        };
        Ok(output_type(self.function, Some(arg)).ok_or_else(|| {
            let message = format!("function {}({}) does not exist", self.name, type_name(arg));
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        })?)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let output = args.return_field.data_type();
        if self.function == AggFunction::Avg && output.is_decimal() {
            return Ok(Box::new(Averages::new(args.expr_fields[0].data_type(), output, args.is_distinct)));
        }
        if *output != SqlType::Interval.to_arrow() {
            return Err(SqlError::internal(format!("{} is computed by DataFusion", self.name)).into());
        }
        Ok(Box::new(Intervals { average: self.function == AggFunction::Avg, ..Intervals::default() }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if self.function == AggFunction::Avg && args.return_type().is_decimal() {
            return Ok(Averages::state_fields(args.name, args.input_fields[0].data_type(), args.is_distinct));
        }
        let field = |name: &str, data_type| Arc::new(Field::new(format_state_name(args.name, name), data_type, true));
        Ok(vec![field("sum", SqlType::Interval.to_arrow()), field("count", DataType::Int64)])
    }
}

/// Sum or average of intervals.
#[derive(Debug, Default)]
struct Intervals {
    average: bool,
    months: i64,
    days: i64,
    nanoseconds: i128,
    count: i64,
}

impl Intervals {
    fn add(&mut self, values: &ArrayRef, sign: i64) {
        for value in values.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.months += sign * i64::from(value.months);
            self.days += sign * i64::from(value.days);
            self.nanoseconds += i128::from(sign) * i128::from(value.nanoseconds);
            self.count += sign;
        }
    }

    /// What is left of months becomes days, what is left of days time.
    fn divided(&self, by: i128) -> Result<IntervalMonthDayNano> {
        let months = i128::from(self.months);
        let month_days = months % by * MONTH_DAYS;
        let days = i128::from(self.days);
        let day_ns = (month_days % by + days % by) * DAY_NS / by;
        interval(months / by, month_days / by + days / by, self.nanoseconds / by + day_ns)
    }
}

fn interval(months: i128, days: i128, nanoseconds: i128) -> Result<IntervalMonthDayNano> {
    let out = || SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range");
    Ok(IntervalMonthDayNano::new(
        months.try_into().map_err(|_| out())?,
        days.try_into().map_err(|_| out())?,
        nanoseconds.try_into().map_err(|_| out())?,
    ))
}

impl Accumulator for Intervals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let before = self.count;
        self.add(&states[0], 1);
        let counts = states[1].as_primitive::<Int64Type>();
        self.count = before + counts.iter().flatten().sum::<i64>();
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = interval(self.months.into(), self.days.into(), self.nanoseconds)?;
        Ok(vec![ScalarValue::IntervalMonthDayNano(Some(sum)), ScalarValue::Int64(Some(self.count))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        let by = if self.average { i128::from(self.count) } else { 1 };
        Ok(ScalarValue::IntervalMonthDayNano(Some(self.divided(by)?)))
    }

    fn size(&self) -> usize {
        size_of::<Intervals>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow::array::IntervalMonthDayNanoArray;

    use super::*;

    #[test]
    fn averages_of_intervals_go_down_to_time() {
        let mut average = Intervals { average: true, ..Intervals::default() };
        let values = vec![IntervalMonthDayNano::new(1, 0, 0), IntervalMonthDayNano::new(0, 1, 2)];
        let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(values));
        average.update_batch(&[values]).unwrap();
        // Half of a month is 15 days, half of a day 12 hours.
        let expected = IntervalMonthDayNano::new(0, 15, 43_200_000_000_001);
        assert_eq!(average.evaluate().unwrap(), ScalarValue::IntervalMonthDayNano(Some(expected)));
    }
}
