//! GROUP BY, DISTINCT and grouping sets.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction as AggregateExpr;
use datafusion::logical_expr::{self as logical, Expr, GroupingSet, LogicalPlan, SortExpr};
use datafusion::physical_expr::expressions::{CastExpr, Literal};
use weir_common::TableDef;
use weir_common::key::{KeyOrder, SortColumn};
use weir_common::plan::{AggCall, AggFunction, Aggregate, Node, StreamPlan};
use weir_stream::executor::aggregate::{output_type, tables};

use super::super::properties;
use super::rel::{Phys, Rel, RelColumn, cast, column_index, text};
use super::{Builder, literal, physical, unsupported};
use crate::error::{Result, SqlError, type_name};

/// A call whose arguments are still expressions.
pub(super) struct Call {
    pub(super) function: AggFunction,
    pub(super) args: Vec<Phys>,
    pub(super) filter: Option<Phys>,
    pub(super) distinct: bool,
    pub(super) order_by: Vec<(Phys, KeyOrder)>,
    pub(super) output: DataType,
    pub(super) name: String,
}

impl Builder {
    pub(super) fn aggregate(&mut self, aggregate: &logical::Aggregate) -> Result<Rel> {
        if let [Expr::GroupingSet(sets)] = &aggregate.group_expr[..] {
            return self.grouping_sets(aggregate, sets);
        }
        let input = self.plan(&aggregate.input)?;
        let schema = aggregate.input.schema();
        let groups = named_all(&aggregate.group_expr, schema)?;
        let calls = calls(&aggregate.aggr_expr, schema, &input)?;
        self.grouped(input, groups, calls)
    }

    /// SELECT DISTINCT.
    pub(super) fn distinct(&mut self, input: &LogicalPlan) -> Result<Rel> {
        let rel = self.plan(input)?;
        let key = properties::stream_key(&rel.plan);
        let has = |k: &usize| rel.columns.iter().any(|c| column_index(&c.expr) == Some(*k));
        if key.iter().all(has) {
            return Ok(rel);
        }
        let columns = input.schema().columns();
        let groups = columns.into_iter().map(Expr::Column).collect::<Vec<_>>();
        let groups = named_all(&groups, input.schema())?;
        self.grouped(rel, groups, vec![])
    }

    /// One row per group: the group expressions, then the calls.
    pub(super) fn grouped(&mut self, input: Rel, groups: Vec<(String, Phys)>, calls: Vec<Call>) -> Result<Rel> {
        // Constants tell no groups apart; but `GROUP BY 'x'` has no row when there is none to group.
        let constant = |(_, e): &(String, Phys)| e.is::<Literal>();
        if !groups.iter().any(constant) || groups.iter().all(constant) {
            return self.grouped_by_columns(input, groups, calls);
        }
        let (constants, varying): (Vec<_>, Vec<_>) = groups.clone().into_iter().partition(constant);
        let count = varying.len();
        let mut rel = self.grouped_by_columns(input, varying, calls)?;
        let calls = rel.columns.split_off(count);
        let mut varying = std::mem::take(&mut rel.columns).into_iter();
        let mut constants = constants.into_iter();
        for group in &groups {
            let column = match constant(group) {
                true => constants.next().map(|(name, expr)| RelColumn { name, expr }),
                false => varying.next(),
            };
            rel.columns.extend(column);
        }
        rel.columns.extend(calls);
        Ok(rel)
    }

    fn grouped_by_columns(&mut self, mut input: Rel, groups: Vec<(String, Phys)>, calls: Vec<Call>) -> Result<Rel> {
        let group_count = groups.len();
        let width = input.columns.len();
        let group_at = input.ensure(&groups)?;
        let mut placed = Vec::with_capacity(calls.len());
        for call in &calls {
            let named = |e: &Phys| (text(e), e.clone());
            let args = input.ensure(&call.args.iter().map(named).collect::<Vec<_>>())?;
            let filter = input.ensure(&call.filter.iter().map(named).collect::<Vec<_>>())?;
            let order = input.ensure(&call.order_by.iter().map(|(e, _)| named(e)).collect::<Vec<_>>())?;
            placed.push((args, filter, order));
        }
        // Only what is used goes in, the groups first.
        let mut used: Vec<usize> = Vec::new();
        let everything = placed.iter().flat_map(|(a, f, o)| a.iter().chain(f).chain(o));
        for column in group_at.iter().chain(everything) {
            if !used.contains(column) {
                used.push(*column);
            }
        }
        // count(*) over everything needs no column, but rows have at least one.
        if used.is_empty() {
            used.push(0);
            if width == 0 {
                input.columns = Rel::first(input.plan.clone(), 1).columns;
            }
        }
        let at = |column: usize| used.iter().position(|u| *u == column).unwrap_or_default();
        let columns = used.iter().map(|u| input.columns[*u].clone()).collect();
        let mut group_by: Vec<usize> = Vec::new();
        for column in &group_at {
            if !group_by.contains(&at(*column)) {
                group_by.push(at(*column));
            }
        }
        let plan = Rel { plan: input.plan, columns }.settle_exactly()?;
        let (plan, spread_by) = self.together(plan, &group_by);
        let append_only = properties::append_only(&plan);

        let mut fields: Vec<Field> = group_by.iter().map(|g| plan.schema.field(*g).clone()).collect();
        let mut agg_calls = Vec::with_capacity(calls.len());
        for (call, (args, filter, order)) in calls.iter().zip(placed) {
            let orders = call.order_by.iter().map(|(_, order)| *order);
            let order_by =
                order.into_iter().zip(orders).map(|(c, order)| SortColumn { column: at(c), order }).collect();
            agg_calls.push(AggCall {
                function: call.function,
                args: args.into_iter().map(at).collect(),
                filter: filter.first().map(|f| at(*f)),
                distinct: call.distinct,
                order_by,
                output: call.output.clone(),
                values: None,
            });
            fields.push(Field::new(&call.name, call.output.clone(), true));
        }
        let (groups, values) = tables(&plan.schema, &group_by, &agg_calls, append_only, &mut || self.table_id());
        // All tables begin with the group columns.
        let distribution: Vec<usize> = spread_by.iter().filter_map(|c| group_by.iter().position(|g| g == c)).collect();
        for (call, values) in agg_calls.iter_mut().zip(values) {
            call.values = values.map(|table| TableDef { distribution: distribution.clone(), ..table });
        }
        let groups_table = TableDef { distribution, ..groups };
        let node = Aggregate {
            input: Box::new(plan),
            group_by: group_by.clone(),
            calls: agg_calls,
            append_only,
            groups: groups_table,
        };
        let plan = StreamPlan { schema: Arc::new(Schema::new(fields)), node: Node::Aggregate(node) };
        // Equal group expressions are one column.
        let group_place = |c: &usize| group_by.iter().position(|g| *g == at(*c)).unwrap_or_default();
        let outputs = group_at.iter().map(group_place).chain((0..calls.len()).map(|i| group_by.len() + i));
        debug_assert_eq!(group_at.len(), group_count);
        Ok(Rel::pick(plan, outputs.collect::<Vec<_>>()))
    }

    /// Each grouping set is an aggregation of its own, and the result all their rows. So the set without columns has its
    /// row also when there is nothing to aggregate.
    fn grouping_sets(&mut self, aggregate: &logical::Aggregate, sets: &GroupingSet) -> Result<Rel> {
        let (all, sets) = expand(sets);
        let input_schema = aggregate.input.schema();
        let output = aggregate.schema.inner().clone();
        // The output: every group expression, the id of the set, the calls.
        let id_type = output.field(all.len()).data_type().clone();
        let mut branches = Vec::with_capacity(sets.len());
        for set in &sets {
            let input = self.plan(&aggregate.input)?;
            let groups = named_all(&set.iter().map(|i| all[*i].clone()).collect::<Vec<_>>(), input_schema)?;
            let calls = calls(&aggregate.aggr_expr, input_schema, &input)?;
            let call_count = calls.len();
            let grouped = self.grouped(input, groups, calls)?;
            let schema = grouped.schema()?;
            let mut exprs: Vec<(String, Phys)> = Vec::with_capacity(output.fields().len());
            for i in 0..all.len() {
                let field = output.field(i);
                let expr = match set.iter().position(|s| *s == i) {
                    Some(at) => cast(column(&schema, at), field.data_type(), &schema)?,
                    None => literal(ScalarValue::try_from(field.data_type())?),
                };
                exprs.push((field.name().clone(), expr));
            }
            exprs.push((output.field(all.len()).name().clone(), literal(grouping_id(all.len(), set, &id_type)?)));
            for i in 0..call_count {
                let field = output.field(all.len() + 1 + i);
                let expr = cast(column(&schema, set.len() + i), field.data_type(), &schema)?;
                exprs.push((field.name().clone(), expr));
            }
            branches.push(grouped.project(exprs)?);
        }
        self.union_all(branches, &output)
    }
}

/// The expressions of all sets, each once, and every set as indices into them.
fn expand(sets: &GroupingSet) -> (Vec<Expr>, Vec<Vec<usize>>) {
    let all: Vec<Expr> = sets.distinct_expr().into_iter().cloned().collect();
    let place = |e: &Expr| all.iter().position(|a| a == e);
    let indices = |exprs: &[Expr]| exprs.iter().filter_map(place).collect::<Vec<_>>();
    let sets = match sets {
        GroupingSet::Rollup(exprs) => (0..=exprs.len()).rev().map(|n| indices(&exprs[..n])).collect(),
        GroupingSet::Cube(exprs) => {
            let subset = |bits: u64| {
                let chosen: Vec<Expr> =
                    exprs.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, e)| e.clone()).collect();
                indices(&chosen)
            };
            (0..1u64 << exprs.len().min(12)).rev().map(subset).collect()
        }
        GroupingSet::GroupingSets(sets) => sets.iter().map(|s| indices(s)).collect(),
    };
    (all, sets)
}

/// The id that DataFusion gives a grouping set: a bit for each expression that is not in it, the first the highest.
fn grouping_id(count: usize, set: &[usize], id_type: &DataType) -> Result<ScalarValue> {
    let bits = (0..count).fold(0u64, |bits, i| bits << 1 | u64::from(!set.contains(&i)));
    Ok(ScalarValue::UInt64(Some(bits)).cast_to(id_type)?)
}

fn column(schema: &SchemaRef, i: usize) -> Phys {
    Arc::new(datafusion::physical_expr::expressions::Column::new(schema.field(i).name(), i))
}

fn named_all(exprs: &[Expr], schema: &DFSchema) -> Result<Vec<(String, Phys)>> {
    exprs.iter().map(|e| super::named(e, schema)).collect()
}

fn calls(exprs: &[Expr], schema: &DFSchema, input: &Rel) -> Result<Vec<Call>> {
    let input = input.schema()?;
    exprs.iter().map(|e| call(e, schema, &input)).collect()
}

pub(super) fn call(expr: &Expr, schema: &DFSchema, input: &SchemaRef) -> Result<Call> {
    let name = super::shown(&expr.schema_name().to_string()).to_string();
    let mut expr = expr;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    let Expr::AggregateFunction(AggregateExpr { func, params }) = expr else {
        return Err(SqlError::internal(format!("{expr} is not an aggregate function")));
    };
    let function = function(func.name())?;
    if params.null_treatment.is_some_and(|t| t == logical::expr::NullTreatment::IgnoreNulls) {
        return Err(unsupported("IGNORE NULLS"));
    }
    let mut args = params.args.iter().map(|a| physical(a, schema)).collect::<Result<Vec<_>>>()?;
    if function == AggFunction::Count && args.iter().all(is_never_null) && !params.distinct {
        // count(*), as DataFusion writes it.
        args.clear();
    }
    if function == AggFunction::Count && args.len() > 1 {
        return Err(unsupported("count of several columns").with_hint("Count one, or a row of them."));
    }
    if matches!(function, AggFunction::Sum | AggFunction::Avg) {
        let arg = args.remove(0);
        args = vec![without_widening(arg, function, input)?];
    }
    let arg_type = args.first().map(|a| a.data_type(input)).transpose()?;
    let output = output_type(function, arg_type.as_ref()).ok_or_else(|| {
        let of = arg_type.as_ref().map(type_name).unwrap_or_default();
        unsupported(format!("{}({of})", func.name()))
    })?;
    let filter = params.filter.as_ref().map(|f| physical(f, schema)).transpose()?;
    let order_by = params.order_by.iter().map(|s| sort_key(s, schema)).collect::<Result<Vec<_>>>()?;
    Ok(Call { function, args, filter, distinct: params.distinct, order_by, output, name })
}

pub(super) fn sort_key(sort: &SortExpr, schema: &DFSchema) -> Result<(Phys, KeyOrder)> {
    let order = KeyOrder { descending: !sort.asc, nulls_first: sort.nulls_first };
    Ok((physical(&sort.expr, schema)?, order))
}

fn is_never_null(expr: &Phys) -> bool {
    expr.downcast_ref::<Literal>().is_some_and(|l| !l.value().is_null())
}

/// The argument without a cast to a wider number, where the function's own result is wide enough: sums of small numbers
/// are quicker.
fn without_widening(arg: Phys, function: AggFunction, input: &SchemaRef) -> Result<Phys> {
    let Some(cast) = arg.downcast_ref::<CastExpr>() else { return Ok(arg) };
    let (inner, outer) = (cast.expr().data_type(input)?, arg.data_type(input)?);
    let is_exact = |t: &DataType| t.is_signed_integer() || matches!(t, DataType::Decimal128(..));
    let is_wider = match (&inner, &outer) {
        (DataType::Decimal128(p, s), DataType::Decimal128(wide_p, wide_s)) => {
            wide_s >= s && i16::from(*wide_p) - i16::from(*wide_s) >= i16::from(*p) - i16::from(*s)
        }
        (inner, DataType::Int64) => inner.is_signed_integer(),
        (inner, DataType::Decimal128(p, s)) => inner.is_signed_integer() && i16::from(*p) - i16::from(*s) >= 19,
        _ => false,
    };
    let same = output_type(function, Some(&inner)) == output_type(function, Some(&outer));
    let same = same
        || matches!((function, &inner, &outer), (AggFunction::Sum, i, DataType::Int64) if i.is_signed_integer() && *i != DataType::Int64);
    if is_exact(&inner) && is_wider && same { Ok(cast.expr().clone()) } else { Ok(arg) }
}

fn function(name: &str) -> Result<AggFunction> {
    Ok(match name {
        "count" => AggFunction::Count,
        "sum" => AggFunction::Sum,
        "avg" => AggFunction::Avg,
        "min" => AggFunction::Min,
        "max" => AggFunction::Max,
        "bool_and" => AggFunction::BoolAnd,
        "bool_or" => AggFunction::BoolOr,
        "string_agg" => AggFunction::StringAgg,
        "array_agg" => AggFunction::ArrayAgg,
        "first_value" => AggFunction::FirstValue,
        "last_value" => AggFunction::LastValue,
        _ => {
            return Err(unsupported(format!("aggregate function {name}")).with_hint(
                "Views keep count, sum, avg, min, max, bool_and, bool_or, string_agg, array_agg, first_value and last_value.",
            ));
        }
    })
}
