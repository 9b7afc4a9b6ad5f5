//! Comparisons of rows, written out: `(a, b) = (c, d)`, `(a, b) < (c, d)`, `(a, b) IN (…)`.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, SetExpr, TableFactor,
    UnaryOperator,
};

use crate::error::{Result, SqlError};
use crate::statement;

/// Rewrites the expression if it compares rows.
pub(super) fn compare(expr: &mut Expr) -> Result<()> {
    let written = match expr {
        Expr::BinaryOp { left, op, right } => match (row(left), row(right)) {
            (Some(left), Some(right)) => compared(&left, op, &right)?,
            _ => None,
        },
        Expr::InList { expr: left, list, negated } => match row(left) {
            Some(left) => Some(negate(in_list(&left, list)?, *negated)),
            None => None,
        },
        Expr::InSubquery { expr: left, subquery, negated } => match row(left) {
            Some(left) if left.len() > 1 => Some(in_subquery(&left, subquery, *negated)?),
            _ => None,
        },
        _ => None,
    };
    if let Some(written) = written {
        *expr = written;
    }
    Ok(())
}

/// The columns of `(a, b)` or `ROW(a, b)`.
fn row(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(exprs) => Some(exprs.clone()),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let arg = |arg: &FunctionArg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            };
            list.args.iter().map(arg).collect()
        }
        _ => None,
    }
}

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Option<Expr>> {
    if left.len() != right.len() || left.is_empty() {
        return Err(SqlError::syntax("unequal number of entries in row expressions"));
    }
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let pairs = || left.iter().cloned().zip(right.iter().cloned());
    let each = |op: &BinaryOperator, link: BinaryOperator| {
        pairs().map(|(l, r)| binary(l, op.clone(), r)).reduce(|a, b| binary(a, link.clone(), b))
    };
    Ok(match op {
        Eq => each(&Eq, And),
        NotEq => each(&NotEq, Or),
        Lt | LtEq | Gt | GtEq => {
            let strict = if matches!(op, Lt | LtEq) { Lt } else { Gt };
            // From the last column, which alone may be equal: l < r OR l = r AND (the rest).
            let mut written: Option<Expr> = None;
            for (l, r) in pairs().collect::<Vec<_>>().into_iter().rev() {
                written = Some(match written {
                    None => binary(l, op.clone(), r),
                    Some(rest) => {
                        let equal = binary(binary(l.clone(), Eq, r.clone()), And, rest);
                        binary(binary(l, strict.clone(), r), Or, equal)
                    }
                });
            }
            written
        }
        _ => None,
    })
}

fn in_list(left: &[Expr], list: &[Expr]) -> Result<Expr> {
    let mut written: Option<Expr> = None;
    for item in list {
        let right = row(item).ok_or_else(|| SqlError::syntax("a row can only be IN a list of rows"))?;
        let Some(equal) = compared(left, &BinaryOperator::Eq, &right)? else { continue };
        written = Some(match written {
            None => equal,
            Some(before) => binary(before, BinaryOperator::Or, equal),
        });
    }
    written.ok_or_else(|| SqlError::syntax("a list of rows is expected"))
}

/// `(a, b) IN (SELECT c, d …)` is `EXISTS (SELECT … WHERE a = c AND b = d)`; NOT IN is true only where the comparison with
/// every row is false.
fn in_subquery(left: &[Expr], subquery: &Query, negated: bool) -> Result<Expr> {
    let columns: Vec<String> = (0..left.len()).map(|i| format!("\"c{i}\u{1}\"")).collect();
    let sql = format!("SELECT 1 FROM (SELECT 1) AS \"rows\u{1}\" ({}) WHERE true", columns.join(", "));
    let parsed = statement::parse_query(&sql);
    let mut query = parsed.map_err(|e| SqlError::internal(e.to_string()))?;
    let SetExpr::Select(select) = &mut *query.body else { return Err(SqlError::internal("a select is a select")) };
    if let Some(TableFactor::Derived { subquery: inner, .. }) = select.from.first_mut().map(|f| &mut f.relation) {
        **inner = subquery.clone();
    }
    let right: Vec<Expr> =
        (0..left.len()).map(|i| Expr::Identifier(Ident::with_quote('"', format!("c{i}\u{1}")))).collect();
    let equal = compared(left, &BinaryOperator::Eq, &right)?;
    let condition = equal.map(|e| if negated { Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(e)))) } else { e });
    select.selection = condition;
    Ok(Expr::Exists { subquery: query, negated })
}

fn negate(expr: Expr, negated: bool) -> Expr {
    let expr = Expr::Nested(Box::new(expr));
    if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) } } else { expr }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let nested = |e: Expr| Box::new(Expr::Nested(Box::new(e)));
    Expr::BinaryOp { left: nested(left), op, right: nested(right) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(sql: &str, expected: &str) {
        let mut expr = statement::parse_expr(sql).unwrap();
        compare(&mut expr).unwrap();
        assert_eq!(expr.to_string().replace('\u{1}', ""), expected);
    }

    #[test]
    fn rows_are_compared_by_columns() {
        check("(a, b) = (1, 2)", "((a) = (1)) AND ((b) = (2))");
        check("(a, b) <> ROW(1, 2)", "((a) <> (1)) OR ((b) <> (2))");
        check("(a, b) <= (1, 2)", "((a) < (1)) OR (((a) = (1)) AND ((b) <= (2)))");
        check("(a, b) NOT IN ((1, 2))", "NOT (((a) = (1)) AND ((b) = (2)))");
        check(
            "(a, b) IN (SELECT c, d FROM t)",
            "EXISTS (SELECT 1 FROM (SELECT c, d FROM t) AS \"rows\" (\"c0\", \"c1\") WHERE ((a) = (\"c0\")) AND ((b) = (\"c1\")))",
        );
    }
}
