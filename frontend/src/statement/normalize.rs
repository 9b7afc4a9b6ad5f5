//! Spellings that tools use for plain things: `pg_catalog.count(x)`, `a OPERATOR(pg_catalog.~) b`, `x COLLATE "default"`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, ObjectName, ObjectNamePart, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};

use super::depth::balance;
use super::parse::parse_query;
use super::precedence;

/// Writes them plainly, and gives operators their precedence.
pub(super) fn normalize<T: VisitMut>(statement: &mut T) {
    precedence::mend(statement);
    let _ = statement.visit(&mut Plainly);
}

struct Plainly;

impl VisitorMut for Plainly {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        let mut open = vec![query.body.as_mut()];
        while let Some(body) = open.pop() {
            match body {
                SetExpr::Select(select) => without_subqueries(select),
                SetExpr::Table(table) => {
                    let schema = table.schema_name.as_ref().map(|schema| format!("{schema}.")).unwrap_or_default();
                    let name = table.table_name.clone().unwrap_or_default();
                    if let Ok(query) = parse_query(&format!("SELECT * FROM {schema}{name}")) {
                        *body = *query.body;
                    }
                }
                SetExpr::SetOperation { left, right, .. } => open.extend([left.as_mut(), right.as_mut()]),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => without_schema(name),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        balance(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => without_schema(&mut function.name),
            Expr::Collate { expr: inner, collation } if is_plain(collation) => {
                *expr = std::mem::replace(inner.as_mut(), Expr::Value(ast::Value::Null.into()));
            }
            Expr::BinaryOp { op, .. } => {
                if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                    && let Some(plain) = parts.last().and_then(|symbol| operator(symbol))
                {
                    *op = plain;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// psql asks about publications and the like with subqueries that go beyond what can be planned. There are no
/// publications, so no row needs them.
fn without_subqueries(select: &mut ast::Select) {
    let is_empty = |table: &ast::TableWithJoins| match &table.relation {
        TableFactor::Table { name, args: None, .. } => {
            let last = name.0.last().and_then(|part| part.as_ident());
            last.is_some_and(|ident| crate::system::is_empty(&ident.value.to_lowercase()))
        }
        _ => false,
    };
    let plain = |item: &&SelectItem| !has_subquery(item);
    if !select.from.iter().any(is_empty) || select.projection.iter().filter(plain).any(has_aggregate) {
        return;
    }
    for item in select.projection.iter_mut().filter(|item| has_subquery(item)) {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *expr = Expr::Value(ast::Value::Null.into());
        }
    }
}

fn has_subquery(item: &SelectItem) -> bool {
    let is_subquery = |e: &Expr| match e {
        Expr::Subquery(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    ast::visit_expressions(item, is_subquery).is_break()
}

fn has_aggregate(item: &SelectItem) -> bool {
    const AGGREGATES: [&str; 9] =
        ["count", "sum", "min", "max", "avg", "array_agg", "string_agg", "bool_and", "bool_or"];
    ast::visit_expressions(item, |e| match e {
        Expr::Function(call) => {
            let name = call.name.0.last().and_then(|part| part.as_ident());
            match name.is_some_and(|n| AGGREGATES.contains(&n.value.to_lowercase().as_str())) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Functions are all in one place, which `pg_catalog` names.
fn without_schema(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), _] = name.0.as_slice()
        && schema.value.eq_ignore_ascii_case("pg_catalog")
    {
        name.0.remove(0);
    }
}

/// Collations by which text sorts here anyway: by code point.
fn is_plain(collation: &ObjectName) -> bool {
    let name = collation.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
    matches!(name.as_deref(), Some("default" | "c" | "posix" | "ucs_basic"))
}

fn operator(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}
