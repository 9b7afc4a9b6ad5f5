//! Floats as PostgreSQL compares them where nobody wrote a comparison: as keys of groups, joins, windows and sorts.
//!
//! Arrow tells -0 from 0, PostgreSQL does not. Written comparisons have been taken care of when the query was bound
//! ([`without_sign`]); here are those that operators do by themselves.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, GroupingSet, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, Window};

use crate::planner::{is_float, without_sign};

/// Makes the keys of an optimized plan compare equal where PostgreSQL finds them equal.
pub(super) fn as_equal_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(node).data()
}

fn node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate),
        LogicalPlan::Join(mut join) => {
            for (left, right) in &mut join.on {
                unsign(left, join.left.schema());
                unsign(right, join.right.schema());
            }
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        LogicalPlan::Sort(mut sort) => {
            sorted(&mut sort.expr, sort.input.schema());
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        LogicalPlan::Window(Window { input, window_expr, .. }) => {
            let over = |expr| named(expr, |e| over(e, input.schema()));
            let window_expr = window_expr.into_iter().map(over).collect();
            Ok(Transformed::yes(LogicalPlan::Window(Window::try_new(window_expr, input)?)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Groups by what a projection below makes of the keys: what is above sees columns of the same names.
fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let Aggregate { input, mut group_expr, aggr_expr, .. } = aggregate;
    let schema = input.schema().clone();
    let mut keys: Vec<(Column, Expr)> = Vec::new();
    for group in &mut group_expr {
        for key in keys_of(group) {
            if is_float(key, &schema) {
                let name = match &*key {
                    Expr::Column(column) => column.clone(),
                    other => Column::new_unqualified(other.schema_name().to_string()),
                };
                let value = without_sign(std::mem::replace(key, Expr::Column(name.clone())), &schema);
                // Several grouping sets may have the same key.
                if !keys.iter().any(|(known, _)| *known == name) {
                    keys.push((name.clone(), value.alias_qualified(name.relation, name.name)));
                }
            }
        }
    }
    let aggr_expr = aggr_expr.into_iter().map(|call| named(call, |e| distinct(e, &schema))).collect();
    let input = if keys.is_empty() {
        input.as_ref().clone()
    } else {
        let is_key = |column: &Column| keys.iter().any(|(name, _)| name == column);
        let kept: Vec<_> = schema.columns().into_iter().filter(|c| !is_key(c)).map(Expr::Column).collect();
        let exprs: Vec<_> = keys.into_iter().map(|(_, key)| key).chain(kept).collect();
        LogicalPlanBuilder::from(input.as_ref().clone()).project(exprs)?.build()?
    };
    let aggregate = Aggregate::try_new(Arc::new(input), group_expr, aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

fn keys_of(group: &mut Expr) -> Vec<&mut Expr> {
    match group {
        Expr::GroupingSet(GroupingSet::Rollup(keys) | GroupingSet::Cube(keys)) => keys.iter_mut().collect(),
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter_mut().flatten().collect(),
        Expr::Alias(alias) => vec![alias.expr.as_mut()],
        key => vec![key],
    }
}

/// What an aggregate tells apart, and the order in which it takes its rows.
fn distinct(expr: Expr, schema: &DFSchema) -> Expr {
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            if params.distinct {
                params.args.iter_mut().for_each(|arg| unsign(arg, schema));
            }
            sorted(&mut params.order_by, schema);
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => other,
    }
}

fn over(expr: Expr, schema: &DFSchema) -> Expr {
    match expr {
        Expr::WindowFunction(window) => {
            let WindowFunction { fun, mut params } = *window;
            params.partition_by.iter_mut().for_each(|key| unsign(key, schema));
            sorted(&mut params.order_by, schema);
            Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
        }
        other => other,
    }
}

/// A changed expression under its old name, or its alias.
fn named(expr: Expr, change: impl FnOnce(Expr) -> Expr) -> Expr {
    if let Expr::Alias(mut alias) = expr {
        alias.expr = Box::new(change(*alias.expr));
        return Expr::Alias(alias);
    }
    let name = NamePreserver::new_for_projection().save(&expr);
    name.restore(change(expr))
}

fn sorted(keys: &mut [SortExpr], schema: &DFSchema) {
    keys.iter_mut().for_each(|key| unsign(&mut key.expr, schema));
}

fn unsign(expr: &mut Expr, schema: &DFSchema) {
    let signed = std::mem::replace(expr, Expr::Literal(ScalarValue::Null, None));
    *expr = without_sign(signed, schema);
}
