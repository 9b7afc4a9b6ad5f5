//! Gives `IS [NOT] DISTINCT FROM` the precedence that it has in PostgreSQL.
//!
//! `sqlparser` takes everything that follows as its right side, so `a IS DISTINCT FROM b AND c` would mean `a IS DISTINCT FROM
//! (b AND c)`. The tree is turned: what binds looser (AND, OR) goes above the test. The test is put in parentheses, so that the
//! tree means the same when its text is parsed again.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, VisitMut, visit_expressions_mut};

/// Mends every expression of a statement or query.
pub(super) fn mend<T: VisitMut>(parsed: &mut T) {
    // Inner expressions come before those that they are in.
    let _ = visit_expressions_mut(parsed, |expr| {
        let whole = std::mem::replace(expr, Expr::value(Value::Null));
        *expr = turned(whole);
        ControlFlow::<()>::Continue(())
    });
}

fn turned(expr: Expr) -> Expr {
    use BinaryOperator::{And, Or};
    match expr {
        Expr::IsDistinctFrom(left, right) if is_any(&right, &[And, Or]) => {
            under(*right, &[And, Or], Box::new(|right| nested(Expr::IsDistinctFrom(left, Box::new(right)))))
        }
        Expr::IsNotDistinctFrom(left, right) if is_any(&right, &[And, Or]) => {
            under(*right, &[And, Or], Box::new(|right| nested(Expr::IsNotDistinctFrom(left, Box::new(right)))))
        }
        // What a turned tree has brought up under something that binds tighter.
        Expr::BinaryOp { left, op: And, right } if is_any(&right, &[Or]) => {
            under(*right, &[Or], Box::new(|right| Expr::BinaryOp { left, op: And, right: Box::new(right) }))
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } if is_any(&expr, &[And, Or]) => {
            let not = |expr| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) };
            under(*expr, &[And, Or], Box::new(not))
        }
        other => other,
    }
}

fn is_any(expr: &Expr, operators: &[BinaryOperator]) -> bool {
    matches!(expr, Expr::BinaryOp { op, .. } if operators.contains(op))
}

/// Puts `wrap` around the first operand of a row of such operators.
fn under<'a>(expr: Expr, operators: &[BinaryOperator], wrap: Box<dyn FnOnce(Expr) -> Expr + 'a>) -> Expr {
    match expr {
        Expr::BinaryOp { left, op, right } if operators.contains(&op) => {
            Expr::BinaryOp { left: Box::new(under(*left, operators, wrap)), op, right }
        }
        first => wrap(first),
    }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn mended(condition: &str) -> String {
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, &format!("SELECT {condition}")).unwrap();
        mend(&mut parsed[0]);
        parsed[0].to_string().trim_start_matches("SELECT ").to_owned()
    }

    #[test]
    fn and_and_or_bind_looser_than_distinct_from() {
        let cases = [
            ("a IS DISTINCT FROM b", "a IS DISTINCT FROM b"),
            ("a IS NOT DISTINCT FROM b AND c > d", "(a IS NOT DISTINCT FROM b) AND c > d"),
            ("a IS DISTINCT FROM b OR c AND d", "(a IS DISTINCT FROM b) OR c AND d"),
            ("x AND a IS DISTINCT FROM b OR c", "x AND (a IS DISTINCT FROM b) OR c"),
            ("NOT a IS DISTINCT FROM b AND c", "NOT (a IS DISTINCT FROM b) AND c"),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "(a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d) OR e",
            ),
            ("a IS DISTINCT FROM (b AND c)", "a IS DISTINCT FROM (b AND c)"),
        ];
        for (condition, expected) in cases {
            assert_eq!(mended(condition), expected, "{condition}");
        }
    }

    #[test]
    fn the_tree_is_turned_and_not_only_its_text() {
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, "SELECT a IS DISTINCT FROM b AND c OR d").unwrap();
        mend(&mut parsed[0]);
        let again = Parser::parse_sql(&PostgreSqlDialect {}, &parsed[0].to_string()).unwrap();
        assert_eq!(parsed, again);
    }
}
