//! PostgreSQL's numeric on `Decimal256(76, 28)`.
//!
//! An unconstrained numeric has 28 digits after the point here. Results are rounded half away from zero, and a quotient
//! to as many digits as PostgreSQL gives it: at least 16 significant ones.

use arrow::array::{ArrayRef, AsArray, Decimal256Array};
use arrow::datatypes::{DataType, Decimal256Type, i256};
use datafusion::error::Result;
use weir_common::SqlState;
use weir_common::types::{NUMERIC_PRECISION, NUMERIC_SCALE};

use super::function::{convert, refuse};

/// The Arrow type of an unconstrained numeric.
pub(super) const NUMERIC: DataType = DataType::Decimal256(NUMERIC_PRECISION, NUMERIC_SCALE);
/// Digits in a digit of PostgreSQL's numeric, which are to base 10,000.
const BASE_DIGITS: i32 = 4;
/// Significant digits that a quotient has at least.
const QUOTIENT_DIGITS_MIN: i32 = 16;

/// 10^`exponent`, for exponents up to 76.
pub(super) fn power_of_ten(exponent: u32) -> i256 {
    i256::from_i128(10).wrapping_pow(exponent)
}

/// The values as unconstrained numerics.
pub(super) fn numerics(array: &ArrayRef) -> Result<Decimal256Array> {
    Ok(convert(array, &NUMERIC)?.as_primitive::<Decimal256Type>().clone())
}

/// An array of results, each checked to have no more digits than a numeric has.
pub(super) fn array_of(values: impl Iterator<Item = Result<Option<i256>>>) -> Result<ArrayRef> {
    let values = values.map(|value| value.and_then(checked)).collect::<Result<Decimal256Array>>()?;
    Ok(std::sync::Arc::new(values.with_precision_and_scale(NUMERIC_PRECISION, NUMERIC_SCALE)?))
}

fn checked(value: Option<i256>) -> Result<Option<i256>> {
    match value {
        Some(v) if v.wrapping_abs() >= power_of_ten(NUMERIC_PRECISION.into()) => Err(overflow()),
        _ => Ok(value),
    }
}

/// A result that is too large.
pub(super) fn overflow() -> datafusion::error::DataFusionError {
    refuse(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format")
}

/// `value / 10^digits`, rounded half away from zero.
pub(super) fn shift_right(value: i256, digits: u32) -> i256 {
    let unit = power_of_ten(digits);
    let (quotient, rest) = (value.wrapping_div(unit), value.wrapping_rem(unit));
    let half = unit.wrapping_div(i256::from_i128(2));
    if digits > 0 && rest.wrapping_abs() >= half { away_from_zero(quotient, value) } else { quotient }
}

fn away_from_zero(quotient: i256, sign: i256) -> i256 {
    if sign < i256::ZERO { quotient.wrapping_sub(i256::ONE) } else { quotient.wrapping_add(i256::ONE) }
}

/// The value rounded to this many digits after the point, which may be negative.
pub(super) fn round(value: i256, digits: i64) -> i256 {
    let drop = i64::from(NUMERIC_SCALE) - digits;
    match u32::try_from(drop) {
        Ok(drop) if drop > u32::from(NUMERIC_PRECISION) => i256::ZERO,
        Ok(drop) => shift_right(value, drop).wrapping_mul(power_of_ten(drop)),
        Err(_) => value,
    }
}

/// The value without the digits from there on.
pub(super) fn truncate(value: i256, digits: i64) -> i256 {
    let drop = i64::from(NUMERIC_SCALE) - digits;
    match u32::try_from(drop) {
        Ok(drop) if drop > u32::from(NUMERIC_PRECISION) => i256::ZERO,
        Ok(drop) => value.wrapping_sub(value.wrapping_rem(power_of_ten(drop))),
        Err(_) => value,
    }
}

/// The product; `None` when it is too large.
pub(super) fn multiply(a: i256, b: i256) -> Option<i256> {
    let scale = NUMERIC_SCALE as u32;
    if let Some(product) = a.checked_mul(b) {
        return Some(shift_right(product, scale));
    }
    // Large times small: the whole part and the fraction of one, apart.
    let unit = power_of_ten(scale);
    let (a, b) = if a.wrapping_abs() > b.wrapping_abs() { (a, b) } else { (b, a) };
    let whole = a.wrapping_div(unit).checked_mul(b)?;
    let fraction = a.wrapping_rem(unit).checked_mul(b)?;
    whole.checked_add(shift_right(fraction, scale))
}

/// The quotient, rounded as PostgreSQL does; `None` when it is too large. `b` is not zero.
pub(super) fn divide(a: i256, b: i256) -> Option<i256> {
    let digits = quotient_scale(a, b).clamp(0, NUMERIC_SCALE.into()) as u32;
    let magnitude = match a.wrapping_abs().checked_mul(power_of_ten(digits)) {
        Some(scaled) => rounded_quotient(scaled, b.wrapping_abs()),
        None => long_division(a.wrapping_abs(), b.wrapping_abs(), digits)?,
    };
    let result = magnitude.checked_mul(power_of_ten(NUMERIC_SCALE as u32 - digits))?;
    Some(if (a < i256::ZERO) == (b < i256::ZERO) { result } else { result.wrapping_neg() })
}

fn rounded_quotient(a: i256, b: i256) -> i256 {
    let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b));
    if rest >= b.wrapping_sub(rest) { quotient.wrapping_add(i256::ONE) } else { quotient }
}

/// `a * 10^digits / b`, digit by digit.
fn long_division(a: i256, b: i256, digits: u32) -> Option<i256> {
    let ten = i256::from_i128(10);
    let (mut quotient, mut rest) = (a.wrapping_div(b), a.wrapping_rem(b));
    for _ in 0..digits {
        rest = rest.checked_mul(ten)?;
        quotient = quotient.checked_mul(ten)?.checked_add(rest.wrapping_div(b))?;
        rest = rest.wrapping_rem(b);
    }
    Some(if rest >= b.wrapping_sub(rest) { quotient.wrapping_add(i256::ONE) } else { quotient })
}

/// How many digits after the point PostgreSQL gives a quotient.
fn quotient_scale(a: i256, b: i256) -> i32 {
    let ((a_weight, a_first), (b_weight, b_first)) = (first_digit(a), first_digit(b));
    let weight = a_weight - b_weight - i32::from(a_first <= b_first);
    (QUOTIENT_DIGITS_MIN - weight * BASE_DIGITS).max(fraction_digits(a)).max(fraction_digits(b))
}

/// The first digit to base 10,000, and its place: 0 is just before the point.
fn first_digit(value: i256) -> (i32, i256) {
    if value == i256::ZERO {
        return (0, value);
    }
    let base = i256::from_i128(10_000);
    let mut rest = value.wrapping_abs();
    let mut places = 0;
    while rest >= base {
        rest = rest.wrapping_div(base);
        places += 1;
    }
    (places - i32::from(NUMERIC_SCALE) / BASE_DIGITS, rest)
}

/// Digits after the point, up to the last that is not 0.
fn fraction_digits(value: i256) -> i32 {
    let unit = power_of_ten(NUMERIC_SCALE as u32);
    let mut fraction = value.wrapping_rem(unit);
    if fraction == i256::ZERO {
        return 0;
    }
    let ten = i256::from_i128(10);
    let mut digits = i32::from(NUMERIC_SCALE);
    while fraction.wrapping_rem(ten) == i256::ZERO {
        fraction = fraction.wrapping_div(ten);
        digits -= 1;
    }
    digits
}
