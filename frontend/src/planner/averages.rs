//! `avg` of numerics in a query that runs once: divided as PostgreSQL does, rounded half away from zero. (DataFusion's
//! cuts the digits off.)

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType, Decimal256Type, Field, FieldRef, Int64Type, i256};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::utils::format_state_name;

use crate::error::{SqlError, SqlState};

/// Sum and count, or the distinct values, of numerics.
#[derive(Debug)]
pub(super) struct Averages {
    /// Digits after the point of the arguments and of the result.
    scale: i8,
    output: DataType,
    sum: i256,
    count: i64,
    /// With DISTINCT: the values so far.
    distinct: Option<HashSet<i256>>,
}

/// The type that sums have, for arguments of this type.
fn sum_type(scale: i8) -> DataType {
    DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale)
}

fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

fn too_large() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format")
}

impl Averages {
    /// Over arguments of the one type, with results of the other; both are decimals.
    pub fn new(input: &DataType, output: &DataType, distinct: bool) -> Averages {
        Averages {
            scale: scale_of(input),
            output: output.clone(),
            sum: i256::ZERO,
            count: 0,
            distinct: distinct.then(HashSet::new),
        }
    }

    /// The fields of [`Accumulator::state`].
    pub fn state_fields(name: &str, input: &DataType, distinct: bool) -> Vec<FieldRef> {
        let sum = sum_type(scale_of(input));
        let field = |part: &str, data_type| Arc::new(Field::new(format_state_name(name, part), data_type, true));
        match distinct {
            true => vec![field("distinct", DataType::List(Arc::new(Field::new_list_field(sum, true))))],
            false => vec![field("sum", sum), field("count", DataType::Int64)],
        }
    }

    fn add(&mut self, values: &ArrayRef, sign: i64) -> Result<()> {
        let values = arrow::compute::cast(values, &sum_type(self.scale))?;
        for value in values.as_primitive::<Decimal256Type>().iter().flatten() {
            if self.distinct.as_mut().is_some_and(|seen| !seen.insert(value)) {
                continue;
            }
            let sum = if sign > 0 { self.sum.checked_add(value) } else { self.sum.checked_sub(value) };
            self.sum = sum.ok_or_else(too_large)?;
            self.count += sign;
        }
        Ok(())
    }

    fn average(&self) -> Option<i256> {
        let shift = i256::from_i128(10).checked_pow(u32::try_from(scale_of(&self.output) - self.scale).ok()?)?;
        let (count, sum) = (i256::from_i128(self.count.into()), self.sum.checked_mul(shift)?);
        let (quotient, rest) = (sum.checked_div(count)?, sum.checked_rem(count)?.checked_abs()?);
        let away = match rest >= count.checked_sub(rest)? {
            true if sum.is_negative() => i256::MINUS_ONE,
            true => i256::ONE,
            false => i256::ZERO,
        };
        quotient.checked_add(away)
    }
}

impl Accumulator for Averages {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], -1)
    }

    fn supports_retract_batch(&self) -> bool {
        self.distinct.is_none()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.distinct.is_some() {
            for values in states[0].as_list::<i32>().iter().flatten() {
                self.add(&values, 1)?;
            }
            return Ok(());
        }
        let before = self.count;
        self.add(&states[0], 1)?;
        let counts = states[1].as_primitive::<Int64Type>();
        self.count = before + counts.iter().flatten().sum::<i64>();
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let value = |v| ScalarValue::Decimal256(Some(v), DECIMAL256_MAX_PRECISION, self.scale);
        if let Some(seen) = &self.distinct {
            let values: Vec<_> = seen.iter().map(|v| value(*v)).collect();
            return Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &sum_type(self.scale)))]);
        }
        Ok(vec![value(self.sum), ScalarValue::Int64(Some(self.count))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let average = match self.count {
            0 => None,
            _ => Some(self.average().ok_or_else(too_large)?),
        };
        Ok(match self.output {
            DataType::Decimal128(precision, scale) => {
                let average = average.map(|a| a.to_i128().ok_or_else(too_large)).transpose()?;
                ScalarValue::Decimal128(average, precision, scale)
            }
            _ => ScalarValue::Decimal256(average, DECIMAL256_MAX_PRECISION, scale_of(&self.output)),
        })
    }

    fn size(&self) -> usize {
        size_of::<Averages>() + self.distinct.as_ref().map_or(0, |seen| seen.capacity() * size_of::<i256>())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow::array::Decimal128Array;

    use super::*;

    #[test]
    fn averages_round_half_away_from_zero() {
        let input = DataType::Decimal128(20, 0);
        let of = |values: Vec<i128>, distinct| {
            let mut average = Averages::new(&input, &DataType::Decimal128(38, 2), distinct);
            let values = Decimal128Array::from(values).with_precision_and_scale(20, 0).unwrap();
            average.update_batch(&[Arc::new(values)]).unwrap();
            average.evaluate().unwrap()
        };
        assert_eq!(of(vec![1, 0, 1], false), ScalarValue::Decimal128(Some(67), 38, 2));
        assert_eq!(of(vec![-1, 0, -1], false), ScalarValue::Decimal128(Some(-67), 38, 2));
        assert_eq!(of(vec![1, 1, 2], true), ScalarValue::Decimal128(Some(150), 38, 2));
        assert_eq!(of(vec![], false), ScalarValue::Decimal128(None, 38, 2));
    }
}
