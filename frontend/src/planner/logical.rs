//! PostgreSQL's meaning, where the binder's plan has another: rewrites of the bound plan that batch queries and views share.
//!
//! 1. Constructs that DataFusion computes in its own way become windows and filters, which mean the same everywhere:
//!    DISTINCT ON, FETCH FIRST WITH TIES, EXCEPT ALL, INTERSECT ALL; and subqueries become joins where DataFusion cannot
//!    make them so, or means another value.
//! 2. Expressions get PostgreSQL's types and functions ([`super::postgres`]): casts from and to text, sums and averages.
//! 3. DataFusion's analyzer makes the types of what is left fit.
//! 4. Columns of the result have types that SQL has a name for.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result};
use datafusion::logical_expr::expr::{Cast, Placeholder, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprFunctionExt, ExprSchemable, Join, Limit, LogicalPlan,
    LogicalPlanBuilder, SortExpr, Window, WindowUDF, cast, lit,
};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::names::NUMBERED;
use super::ranks::{rank, row_number};
use super::rewrite::WITH_TIES;
use super::{Scope, checks, postgres, types};
use crate::error::SqlError;

mod dependent;
mod hoist;
mod lateral;
mod predicates;

/// The name of a column that numbers rows, which no user can write.
const NUMBER: &str = "number\u{1}";

/// The name of the first part of a recursive query.
const FIRST: &str = "first\u{1}";

/// Gives a bound plan its types and PostgreSQL's meaning.
pub(super) fn analyze(scope: &Scope<'_>, plan: LogicalPlan) -> Result<LogicalPlan> {
    checks::check(&plan)?;
    let plan = plan.transform_up_with_subqueries(hoist::hoisted).data()?;
    let plan = plan.transform_up_with_subqueries(structure).data()?;
    let plan = plan.transform_up_with_subqueries(|node| typed(scope, node)).data()?;
    let plan = Analyzer::new().execute_and_check(plan, scope.config, |_, _| {})?;
    nameable(plan)
}

/// An expression alone, likewise; and of the type `target`, if given.
pub(super) fn expr(scope: &Scope<'_>, expr: Expr, schema: &DFSchema, target: Option<&DataType>) -> Result<Expr> {
    let expr = expr.transform_down(typed_param).data()?;
    let expr = expr.transform_up(|e| postgres::rewrite(scope, e, schema)).data()?;
    let context = datafusion::logical_expr::simplify::SimplifyContext::builder().build();
    let expr = ExprSimplifier::new(context).coerce(expr, schema)?;
    let Some(target) = target else { return Ok(expr) };
    if expr.get_type(schema)? == *target {
        return Ok(expr);
    }
    postgres::rewrite(scope, cast(expr, target.clone()), schema).data()
}

/// Parameters of which nothing tells the type are text.
pub(super) fn type_params(plan: LogicalPlan) -> Result<LogicalPlan> {
    let node = |node: LogicalPlan| {
        let counts = matches!(node, LogicalPlan::Limit(_));
        let typed = |e: Expr| {
            let e = if counts { e.transform_down(counted_param)? } else { Transformed::no(e) };
            e.transform_data(|e| e.transform_down(typed_param))
        };
        node.map_expressions(typed)?.map_data(|plan| plan.recompute_schema())
    };
    plan.transform_up_with_subqueries(node).data()
}

fn typed_param(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => Transformed::yes(param(id, DataType::Utf8)),
        // The type of a cast is that of the parameter in it.
        Expr::Cast(Cast { expr, field }) => match *expr {
            Expr::Placeholder(Placeholder { id, field: None }) => {
                let expr = Box::new(param(id, field.data_type().clone()));
                Transformed::yes(Expr::Cast(Cast { expr, field }))
            }
            expr => Transformed::no(Expr::Cast(Cast { expr: Box::new(expr), field })),
        },
        other => Transformed::no(other),
    })
}

/// A parameter of LIMIT or OFFSET.
fn counted_param(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => Transformed::yes(param(id, DataType::Int64)),
        other => Transformed::no(other),
    })
}

fn param(id: String, data_type: DataType) -> Expr {
    Expr::Placeholder(Placeholder { id, field: Some(Arc::new(Field::new("", data_type, true))) })
}

fn structure(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = match &plan {
        LogicalPlan::Join(join) => lateral::inline(join)?.unwrap_or(plan),
        _ => plan,
    };
    if let Some(joined) = dependent::joined(&plan)? {
        return Ok(Transformed::yes(joined));
    }
    match plan {
        LogicalPlan::Distinct(Distinct::On(on)) => distinct_on(on).map(Transformed::yes),
        LogicalPlan::Limit(limit) => with_ties(limit),
        LogicalPlan::Join(join) => multiset(join),
        // Its parts are read as a whole: the optimizer would take columns away that the next step needs.
        LogicalPlan::RecursiveQuery(mut recursive) => {
            let first = LogicalPlanBuilder::from(recursive.static_term.as_ref().clone()).alias(FIRST)?.build()?;
            recursive.static_term = Arc::new(first);
            Ok(Transformed::yes(LogicalPlan::RecursiveQuery(recursive)))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn window(function: Arc<WindowUDF>, partition_by: Vec<Expr>, order_by: Vec<SortExpr>) -> Result<Expr> {
    let call = Expr::WindowFunction(Box::new(WindowFunction::new(function, vec![])));
    let call = call.partition_by(partition_by);
    let call = if order_by.is_empty() { call } else { call.order_by(order_by) };
    Ok(call.build()?.alias(NUMBER))
}

fn numbered(input: LogicalPlan, number: Expr) -> Result<LogicalPlanBuilder> {
    LogicalPlanBuilder::from(input).window(vec![number])
}

fn number() -> Expr {
    Expr::Column(Column::new_unqualified(NUMBER))
}

/// The first row of each group of equal ON expressions.
fn distinct_on(on: DistinctOn) -> Result<LogicalPlan> {
    let order = on.sort_expr.unwrap_or_default();
    let first = window(row_number(), on.on_expr, order.clone())?;
    let input = Arc::unwrap_or_clone(on.input);
    let plan = numbered(input, first)?.filter(number().eq(lit(1i64)))?;
    let plan = if order.is_empty() { plan } else { plan.sort(order)? };
    plan.project(on.select_expr)?.build()
}

/// `FETCH FIRST n ROWS WITH TIES`: the rows whose rank is at most n.
fn with_ties(limit: Limit) -> Result<Transformed<LogicalPlan>> {
    let Some(count) = limit.fetch.as_deref().and_then(ties_count) else {
        return Ok(Transformed::no(LogicalPlan::Limit(limit)));
    };
    let (sort, above) = match Arc::unwrap_or_clone(limit.input) {
        LogicalPlan::Sort(sort) => (sort, None),
        LogicalPlan::Projection(projection) => match Arc::unwrap_or_clone(projection.input) {
            LogicalPlan::Sort(sort) => (sort, Some(projection.expr)),
            _ => return Err(SqlError::unsupported("WITH TIES here").into()),
        },
        _ => return Err(SqlError::unsupported("WITH TIES here").into()),
    };
    let input = Arc::unwrap_or_clone(sort.input.clone());
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let ranked = window(rank(), vec![], sort.expr.clone())?;
    let plan = numbered(input, ranked)?.filter(number().lt_eq(cast(count, DataType::Int64)))?;
    let plan = plan.project(columns)?.sort(sort.expr)?;
    let plan = match above {
        Some(exprs) => plan.project(exprs)?,
        None => plan,
    };
    Ok(Transformed::yes(plan.build()?))
}

fn ties_count(fetch: &Expr) -> Option<Expr> {
    match fetch {
        Expr::ScalarFunction(call) if call.name() == WITH_TIES => call.args.first().cloned(),
        Expr::Cast(cast) => ties_count(&cast.expr),
        Expr::Alias(alias) => ties_count(&alias.expr),
        _ => None,
    }
}

/// EXCEPT ALL and INTERSECT ALL: the binder leaves out the DISTINCT of the left side, which is not enough. The n-th of
/// equal rows on the left is to be matched with the n-th of them on the right.
fn multiset(join: Join) -> Result<Transformed<LogicalPlan>> {
    let is_set_operation = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        // Joins that were made here, in a view that is inlined, are what they should be.
        && !join.on.iter().any(|(l, r)| is_made_here(l) || is_made_here(r));
    if !is_set_operation || is_distinct(&join.left) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let (left_on, right_on): (Vec<Expr>, Vec<Expr>) = join.on.into_iter().unzip();
    let left = Arc::unwrap_or_clone(join.left);
    let columns: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
    let side = |plan: LogicalPlan, on: &[Expr], name: &str| -> Result<LogicalPlan> {
        let number = window(row_number(), on.to_vec(), vec![])?.unalias().alias(name);
        numbered(plan, number)?.build()
    };
    let (left_number, right_number) = (format!("{NUMBER}l"), format!("{NUMBER}r"));
    let left = side(left, &left_on, &left_number)?;
    let right = side(Arc::unwrap_or_clone(join.right), &right_on, &right_number)?;
    let by_name = |name: String| Expr::Column(Column::new_unqualified(name));
    let on =
        left_on.into_iter().zip(right_on).chain([(by_name(left_number), by_name(right_number))]).collect::<Vec<_>>();
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        NullEquality::NullEqualsNull,
        false,
    )?;
    let plan = LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()?;
    Ok(Transformed::yes(plan))
}

fn is_made_here(key: &Expr) -> bool {
    key.column_refs().iter().any(|c| {
        let marked = |name: &str| name.contains(NUMBERED);
        marked(&c.name) || c.relation.as_ref().is_some_and(|r| marked(r.table()))
    })
}

fn is_distinct(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Distinct(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_distinct(&alias.input),
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|e| matches!(e, Expr::Column(_))) && is_distinct(&projection.input)
        }
        _ => false,
    }
}

/// The node with expressions as PostgreSQL means them.
fn typed(scope: &Scope<'_>, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    let plan = plan
        .map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|e| postgres::rewrite(scope, e, &schema))?;
            Ok(rewritten.update_data(|e| name.restore(e)))
        })?
        .map_data(|plan| plan.recompute_schema())?;
    plan.transform_data(|plan| match plan {
        LogicalPlan::Aggregate(aggregate) => aggregated(aggregate),
        LogicalPlan::Window(window) => windowed(window),
        LogicalPlan::Sort(mut sort) => {
            for key in &mut sort.expr {
                key.expr = postgres::ordered(key.expr.clone(), sort.input.schema());
            }
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Sums and averages of PostgreSQL's types: their arguments are cast so that DataFusion's functions are exact enough, and
/// their results to what PostgreSQL says.
fn aggregated(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let groups = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let input_schema = aggregate.input.schema().clone();
    let mut wanted: Vec<Option<DataType>> = vec![None; groups];
    let mut exprs = Vec::with_capacity(aggregate.aggr_expr.len());
    for expr in aggregate.aggr_expr {
        let (expr, output) = postgres::aggregate(expr, &input_schema)?;
        exprs.push(expr);
        wanted.push(output);
    }
    let aggregate = Aggregate::try_new(aggregate.input, aggregate.group_expr, exprs)?;
    let plan = LogicalPlan::Aggregate(aggregate);
    outputs(plan, wanted)
}

/// The same for window functions; ranks become bigint.
fn windowed(window: Window) -> Result<Transformed<LogicalPlan>> {
    let input_schema = window.input.schema().clone();
    let mut wanted: Vec<Option<DataType>> = vec![None; input_schema.fields().len()];
    let mut exprs = Vec::with_capacity(window.window_expr.len());
    for expr in window.window_expr {
        let (expr, output) = postgres::window(expr, &input_schema)?;
        exprs.push(expr);
        wanted.push(output);
    }
    let plan = LogicalPlan::Window(Window::try_new(exprs, window.input)?);
    outputs(plan, wanted)
}

/// Casts the columns of a plan to the wanted types, their names kept.
fn outputs(plan: LogicalPlan, wanted: Vec<Option<DataType>>) -> Result<Transformed<LogicalPlan>> {
    let fields: Vec<_> = plan.schema().iter().map(|(q, f)| (q.cloned(), f.clone())).collect();
    let fits = |(field, wanted): (&(_, Arc<Field>), &Option<DataType>)| {
        wanted.as_ref().is_none_or(|w| w == field.1.data_type())
    };
    if fields.iter().zip(&wanted).all(fits) {
        return Ok(Transformed::yes(plan));
    }
    let column =
        |((qualifier, field), wanted): ((Option<datafusion::common::TableReference>, Arc<Field>), Option<_>)| {
            let column = Expr::Column(Column::new(qualifier.clone(), field.name()));
            match wanted {
                Some(wanted) if wanted != *field.data_type() => {
                    cast(column, wanted).alias_qualified(qualifier, field.name())
                }
                _ => column,
            }
        };
    let exprs: Vec<Expr> = fields.into_iter().zip(wanted).map(column).collect();
    Ok(Transformed::yes(LogicalPlanBuilder::from(plan).project(exprs)?.build()?))
}

/// The plan with columns of types that have names in SQL.
fn nameable(plan: LogicalPlan) -> Result<LogicalPlan> {
    let wanted = plan.schema().fields().iter().map(|f| types::normal(f.data_type())).collect();
    Ok(outputs(plan, wanted)?.data)
}
