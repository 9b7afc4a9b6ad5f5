//! `JOIN … USING`, `NATURAL JOIN` and `*`, as PostgreSQL reads them: written out before the binder sees them.
//!
//! ```text
//! SELECT *, k FROM a LEFT JOIN b USING (k)
//!   ──>  SELECT a.k, a.x, b.y, a.k FROM a LEFT JOIN b ON a.k = b.k
//! ```
//!
//! The joined column stands first and once. Its value is that of the side whose rows all come out; of a full join, of
//! the side that there is. Hidden columns that a query names do not become part of its `*`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, VisitMut, VisitorMut, With,
};

use super::rewrite::call;
use crate::error::{Result, SqlError};
use crate::statement;

/// Tells the columns of something in FROM: for `SELECT * FROM it`, its qualifier and columns.
pub(super) trait Columns {
    fn columns(&self, query: &Query) -> Result<Vec<(Option<String>, String)>>;
}

/// Writes joins and wildcards out, where that is needed. `hidden` tells the names of hidden columns that the query uses.
pub(super) fn expand(query: &mut Query, columns: &dyn Columns, names_hidden: bool) -> Result<()> {
    let mut expand = Expand { columns, names_hidden, with: Vec::new() };
    match VisitMut::visit(query, &mut expand) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Expand<'a> {
    columns: &'a dyn Columns,
    names_hidden: bool,
    /// The WITH clauses around.
    with: Vec<Option<With>>,
}

/// A column of FROM as `*` gives it.
#[derive(Clone)]
struct Column {
    name: String,
    expr: Expr,
    /// It is the column of a USING.
    joined: bool,
}

impl Column {
    fn is_of(&self, table: &str) -> bool {
        matches!(&self.expr, Expr::CompoundIdentifier(idents) if idents.first().is_some_and(|i| i.value == table))
    }
}

/// The table of `table.*`.
fn star_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
            if options.opt_exclude.is_none() && options.opt_except.is_none() =>
        {
            name.0.last().and_then(|part| part.as_ident()).map(normal)
        }
        _ => None,
    }
}

type Flow = ControlFlow<Box<SqlError>>;

impl VisitorMut for Expand<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.with.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.with.pop();
        ControlFlow::Continue(())
    }

    /// After the queries in it, so that what stands in FROM is written out already.
    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        match self.select(select) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Expand<'_> {
    fn select(&self, select: &mut Select) -> Result<()> {
        let is_star = |item: &SelectItem| matches!(item, SelectItem::Wildcard(options) if options.opt_exclude.is_none() && options.opt_except.is_none());
        let joins_by_name = select.from.iter().any(joins_by_name);
        let any_star = select.projection.iter().any(|item| is_star(item) || star_of(item).is_some());
        let is_needed = joins_by_name || self.names_hidden && any_star;
        if !is_needed {
            return Ok(());
        }
        let mut columns = Vec::new();
        for item in &mut select.from {
            match self.table_with_joins(item) {
                Ok(more) => columns.extend(more),
                // What cannot be bound alone (it is lateral) keeps its `*`.
                Err(_) if !joins_by_name => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let mut projection = Vec::with_capacity(select.projection.len());
        for item in std::mem::take(&mut select.projection) {
            if is_star(&item) {
                projection.extend(columns.iter().map(item_of));
            } else if let Some(table) = star_of(&item).filter(|_| !joins_by_name) {
                projection.extend(columns.iter().filter(|c| c.is_of(&table)).map(item_of));
            } else {
                projection.push(item);
            }
        }
        select.projection = projection;
        if joins_by_name {
            let joined: Vec<Column> = columns.into_iter().filter(|c| c.joined).collect();
            resolve(select, &joined);
        }
        Ok(())
    }

    fn table_with_joins(&self, item: &mut TableWithJoins) -> Result<Vec<Column>> {
        let mut left = self.factor(&mut item.relation)?;
        for join in &mut item.joins {
            let right = self.factor(&mut join.relation)?;
            let kind = kind(&join.join_operator);
            let Some(constraint) = constraint(&mut join.join_operator) else {
                left.extend(right);
                continue;
            };
            let names = match constraint {
                JoinConstraint::Using(names) => names
                    .iter()
                    .map(|n| n.0.last().and_then(|p| p.as_ident()).map(normal).unwrap_or_default())
                    .collect::<Vec<_>>(),
                JoinConstraint::Natural => {
                    left.iter().map(|c| c.name.clone()).filter(|n| right.iter().any(|c| c.name == *n)).collect()
                }
                JoinConstraint::On(_) | JoinConstraint::None => {
                    left.extend(right);
                    continue;
                }
            };
            let mut joined = Vec::with_capacity(names.len());
            let mut condition: Option<Expr> = None;
            for name in &names {
                let (l, r) = (one(&left, name, "left")?, one(&right, name, "right")?);
                let equal = binary(l.clone(), BinaryOperator::Eq, r.clone());
                condition = Some(match condition {
                    Some(before) => binary(before, BinaryOperator::And, equal),
                    None => equal,
                });
                let expr = match kind {
                    Kept::Left => l,
                    Kept::Right => r,
                    Kept::Both => call("coalesce", vec![l, r]),
                };
                joined.push(Column { name: name.clone(), expr, joined: true });
            }
            *constraint = match condition {
                Some(condition) => JoinConstraint::On(condition),
                None => JoinConstraint::On(Expr::Value(datafusion::sql::sqlparser::ast::Value::Boolean(true).into())),
            };
            let rest = |c: &Column| !names.contains(&c.name);
            joined.extend(left.into_iter().filter(rest));
            joined.extend(right.into_iter().filter(rest));
            left = joined;
        }
        Ok(left)
    }

    fn factor(&self, factor: &mut TableFactor) -> Result<Vec<Column>> {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            return self.table_with_joins(table_with_joins);
        }
        let with = self.with.iter().flatten();
        let recursive = if with.clone().any(|w| w.recursive) { "RECURSIVE " } else { "" };
        let ctes: Vec<String> = with.flat_map(|w| w.cte_tables.iter().map(|c| c.to_string())).collect();
        let with = if ctes.is_empty() { String::new() } else { format!("WITH {recursive}{} ", ctes.join(", ")) };
        let sql = format!("{with}SELECT * FROM {factor}");
        let query = statement::parse_query(&sql);
        let query = query.map_err(|e| SqlError::syntax(e.to_string()))?;
        let column = |(qualifier, name): (Option<String>, String)| {
            let ident = Ident::with_quote('"', name.clone());
            let expr = match qualifier {
                Some(qualifier) => Expr::CompoundIdentifier(vec![Ident::with_quote('"', qualifier), ident]),
                None => Expr::Identifier(ident),
            };
            Column { name, expr, joined: false }
        };
        Ok(self.columns.columns(&query)?.into_iter().map(column).collect())
    }
}

/// Whose value a joined column has.
#[derive(Clone, Copy)]
enum Kept {
    Left,
    Right,
    Both,
}

fn kind(operator: &JoinOperator) -> Kept {
    match operator {
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Kept::Right,
        JoinOperator::FullOuter(_) => Kept::Both,
        _ => Kept::Left,
    }
}

fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c) => Some(c),
        _ => None,
    }
}

fn joins_by_name(item: &TableWithJoins) -> bool {
    let by_name = |operator: &JoinOperator| {
        let mut operator = operator.clone();
        matches!(constraint(&mut operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
    };
    let nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => joins_by_name(table_with_joins),
        _ => false,
    };
    nested(&item.relation) || item.joins.iter().any(|j| by_name(&j.join_operator) || nested(&j.relation))
}

fn one(columns: &[Column], name: &str, side: &str) -> Result<Expr> {
    use weir_common::SqlState;
    let found: Vec<&Column> = columns.iter().filter(|c| c.name == name).collect();
    match found[..] {
        [one] => Ok(one.expr.clone()),
        [] => Err(SqlError::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
        )),
        _ => Err(SqlError::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!("common column name \"{name}\" appears more than once in {side} table"),
        )),
    }
}

fn item_of(column: &Column) -> SelectItem {
    let alias = Ident::with_quote('"', column.name.clone());
    match &column.expr {
        Expr::CompoundIdentifier(_) | Expr::Identifier(_) => SelectItem::UnnamedExpr(column.expr.clone()),
        expr => SelectItem::ExprWithAlias { expr: expr.clone(), alias },
    }
}

/// Joined columns, where they stand without a table's name.
fn resolve(select: &mut Select, joined: &[Column]) {
    let mut resolve = Resolve { joined, depth: 0 };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(ident)) = item
            && let Some(column) = joined.iter().find(|c| c.name == normal(ident))
        {
            *item = item_of(column);
            continue;
        }
        let _ = VisitMut::visit(item, &mut resolve);
    }
    let mut exprs: Vec<&mut Expr> = select.selection.iter_mut().chain(&mut select.having).collect();
    if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
        exprs.extend(groups);
    }
    for expr in exprs {
        let _ = VisitMut::visit(expr, &mut resolve);
    }
}

struct Resolve<'a> {
    joined: &'a [Column],
    /// Subqueries have names of their own.
    depth: usize,
}

impl VisitorMut for Resolve<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(ident) = expr
            && let Some(column) = self.joined.iter().find(|c| c.name == normal(ident))
        {
            *expr = column.expr.clone();
        }
        ControlFlow::Continue(())
    }
}

pub(super) fn normal(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}
