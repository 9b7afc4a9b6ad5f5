//! `EXISTS (…)` and `x IN (…)` in a select list, where their value is shown and not only asked for: as scalar subqueries.
//!
//! ```text
//! EXISTS (q)    (SELECT count(*) > 0 FROM (q))
//! x IN (q)      (SELECT CASE WHEN count(*) FILTER (WHERE c = x) > 0 THEN true
//!                            WHEN count(*) FILTER (WHERE c = x IS NULL) > 0 THEN NULL ELSE false END FROM (q) AS r (c))
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, Query, SelectItem, SetExpr, TableFactor, UnaryOperator, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{Result, SqlError};

/// Rewrites those of a select list.
pub(super) fn rewrite(projection: &mut [SelectItem]) -> Result<()> {
    for item in projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && let ControlFlow::Break(error) = VisitMut::visit(expr, &mut Shown { depth: 0 })
        {
            return Err(*error);
        }
    }
    Ok(())
}

/// Finds them outside of other subqueries.
struct Shown {
    depth: usize,
}

impl VisitorMut for Shown {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let (value, negated) = match expr {
            Expr::Exists { subquery, negated } => (exists(subquery), *negated),
            Expr::InSubquery { expr, subquery, negated } => (is_in(expr, subquery), *negated),
            _ => return ControlFlow::Continue(()),
        };
        match value {
            Ok(query) => {
                let value = Expr::Subquery(Box::new(query));
                *expr = if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(value) } } else { value };
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

fn exists(subquery: &Query) -> Result<Query> {
    over("SELECT count(*) > 0 FROM (SELECT 1) AS \"r\u{1}\"", subquery)
}

fn is_in(value: &Expr, subquery: &Query) -> Result<Query> {
    let sql = "SELECT CASE WHEN count(*) FILTER (WHERE \"c\u{1}\" = \"x\u{1}\") > 0 THEN true \
               WHEN count(*) FILTER (WHERE (\"c\u{1}\" = \"x\u{1}\") IS NULL) > 0 THEN CAST(NULL AS BOOLEAN) ELSE false END \
               FROM (SELECT 1) AS \"r\u{1}\" (\"c\u{1}\")";
    let mut query = over(sql, subquery)?;
    if let SetExpr::Select(select) = &mut *query.body {
        let _ = ast::visit_expressions_mut(&mut select.projection, |expr| {
            if matches!(expr, Expr::Identifier(Ident { value: name, .. }) if name == "x\u{1}") {
                *expr = Expr::Nested(Box::new(value.clone()));
            }
            ControlFlow::<()>::Continue(())
        });
    }
    Ok(query)
}

/// The query, reading another one.
fn over(sql: &str, subquery: &Query) -> Result<Query> {
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).and_then(|mut p| p.parse_query());
    let mut query = *parsed.map_err(|e| SqlError::internal(e.to_string()))?;
    if let SetExpr::Select(select) = &mut *query.body
        && let Some(TableFactor::Derived { subquery: inner, .. }) = select.from.first_mut().map(|f| &mut f.relation)
    {
        **inner = subquery.clone();
    }
    Ok(query)
}
