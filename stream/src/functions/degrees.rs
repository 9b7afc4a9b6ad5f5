//! Trigonometry in degrees. Where the result is a round number, it is exact: `sind(30)` is 0.5.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::error::{DataFusionError, Result};
use weir_common::SqlState;

use super::function::{Call, Function, refuse};

pub(super) fn functions() -> Vec<Function> {
    vec![
        one("sind", |call| each(call, |x| circular(x, sine))),
        one("cosd", |call| each(call, |x| circular(x, cosine))),
        one("tand", |call| each(call, |x| circular(x, |x| sine(x) / cosine(x)))),
        one("cotd", |call| each(call, |x| circular(x, |x| cosine(x) / sine(x)))),
        one("asind", |call| each(call, |x| in_domain(x, arc_sine))),
        one("acosd", |call| each(call, |x| in_domain(x, |x| 90.0 - arc_sine(x)))),
        one("atand", |call| each(call, |x| Ok(arc_tangent(x)))),
        Function::new("atan2d", &[2], |_| Ok(DataType::Float64), atan2d),
    ]
}

fn one(name: &'static str, compute: fn(&Call<'_>) -> Result<ArrayRef>) -> Function {
    Function::new(name, &[1], |_| Ok(DataType::Float64), compute)
}

fn each(call: &Call<'_>, of: fn(f64) -> Result<f64>) -> Result<ArrayRef> {
    let values = call.array_as(0, &DataType::Float64)?;
    let results = values.as_primitive::<Float64Type>().iter().map(|x| x.map(of).transpose());
    Ok(Arc::new(results.collect::<Result<Float64Array>>()?))
}

fn out_of_range() -> DataFusionError {
    refuse(SqlState::NUMERIC_OUT_OF_RANGE, "input is out of range")
}

fn circular(degrees: f64, of: fn(f64) -> f64) -> Result<f64> {
    if degrees.is_infinite() { Err(out_of_range()) } else { Ok(of(degrees % 360.0) + 0.0) }
}

fn in_domain(x: f64, of: fn(f64) -> f64) -> Result<f64> {
    if x.abs() > 1.0 { Err(out_of_range()) } else { Ok(of(x)) }
}

/// Of angles from -360 to 360.
fn sine(degrees: f64) -> f64 {
    let (sign, degrees) = if degrees < 0.0 { (-1.0, -degrees) } else { (1.0, degrees) };
    let (sign, degrees) = if degrees > 180.0 { (-sign, degrees - 180.0) } else { (sign, degrees) };
    let degrees = if degrees > 90.0 { 180.0 - degrees } else { degrees };
    sign * if degrees <= 30.0 { small_sine(degrees) } else { small_cosine(90.0 - degrees) }
}

fn cosine(degrees: f64) -> f64 {
    let degrees = degrees.abs();
    let degrees = if degrees > 180.0 { 360.0 - degrees } else { degrees };
    let (sign, degrees) = if degrees > 90.0 { (-1.0, 180.0 - degrees) } else { (1.0, degrees) };
    sign * if degrees <= 60.0 { small_cosine(degrees) } else { small_sine(90.0 - degrees) }
}

/// From 0 to 30, scaled to be exact at 30.
fn small_sine(degrees: f64) -> f64 {
    degrees.to_radians().sin() / 30_f64.to_radians().sin() / 2.0
}

/// From 0 to 60, scaled to be exact at 60.
fn small_cosine(degrees: f64) -> f64 {
    1.0 - (1.0 - degrees.to_radians().cos()) / (1.0 - 60_f64.to_radians().cos()) / 2.0
}

/// Scaled to be exact at 0.5 and 1.
fn arc_sine(x: f64) -> f64 {
    let magnitude = x.abs();
    let degrees = if magnitude <= 0.5 {
        magnitude.asin() / 0.5_f64.asin() * 30.0
    } else {
        90.0 - magnitude.acos() / 0.5_f64.acos() * 60.0
    };
    degrees.copysign(x)
}

/// Scaled to be exact at 1.
fn arc_tangent(x: f64) -> f64 {
    x.atan() / 1_f64.atan() * 45.0
}

fn atan2d(call: &Call<'_>) -> Result<ArrayRef> {
    let (y, x) = (call.array_as(0, &DataType::Float64)?, call.array_as(1, &DataType::Float64)?);
    let pairs = y.as_primitive::<Float64Type>().iter().zip(x.as_primitive::<Float64Type>());
    let degrees = |(y, x): (f64, f64)| y.atan2(x) / 1_f64.atan() * 45.0;
    let results: Float64Array = pairs.map(|(y, x)| y.zip(x).map(degrees)).collect();
    Ok(Arc::new(results))
}
