//! Numbers as PostgreSQL types them: integer where it fits, else bigint, else numeric.
//!
//! DataFusion takes every whole number for a bigint. So a literal that fits in an integer is wrapped in a cast to a type
//! name that no PostgreSQL user can write (`Int32`), which marks it too: where the grammar wants the bare number (LIMIT,
//! `ORDER BY 1`, frames of windows), [`bare`] takes the mark off again.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, ExactNumberInfo, Expr, UnaryOperator, Value};

/// Marks a number literal with its type. To be called for every expression after those below it.
pub(super) fn narrow(expr: &mut Expr) {
    match expr {
        Expr::Value(value) => {
            if let Value::Number(digits, _) = &value.value
                && let Some(data_type) = number_type(digits)
            {
                *expr = cast(std::mem::replace(expr, Expr::Value(Value::Null.into())), data_type);
            }
        }
        // The smallest integer has a sign that belongs to it.
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => {
            let mut number = (**inner).clone();
            bare(&mut number);
            if let Some(data_type @ DataType::BigInt(_)) = smallest(&number) {
                let text = Value::SingleQuotedString(i64::MIN.to_string());
                *expr = cast(Expr::Value(text.into()), data_type);
                return;
            }
            if let Expr::Value(value) = &number
                && let Value::Number(digits, _) = &value.value
                && digits.bytes().all(|b| b.is_ascii_digit())
            {
                let negative = format!("-{digits}");
                let data_type = if negative.parse::<i32>().is_ok() {
                    Some(DataType::Int32)
                } else if negative.parse::<i64>().is_ok() {
                    None
                } else {
                    return;
                };
                let negated = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number) };
                *expr = match data_type {
                    Some(data_type) => cast(negated, data_type),
                    None => negated,
                };
            }
        }
        _ => {}
    }
}

/// Takes the mark off a number literal.
pub(super) fn bare(expr: &mut Expr) {
    if let Expr::Cast { kind: CastKind::Cast, expr: inner, data_type: DataType::Int32, .. } = expr {
        *expr = std::mem::replace(&mut **inner, Expr::Value(Value::Null.into()));
    }
}

/// The type of a marked number that fits in a bigint only with a minus before it.
fn smallest(number: &Expr) -> Option<DataType> {
    let Expr::Cast { kind: CastKind::Cast, expr, data_type: DataType::Numeric(_), .. } = number else { return None };
    let Expr::Value(value) = &**expr else { return None };
    let Value::SingleQuotedString(digits) = &value.value else { return None };
    (*digits == i64::MIN.unsigned_abs().to_string()).then_some(DataType::BigInt(None))
}

/// A number literal that is cast to a float: it need not be a numeric first, which has not such small and large ones.
pub(super) fn as_float(expr: &mut Expr) {
    let exponential = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if digits.contains(['e', 'E']) => Some(digits.clone()),
            _ => None,
        },
        _ => None,
    };
    let digits = match &*expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => exponential(expr).map(|digits| format!("-{digits}")),
        other => exponential(other),
    };
    if let Some(digits) = digits {
        *expr = Expr::Value(Value::SingleQuotedString(digits).into());
    }
}

/// The type to mark a number with; `None` for those that DataFusion types well.
fn number_type(digits: &str) -> Option<DataType> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        None
    } else if digits.parse::<i32>().is_ok() {
        Some(DataType::Int32)
    } else if digits.parse::<i64>().is_ok() {
        None
    } else {
        Some(DataType::Numeric(ExactNumberInfo::None))
    }
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    // A number too large for bigint reaches the cast as text, all digits kept.
    let expr = match (expr, &data_type) {
        (Expr::Value(value), DataType::Numeric(_)) => match value.value {
            Value::Number(digits, _) => Expr::Value(Value::SingleQuotedString(digits).into()),
            other => Expr::Value(other.into()),
        },
        (other, _) => other,
    };
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn check(sql: &str, expected: &str) {
        let mut expr = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap().parse_expr().unwrap();
        if let Expr::UnaryOp { expr, .. } = &mut expr {
            narrow(expr);
        }
        narrow(&mut expr);
        assert_eq!(expr.to_string(), expected);
    }

    #[test]
    fn numbers_have_postgresqls_types() {
        check("1", "CAST(1 AS Int32)");
        check("2147483647", "CAST(2147483647 AS Int32)");
        check("2147483648", "2147483648");
        check("9223372036854775807", "9223372036854775807");
        check("9223372036854775808", "CAST('9223372036854775808' AS NUMERIC)");
        check("1.5", "1.5");
        check("-1", "CAST(-1 AS Int32)");
        check("-2147483648", "CAST(-2147483648 AS Int32)");
        check("-2147483649", "-2147483649");
        check("-9223372036854775808", "CAST('-9223372036854775808' AS BIGINT)");
    }
}
