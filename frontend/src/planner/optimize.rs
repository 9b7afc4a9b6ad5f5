//! The logical plan of a query that is to be kept: what cannot be kept is refused, subqueries become joins, filters and
//! projections move down.
//!
//! Of DataFusion's optimizer only some rules run. Left out are those that are wrong or useless when input never ends
//! (limits pushed down, row counts), and those whose work the stream planner does itself, with regard to NULLs and to
//! state: join keys, DISTINCT, several distinct aggregates.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, Result as DFResult};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Volatility};
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
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerContext, OptimizerRule};

use super::postgres::SINGLE_VALUE;
use super::relation::RelationTable;
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
    })
}

fn several_rows() -> SqlError {
    unsupported("a scalar subquery that may have several rows")
        .with_hint("Write an aggregate such as max(…) without GROUP BY in the subquery, or a join.")
}

/// Whether a query can never have two rows (for the same values of outer columns).
pub(super) fn at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(values) => values.values.len() <= 1,
        LogicalPlan::Projection(projection) => at_most_one_row(&projection.input),
        LogicalPlan::Filter(filter) => at_most_one_row(&filter.input) || is_keyed(plan, vec![]),
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

/// Whether rows of a plan that have the same values in these columns are the same: then conditions `column = value` on
/// them leave at most one.
fn is_keyed(plan: &LogicalPlan, mut fixed: Vec<String>) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => {
            let schema = filter.input.schema();
            for conjunct in split_conjunction(&filter.predicate) {
                if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = conjunct {
                    let sides = [(left.as_ref(), right.as_ref()), (right.as_ref(), left.as_ref())];
                    let named = |(column, value): (&Expr, &Expr)| {
                        let is_value = value.column_refs().is_empty() && !value.is_volatile();
                        is_value.then(|| plain_column(column, schema)).flatten()
                    };
                    fixed.extend(sides.into_iter().find_map(named));
                }
            }
            is_keyed(&filter.input, fixed)
        }
        LogicalPlan::SubqueryAlias(alias) => is_keyed(&alias.input, fixed),
        LogicalPlan::Sort(sort) => is_keyed(&sort.input, fixed),
        LogicalPlan::Projection(projection) => {
            let input = projection.input.schema();
            let below = |(e, f): (&Expr, &Arc<arrow::datatypes::Field>)| {
                fixed.contains(f.name()).then(|| plain_column(e, input)).flatten()
            };
            let below = projection.expr.iter().zip(projection.schema.fields()).filter_map(below).collect();
            is_keyed(&projection.input, below)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let input = aggregate.input.schema();
            let is_fixed = |e: &Expr| plain_column(e, input).is_some_and(|name| fixed.contains(&name));
            aggregate.group_expr.iter().all(is_fixed)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            input.schema().fields().iter().all(|f| fixed.contains(f.name())) || is_keyed(input, fixed)
        }
        LogicalPlan::TableScan(scan) => {
            let Ok(provider) = source_as_provider(&scan.source) else { return false };
            let any: &dyn std::any::Any = provider.as_ref();
            let Some(table) = any.downcast_ref::<RelationTable>() else { return false };
            let object = table.object();
            let relation = object.plan.as_ref().and_then(|p| p.relation.as_ref());
            relation.is_some_and(|r| r.key.iter().all(|k| fixed.contains(&object.columns[k.column].name)))
        }
        _ => false,
    }
}

/// The name of the column that this is, if need be as a wider type.
fn plain_column(expr: &Expr, schema: &DFSchema) -> Option<String> {
    match expr {
        Expr::Column(column) => Some(column.name.clone()),
        Expr::Alias(alias) => plain_column(&alias.expr, schema),
        Expr::Cast(cast) => {
            use DataType::{Decimal128, Decimal256, Int16, Int32, Int64, LargeUtf8, Utf8, Utf8View};
            let from = cast.expr.get_type(schema).ok()?;
            let is_wider = matches!(
                (&from, cast.field.data_type()),
                (Int16, Int32 | Int64) | (Int32, Int64) | (Utf8, LargeUtf8 | Utf8View)
            ) || matches!(
                (&from, cast.field.data_type()),
                (Int16 | Int32 | Int64, Decimal128(_, 0..) | Decimal256(_, 0..))
            );
            is_wider.then(|| plain_column(&cast.expr, schema)).flatten()
        }
        _ => None,
    }
}
