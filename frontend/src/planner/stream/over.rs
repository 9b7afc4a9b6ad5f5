//! Window functions, out of what the engine has: numbers from TopN, the rest from joins.
//!
//! | function | stream plan |
//! |---|---|
//! | row_number, rank, dense_rank | TopN that emits the rank; with a filter on it, only that far |
//! | an aggregate over the whole partition | Join with an Aggregate by the partition |
//! | lag, lead | Join with the row whose number is so much less or more |
//! | an aggregate over a frame, first_value, last_value | Join with the rows whose numbers are in the frame, then Aggregate by row |
//!
//! The other side of a join is the same input once more, with the same numbers. A row that comes or goes moves the numbers
//! of all rows after it, and what was computed with them: exact, and cheap as long as partitions are small.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment, WindowFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    self as logical, Expr, LogicalPlan, Operator, SortExpr, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};
use datafusion::physical_expr::expressions::{BinaryExpr, IsNullExpr, case};
use weir_common::key::KeyOrder;
use weir_common::plan::{AggFunction, JoinKind, Rank};
use weir_stream::executor::aggregate::output_type;

use super::super::properties;
use super::aggregate::{Call, call, sort_key};
use super::join::{Condition, at};
use super::rel::{Phys, Rel, RelColumn, cast, column_index, text};
use super::top_n::Range;
use super::{Builder, literal, physical, unsupported};
use crate::error::{Result, SqlError};

/// Window functions over one input.
struct Windows<'a> {
    input: &'a LogicalPlan,
    functions: Vec<Function<'a>>,
}

/// A window function.
struct Function<'a> {
    call: &'a WindowFunction,
    kind: Kind,
}

/// How it is computed.
enum Kind {
    Rank(Rank),
    /// Over the whole partition.
    Total,
    /// The value of the row so many rows before, or after where negative.
    Shift(i64),
    /// Over the rows whose number is within bounds of the row's own.
    Frame {
        number: Rank,
        from: Option<i64>,
        to: Option<i64>,
    },
}

/// What numbers the rows: a partition, an order and a kind of number.
#[derive(PartialEq)]
struct Numbering<'a> {
    partition_by: &'a [Expr],
    order_by: &'a [SortExpr],
    rank: Rank,
}

impl Builder {
    pub(super) fn window(&mut self, window: &logical::Window) -> Result<Rel> {
        let windows = Windows::of(window)?;
        self.windows(&windows, None)
    }

    /// A filter on the number that a window function gives: only rows up to there are kept.
    pub(super) fn ranked(&mut self, filter: &logical::Filter) -> Result<Option<Rel>> {
        match &*filter.input {
            LogicalPlan::Window(window) => self.bounded(filter, window),
            // A projection between them moves above both.
            LogicalPlan::Projection(projection) => {
                let below = below(filter, projection)?;
                let Some(rel) = self.ranked(&below)? else { return Ok(None) };
                let schema = projection.input.schema();
                let exprs = projection.expr.iter().map(|e| super::named(e, schema)).collect::<Result<Vec<_>>>()?;
                Ok(Some(rel.project(exprs)?))
            }
            _ => Ok(None),
        }
    }

    fn bounded(&mut self, filter: &logical::Filter, window: &logical::Window) -> Result<Option<Rel>> {
        let windows = Windows::of(window)?;
        let first = windows.input.schema().fields().len();
        let schema = filter.input.schema();
        let is_rank = |i: &usize| matches!(windows.functions[*i].kind, Kind::Rank(_));
        // The function that the filter bounds, its range, and the rest of the filter.
        let mut bounded: Option<usize> = None;
        let mut range = Range::ALL;
        let mut rest: Vec<&Expr> = Vec::new();
        for conjunct in split_conjunction(&filter.predicate) {
            let narrowed = bound(conjunct, schema).and_then(|(column, op, number)| {
                let function = column.checked_sub(first).filter(is_rank)?;
                let same = bounded.is_none_or(|b| b == function);
                same.then(|| range.and(op, number)).flatten().map(|range| (function, range))
            });
            match narrowed {
                Some((function, narrowed)) => {
                    bounded = Some(function);
                    range = narrowed;
                }
                None => rest.push(conjunct),
            }
        }
        let Some(bounded) = bounded else { return Ok(None) };
        let rel = self.windows(&windows, Some((bounded, range)))?;
        let types: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let rel = rel.with_types(types.iter())?;
        match rest.into_iter().cloned().reduce(Expr::and) {
            Some(rest) => Ok(Some(rel.filter(physical(&rest, schema)?)?)),
            None => Ok(Some(rel)),
        }
    }

    /// The columns of the input, then those of the functions. The function with the bound is computed last, for the others
    /// see all rows.
    fn windows(&mut self, windows: &Windows<'_>, bound: Option<(usize, Range)>) -> Result<Rel> {
        let width = windows.input.schema().fields().len();
        let bounded = bound.as_ref().map(|(function, _)| *function);
        let numberings = windows.numberings(bounded);
        let mut rel = self.numbered(windows, &numberings)?;
        let number_at = |numbering: &Numbering<'_>| numberings.iter().position(|n| n == numbering).map(|i| width + i);
        let mut results: Vec<Option<usize>> = vec![None; windows.functions.len()];
        for (i, function) in windows.functions.iter().enumerate() {
            if Some(i) == bounded {
                continue;
            }
            results[i] = match &function.kind {
                Kind::Rank(rank) => number_at(&function.numbering(*rank)),
                Kind::Total => {
                    rel = self.total(windows, function, rel)?;
                    Some(rel.columns.len() - 1)
                }
                Kind::Shift(rows) => {
                    let number = number_at(&function.numbering(Rank::RowNumber));
                    rel = self.shifted(windows, function, rel, number.unwrap_or(width), *rows)?;
                    Some(rel.columns.len() - 1)
                }
                Kind::Frame { number, from, to } => {
                    let at = number_at(&function.numbering(*number)).unwrap_or(width);
                    rel = self.framed(windows, function, rel, at, *number, (*from, *to))?;
                    Some(rel.columns.len() - 1)
                }
            };
        }
        if let Some((function, range)) = bound {
            let Kind::Rank(rank) = windows.functions[function].kind else {
                return Err(SqlError::internal("only a rank has a bound"));
            };
            rel = self.number(windows, rel, &windows.functions[function].numbering(rank), range)?;
            results[function] = Some(rel.columns.len() - 1);
        }
        let wanted = (0..width).map(Some).chain(results);
        let columns = wanted.map(|i| i.and_then(|i| rel.columns.get(i)).cloned());
        let columns = columns.collect::<Option<Vec<_>>>();
        rel.columns = columns.ok_or_else(|| SqlError::internal("every window function has a column"))?;
        Ok(rel)
    }

    /// The input with its rows numbered in these ways.
    fn numbered(&mut self, windows: &Windows<'_>, numberings: &[Numbering<'_>]) -> Result<Rel> {
        let mut rel = self.plan(windows.input)?;
        for numbering in numberings {
            rel = self.number(windows, rel, numbering, Range::ALL)?;
        }
        Ok(rel)
    }

    fn number(&mut self, windows: &Windows<'_>, rel: Rel, numbering: &Numbering<'_>, range: Range) -> Result<Rel> {
        let schema = windows.input.schema();
        let partition = physical_all(numbering.partition_by, schema)?;
        let order = numbering.order_by.iter().map(|s| sort_key(s, schema)).collect::<Result<Vec<_>>>()?;
        self.top(rel, &partition, &order, range, numbering.rank)
    }

    /// An aggregate over the whole partition.
    fn total(&mut self, windows: &Windows<'_>, function: &Function<'_>, rel: Rel) -> Result<Rel> {
        let schema = windows.input.schema();
        let input = self.plan(windows.input)?;
        let mut call = function.aggregate(schema, &input)?;
        if matches!(call.function, AggFunction::FirstValue | AggFunction::LastValue) {
            let order = &function.call.params.order_by;
            call.order_by = order.iter().map(|s| sort_key(s, schema)).collect::<Result<Vec<_>>>()?;
        }
        let partition = physical_all(&function.call.params.partition_by, schema)?;
        let groups = partition.iter().map(|e| (text(e), e.clone())).collect::<Vec<_>>();
        let right = self.grouped(input, groups, vec![call])?;
        let right_schema = right.schema()?;
        let on = partition.into_iter().enumerate().map(|(i, l)| (l, at(&right_schema, i))).collect::<Vec<_>>();
        let result = rel.columns.len() + on.len();
        let condition = Condition { on, null_equals_null: true, residual: None };
        let left_width = rel.columns.len();
        let mut joined = self.joined(rel, right, condition, JoinKind::Inner)?;
        let result = joined.columns[result].clone();
        joined.columns.truncate(left_width);
        joined.columns.push(result);
        Ok(joined)
    }

    /// The value of another row of the partition, by its number.
    fn shifted(
        &mut self,
        windows: &Windows<'_>,
        function: &Function<'_>,
        rel: Rel,
        number: usize,
        rows: i64,
    ) -> Result<Rel> {
        let schema = windows.input.schema();
        let width = schema.fields().len();
        let params = &function.call.params;
        let Some(value) = params.args.first() else { return Err(SqlError::internal("lag and lead have an argument")) };
        let value = physical(value, schema)?;
        let partition = physical_all(&params.partition_by, schema)?;
        let other = self.numbered(windows, &[function.numbering(Rank::RowNumber)])?;
        let other_schema = other.schema()?;
        let mut exprs: Vec<(String, Phys)> = partition.iter().map(|e| (text(e), e.clone())).collect();
        exprs.push(("number".into(), at(&other_schema, width)));
        exprs.push(("value".into(), value.clone()));
        exprs.push(("found".into(), literal(ScalarValue::Boolean(Some(true)))));
        let count = exprs.len();
        let other = Rel::first(other.project(exprs)?.settle()?, count);
        let other_schema = other.schema()?;
        let left_schema = rel.schema()?;
        let left_width = rel.columns.len();
        let mut on: Vec<(Phys, Phys)> =
            partition.into_iter().enumerate().map(|(i, l)| (l, at(&other_schema, i))).collect();
        let sought = plus(at(&left_schema, number), -rows);
        on.push((sought, at(&other_schema, on.len())));
        let condition = Condition { on, null_equals_null: true, residual: None };
        let joined = self.joined(rel, other, condition, JoinKind::Left)?;
        let joined_schema = joined.schema()?;
        let (value_at, found_at) = (left_width + count - 2, left_width + count - 1);
        let found = at(&joined_schema, value_at);
        let result: Phys = match params.args.get(2) {
            None => found,
            Some(default) => {
                let wanted = joined_schema.field(value_at).data_type();
                let default = cast(physical(default, schema)?, wanted, &joined_schema)?;
                let missing: Phys = Arc::new(IsNullExpr::new(at(&joined_schema, found_at)));
                case(None, vec![(missing, default)], Some(found))?
            }
        };
        keep(joined, left_width, result)
    }

    /// An aggregate over the rows of the partition whose number is within bounds of the row's own.
    fn framed(
        &mut self,
        windows: &Windows<'_>,
        function: &Function<'_>,
        mut rel: Rel,
        number: usize,
        rank: Rank,
        (from, to): (Option<i64>, Option<i64>),
    ) -> Result<Rel> {
        let schema = windows.input.schema();
        let width = schema.fields().len();
        let partition = physical_all(&function.call.params.partition_by, schema)?;
        // The rows of the frame: partition, number, position, what the call takes, and that there is a row.
        let numberings = [function.numbering(rank), function.numbering(Rank::RowNumber)];
        let distinct = if rank == Rank::RowNumber { &numberings[..1] } else { &numberings[..] };
        let frame = self.numbered(windows, distinct)?;
        let mut call = function.aggregate(schema, &frame)?;
        let frame_schema = frame.schema()?;
        let mut exprs: Vec<(String, Phys)> = partition.iter().map(|e| (text(e), e.clone())).collect();
        let partitions = exprs.len();
        exprs.push(("number".into(), at(&frame_schema, width)));
        exprs.push(("position".into(), at(&frame_schema, width + distinct.len() - 1)));
        exprs.push(("found".into(), literal(ScalarValue::Boolean(Some(true)))));
        let taken = exprs.len();
        let arguments = call.args.iter().chain(&call.filter);
        exprs.extend(arguments.map(|e| (text(e), e.clone())));
        let count = exprs.len();
        let frame = Rel::first(frame.project(exprs)?.settle()?, count);
        let frame_schema = frame.schema()?;
        // A row is found again after the join by all it has, and by what identifies it.
        let shown = rel.columns.len();
        for key in properties::stream_key(&rel.plan) {
            if rel.columns.iter().all(|c| column_index(&c.expr) != Some(key)) {
                rel.columns.push(RelColumn::of(&rel.plan.schema, key));
            }
        }
        let left_width = rel.columns.len();
        let left_schema = rel.schema()?;
        let place = |i: usize| -> Phys {
            let field = frame_schema.field(i);
            Arc::new(datafusion::physical_expr::expressions::Column::new(field.name(), left_width + i))
        };
        let bound = |op: Operator, by: i64| -> Phys {
            Arc::new(BinaryExpr::new(place(partitions), op, plus(at(&left_schema, number), by)))
        };
        let bounds = from.map(|by| bound(Operator::GtEq, by)).into_iter().chain(to.map(|by| bound(Operator::LtEq, by)));
        let residual = bounds.reduce(|a, b| Arc::new(BinaryExpr::new(a, Operator::And, b)));
        let on = partition.into_iter().enumerate().map(|(i, l)| (l, at(&frame_schema, i))).collect();
        let condition = Condition { on, null_equals_null: true, residual };
        let joined = self.joined(rel, frame, condition, JoinKind::Left)?;
        let schema = joined.schema()?;
        let found = at(&schema, left_width + partitions + 2);
        let args = call.args.len();
        call.args = (0..args).map(|i| at(&schema, left_width + taken + i)).collect();
        let filter = call.filter.is_some().then(|| at(&schema, left_width + taken + args));
        call.filter = Some(match filter {
            Some(filter) => Arc::new(BinaryExpr::new(found, Operator::And, filter)),
            None => found,
        });
        if matches!(call.function, AggFunction::FirstValue | AggFunction::LastValue) {
            call.order_by = vec![(at(&schema, left_width + partitions + 1), KeyOrder::ASC)];
        }
        let groups: Vec<(String, Phys)> =
            (0..left_width).map(|i| (schema.field(i).name().clone(), at(&schema, i))).collect();
        refuse_groups(&schema.fields()[..left_width])?;
        let mut grouped = self.grouped(joined, groups, vec![call])?;
        let result = grouped.columns.pop().ok_or_else(|| SqlError::internal("an aggregate has a result"))?;
        grouped.columns.truncate(shown);
        grouped.columns.push(result);
        Ok(grouped)
    }
}

/// The first columns, and one more.
fn keep(rel: Rel, width: usize, result: Phys) -> Result<Rel> {
    let schema = rel.schema()?;
    let mut exprs: Vec<(String, Phys)> = (0..width).map(|i| (schema.field(i).name().clone(), at(&schema, i))).collect();
    exprs.push(("value".into(), result));
    rel.project(exprs)
}

fn plus(number: Phys, by: i64) -> Phys {
    if by == 0 {
        return number;
    }
    Arc::new(BinaryExpr::new(number, Operator::Plus, literal(ScalarValue::Int64(Some(by)))))
}

fn physical_all(exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Phys>> {
    exprs.iter().map(|e| physical(e, schema)).collect()
}

/// Lists and structs have no order, so rows are not grouped by them.
fn refuse_groups(fields: &[arrow::datatypes::FieldRef]) -> Result<()> {
    let odd = fields.iter().find(|f| matches!(f.data_type(), DataType::List(_) | DataType::Struct(_)));
    match odd {
        Some(field) => Err(unsupported(format!("a window frame beside column \"{}\"", field.name()))
            .with_hint("Leave arrays and structs out of the query with the window function, and join them.")),
        None => Ok(()),
    }
}

impl<'a> Windows<'a> {
    /// The functions of a node, and of those right below it as long as they are over the same input.
    fn of(window: &'a logical::Window) -> Result<Windows<'a>> {
        let mut chain = vec![window];
        while let LogicalPlan::Window(below) = &*chain[chain.len() - 1].input {
            chain.push(below);
        }
        let input = loop {
            let input = &*chain[chain.len() - 1].input;
            let schema = input.schema();
            let over_input = |w: &&logical::Window| {
                w.window_expr.iter().flat_map(|e| e.column_refs()).all(|c| schema.is_column_from_schema(c))
            };
            if chain.len() == 1 || chain.iter().all(over_input) {
                break input;
            }
            chain.pop();
        };
        let exprs = chain.iter().rev().flat_map(|w| &w.window_expr);
        let functions = exprs.map(Function::of).collect::<Result<_>>()?;
        Ok(Windows { input, functions })
    }

    /// The numbers that the functions need, each once; not those of the one with the bound.
    fn numberings(&self, bounded: Option<usize>) -> Vec<Numbering<'a>> {
        let mut numberings: Vec<Numbering<'a>> = Vec::new();
        for (i, function) in self.functions.iter().enumerate() {
            let rank = match &function.kind {
                Kind::Rank(_) if Some(i) == bounded => continue,
                Kind::Rank(rank) => *rank,
                Kind::Total => continue,
                Kind::Shift(_) => Rank::RowNumber,
                Kind::Frame { number, .. } => *number,
            };
            let numbering = function.numbering(rank);
            if !numberings.contains(&numbering) {
                numberings.push(numbering);
            }
        }
        numberings
    }
}

impl<'a> Function<'a> {
    fn of(expr: &'a Expr) -> Result<Function<'a>> {
        let mut expr = expr;
        while let Expr::Alias(alias) = expr {
            expr = &alias.expr;
        }
        let Expr::WindowFunction(call) = expr else {
            return Err(SqlError::internal(format!("{expr} is not a window function")));
        };
        if call.params.null_treatment.is_some_and(|t| t == NullTreatment::IgnoreNulls) {
            return Err(unsupported("IGNORE NULLS"));
        }
        let kind = match &call.fun {
            WindowFunctionDefinition::WindowUDF(function) => match function.name() {
                "row_number" => Kind::Rank(Rank::RowNumber),
                "rank" => Kind::Rank(Rank::Rank),
                "dense_rank" => Kind::Rank(Rank::DenseRank),
                "lag" => Kind::Shift(shift(call)?),
                "lead" => Kind::Shift(-shift(call)?),
                "first_value" | "last_value" => frame(call)?,
                name => {
                    return Err(unsupported(format!("window function {name}")).with_hint(
                        "Views keep row_number, rank, dense_rank, lag, lead, first_value, last_value and aggregates.",
                    ));
                }
            },
            WindowFunctionDefinition::AggregateUDF(_) => frame(call)?,
        };
        Ok(Function { call, kind })
    }

    fn numbering(&self, rank: Rank) -> Numbering<'a> {
        let params = &self.call.params;
        Numbering { partition_by: &params.partition_by, order_by: &params.order_by, rank }
    }

    /// The function as an aggregate over a plan whose first columns are those of the schema.
    fn aggregate(&self, schema: &DFSchema, input: &Rel) -> Result<Call> {
        let params = &self.call.params;
        let input = input.schema()?;
        match &self.call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => {
                let args = params.args.clone();
                let filter = params.filter.clone();
                let expr = AggregateFunction::new_udf(function.clone(), args, params.distinct, filter, vec![], None);
                call(&Expr::AggregateFunction(expr), schema, &input)
            }
            WindowFunctionDefinition::WindowUDF(function) => {
                let kind = match function.name() {
                    "first_value" => AggFunction::FirstValue,
                    _ => AggFunction::LastValue,
                };
                let args = physical_all(&params.args, schema)?;
                let arg_type = args.first().map(|a| a.data_type(&input)).transpose()?;
                let output = output_type(kind, arg_type.as_ref());
                let output = output.ok_or_else(|| SqlError::internal("first_value has the type of its argument"))?;
                let name = function.name().to_string();
                Ok(Call { function: kind, args, filter: None, distinct: false, order_by: vec![], output, name })
            }
        }
    }
}

/// The second argument of lag and lead.
fn shift(call: &WindowFunction) -> Result<i64> {
    let Some(rows) = call.params.args.get(1) else { return Ok(1) };
    let value = super::super::context::literal(rows.clone(), "the number of rows of lag and lead")?;
    match value.cast_to(&DataType::Int64)? {
        ScalarValue::Int64(Some(rows)) => Ok(rows),
        _ => Err(unsupported("lag and lead by NULL rows")),
    }
}

/// What the frame of an aggregate takes in.
fn frame(call: &WindowFunction) -> Result<Kind> {
    let WindowFrame { units, start_bound, end_bound, .. } = &call.params.window_frame;
    let (from, to) = (offset(start_bound)?, offset(end_bound)?);
    let number = match units {
        _ if from.is_none() && to.is_none() => return Ok(Kind::Total),
        // Without an order all rows are peers.
        WindowFrameUnits::Range | WindowFrameUnits::Groups if call.params.order_by.is_empty() => {
            return Ok(Kind::Total);
        }
        WindowFrameUnits::Rows => Rank::RowNumber,
        WindowFrameUnits::Groups => Rank::DenseRank,
        WindowFrameUnits::Range if from.unwrap_or(0) == 0 && to.unwrap_or(0) == 0 => Rank::Rank,
        WindowFrameUnits::Range => {
            return Err(unsupported("RANGE with an offset").with_hint("Write ROWS or GROUPS, or join by a condition."));
        }
    };
    Ok(Kind::Frame { number, from, to })
}

/// Rows after the current one; `None` for all.
fn offset(bound: &WindowFrameBound) -> Result<Option<i64>> {
    let (value, sign) = match bound {
        WindowFrameBound::CurrentRow => return Ok(Some(0)),
        WindowFrameBound::Preceding(value) => (value, -1),
        WindowFrameBound::Following(value) => (value, 1),
    };
    if value.is_null() {
        return Ok(None);
    }
    match value.cast_to(&DataType::Int64)? {
        ScalarValue::Int64(Some(rows)) => Ok(Some(sign * rows)),
        _ => Err(unsupported("a window frame with an offset that is no number")),
    }
}

/// The filter under the projection that it is above.
fn below(filter: &logical::Filter, projection: &logical::Projection) -> Result<logical::Filter> {
    let outputs: Vec<_> = projection.schema.columns();
    let predicate = filter.predicate.clone().transform_up(|e| {
        let computed = match &e {
            Expr::Column(column) => outputs.iter().position(|o| o == column).map(|i| projection.expr[i].clone()),
            _ => None,
        };
        Ok(match computed {
            Some(computed) => Transformed::yes(computed.unalias()),
            None => Transformed::no(e),
        })
    })?;
    Ok(logical::Filter::try_new(predicate.data, projection.input.clone())?)
}

/// `column op number`, whichever way it is written.
fn bound(expr: &Expr, schema: &datafusion::common::DFSchema) -> Option<(usize, Operator, i64)> {
    let Expr::BinaryExpr(binary) = expr else { return None };
    let column = |e: &Expr| match without_cast(e) {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        _ => None,
    };
    let number = |e: &Expr| match without_cast(e) {
        Expr::Literal(value, _) if value.data_type().is_integer() => match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        },
        _ => None,
    };
    match (column(&binary.left), number(&binary.right)) {
        (Some(column), Some(number)) => Some((column, binary.op, number)),
        _ => Some((column(&binary.right)?, binary.op.swap()?, number(&binary.left)?)),
    }
}

fn without_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if cast.field.data_type().is_integer() => without_cast(&cast.expr),
        other => other,
    }
}
