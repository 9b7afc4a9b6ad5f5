//! INSERT … VALUES of nothing but literals: columns are read from the text, without a plan.
//!
//! Most INSERTs are of this kind, and may have thousands of rows. What is not sure to mean the same here as in a plan is left
//! to the plan.

use std::borrow::Cow;

use arrow::array::ArrayRef;
use chrono_tz::Tz;
use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value};
use weir_common::catalog::Object;
use weir_common::parse::TextColumn;
use weir_common::types::SqlType;

use super::assign::{default, is_default};
use crate::error::{Result, SqlError};

/// The columns of the table in `columns`, from the values of rows; what a row lacks is the column's default. `None`: there
/// is something else than literals.
pub(super) fn columns(object: &Object, columns: &[usize], rows: &[&[Expr]], zone: Tz) -> Result<Option<Vec<ArrayRef>>> {
    let mut arrays = Vec::with_capacity(columns.len());
    for (at, i) in columns.iter().enumerate() {
        let column = &object.columns[*i];
        let default = default(column)?;
        let mut builder = TextColumn::new(&column.sql_type, zone);
        for row in rows {
            let expr = row.get(at).filter(|e| !is_default(e)).unwrap_or(&default);
            match literal(expr, &column.sql_type) {
                Some(Literal::Text(text)) => builder.append(&text).map_err(SqlError::from)?,
                Some(Literal::Null) => builder.append_null(),
                None => return Ok(None),
            }
        }
        arrays.push(builder.finish());
    }
    Ok(Some(arrays))
}

enum Literal<'a> {
    Null,
    Text(Cow<'a, str>),
}

/// A literal as the text that a column of this type reads. `None`: not a literal, or one that is converted otherwise.
fn literal<'a>(expr: &'a Expr, sql_type: &SqlType) -> Option<Literal<'a>> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Null => Some(Literal::Null),
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Literal::Text(text.into())),
            Value::Number(digits, _) => number(digits, sql_type).then(|| Literal::Text(digits.into())),
            Value::Boolean(value) if *sql_type == SqlType::Boolean => {
                Some(Literal::Text(if *value { "t" } else { "f" }.into()))
            }
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => {
                    // A number is a numeric, which has no -0.
                    let sign = if digits.bytes().all(|b| matches!(b, b'0' | b'.')) { "" } else { "-" };
                    number(digits, sql_type).then(|| Literal::Text(format!("{sign}{digits}").into()))
                }
                _ => None,
            },
            _ => None,
        },
        Expr::Nested(inner) => literal(inner, sql_type),
        _ => None,
    }
}

/// Whether a number is read by a column of this type as its digits stand. Others round it, or write it as text.
fn number(digits: &str, sql_type: &SqlType) -> bool {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match sql_type {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => plain,
        SqlType::Real | SqlType::Double | SqlType::Numeric(_) => !digits.contains('_'),
        SqlType::Varchar => plain && (digits == "0" || !digits.starts_with('0')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn text(sql: &str, sql_type: &SqlType) -> Option<String> {
        let expr = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap().parse_expr().unwrap();
        literal(&expr, sql_type).map(|literal| match literal {
            Literal::Null => "NULL".to_string(),
            Literal::Text(text) => text.into_owned(),
        })
    }

    #[test]
    fn only_what_means_the_same_is_taken() {
        let some = |s: &str| Some(s.to_string());
        assert_eq!(text("'2030-01-01'", &SqlType::Date), some("2030-01-01"));
        assert_eq!(text("-5", &SqlType::Integer), some("-5"));
        assert_eq!(text("1.5", &SqlType::Double), some("1.5"));
        assert_eq!(text("NULL", &SqlType::Jsonb), some("NULL"));
        assert_eq!(text("true", &SqlType::Boolean), some("t"));
        assert_eq!(text("007", &SqlType::Varchar), None);
        assert_eq!(text("1.5", &SqlType::Integer), None);
        assert_eq!(text("1", &SqlType::Boolean), None);
        assert_eq!(text("true", &SqlType::Varchar), None);
        assert_eq!(text("1 + 1", &SqlType::Integer), None);
        assert_eq!(text("$1", &SqlType::Integer), None);
    }
}
