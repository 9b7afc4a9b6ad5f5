//! Subqueries in aggregates, windows, ORDER BY and the conditions of joins are computed as columns below, where subqueries
//! can be.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection, Sort, Window,
};

use super::dependent::fresh;
use crate::error::SqlError;

/// The node without subqueries, if it is one of these.
pub(super) fn hoisted(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Aggregate(aggregate) if any(aggregate.group_expr.iter().chain(&aggregate.aggr_expr)) => {
            Transformed::yes(from_aggregate(aggregate)?)
        }
        LogicalPlan::Window(window) if any(&window.window_expr) => Transformed::yes(from_window(window)?),
        LogicalPlan::Sort(sort) if any(sort.expr.iter().map(|s| &s.expr)) => Transformed::yes(from_sort(sort)?),
        LogicalPlan::Join(join) if any(&join.filter) => Transformed::yes(from_join(join)?),
        other => Transformed::no(other),
    })
}

/// Whether a subquery is in the expression.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|e| Ok(is_subquery(e))).unwrap_or(false)
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
}

fn any<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> bool {
    exprs.into_iter().any(has_subquery)
}

/// Columns that were made of subqueries.
#[derive(Default)]
struct Made(Vec<Expr>);

impl Made {
    /// The expression with columns instead, under the name that it had.
    fn named(&mut self, expr: Expr) -> Result<Expr> {
        if !has_subquery(&expr) {
            return Ok(expr);
        }
        let (qualifier, name) = expr.qualified_name();
        Ok(self.columns(expr)?.alias_qualified(qualifier, name))
    }

    fn columns(&mut self, expr: Expr) -> Result<Expr> {
        let replace = |e: Expr| {
            if !is_subquery(&e) {
                return Ok(Transformed::no(e));
            }
            let name = fresh("subquery");
            self.0.push(e.alias(&name));
            Ok(Transformed::new(Expr::Column(Column::new_unqualified(name)), true, TreeNodeRecursion::Jump))
        };
        expr.transform_down(replace).data()
    }

    fn below(self, input: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        if self.0.is_empty() {
            return Ok(input.clone());
        }
        let exprs = all(input.schema()).into_iter().chain(self.0).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input.clone())?)))
    }
}

fn all(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

fn from_aggregate(aggregate: Aggregate) -> Result<LogicalPlan> {
    let mut made = Made::default();
    let groups = aggregate.group_expr.into_iter().map(|e| made.named(e)).collect::<Result<_>>()?;
    let calls = aggregate.aggr_expr.into_iter().map(|e| made.named(e)).collect::<Result<_>>()?;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(made.below(&aggregate.input)?, groups, calls)?))
}

fn from_window(window: Window) -> Result<LogicalPlan> {
    let mut made = Made::default();
    let calls = window.window_expr.into_iter().map(|e| made.named(e)).collect::<Result<_>>()?;
    let plan = LogicalPlan::Window(Window::try_new(calls, made.below(&window.input)?)?);
    LogicalPlanBuilder::from(plan).project(all(&window.schema))?.build()
}

fn from_sort(sort: Sort) -> Result<LogicalPlan> {
    let mut made = Made::default();
    let key = |key: datafusion::logical_expr::SortExpr, made: &mut Made| {
        let expr = made.columns(key.expr.clone())?;
        Ok(key.with_expr(expr))
    };
    let expr = sort.expr.into_iter().map(|k| key(k, &mut made)).collect::<Result<_>>()?;
    let columns = all(sort.input.schema());
    let plan = LogicalPlan::Sort(Sort { expr, input: made.below(&sort.input)?, fetch: sort.fetch });
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

fn from_join(join: Join) -> Result<LogicalPlan> {
    let columns = all(&join.schema);
    let (mut left, mut right) = (Made::default(), Made::default());
    let (mut on, mut above, mut of_left, mut of_right) = (vec![], vec![], vec![], vec![]);
    for conjunct in join.filter.clone().into_iter().flat_map(split_conjunction_owned) {
        if !has_subquery(&conjunct) {
            on.push(conjunct);
        } else if join.join_type == JoinType::Inner {
            above.push(conjunct);
        } else if join.join_type == JoinType::Left && uses_only(&conjunct, &join.right, &join.left)? {
            of_right.push(conjunct);
        } else if join.join_type == JoinType::Right && uses_only(&conjunct, &join.left, &join.right)? {
            of_left.push(conjunct);
        } else {
            on.push(from_side(conjunct, &join, &mut left, &mut right)?);
        }
    }
    let joined = Join::try_new(
        filtered(left.below(&join.left)?, of_left)?,
        filtered(right.below(&join.right)?, of_right)?,
        join.on.clone(),
        conjunction(on),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let plan = filtered(Arc::new(LogicalPlan::Join(joined)), above)?;
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

fn filtered(plan: Arc<LogicalPlan>, conditions: Vec<Expr>) -> Result<Arc<LogicalPlan>> {
    Ok(match conjunction(conditions) {
        Some(condition) => Arc::new(LogicalPlan::Filter(Filter::try_new(condition, plan)?)),
        None => plan,
    })
}

/// Whether a condition is about one side of a join.
fn uses_only(condition: &Expr, side: &LogicalPlan, other: &LogicalPlan) -> Result<bool> {
    let used = used_columns(condition)?;
    Ok(used.iter().any(|c| side.schema().has_column(c)) && !used.iter().any(|c| other.schema().has_column(c)))
}

/// The condition with columns of the side whose columns the subqueries in it use.
fn from_side(conjunct: Expr, join: &Join, left: &mut Made, right: &mut Made) -> Result<Expr> {
    let replace = |e: Expr| {
        if !is_subquery(&e) {
            return Ok(Transformed::no(e));
        }
        let mut used = used_columns(&e)?;
        used.retain(|c| join.left.schema().has_column(c) || join.right.schema().has_column(c));
        let of = |schema: &DFSchema| used.iter().all(|c| schema.has_column(c));
        let made = match (of(join.left.schema()), of(join.right.schema())) {
            (true, _) => &mut *left,
            (false, true) => &mut *right,
            (false, false) => {
                let message = "a subquery over both sides of an outer join in its condition";
                return Err(SqlError::unsupported(message).into());
            }
        };
        Ok(Transformed::new(made.columns(e)?, true, TreeNodeRecursion::Jump))
    };
    conjunct.transform_down(replace).data()
}

/// The columns around a subquery that it uses.
fn used_columns(subquery: &Expr) -> Result<HashSet<Column>> {
    let mut used = HashSet::new();
    subquery.apply(|e| {
        used.extend(e.column_refs().into_iter().cloned());
        let plan = match e {
            Expr::ScalarSubquery(subquery) => Some(subquery),
            Expr::InSubquery(is_in) => Some(&is_in.subquery),
            Expr::Exists(exists) => Some(&exists.subquery),
            Expr::SetComparison(compared) => Some(&compared.subquery),
            _ => None,
        };
        for outer in plan.iter().flat_map(|p| p.subquery.all_out_ref_exprs()) {
            if let Expr::OuterReferenceColumn(_, column) = outer {
                used.insert(column);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(used)
}
