//! Texts and patterns as PostgreSQL writes them, in words that the binder knows.
//!
//! | written | becomes |
//! |---|---|
//! | `x::varchar(n)`, `x::char(n)` | the first n characters |
//! | `x LIKE p ESCAPE c` | the pattern with `\` as its escape character |
//! | `x SIMILAR TO p` | a match with a regular expression |
//! | `substring(x FROM 'pattern')` | the first group of the match |
//! | `U&'\0041'` | the text |

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, CharacterLength, DataType, Expr, UnaryOperator, Value, ValueWithSpan,
};

use super::rewrite::call;
use crate::error::{Result, SqlError};

/// Rewrites the expression if it is one of these.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let written = match expr {
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, .. } => {
            let Some(length) = length(data_type) else { return Ok(()) };
            let text = Expr::Cast {
                kind: CastKind::Cast,
                expr: inner.clone(),
                data_type: DataType::Text,
                array: false,
                format: None,
            };
            let length = Expr::Value(Value::Number(length.to_string(), false).into());
            Some(call("left", vec![text, length]))
        }
        Expr::Value(value) => match &value.value {
            Value::UnicodeStringLiteral(text) => Some(literal(text.clone())),
            _ => None,
        },
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            if let Some(escape) = escape_char.take() {
                let escape = escape_character(&escape)?;
                **pattern = literal(with_backslash(&constant(pattern, "LIKE … ESCAPE")?, escape));
            }
            None
        }
        Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
            let escape = match escape_char {
                Some(escape) => escape_character(escape)?,
                None => Some('\\'),
            };
            let regex = similar(&constant(pattern, "SIMILAR TO")?, escape);
            let matches = Expr::BinaryOp {
                left: text.clone(),
                op: BinaryOperator::PGRegexMatch,
                right: Box::new(literal(regex)),
            };
            let matches = Expr::Nested(Box::new(matches));
            Some(if *negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(matches) } } else { matches })
        }
        Expr::Substring { expr: text, substring_from: Some(from), substring_for: None, .. } => match &**from {
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) => {
                let groups = call("regexp_match", vec![(**text).clone(), (**from).clone()]);
                let one = Expr::Value(Value::Number("1".into(), false).into());
                Some(call("array_element", vec![groups, one]))
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(written) = written {
        *expr = written;
    }
    Ok(())
}

fn literal(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

fn constant(expr: &Expr, what: &str) -> Result<String> {
    let value = match expr {
        Expr::Value(value) => value.value.clone().into_string(),
        _ => None,
    };
    value.ok_or_else(|| SqlError::unsupported(format!("{what} with a pattern that is not a literal")))
}

/// The character behind ESCAPE; none if it is empty.
fn escape_character(value: &ValueWithSpan) -> Result<Option<char>> {
    let text = value.value.clone().into_string().unwrap_or_default();
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (first, None) => Ok(first),
        _ => {
            let state = weir_common::SqlState("22025");
            Err(SqlError::new(state, "invalid escape string")
                .with_hint("Escape string must be empty or one character."))
        }
    }
}

/// The pattern of LIKE with another escape character.
fn with_backslash(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => {
                out.push('\\');
                out.extend(chars.next());
            }
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out
}

/// The regular expression of a pattern of SIMILAR TO.
fn similar(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::from("^(?s:");
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => {
                if let Some(next) = chars.next() {
                    if !next.is_alphanumeric() {
                        out.push('\\');
                    }
                    out.push(next);
                }
            }
            '\\' => out.push_str("\\\\"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            c if in_class => out.push(c),
            '[' => {
                in_class = true;
                out.push('[');
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push_str(")$");
    out
}

/// The number of characters of `varchar(n)` and `char(n)`.
fn length(data_type: &DataType) -> Option<u64> {
    let (length, default) = match data_type {
        DataType::CharacterVarying(length) | DataType::CharVarying(length) | DataType::Varchar(length) => {
            (length, None)
        }
        DataType::Character(length) | DataType::Char(length) => (length, Some(1)),
        _ => return None,
    };
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
        Some(CharacterLength::Max) => None,
        None => default,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn check(sql: &str, expected: &str) {
        let mut expr = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap().parse_expr().unwrap();
        rewrite(&mut expr).unwrap();
        assert_eq!(expr.to_string(), expected);
    }

    #[test]
    fn texts_are_rewritten() {
        check("x::varchar(3)", "left(CAST(x AS TEXT), 3)");
        check("x::varchar", "x::VARCHAR");
        check("x LIKE '%#_%' ESCAPE '#'", r"x LIKE '%\_%'");
        check(r"x LIKE '\a' ESCAPE ''", r"x LIKE '\\a'");
        check("x SIMILAR TO '(a|b.)%'", r"(x ~ '^(?s:(?:a|b\.).*)$')");
        check("x NOT SIMILAR TO '_'", "NOT (x ~ '^(?s:.)$')");
    }
}
