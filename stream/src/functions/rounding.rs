//! `round`, `trunc`, `ceil`, `floor` and `sign`: numerics stay numerics, everything else becomes a double precision.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, i256};
use datafusion::error::Result;
use weir_common::types::NUMERIC_SCALE;

use super::function::{Arguments, Call, Function, argument, no_such_function};
use super::numeric::{self, NUMERIC, array_of, numerics, power_of_ten};

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new(
            "round",
            &[1, 2],
            |args| result_type("round", args),
            |call| digits(call, numeric::round, f64::round_ties_even),
        ),
        Function::new(
            "trunc",
            &[1, 2],
            |args| result_type("trunc", args),
            |call| digits(call, numeric::truncate, f64::trunc),
        ),
        Function::new("ceil", &[1], |args| result_type("ceil", args), |call| digits(call, |v, _| ceil(v), f64::ceil))
            .alias("ceiling"),
        Function::new(
            "floor",
            &[1],
            |args| result_type("floor", args),
            |call| digits(call, |v, _| floor(v), f64::floor),
        ),
        Function::new("sign", &[1], |args| result_type("sign", args), |call| digits(call, |v, _| sign(v), sign_of)),
    ]
}

fn result_type(name: &str, args: &Arguments<'_>) -> Result<DataType> {
    let number = argument(args, 0);
    let digits = args.arg_fields.get(1).map(|f| f.data_type());
    match (number, digits) {
        (DataType::Decimal128(..) | DataType::Decimal256(..), _) => Ok(NUMERIC),
        // With digits, integers are numerics; a double has no such function in PostgreSQL.
        (DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Null, Some(_)) => Ok(NUMERIC),
        (
            DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Null,
            None,
        ) => Ok(DataType::Float64),
        _ => Err(no_such_function(name, args)),
    }
}

fn digits(call: &Call<'_>, exact: fn(i256, i64) -> i256, double: fn(f64) -> f64) -> Result<ArrayRef> {
    if *call.result_type() == DataType::Float64 {
        let values = call.array_as(0, &DataType::Float64)?;
        return Ok(Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(double)));
    }
    let values = numerics(&call.array(0)?)?;
    if call.len() == 1 {
        return array_of(values.iter().map(|v| Ok(v.map(|v| exact(v, 0)))));
    }
    let places = call.array_as(1, &DataType::Int64)?;
    let places = places.as_primitive::<Int64Type>();
    let pairs = values.iter().zip(places.iter());
    array_of(pairs.map(|(v, places)| Ok(v.zip(places).map(|(v, places)| exact(v, places)))))
}

fn unit() -> i256 {
    power_of_ten(NUMERIC_SCALE as u32)
}

fn floor(value: i256) -> i256 {
    let rest = value.wrapping_rem(unit());
    let down = value.wrapping_sub(rest);
    if rest < i256::ZERO { down.wrapping_sub(unit()) } else { down }
}

fn ceil(value: i256) -> i256 {
    let rest = value.wrapping_rem(unit());
    let cut = value.wrapping_sub(rest);
    if rest > i256::ZERO { cut.wrapping_add(unit()) } else { cut }
}

fn sign(value: i256) -> i256 {
    match value.cmp(&i256::ZERO) {
        std::cmp::Ordering::Less => unit().wrapping_neg(),
        std::cmp::Ordering::Equal => i256::ZERO,
        std::cmp::Ordering::Greater => unit(),
    }
}

fn sign_of(value: f64) -> f64 {
    if value == 0.0 || value.is_nan() { value } else { value.signum() }
}
