//! `+ - * / %` as PostgreSQL computes them: results that do not fit are errors, and so is a division by zero.
//!
//! | operands | result |
//! |---|---|
//! | two integers | the wider type; `/` cuts off |
//! | numeric and numeric or integer | numeric |
//! | two reals | real |
//! | double precision, or real with another type | double precision |

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, Decimal256Array, Float64Array, PrimitiveArray, Scalar,
};
use arrow::compute::kernels::numeric::{add, div, mul, neg, rem, sub};
use arrow::compute::{binary, try_binary, try_unary};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, i256};
use arrow::error::ArrowError;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use weir_common::SqlState;

use super::function::{Arguments, Call, Function, argument, convert, no_such_function, refuse};
use super::numeric::{self, NUMERIC, array_of, numerics};

pub(super) fn functions() -> Vec<Function> {
    vec![
        Function::new("pg_add", &[2], |args| result_type("pg_add", args), |call| compute(call, Operation::Add)),
        Function::new("pg_sub", &[2], |args| result_type("pg_sub", args), |call| compute(call, Operation::Sub)),
        Function::new("pg_mul", &[2], |args| result_type("pg_mul", args), |call| compute(call, Operation::Mul)),
        Function::new("pg_div", &[2], |args| result_type("pg_div", args), |call| compute(call, Operation::Div)),
        Function::new("pg_mod", &[2], |args| result_type("pg_mod", args), |call| compute(call, Operation::Rem))
            .alias("mod"),
        Function::new("int_div", &[2], |args| result_type("int_div", args), |call| compute(call, Operation::Div)),
        Function::new("pg_neg", &[1], |args| unary_type("pg_neg", args), negate),
        Function::new("abs", &[1], |args| unary_type("abs", args), absolute),
        Function::new("pg_and", &[2], |args| bits_type("pg_and", args), |call| bits(call, Bits::And)),
        Function::new("pg_or", &[2], |args| bits_type("pg_or", args), |call| bits(call, Bits::Or)),
        Function::new("pg_xor", &[2], |args| bits_type("pg_xor", args), |call| bits(call, Bits::Xor)),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

#[derive(Clone, Copy)]
enum Bits {
    And,
    Or,
    Xor,
}

/// The type that numbers of two types are computed in.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Decimal128, Decimal256, Float32, Float64, Int16, Int32, Int64, Null};
    Some(match (a, b) {
        (Null, Null) => Int32,
        (Null, other) | (other, Null) => common_type(other, other)?,
        (Float32, Float32) => Float32,
        (Float32 | Float64, Int16 | Int32 | Int64 | Float32 | Float64 | Decimal128(..) | Decimal256(..))
        | (Int16 | Int32 | Int64 | Decimal128(..) | Decimal256(..), Float32 | Float64) => Float64,
        (Decimal128(..) | Decimal256(..), Int16 | Int32 | Int64 | Decimal128(..) | Decimal256(..))
        | (Int16 | Int32 | Int64, Decimal128(..) | Decimal256(..)) => NUMERIC,
        (Int64, Int16 | Int32 | Int64) | (Int16 | Int32, Int64) => Int64,
        (Int32, Int16 | Int32) | (Int16, Int32) => Int32,
        (Int16, Int16) => Int16,
        _ => return None,
    })
}

fn result_type(name: &str, args: &Arguments<'_>) -> Result<DataType> {
    common_type(argument(args, 0), argument(args, 1)).ok_or_else(|| no_such_function(name, args))
}

fn unary_type(name: &str, args: &Arguments<'_>) -> Result<DataType> {
    let data_type = argument(args, 0);
    match common_type(data_type, data_type) {
        Some(NUMERIC) => Ok(data_type.clone()),
        Some(common) => Ok(common),
        None => Err(no_such_function(name, args)),
    }
}

fn compute(call: &Call<'_>, operation: Operation) -> Result<ArrayRef> {
    match call.result_type() {
        DataType::Float32 => floats::<Float32Type>(call, operation),
        DataType::Float64 => floats::<Float64Type>(call, operation),
        DataType::Decimal256(..) => decimals(&numerics(&call.array(0)?)?, &numerics(&call.array(1)?)?, operation),
        integer => {
            let (a, b) = (operand(call.value(0), integer)?, operand(call.value(1), integer)?);
            let result = integers(a.as_ref(), b.as_ref(), operation).map_err(|e| integer_error(e, integer))?;
            // Two constants give one value.
            if result.len() == call.rows() { Ok(result) } else { expand(&result, call.rows()) }
        }
    }
}

fn expand(one: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    Ok(arrow::compute::take(one, &arrow::array::UInt32Array::from(vec![0; rows]), None)?)
}

/// A column, or a constant that kernels take as it is.
fn operand(value: &ColumnarValue, data_type: &DataType) -> Result<Box<dyn Datum>> {
    Ok(match value {
        ColumnarValue::Array(array) => Box::new(convert(array, data_type)?),
        ColumnarValue::Scalar(scalar) => Box::new(Scalar::new(convert(&scalar.to_array()?, data_type)?)),
    })
}

fn integers(a: &dyn Datum, b: &dyn Datum, operation: Operation) -> Result<ArrayRef, ArrowError> {
    match operation {
        Operation::Add => add(a, b),
        Operation::Sub => sub(a, b),
        Operation::Mul => mul(a, b),
        Operation::Div => div(a, b),
        Operation::Rem => match rem(a, b) {
            // The smallest integer % -1 is 0, but is computed through a division that overflows.
            Err(ArrowError::ArithmeticOverflow(_)) => remainders(a, b),
            result => result,
        },
    }
}

fn remainders(a: &dyn Datum, b: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    fn typed<T: ArrowPrimitiveType>(
        a: &dyn Datum,
        b: &dyn Datum,
        of: fn(T::Native, T::Native) -> T::Native,
    ) -> ArrayRef {
        let ((a, a_scalar), (b, b_scalar)) = (a.get(), b.get());
        let (a, b) = (a.as_primitive::<T>(), b.as_primitive::<T>());
        let rows = if a_scalar { b.len() } else { a.len() };
        let value = |array: &PrimitiveArray<T>, scalar: bool, i: usize| {
            let i = if scalar { 0 } else { i };
            array.is_valid(i).then(|| array.value(i))
        };
        let of = |i| Some(of(value(a, a_scalar, i)?, value(b, b_scalar, i)?));
        Arc::new((0..rows).map(of).collect::<PrimitiveArray<T>>())
    }
    match a.get().0.data_type() {
        DataType::Int16 => Ok(typed::<Int16Type>(a, b, i16::wrapping_rem)),
        DataType::Int32 => Ok(typed::<Int32Type>(a, b, i32::wrapping_rem)),
        _ => Ok(typed::<Int64Type>(a, b, i64::wrapping_rem)),
    }
}

fn integer_error(error: ArrowError, data_type: &DataType) -> DataFusionError {
    match error {
        ArrowError::DivideByZero => division_by_zero(),
        ArrowError::ArithmeticOverflow(_) => out_of_range(data_type),
        other => other.into(),
    }
}

fn division_by_zero() -> DataFusionError {
    refuse(SqlState::DIVISION_BY_ZERO, "division by zero")
}

pub(super) fn out_of_range(data_type: &DataType) -> DataFusionError {
    let name = match data_type {
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        _ => "bigint",
    };
    refuse(SqlState::NUMERIC_OUT_OF_RANGE, format!("{name} out of range"))
}

fn decimals(a: &Decimal256Array, b: &Decimal256Array, operation: Operation) -> Result<ArrayRef> {
    array_of(a.iter().zip(b.iter()).map(|pair| match pair {
        (Some(a), Some(b)) => decimal(a, b, operation).map(Some),
        _ => Ok(None),
    }))
}

fn decimal(a: i256, b: i256, operation: Operation) -> Result<i256> {
    if matches!(operation, Operation::Div | Operation::Rem) && b == i256::ZERO {
        return Err(division_by_zero());
    }
    let result = match operation {
        Operation::Add => a.checked_add(b),
        Operation::Sub => a.checked_sub(b),
        Operation::Mul => numeric::multiply(a, b),
        Operation::Div => numeric::divide(a, b),
        Operation::Rem => Some(a.wrapping_rem(b)),
    };
    result.ok_or_else(numeric::overflow)
}

/// A float type.
trait Float: ArrowPrimitiveType<Native: Into<f64>> {
    fn apply(a: Self::Native, b: Self::Native, operation: Operation) -> Self::Native;
}

impl Float for Float32Type {
    fn apply(a: f32, b: f32, operation: Operation) -> f32 {
        match operation {
            Operation::Add => a + b,
            Operation::Sub => a - b,
            Operation::Mul => a * b,
            Operation::Div => a / b,
            Operation::Rem => a % b,
        }
    }
}

impl Float for Float64Type {
    fn apply(a: f64, b: f64, operation: Operation) -> f64 {
        match operation {
            Operation::Add => a + b,
            Operation::Sub => a - b,
            Operation::Mul => a * b,
            Operation::Div => a / b,
            Operation::Rem => a % b,
        }
    }
}

fn floats<T: Float>(call: &Call<'_>, operation: Operation) -> Result<ArrayRef> {
    let (a, b) = (call.array_as(0, &T::DATA_TYPE)?, call.array_as(1, &T::DATA_TYPE)?);
    let (a, b) = (a.as_primitive::<T>(), b.as_primitive::<T>());
    let result: PrimitiveArray<T> = binary(a, b, |a, b| T::apply(a, b, operation))?;
    // Seldom anything is wrong: one pass to compute, one to see that.
    for i in 0..result.len() {
        if result.is_valid(i) {
            check_float(a.value(i).into(), b.value(i).into(), result.value(i).into(), operation)?;
        }
    }
    Ok(Arc::new(result))
}

fn check_float(a: f64, b: f64, result: f64, operation: Operation) -> Result<()> {
    let divides = matches!(operation, Operation::Div | Operation::Rem);
    let multiplies = matches!(operation, Operation::Mul | Operation::Div);
    match result {
        _ if divides && b == 0.0 && !a.is_nan() => Err(division_by_zero()),
        r if r.is_infinite() && a.is_finite() && b.is_finite() => {
            Err(refuse(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: overflow"))
        }
        r if r == 0.0 && multiplies && a != 0.0 && b != 0.0 && b.is_finite() => {
            Err(refuse(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: underflow"))
        }
        _ => Ok(()),
    }
}

fn negate(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array_as(0, call.result_type())?;
    neg(array.as_ref()).map_err(|e| integer_error(e, array.data_type()))
}

fn absolute(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array_as(0, call.result_type())?;
    let overflow = || ArrowError::ArithmeticOverflow(String::new());
    let result: Result<ArrayRef, ArrowError> = match array.data_type() {
        DataType::Int16 => try_unary(array.as_primitive::<Int16Type>(), |v| v.checked_abs().ok_or_else(overflow))
            .map(|a: PrimitiveArray<Int16Type>| Arc::new(a) as ArrayRef),
        DataType::Int32 => try_unary(array.as_primitive::<Int32Type>(), |v| v.checked_abs().ok_or_else(overflow))
            .map(|a: PrimitiveArray<Int32Type>| Arc::new(a) as ArrayRef),
        DataType::Int64 => try_unary(array.as_primitive::<Int64Type>(), |v| v.checked_abs().ok_or_else(overflow))
            .map(|a: PrimitiveArray<Int64Type>| Arc::new(a) as ArrayRef),
        DataType::Float32 => Ok(Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::abs))),
        DataType::Float64 => {
            let absolute: Float64Array = array.as_primitive::<Float64Type>().unary(f64::abs);
            Ok(Arc::new(absolute))
        }
        decimal => {
            let values = numerics(&array)?;
            let absolute = array_of(values.iter().map(|v| Ok(v.map(i256::wrapping_abs))))?;
            return convert(&absolute, decimal);
        }
    };
    result.map_err(|e| integer_error(e, array.data_type()))
}

fn bits_type(name: &str, args: &Arguments<'_>) -> Result<DataType> {
    match common_type(argument(args, 0), argument(args, 1)) {
        Some(integer @ (DataType::Int16 | DataType::Int32 | DataType::Int64)) => Ok(integer),
        _ => Err(no_such_function(name, args)),
    }
}

fn bits(call: &Call<'_>, bits: Bits) -> Result<ArrayRef> {
    let (a, b) = (call.array_as(0, &DataType::Int64)?, call.array_as(1, &DataType::Int64)?);
    let of = |a: i64, b: i64| {
        Ok::<i64, ArrowError>(match bits {
            Bits::And => a & b,
            Bits::Or => a | b,
            Bits::Xor => a ^ b,
        })
    };
    let result: PrimitiveArray<Int64Type> =
        try_binary(a.as_primitive::<Int64Type>(), b.as_primitive::<Int64Type>(), of)?;
    convert(&(Arc::new(result) as ArrayRef), call.result_type())
}
