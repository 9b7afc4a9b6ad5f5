//! `sum` and `avg` of integers and decimals: exact, and never wrapping.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Decimal128Array, Decimal256Array, Int64Array, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type, i256,
};

use super::accumulator::{Accumulator, GroupState, Rows, StateField, load_i64, primitive, store_i64};
use crate::Result;
use crate::cache;

/// 10^76, the first number that has no room in a numeric.
const UNIT: i256 = i256::from_parts(0x7775a5f1719510000000000000000000, 0x161bcca7119915b50764b4abe8652979);

/// Sums of integers, and of decimals short enough that no number of rows takes the sum out of an `i128`.
pub(super) struct IntSums {
    /// Digits after the point of the arguments.
    scale: i8,
    average: bool,
    output: DataType,
    sums: Vec<IntSum>,
}

#[derive(Clone, Copy, Default)]
struct IntSum {
    sum: i128,
    /// Rows that are not null.
    values: i64,
}

impl IntSums {
    /// Longest decimal that is summed here: 10^19 times 2^63 rows is less than 2^127.
    pub const PRECISION_MAX: u8 = 19;

    pub fn new(scale: i8, average: bool, output: DataType) -> IntSums {
        IntSums { scale, average, output, sums: Vec::new() }
    }

    fn add_as<T: ArrowPrimitiveType>(&mut self, rows: &Rows<'_>, widen: impl Fn(T::Native) -> i128) {
        let arg = primitive::<PrimitiveArray<T>>(&rows.args[0]);
        let args = arg.values();
        rows.each(arg.nulls(), |i, group, sign| {
            let (sum, value) = (&mut self.sums[group], widen(args[i]));
            sum.sum += if sign < 0 { -value } else { value };
            sum.values += sign;
        });
    }

    /// The result of a group, `None` for NULL. The error: it has no room in an `i128`.
    fn result(&self, slot: u32) -> Checked<Option<i128>> {
        let IntSum { sum, values } = self.sums[slot as usize];
        if values == 0 {
            return Ok(None);
        }
        if !self.average {
            return rescale_i128(sum, self.scale, scale_of(&self.output)).map(Some);
        }
        let (from, to) = (self.scale, scale_of(&self.output));
        if let Some(average) = short_average(sum, values, from, to) {
            return Ok(Some(average));
        }
        average(i256::from_i128(sum), values, from, to)?.to_i128().map(Some).ok_or(TooLarge)
    }
}

impl GroupState for IntSums {
    fn fields(&self) -> Vec<StateField> {
        vec![("sum", DataType::Decimal128(38, self.scale)), ("values", DataType::Int64)]
    }

    fn grow(&mut self, slots: usize) {
        self.sums.resize(slots, IntSum::default());
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let sums = primitive::<Decimal128Array>(&columns[0]);
        for (slot, sum) in slots.iter().zip(sums.values()) {
            self.sums[*slot as usize].sum = *sum;
        }
        load_i64(slots, &columns[1], |slot, values| self.sums[slot].values = values);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Array::from_iter_values(slots.iter().map(|slot| self.sums[*slot as usize].sum));
        let sums = sums.with_data_type(DataType::Decimal128(38, self.scale));
        Ok(vec![Arc::new(sums), store_i64(slots, |slot| self.sums[slot].values)])
    }

    fn results(&self, slots: &[u32], errors: &mut u64) -> Result<ArrayRef> {
        let results = slots.iter().map(|s| fitting(self.result(*s), errors));
        Ok(match self.output {
            DataType::Decimal128(precision, _) => {
                let limit = 10_i128.pow(u32::from(precision));
                let fits = |v: &i128| v.unsigned_abs() < limit.unsigned_abs();
                let results: Vec<_> = results.collect();
                let results = results.into_iter().map(|v| keep_if(v, fits, errors)).collect::<Decimal128Array>();
                Arc::new(results.with_data_type(self.output.clone()))
            }
            DataType::Decimal256(..) => {
                let results = results.map(|v| v.map(i256::from_i128)).collect::<Decimal256Array>();
                Arc::new(results.with_data_type(self.output.clone()))
            }
            _ => {
                let results: Vec<_> = results.collect();
                let narrow = |v: Option<i128>| keep_if(v, |v| i64::try_from(*v).is_ok(), errors).map(|v| v as i64);
                Arc::new(results.into_iter().map(narrow).collect::<Int64Array>())
            }
        })
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.sums, keep);
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<IntSum>()
    }
}

impl Accumulator for IntSums {
    fn add(&mut self, rows: &Rows<'_>) {
        match rows.args[0].data_type() {
            DataType::Int8 => self.add_as::<Int8Type>(rows, i128::from),
            DataType::Int16 => self.add_as::<Int16Type>(rows, i128::from),
            DataType::Int32 => self.add_as::<Int32Type>(rows, i128::from),
            DataType::Int64 => self.add_as::<Int64Type>(rows, i128::from),
            DataType::UInt8 => self.add_as::<UInt8Type>(rows, i128::from),
            DataType::UInt16 => self.add_as::<UInt16Type>(rows, i128::from),
            DataType::UInt32 => self.add_as::<UInt32Type>(rows, i128::from),
            DataType::UInt64 => self.add_as::<UInt64Type>(rows, i128::from),
            _ => self.add_as::<Decimal128Type>(rows, |v| v),
        }
    }
}

/// Sums of long decimals: `high * 10^76 + low`, where `low` is less than 10^76 in magnitude and may differ in sign from
/// `high`.
pub(super) struct WideSums {
    scale: i8,
    average: bool,
    output: DataType,
    sums: Vec<WideSum>,
}

#[derive(Clone, Copy, Default)]
struct WideSum {
    low: i256,
    high: i64,
    /// Rows that are not null.
    values: i64,
}

impl WideSum {
    #[inline]
    fn add(&mut self, value: i256, sign: i64) {
        let mut low = if sign < 0 { value.wrapping_neg() } else { value };
        if low >= UNIT || low <= UNIT.wrapping_neg() {
            // No decimal has so many digits, but arithmetic that does not check may have made one.
            self.high += (low / UNIT).as_i128() as i64;
            low %= UNIT;
        }
        low = low.wrapping_add(self.low);
        if low >= UNIT {
            low = low.wrapping_sub(UNIT);
            self.high += 1;
        } else if low <= UNIT.wrapping_neg() {
            low = low.wrapping_add(UNIT);
            self.high -= 1;
        }
        self.low = low;
        self.values += sign;
    }

    fn total(&self) -> Checked<i256> {
        match self.high {
            0 => Ok(self.low),
            -2..=2 => {
                let high = UNIT.wrapping_mul(i256::from_i128(i128::from(self.high)));
                high.checked_add(self.low).ok_or(TooLarge)
            }
            _ => Err(TooLarge),
        }
    }
}

impl WideSums {
    pub fn new(scale: i8, average: bool, output: DataType) -> WideSums {
        WideSums { scale, average, output, sums: Vec::new() }
    }

    fn result(&self, slot: u32) -> Checked<Option<i256>> {
        let sum = &self.sums[slot as usize];
        if sum.values == 0 {
            return Ok(None);
        }
        let (total, to) = (sum.total()?, scale_of(&self.output));
        let result =
            if self.average { average(total, sum.values, self.scale, to)? } else { rescale(total, self.scale, to)? };
        Ok(Some(result))
    }
}

impl GroupState for WideSums {
    fn fields(&self) -> Vec<StateField> {
        vec![("sum", DataType::Decimal256(76, self.scale)), ("overflow", DataType::Int64), ("values", DataType::Int64)]
    }

    fn grow(&mut self, slots: usize) {
        self.sums.resize(slots, WideSum::default());
    }

    fn load(&mut self, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let low = primitive::<Decimal256Array>(&columns[0]);
        for (slot, low) in slots.iter().zip(low.values()) {
            self.sums[*slot as usize].low = *low;
        }
        load_i64(slots, &columns[1], |slot, high| self.sums[slot].high = high);
        load_i64(slots, &columns[2], |slot, values| self.sums[slot].values = values);
        Ok(())
    }

    fn store(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        let low = Decimal256Array::from_iter_values(slots.iter().map(|slot| self.sums[*slot as usize].low));
        Ok(vec![
            Arc::new(low.with_data_type(DataType::Decimal256(76, self.scale))),
            store_i64(slots, |slot| self.sums[slot].high),
            store_i64(slots, |slot| self.sums[slot].values),
        ])
    }

    fn results(&self, slots: &[u32], errors: &mut u64) -> Result<ArrayRef> {
        let results: Vec<_> = slots.iter().map(|s| fitting(self.result(*s), errors)).collect();
        Ok(match self.output {
            DataType::Decimal128(precision, _) => {
                let limit = power_of_ten(precision);
                let fits = |v: &i256| *v < limit && *v > limit.wrapping_neg();
                let results = results.into_iter().map(|v| keep_if(v, fits, errors).map(i256::as_i128));
                Arc::new(results.collect::<Decimal128Array>().with_data_type(self.output.clone()))
            }
            _ => {
                let fits = |v: &i256| *v < UNIT && *v > UNIT.wrapping_neg();
                let results = results.into_iter().map(|v| keep_if(v, fits, errors));
                Arc::new(results.collect::<Decimal256Array>().with_data_type(self.output.clone()))
            }
        })
    }

    fn retain(&mut self, keep: &[u32]) {
        cache::retain(&mut self.sums, keep);
    }

    fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<WideSum>()
    }
}

impl Accumulator for WideSums {
    fn add(&mut self, rows: &Rows<'_>) {
        let arg = &rows.args[0];
        if let DataType::Decimal128(..) = arg.data_type() {
            let args = primitive::<PrimitiveArray<Decimal128Type>>(arg).values();
            rows.each(arg.nulls(), |i, group, sign| self.sums[group].add(i256::from_i128(args[i]), sign));
        } else {
            let args = primitive::<PrimitiveArray<Decimal256Type>>(arg).values();
            rows.each(arg.nulls(), |i, group, sign| self.sums[group].add(args[i], sign));
        }
    }
}

/// A result that its type can't hold.
struct TooLarge;

type Checked<T> = std::result::Result<T, TooLarge>;

/// NULL for what is too large, counted.
fn fitting<T>(result: Checked<Option<T>>, errors: &mut u64) -> Option<T> {
    result.unwrap_or_else(|TooLarge| {
        *errors += 1;
        None
    })
}

/// NULL for what does not fit, counted.
fn keep_if<T: Copy>(value: Option<T>, fits: impl Fn(&T) -> bool, errors: &mut u64) -> Option<T> {
    let kept = value.filter(|v| fits(v));
    *errors += u64::from(value.is_some() && kept.is_none());
    kept
}

/// `10^n`, for n up to 76.
fn power_of_ten(n: u8) -> i256 {
    const E38: i128 = 10_i128.pow(38);
    if n <= 38 {
        i256::from_i128(10_i128.pow(u32::from(n)))
    } else {
        i256::from_i128(E38).wrapping_mul(i256::from_i128(10_i128.pow(u32::from(n - 38))))
    }
}

fn scale_of(output: &DataType) -> i8 {
    match output {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// A sum with other digits after the point, rounded half away from zero.
fn rescale(value: i256, from: i8, to: i8) -> Checked<i256> {
    if from == to { Ok(value) } else { average(value, 1, from, to) }
}

fn rescale_i128(value: i128, from: i8, to: i8) -> Checked<i128> {
    if from == to { Ok(value) } else { rescale(i256::from_i128(value), from, to)?.to_i128().ok_or(TooLarge) }
}

/// `sum / count`, rounded half away from zero as numerics are, with `to` digits after the point where the sum has `from`.
fn average(sum: i256, count: i64, from: i8, to: i8) -> Checked<i256> {
    let count = i256::from_i128(i128::from(count));
    if to < from {
        let shift = power_of_ten((from - to) as u8);
        return Ok(divide_rounded(sum, count.checked_mul(shift).ok_or(TooLarge)?));
    }
    let shift = power_of_ten((to - from) as u8);
    let (whole, rest) = (sum / count, sum % count);
    let whole = whole.checked_mul(shift).ok_or(TooLarge)?;
    let fraction = divide_rounded(rest.checked_mul(shift).ok_or(TooLarge)?, count);
    whole.checked_add(fraction).ok_or(TooLarge)
}

/// [`average`] in fewer bits. `None`: they do not suffice.
fn short_average(sum: i128, count: i64, from: i8, to: i8) -> Option<i128> {
    let count = i128::from(count);
    let shift = 10_i128.checked_pow(u32::try_from(to - from).ok()?)?;
    let whole = (sum / count).checked_mul(shift)?;
    let rest = (sum % count).checked_mul(shift)?;
    let (fraction, rest) = (rest / count, rest % count);
    let away = if rest.abs() >= count - rest.abs() { sum.signum() } else { 0 };
    whole.checked_add(fraction + away)
}

/// The quotient rounded half away from zero; the divisor is positive.
fn divide_rounded(value: i256, divisor: i256) -> i256 {
    let (quotient, rest) = (value / divisor, value % divisor);
    // `rest + rest >= divisor` without overflow.
    if rest.wrapping_abs() >= divisor.wrapping_sub(rest.wrapping_abs()) {
        let away = if value.is_negative() { i256::MINUS_ONE } else { i256::ONE };
        quotient.wrapping_add(away)
    } else {
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(v: i128) -> i256 {
        i256::from_i128(v)
    }

    #[test]
    fn averages_round_half_away_from_zero() {
        let cases =
            [((1, 2, 0, 0), 1), ((-1, 2, 0, 0), -1), ((1, 3, 0, 2), 33), ((2, 3, 0, 2), 67), ((-2, 3, 0, 2), -67)];
        for ((sum, count, from, to), expected) in cases {
            assert_eq!(average(number(sum), count, from, to).ok(), Some(number(expected)), "{sum} / {count}");
            assert_eq!(short_average(sum, count, from, to), Some(expected), "{sum} / {count}");
        }
        assert_eq!(average(number(149), 1, 2, 1).ok(), Some(number(15)));
        assert_eq!(average(number(-144), 1, 2, 1).ok(), Some(number(-14)));
        assert!(average(power_of_ten(76), 1, 0, 10).is_err());
    }

    #[test]
    fn a_sum_beyond_any_numeric_comes_back() {
        assert_eq!(UNIT, power_of_ten(76));
        let largest = UNIT.wrapping_sub(i256::ONE);
        let mut sum = WideSum::default();
        for sign in [1, -1] {
            for _ in 0..1000 {
                sum.add(largest, sign);
            }
            assert!(sum.total().is_err());
            for _ in 0..999 {
                sum.add(largest, -sign);
            }
            sum.add(i256::ONE, sign);
            assert_eq!(sum.total().ok(), Some(if sign > 0 { UNIT } else { UNIT.wrapping_neg() }));
            sum.add(i256::ONE, -sign);
            sum.add(largest, -sign);
            assert_eq!(sum.total().ok(), Some(i256::ZERO));
        }
    }
}
