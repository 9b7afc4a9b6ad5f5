//! Roots and logarithms, which PostgreSQL refuses where they have no value.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::error::Result;
use weir_common::SqlState;

use super::function::{Call, Function, refuse};

pub(super) fn functions() -> Vec<Function> {
    let double = |name, compute| Function::new(name, &[1], |_| Ok(DataType::Float64), compute);
    vec![
        double("sqrt", |call| each(call, |x| if x < 0.0 { Err(root()) } else { Ok(x.sqrt()) })),
        double("ln", |call| each(call, |x| logarithm(x, f64::ln))),
        double("log10", |call| each(call, |x| logarithm(x, f64::log10))),
    ]
}

fn each(call: &Call<'_>, of: fn(f64) -> Result<f64>) -> Result<ArrayRef> {
    let values = call.array_as(0, &DataType::Float64)?;
    let results = values.as_primitive::<Float64Type>().iter().map(|x| x.map(of).transpose());
    Ok(Arc::new(results.collect::<Result<Float64Array>>()?))
}

fn root() -> datafusion::error::DataFusionError {
    refuse(SqlState("2201F"), "cannot take square root of a negative number")
}

fn logarithm(x: f64, of: fn(f64) -> f64) -> Result<f64> {
    const INVALID: SqlState = SqlState("2201E");
    match x {
        0.0 => Err(refuse(INVALID, "cannot take logarithm of zero")),
        x if x < 0.0 => Err(refuse(INVALID, "cannot take logarithm of a negative number")),
        x => Ok(of(x)),
    }
}
