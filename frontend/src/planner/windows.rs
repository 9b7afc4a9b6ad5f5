//! Functions in FROM: `TUMBLE`, `HOP` and `generate_series`.
//!
//! ```text
//! TUMBLE(t, ts, size [, offset])        every column of t, window_start, window_end
//! HOP(t, ts, slide, size [, offset])    likewise, once for each window that the row is in
//! ```
//!
//! `t` is a relation's name or a query in parentheses. Both are ordinary projections (and an unnest), so batch queries and
//! views share them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference, UnnestOptions};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit};
use datafusion::sql::sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableAlias, TableFactor};
use weir_common::SqlState;

use super::context::{constant, literal};
use crate::error::SqlError;

/// Elements of a series that is unnested from an array.
const SHORT_SERIES_MAX: i128 = 1000;

/// The planners of functions in FROM.
pub(super) fn relation_planners() -> Vec<Arc<dyn RelationPlanner>> {
    vec![Arc::new(TableFunctions)]
}

#[derive(Debug)]
struct TableFunctions;

impl RelationPlanner for TableFunctions {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (name, args, alias) = match &relation {
            TableFactor::Table { name, args: Some(args), alias, with_ordinality: false, .. } => {
                (name, &args.args, alias)
            }
            TableFactor::Function { name, args, alias, with_ordinality: false, .. } => (name, args, alias),
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        let plan = match name.to_string().to_lowercase().as_str() {
            "tumble" => tumble(args, context)?,
            "hop" => hop(args, context)?,
            "generate_series" => return series(args, alias.clone(), context),
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

fn invalid(message: impl Into<String>) -> datafusion::common::DataFusionError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into()
}

fn exprs(args: &[FunctionArg], usage: &str) -> Result<Vec<ast::Expr>> {
    let expr = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr.clone()),
        _ => Err(SqlError::syntax(format!("write {usage}")).into()),
    };
    args.iter().map(expr).collect()
}

/// The input of a window function, and the qualifier of its columns.
fn input(table: ast::Expr, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let factor = match table {
        ast::Expr::Identifier(ident) => table_factor(ast::ObjectName::from(vec![ident])),
        ast::Expr::CompoundIdentifier(idents) => table_factor(ast::ObjectName::from(idents)),
        ast::Expr::Subquery(subquery) => TableFactor::Derived { lateral: false, subquery, alias: None, sample: None },
        other => return Err(SqlError::syntax(format!("a relation or (query) is expected, not {other}")).into()),
    };
    context.plan(factor)
}

fn table_factor(name: ast::ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

/// The time column, as a timestamp.
fn time_column(expr: ast::Expr, input: &LogicalPlan, context: &mut dyn RelationPlannerContext) -> Result<Expr> {
    let expr = context.sql_to_expr(expr, input.schema())?;
    match expr.get_type(input.schema())? {
        DataType::Timestamp(..) => Ok(expr),
        DataType::Date32 => Ok(cast(expr, weir_common::SqlType::Timestamp.to_arrow())),
        other => Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!("windows need a column of type timestamp, not {}", crate::error::type_name(&other)),
        )
        .into()),
    }
}

/// A constant interval of a fixed length.
fn interval(expr: ast::Expr, what: &str, context: &mut dyn RelationPlannerContext) -> Result<Expr> {
    let expr = context.sql_to_expr(expr, &DFSchema::empty())?;
    let value = literal(expr, what)?.cast_to(&weir_common::SqlType::Interval.to_arrow())?;
    match &value {
        ScalarValue::IntervalMonthDayNano(Some(i)) if i.months == 0 => Ok(lit(value)),
        ScalarValue::IntervalMonthDayNano(Some(_)) => {
            Err(invalid(format!("{what} must not contain months, which differ in length")))
        }
        _ => Err(invalid(format!("{what} must be an interval"))),
    }
}

fn nanoseconds(interval: &Expr) -> i128 {
    match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(i)), _) => {
            i128::from(i.days) * 86_400_000_000_000 + i128::from(i.nanoseconds)
        }
        _ => 0,
    }
}

fn call(context: &dyn RelationPlannerContext, name: &str, args: Vec<Expr>) -> Result<Expr> {
    let function = context.context_provider().get_function_meta(name);
    let function = function.ok_or_else(|| SqlError::internal(format!("function {name} is missing")))?;
    Ok(function.call(args))
}

fn columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// The name that the result goes by when it has no alias: that of the relation, if it is one.
fn qualifier(plan: &LogicalPlan) -> Option<TableReference> {
    plan.schema().iter().next().and_then(|(q, _)| q.cloned())
}

fn tumble(args: &[FunctionArg], context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    const USAGE: &str = "TUMBLE(relation, time column, size [, offset])";
    let mut args = exprs(args, USAGE)?.into_iter();
    let (Some(table), Some(time), Some(size), offset, None) =
        (args.next(), args.next(), args.next(), args.next(), args.next())
    else {
        return Err(SqlError::syntax(format!("write {USAGE}")).into());
    };
    let input = input(table, context)?;
    let time = time_column(time, &input, context)?;
    let size = interval(size, "the size of a window", context)?;
    if nanoseconds(&size) <= 0 {
        return Err(invalid("the size of a window must be positive"));
    }
    let mut call_args = vec![time.clone(), size.clone()];
    if let Some(offset) = offset {
        call_args.push(interval(offset, "the offset of a window", context)?);
    }
    let start = call(context, "tumble_start", call_args)?;
    let end = start.clone() + size;
    let mut exprs = columns(&input);
    exprs.extend([start.alias("window_start"), end.alias("window_end")]);
    // A row without a time is in no window.
    requalify(LogicalPlanBuilder::from(input).filter(time.is_not_null())?.project(exprs)?)
}

fn hop(args: &[FunctionArg], context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    const USAGE: &str = "HOP(relation, time column, slide, size [, offset])";
    let mut args = exprs(args, USAGE)?.into_iter();
    let (Some(table), Some(time), Some(slide), Some(size), offset, None) =
        (args.next(), args.next(), args.next(), args.next(), args.next(), args.next())
    else {
        return Err(SqlError::syntax(format!("write {USAGE}")).into());
    };
    let input = input(table, context)?;
    let time = time_column(time, &input, context)?;
    let slide = interval(slide, "the slide of a window", context)?;
    let size = interval(size, "the size of a window", context)?;
    if nanoseconds(&slide) <= 0 || nanoseconds(&size) <= 0 {
        return Err(invalid("slide and size of a window must be positive"));
    }
    let mut call_args = vec![time.clone(), slide, size.clone()];
    if let Some(offset) = offset {
        call_args.push(interval(offset, "the offset of a window", context)?);
    }
    let starts = call(context, "hop_starts", call_args)?;
    let mut exprs = columns(&input);
    exprs.push(starts.alias("window_start"));
    let start = Expr::Column(Column::from_name("window_start"));
    let unnested = LogicalPlanBuilder::from(input)
        .filter(time.is_not_null())?
        .project(exprs)?
        .unnest_column_with_options("window_start", UnnestOptions::new().with_preserve_nulls(false))?;
    let mut exprs: Vec<Expr> = unnested.schema().columns().into_iter().map(Expr::Column).collect();
    exprs.push((start + size).alias("window_end"));
    requalify(unnested.project(exprs)?)
}

/// Gives all columns the qualifier of the input, so that `t.window_start` can be written.
fn requalify(plan: LogicalPlanBuilder) -> Result<LogicalPlan> {
    let plan = plan.build()?;
    match qualifier(&plan) {
        Some(name) => LogicalPlanBuilder::from(plan).alias(name)?.build(),
        None => Ok(plan),
    }
}

/// `generate_series(start, stop [, step])`. With constants it is a table that DataFusion makes up as it reads; else the
/// elements of an array.
fn series(
    args: &[FunctionArg],
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<RelationPlanning> {
    const USAGE: &str = "generate_series(start, stop [, step])";
    let empty = DFSchema::empty();
    let mut values = Vec::new();
    for arg in exprs(args, USAGE)? {
        values.push(context.sql_to_expr(arg, &empty)?);
    }
    if values.len() < 2 || values.len() > 3 {
        return Err(SqlError::syntax(format!("write {USAGE}")).into());
    }
    let integers = values.iter().all(|v| matches!(v.get_type(&empty), Ok(DataType::Int32 | DataType::Int16)));
    let whole = values.iter().all(|v| v.get_type(&empty).is_ok_and(|t| t.is_signed_integer()));
    let (values, result) = if whole {
        let result = if integers { DataType::Int32 } else { DataType::Int64 };
        (values.into_iter().map(|v| cast(v, DataType::Int64)).collect::<Vec<_>>(), result)
    } else {
        series_of_times(values, &empty)?
    };
    let values = values.into_iter().map(constant).collect::<Result<Vec<_>>>()?;
    // The column goes by the alias, as for every function with one column.
    let name = match &alias {
        Some(alias) => context.normalize_ident(alias.name.clone()),
        None => "generate_series".to_string(),
    };
    if !values.iter().all(|v| matches!(v, Expr::Literal(..))) {
        return Err(invalid("the arguments of generate_series must be constants or columns"));
    }
    let plan = if !is_short(&values) {
        let source = context.context_provider().get_table_function_source("generate_series", values)?;
        LogicalPlanBuilder::scan("generate_series", source, None)?.build()?
    } else {
        let list = call(context, "generate_series", values)?.alias("value");
        LogicalPlanBuilder::empty(true)
            .project(vec![list])?
            .unnest_column_with_options("value", UnnestOptions::new().with_preserve_nulls(false))?
            .build()?
    };
    let value = cast(Expr::Column(plan.schema().columns().remove(0)), result).alias(name.clone());
    let plan = LogicalPlanBuilder::from(plan).project(vec![value])?;
    // Without an alias, `generate_series.generate_series` can be written.
    let plan = if alias.is_none() { plan.alias(name)?.build()? } else { plan.build()? };
    Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
}

/// Whether a series of integers is short enough to be written into a plan, which views can keep.
fn is_short(values: &[Expr]) -> bool {
    let number = |e: &Expr| match e {
        Expr::Literal(ScalarValue::Int64(Some(n)), _) => Some(i128::from(*n)),
        _ => None,
    };
    let numbers: Option<Vec<i128>> = values.iter().map(number).collect();
    match numbers.as_deref() {
        Some([start, stop]) => stop - start < SHORT_SERIES_MAX,
        Some([start, stop, step]) if *step != 0 => (stop - start) / step < SHORT_SERIES_MAX,
        _ => false,
    }
}

/// Arguments of a series of timestamps or dates, and the type that comes out.
fn series_of_times(values: Vec<Expr>, schema: &DFSchema) -> Result<(Vec<Expr>, DataType)> {
    use arrow::datatypes::TimeUnit;
    if values.len() != 3 {
        return Err(invalid("a series of timestamps needs a step"));
    }
    let zone = match values[0].get_type(schema)? {
        DataType::Timestamp(_, zone) => zone,
        _ => None,
    };
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
    let result = DataType::Timestamp(TimeUnit::Microsecond, zone);
    let step = weir_common::SqlType::Interval.to_arrow();
    let types = [nanoseconds.clone(), nanoseconds, step];
    let values = values.into_iter().zip(types).map(|(v, t)| cast(v, t)).collect();
    Ok((values, result))
}
