//! Refuses operands that PostgreSQL does not convert to each other, though DataFusion would: integers and text, or dates.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator};
use weir_common::SqlState;

use super::is_comparison;
use crate::error::{SqlError, type_name};

/// Types within one of these are converted to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Family {
    Number,
    Boolean,
    Text,
    Moment,
    Time,
    Interval,
}

impl Family {
    fn of(data_type: &DataType) -> Option<Family> {
        Some(match data_type {
            t if t.is_numeric() => Family::Number,
            DataType::Boolean => Family::Boolean,
            DataType::Utf8 | DataType::Utf8View => Family::Text,
            DataType::Date32 | DataType::Timestamp(..) => Family::Moment,
            DataType::Time64(_) => Family::Time,
            DataType::Interval(_) => Family::Interval,
            _ => return None,
        })
    }
}

/// Refuses the expression when its operands do not go together.
pub(super) fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            let (Some((left, a)), Some((right, b))) = (known(left, schema), known(right, schema)) else {
                return Ok(());
            };
            if a == b {
                return Ok(());
            }
            let op = match op {
                Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => "=".to_string(),
                Operator::NotEq => "<>".to_string(),
                other => other.to_string(),
            };
            let message = format!("operator does not exist: {} {op} {}", type_name(&left), type_name(&right));
            let hint =
                "No operator matches the given name and argument types. You might need to add explicit type casts.";
            Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(hint).into())
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            boolean(left, &op.to_string(), schema)?;
            boolean(right, &op.to_string(), schema)
        }
        Expr::Not(inner) => boolean(inner, "NOT", schema),
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            let results = when_then_expr.iter().map(|(_, then)| then).chain(else_expr);
            let mut known = results.filter_map(|e| known(e, schema));
            let Some((first, family)) = known.next() else { return Ok(()) };
            match known.find(|(_, other)| *other != family) {
                Some((other, _)) => {
                    let message =
                        format!("CASE types {} and {} cannot be matched", type_name(&first), type_name(&other));
                    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into())
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// The type of an expression, unless it is a quoted literal, which takes that of what it stands beside.
fn known(expr: &Expr, schema: &DFSchema) -> Option<(DataType, Family)> {
    if matches!(expr, Expr::Literal(ScalarValue::Utf8(_), _) | Expr::Placeholder(_)) {
        return None;
    }
    let data_type = expr.get_type(schema).ok()?;
    let family = Family::of(&data_type)?;
    Some((data_type, family))
}

fn boolean(expr: &Expr, op: &str, schema: &DFSchema) -> Result<()> {
    match known(expr, schema) {
        Some((found, family)) if family != Family::Boolean => {
            let message = format!("argument of {op} must be type boolean, not type {}", type_name(&found));
            Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into())
        }
        _ => Ok(()),
    }
}
