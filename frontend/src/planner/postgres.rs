//! Operators, casts and aggregates with PostgreSQL's types and results, out of DataFusion's and Weir's functions.

use std::sync::{Arc, LazyLock};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use chrono_tz::Tz;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::SessionStateDefaults;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Between, Case, InList, WindowFunctionDefinition};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast, lit,
};
use weir_common::plan::AggFunction;
use weir_common::{SqlState, SqlType};
use weir_stream::executor::aggregate::output_type;
use weir_stream::functions::cast_to;

use super::{FunctionSet, Scope, checks, types};
use crate::error::{SqlError, type_name};

mod operators;
mod types_meet;

/// The expression planners of the binder: ours first.
pub(super) fn expr_planners(functions: &FunctionSet) -> Vec<Arc<dyn ExprPlanner>> {
    let ours: Arc<dyn ExprPlanner> = Arc::new(operators::Operators::new(functions));
    std::iter::once(ours).chain(SessionStateDefaults::default_expr_planners()).collect()
}

/// The expression as PostgreSQL means it. What is below it has been rewritten before.
pub(super) fn rewrite(scope: &Scope<'_>, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    types_meet::check(&expr, schema)?;
    match expr {
        Expr::Cast(ref inner) => {
            let Ok(from) = inner.expr.get_type(schema) else { return Ok(Transformed::no(expr)) };
            let to = inner.field.data_type();
            if let Expr::Literal(value @ ScalarValue::Int64(_), metadata) = &*inner.expr
                && to.is_signed_integer()
                && let Ok(narrow) = value.cast_to(to)
            {
                return Ok(Transformed::yes(Expr::Literal(narrow, metadata.clone())));
            }
            Ok(match convert(scope, &inner.expr, &from, to) {
                Some(converted) => Transformed::yes(converted),
                None => Transformed::no(expr),
            })
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let any_float = [&expr, &low, &high].into_iter().any(|e| is_float(e, schema));
            let as_float = |e: Box<Expr>| Box::new(if any_float { float(*e, schema) } else { *e });
            let (expr, low, high) = (as_float(expr), as_float(low), as_float(high));
            let low = without_sign(like(scope, *low, &expr, schema), schema);
            let high = without_sign(like(scope, *high, &expr, schema), schema);
            let expr = Box::new(without_sign(*expr, schema));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low: Box::new(low), high: Box::new(high) })))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let any_float = std::iter::once(&*expr).chain(&list).any(|e| is_float(e, schema));
            let expr = Box::new(if any_float { float(*expr, schema) } else { *expr });
            let list = list.into_iter().map(|e| if any_float { float(e, schema) } else { e });
            let list = list.map(|item| without_sign(like(scope, item, &expr, schema), schema)).collect();
            let expr = Box::new(without_sign(*expr, schema));
            Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let (left, right) = (like(scope, *left, &right, schema), *right);
            let right = like(scope, right, &left, schema);
            comparable(op, &left, &right, schema)?;
            let (left, right) = (ordered(left, schema), ordered(right, schema));
            let any_float = is_float(&left, schema) || is_float(&right, schema);
            let (left, right) = if any_float { (float(left, schema), float(right, schema)) } else { (left, right) };
            let (left, right) = (without_sign(left, schema), without_sign(right, schema));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))))
        }
        // A sum of an instant and days is computed on the calendar of the time zone.
        Expr::BinaryExpr(BinaryExpr { ref left, op: op @ (Operator::Plus | Operator::Minus), ref right })
            if time_zone(scope) != Tz::UTC
                && matches!(left.get_type(schema), Ok(DataType::Timestamp(_, Some(_))))
                && matches!(right.get_type(schema), Ok(DataType::Interval(_))) =>
        {
            let name = if op == Operator::Plus { "pg_instant_add" } else { "pg_instant_sub" };
            let zone = lit(time_zone(scope).name());
            Ok(match scope.functions.scalar(name) {
                Some(function) => {
                    Transformed::yes(function.call(vec![left.as_ref().clone(), right.as_ref().clone(), zone]))
                }
                None => Transformed::no(expr),
            })
        }
        Expr::Negative(ref inner) if inner.get_type(schema).is_ok_and(|t| t.is_signed_integer()) => {
            Ok(match scope.functions.scalar("pg_neg") {
                Some(function) if !matches!(&**inner, Expr::Literal(..)) => {
                    Transformed::yes(function.call(vec![inner.as_ref().clone()]))
                }
                _ => Transformed::no(expr),
            })
        }
        Expr::Case(Case { expr: None, ref when_then_expr, .. }) => {
            for (when, _) in when_then_expr {
                match when.get_type(schema) {
                    Ok(t) if t.is_numeric() || matches!(t, DataType::Date32 | DataType::Timestamp(..)) => {
                        let message = format!("argument of CASE/WHEN must be type boolean, not type {}", type_name(&t));
                        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into());
                    }
                    _ => {}
                }
            }
            Ok(Transformed::no(expr))
        }
        Expr::ScalarFunction(mut call) => {
            // The length of bytes is not that of a text.
            if call.name() == "character_length"
                && let [bytes] = &call.args[..]
                && matches!(bytes.get_type(schema), Ok(DataType::Binary))
                && let Some(function) = scope.functions.scalar("octet_length")
            {
                return Ok(Transformed::yes(function.call(call.args)));
            }
            // The start of a month is an instant.
            if call.name() == "date_trunc"
                && let [_, date] = &mut call.args[..]
                && let Ok(from @ DataType::Date32) = date.get_type(schema)
            {
                let to = SqlType::TimestampTz.to_arrow();
                *date = convert(scope, date, &from, &to).unwrap_or_else(|| cast(date.clone(), to));
            }
            // What these say about an instant depends on the time zone.
            let instant = match call.name() {
                "date_part" | "date_trunc" if call.args.len() == 2 => 1,
                "to_char" if call.args.len() == 2 => 0,
                _ => {
                    let call = Expr::ScalarFunction(call);
                    // DataFusion counts in unsigned numbers, PostgreSQL in integers.
                    return Ok(match call.get_type(schema) {
                        Ok(DataType::UInt64) => Transformed::yes(cast(call, DataType::Int32)),
                        _ => Transformed::no(call),
                    });
                }
            };
            let zone = time_zone(scope);
            let of_instant = matches!(call.args[instant].get_type(schema), Ok(DataType::Timestamp(_, Some(_))));
            if of_instant && zone != Tz::UTC {
                call.args.push(lit(zone.name()));
                return Ok(Transformed::yes(Expr::ScalarFunction(call)));
            }
            Ok(Transformed::no(Expr::ScalarFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// A quoted literal has the type of what it stands beside.
fn like(scope: &Scope<'_>, expr: Expr, beside: &Expr, schema: &DFSchema) -> Expr {
    if !matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _)) {
        return expr;
    }
    match beside.get_type(schema) {
        Ok(DataType::Utf8 | DataType::Utf8View | DataType::Null) | Err(_) => expr,
        Ok(other) => convert(scope, &expr, &DataType::Utf8, &other).unwrap_or_else(|| cast(expr, other)),
    }
}

/// Whether a value is a float.
pub(crate) fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Float32 | DataType::Float64))
}

/// A number that is compared with a float, as one.
fn float(expr: Expr, schema: &DFSchema) -> Expr {
    match expr.get_type(schema) {
        Ok(t) if t.is_integer() || matches!(t, DataType::Decimal128(..) | DataType::Decimal256(..)) => {
            cast(expr, DataType::Float64)
        }
        _ => expr,
    }
}

/// Refuses comparisons that PostgreSQL has no operator for.
fn comparable(op: Operator, left: &Expr, right: &Expr, schema: &DFSchema) -> Result<()> {
    let (Ok(l), Ok(r)) = (left.get_type(schema), right.get_type(schema)) else { return Ok(()) };
    if checks::alike(&l, &r) {
        return Ok(());
    }
    let message = format!("operator does not exist: {} {op} {}", type_name(&l), type_name(&r));
    Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into())
}

/// What stands for a value where it is compared: an interval, of which a month is 30 days and a day 24 hours, by its length.
pub(super) fn ordered(expr: Expr, schema: &DFSchema) -> Expr {
    if !matches!(expr.get_type(schema), Ok(DataType::Interval(_))) {
        return expr;
    }
    let functions = weir_stream::functions::registry();
    match functions.scalars().find(|f| f.name() == "pg_interval_length") {
        Some(function) => function.call(vec![expr]),
        None => expr,
    }
}

/// The function behind [`single_value`].
pub(super) const SINGLE_VALUE: &str = "weir_single_value";

/// The value of a scalar subquery that had so many rows: an error if there were several.
pub(super) fn single_value(rows: Expr, value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(SingleValue::new())));
    FUNCTION.call(vec![rows, value])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl SingleValue {
    fn new() -> SingleValue {
        SingleValue { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for SingleValue {
    fn name(&self) -> &str {
        SINGLE_VALUE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[1].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.args[0].to_array(args.number_rows)?;
        if rows.as_primitive::<Int64Type>().iter().flatten().any(|n| n > 1) {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).into());
        }
        Ok(args.args[1].clone())
    }
}

/// A float to be compared: Arrow tells -0 from 0, PostgreSQL does not. Adding 0 leaves every number as it is, but makes 0 of
/// -0.
pub(crate) fn without_sign(expr: Expr, schema: &DFSchema) -> Expr {
    let zero = match expr.get_type(schema) {
        Ok(DataType::Float32) => ScalarValue::Float32(Some(0.0)),
        Ok(DataType::Float64) => ScalarValue::Float64(Some(0.0)),
        _ => return expr,
    };
    match expr {
        // The pattern 0 is -0, too.
        Expr::Literal(ScalarValue::Float32(Some(0.0)), field) => Expr::Literal(ScalarValue::Float32(Some(0.0)), field),
        Expr::Literal(ScalarValue::Float64(Some(0.0)), field) => Expr::Literal(ScalarValue::Float64(Some(0.0)), field),
        Expr::Literal(..) => expr,
        Expr::BinaryExpr(BinaryExpr { op: Operator::Plus, ref right, .. }) if matches!(&**right, Expr::Literal(value, _) if *value == zero) => {
            expr
        }
        other => {
            let zero = Box::new(Expr::Literal(zero, None));
            Expr::BinaryExpr(BinaryExpr::new(Box::new(other), Operator::Plus, zero))
        }
    }
}

/// Without what [`without_sign`] adds, where keys are compared and not Arrow's floats.
pub(super) fn without_zero(expr: Expr) -> Expr {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right })
            if matches!(
                &*right,
                Expr::Literal(ScalarValue::Float32(Some(0.0)) | ScalarValue::Float64(Some(0.0)), _)
            ) =>
        {
            *left
        }
        other => other,
    }
}

/// A cast that Arrow does otherwise than PostgreSQL, as a call of a function that does it.
fn convert(scope: &Scope<'_>, expr: &Expr, from: &DataType, to: &DataType) -> Option<Expr> {
    if from == to || arrow_agrees(from, to) {
        return None;
    }
    let target = SqlType::from_arrow(to)?;
    let zoned = |t: &DataType| matches!(t, DataType::Timestamp(_, Some(_)));
    let zone = if zoned(from) || zoned(to) { time_zone(scope) } else { Tz::UTC };
    let converted = cast_to(expr.clone(), &target, zone);
    // The name of a type says less than Arrow's type where SQL has no name for it.
    Some(if target.to_arrow() == *to { converted } else { cast(converted, to.clone()) })
}

/// The time zone of the session, which a view keeps.
fn time_zone(scope: &Scope<'_>) -> Tz {
    let name = scope.config.execution.time_zone.as_deref().unwrap_or("UTC");
    name.parse().unwrap_or(Tz::UTC)
}

/// Casts that mean the same to Arrow and PostgreSQL: to a wider number, and of nothing.
fn arrow_agrees(from: &DataType, to: &DataType) -> bool {
    let bits = |t: &DataType| t.primitive_width().unwrap_or(0);
    match (from, to) {
        (DataType::Null, _) => true,
        (f, t) if f.is_signed_integer() && t.is_signed_integer() => bits(t) >= bits(f),
        (f, DataType::Float64) if f.is_signed_integer() => true,
        (DataType::Float32, DataType::Float64) => true,
        (f, DataType::Decimal128(p, s) | DataType::Decimal256(p, s)) if f.is_signed_integer() => {
            i16::from(*p) - i16::from(*s) >= 19
        }
        (DataType::Decimal128(p, s), DataType::Decimal128(to_p, to_s) | DataType::Decimal256(to_p, to_s)) => {
            to_s >= s && i16::from(*to_p) - i16::from(*to_s) >= i16::from(*p) - i16::from(*s)
        }
        (f, t) if f.is_unsigned_integer() => t.is_integer(),
        (DataType::Date32, DataType::Timestamp(_, None)) => true,
        (DataType::Duration(_), DataType::Interval(_)) => true,
        (DataType::Utf8View | DataType::LargeUtf8, DataType::Utf8) => true,
        (DataType::Timestamp(_, a), DataType::Timestamp(_, b)) => a == b,
        _ => false,
    }
}

/// The call, its arguments such that the result is as exact as in PostgreSQL, and the type that the result should have.
pub(super) fn aggregate(expr: Expr, schema: &DFSchema) -> Result<(Expr, Option<DataType>)> {
    match expr {
        Expr::Alias(mut alias) => {
            let (inner, output) = aggregate(*alias.expr, schema)?;
            *alias.expr = inner.unalias();
            Ok((Expr::Alias(alias), output))
        }
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let original = Expr::AggregateFunction(AggregateFunction { func: func.clone(), params: params.clone() });
            let (func, output) = adjust(func, &mut params.args, schema);
            let adjusted = Expr::AggregateFunction(AggregateFunction { func, params });
            // The column keeps its name.
            let expr = if adjusted == original { original } else { adjusted.alias(original.schema_name().to_string()) };
            Ok((expr, output))
        }
        other => Ok((other, None)),
    }
}

/// The same for window functions.
pub(super) fn window(expr: Expr, schema: &DFSchema) -> Result<(Expr, Option<DataType>)> {
    match expr {
        Expr::Alias(mut alias) => {
            let (inner, output) = window(*alias.expr, schema)?;
            *alias.expr = inner.unalias();
            Ok((Expr::Alias(alias), output))
        }
        Expr::WindowFunction(mut function) => {
            let original = Expr::WindowFunction(function.clone());
            let output = match &function.fun {
                WindowFunctionDefinition::AggregateUDF(udf) => {
                    let (udf, output) = adjust(udf.clone(), &mut function.params.args, schema);
                    function.fun = WindowFunctionDefinition::AggregateUDF(udf);
                    output
                }
                WindowFunctionDefinition::WindowUDF(_) => {
                    original.get_type(schema).ok().and_then(|t| types::normal(&t))
                }
            };
            let adjusted = Expr::WindowFunction(function);
            let expr = if adjusted == original { original } else { adjusted.alias(original.schema_name().to_string()) };
            Ok((expr, output))
        }
        other => Ok((other, None)),
    }
}

/// DataFusion's function in the place of the binder's, its arguments cast as the exactness of the result wants it; and what
/// the result's type is to be.
fn adjust(function: Arc<AggregateUDF>, args: &mut [Expr], schema: &DFSchema) -> (Arc<AggregateUDF>, Option<DataType>) {
    let (kind, computed) = match function.name() {
        "sum" => (AggFunction::Sum, sum_udaf()),
        "avg" => (AggFunction::Avg, avg_udaf()),
        "string_agg" => (AggFunction::StringAgg, string_agg_udaf()),
        _ => return (function, None),
    };
    let Some(arg) = args.first_mut() else { return (function, None) };
    let Ok(arg_type) = arg.get_type(schema) else { return (function, None) };
    let Some(output) = output_type(kind, Some(&arg_type)) else { return (computed, None) };
    if matches!(arg_type, DataType::Interval(_)) {
        return (function, Some(output));
    }
    if kind == AggFunction::Avg && output.is_decimal() {
        if arg_type.is_integer() {
            *arg = cast(arg.clone(), DataType::Decimal128(20, 0));
        }
        return (function, Some(output));
    }
    let wider = match (kind, &arg_type, output.clone()) {
        (AggFunction::Sum, DataType::Int64, DataType::Decimal128(precision, 0)) => {
            Some(DataType::Decimal128(precision - 10, 0))
        }
        // A sum has ten more digits than its argument.
        (AggFunction::Sum, &DataType::Decimal128(p, s), DataType::Decimal128(precision, _)) => {
            Some(DataType::Decimal128(p.max(precision - 10), s))
        }
        _ => None,
    };
    if let Some(wider) = wider
        && wider != arg_type
    {
        *arg = cast(arg.clone(), wider);
    }
    (computed, Some(output))
}
