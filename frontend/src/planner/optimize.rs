//! The logical plan of a query that is to be kept: what cannot be kept is refused, subqueries become joins, filters and
//! projections move down.
//!
//! Of DataFusion's optimizer only some rules run. Left out are those that are wrong or useless when input never ends
//! (limits pushed down, row counts), and those whose work the stream planner does itself, with regard to NULLs and to
//! state: join keys, DISTINCT, several distinct aggregates.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result as DFResult};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, Volatility};
use datafusion::optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion::optimizer::eliminate_filter::EliminateFilter;
use datafusion::optimizer::eliminate_join::EliminateJoin;
use datafusion::optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::optimize_unions::OptimizeUnions;
use datafusion::optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::rewrite_set_comparison::RewriteSetComparison;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerContext, OptimizerRule};

use super::postgres::SINGLE_VALUE;
use super::stream::unsupported;
use crate::error::{Result, SqlError};

/// Functions whose value changes though no input does.
const CLOCKS: [&str; 13] = [
    "now",
    "current_timestamp",
    "current_date",
    "current_time",
    "today",
    "localtimestamp",
    "localtime",
    "proctime",
    "clock_timestamp",
    "statement_timestamp",
    "transaction_timestamp",
    "timeofday",
    "pg_sleep",
];

/// The rules, in order. They run until nothing changes.
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(OptimizeUnions::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(EliminateJoin::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(OptimizeProjections::new()),
    ]
}

/// Prepares a bound plan for the stream planner.
pub(super) fn optimize(plan: LogicalPlan) -> Result<LogicalPlan> {
    refuse_changing(&plan)?;
    refuse_subqueries(&plan)?;
    let mut options = ConfigOptions::new();
    // Every scalar subquery becomes a join: there is no moment at which one could be run first.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    options.optimizer.skip_failed_rules = false;
    let context = OptimizerContext::new_with_config_options(Arc::new(options)).without_query_execution_start_time();
    Ok(Optimizer::with_rules(rules()).optimize(plan, &context, |_, _| {})?)
}

/// Applies a check to every expression of the plan and of its subqueries.
fn for_each_expr(plan: &LogicalPlan, check: &mut dyn FnMut(&Expr) -> Result<()>) -> Result<()> {
    let mut refused = None;
    let walked: DFResult<_> = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|e| match check(e) {
                Ok(()) => Ok(TreeNodeRecursion::Continue),
                Err(error) => {
                    refused = Some(error);
                    Ok(TreeNodeRecursion::Stop)
                }
            })
        })
    });
    walked?;
    refused.map_or(Ok(()), Err)
}

/// Functions that give another value each time.
fn refuse_changing(plan: &LogicalPlan) -> Result<()> {
    for_each_expr(plan, &mut |expr| {
        match expr {
        Expr::ScalarFunction(call) if CLOCKS.contains(&call.name()) => Err(unsupported(format!("{}()", call.name()))
            .with_hint("Its value changes though no row does. Store the time in a column, and compare when you query the view.")),
        Expr::ScalarFunction(call) if call.name() == SINGLE_VALUE => Err(several_rows()),
        Expr::ScalarFunction(call) if call.func.signature().volatility == Volatility::Volatile => {
            Err(unsupported(format!("{}()", call.name()))
                .with_hint("It gives another value each time. Store the value in a column."))
        }
        Expr::Placeholder(placeholder) => Err(SqlError::new(
            weir_common::SqlState("42P02"),
            format!("there is no parameter {}", placeholder.id),
        )),
        _ => Ok(()),
    }
    })
}

/// Subqueries that decorrelation would answer otherwise than PostgreSQL.
fn refuse_subqueries(plan: &LogicalPlan) -> Result<()> {
    for_each_expr(plan, &mut |expr| match expr {
        Expr::ScalarSubquery(subquery) if !at_most_one_row(&subquery.subquery) => Err(several_rows()),
        _ => Ok(()),
    })?;
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Filter(filter) = node {
            let schema = filter.input.schema();
            for conjunct in datafusion::logical_expr::utils::split_conjunction(&filter.predicate) {
                let checked = match conjunct {
                    Expr::Not(inner) if is_predicate_subquery(inner) => Ok(()),
                    e if is_predicate_subquery(e) => Ok(()),
                    e => refuse_embedded(e, true, schema),
                };
                if let Err(error) = checked {
                    refused = Some(error);
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    refused.map_or(Ok(()), Err)
}

fn several_rows() -> SqlError {
    unsupported("a scalar subquery that may have several rows")
        .with_hint("Write an aggregate such as max(…) without GROUP BY in the subquery, or a join.")
}

fn is_predicate_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))
}

/// IN (subquery) within a larger condition becomes a column that is true or false. Where it would be NULL in SQL, false
/// does as well, as long as only AND and OR are around it.
fn refuse_embedded(expr: &Expr, positive: bool, schema: &datafusion::common::DFSchema) -> Result<()> {
    match expr {
        Expr::Alias(alias) => refuse_embedded(&alias.expr, positive, schema),
        Expr::Exists(Exists { .. }) => Ok(()),
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let left_nullable = expr.nullable(schema).unwrap_or(true);
            let right_nullable = subquery.subquery.schema().fields().first().is_none_or(|f| f.is_nullable());
            if positive && !negated || !left_nullable && !right_nullable {
                Ok(())
            } else {
                Err(unsupported("NOT IN (subquery) under OR, over columns that may be NULL")
                    .with_hint("Write NOT EXISTS, or add IS NOT NULL on both sides."))
            }
        }
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
            refuse_embedded(&binary.left, positive, schema)?;
            refuse_embedded(&binary.right, positive, schema)
        }
        other => {
            let mut found = Ok(());
            other.apply_children(|child| {
                if let Err(error) = refuse_embedded(child, false, schema) {
                    found = Err(error);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            found
        }
    }
}

/// Whether a query can never have two rows (for the same values of outer columns).
pub(super) fn at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(values) => values.values.len() <= 1,
        LogicalPlan::Projection(projection) => at_most_one_row(&projection.input),
        LogicalPlan::Filter(filter) => at_most_one_row(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => at_most_one_row(&alias.input),
        LogicalPlan::Sort(sort) => at_most_one_row(&sort.input),
        LogicalPlan::Window(window) => at_most_one_row(&window.input),
        LogicalPlan::Distinct(distinct) => at_most_one_row(distinct.input()),
        LogicalPlan::Limit(limit) => {
            let one = |e: &Expr| matches!(super::context::literal(e.clone(), "LIMIT"), Ok(v) if v.cast_to(&arrow::datatypes::DataType::Int64).is_ok_and(|v| matches!(v, datafusion::common::ScalarValue::Int64(Some(n)) if n <= 1)));
            limit.fetch.as_deref().is_some_and(one) || at_most_one_row(&limit.input)
        }
        LogicalPlan::Join(join) => {
            matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti)
                && at_most_one_row(&join.left)
                && (matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti) || at_most_one_row(&join.right))
        }
        _ => false,
    }
}
