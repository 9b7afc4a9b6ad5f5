//! ORDER BY with LIMIT, and rows numbered by window functions.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    self as logical, Expr, LogicalPlan, Operator, WindowFunctionDefinition, expr::WindowFunction,
};
use datafusion::physical_expr::expressions::Column;
use weir_common::TableDef;
use weir_common::key::{KeyOrder, SortColumn};
use weir_common::plan::{Node, Rank, StreamPlan, TopN};
use weir_stream::executor::top_n::table;

use super::super::properties;
use super::aggregate::sort_key;
use super::rel::{Phys, Rel, RelColumn, text};
use super::{Builder, physical, unsupported};
use crate::error::{Result, SqlError};

/// The column of the rank.
const RANK: &str = "_rank";

/// Which rows of a partition come out.
struct Range {
    offset: u64,
    limit: Option<u64>,
}

impl Range {
    const ALL: Range = Range { offset: 0, limit: None };

    /// The ranks in this range for which `rank op number` is true. `None` when that is no range.
    fn and(&self, op: Operator, number: i64) -> Option<Range> {
        let (mut low, mut high) = (self.offset as i64, self.limit.map(|l| (self.offset + l) as i64));
        let mut at_most = |n: i64| high = Some(high.map_or(n, |h| h.min(n)));
        match op {
            Operator::LtEq => at_most(number),
            Operator::Lt => at_most(number.saturating_sub(1)),
            Operator::Eq => {
                at_most(number);
                low = low.max(number.saturating_sub(1));
            }
            Operator::Gt => low = low.max(number),
            Operator::GtEq => low = low.max(number.saturating_sub(1)),
            _ => return None,
        }
        let offset = low.max(0) as u64;
        Some(Range { offset, limit: high.map(|h| (h.max(0) as u64).saturating_sub(offset)) })
    }
}

impl Builder {
    pub(super) fn limit(&mut self, limit: &logical::Limit) -> Result<Rel> {
        let offset = number(limit.skip.as_deref(), "OFFSET")?.unwrap_or(0);
        let fetch = number(limit.fetch.as_deref(), "LIMIT")?;
        // A projection may stand between, to drop what was only sorted by.
        match &*limit.input {
            LogicalPlan::Sort(sort) => self.sorted(sort, offset, fetch),
            LogicalPlan::Projection(projection) if matches!(&*projection.input, LogicalPlan::Sort(_)) => {
                let LogicalPlan::Sort(sort) = &*projection.input else {
                    return Err(SqlError::internal("a sort is a sort"));
                };
                let sorted = self.sorted(sort, offset, fetch)?;
                let schema = projection.input.schema();
                let exprs = projection.expr.iter().map(|e| super::named(e, schema)).collect::<Result<Vec<_>>>()?;
                sorted.project(exprs)
            }
            input => {
                let input = self.plan(input)?;
                let width = input.columns.len();
                let mut top = self.top(input, &[], &[], Range { offset, limit: fetch }, Rank::RowNumber)?;
                top.columns.truncate(width);
                Ok(top)
            }
        }
    }

    pub(super) fn sorted(&mut self, sort: &logical::Sort, offset: u64, fetch: Option<u64>) -> Result<Rel> {
        let limit = [fetch, sort.fetch.map(|f| (f as u64).saturating_sub(offset))].into_iter().flatten().min();
        let input = self.plan(&sort.input)?;
        let schema = sort.input.schema();
        let order = sort.expr.iter().map(|s| sort_key(s, schema)).collect::<Result<Vec<_>>>()?;
        let width = input.columns.len();
        let mut top = self.top(input, &[], &order, Range { offset, limit }, Rank::RowNumber)?;
        top.columns.truncate(width);
        Ok(top)
    }

    /// Window functions: each adds a column that numbers the rows.
    pub(super) fn window(&mut self, window: &logical::Window) -> Result<Rel> {
        let mut rel = self.plan(&window.input)?;
        for expr in &window.window_expr {
            rel = self.numbered(rel, expr, &window.input, Range::ALL)?;
        }
        Ok(rel)
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
        let first = window.input.schema().fields().len();
        let schema = filter.input.schema();
        // The function that the filter bounds, its range, and the rest of the filter.
        let mut bounded: Option<usize> = None;
        let mut range = Range::ALL;
        let mut rest: Vec<&Expr> = Vec::new();
        for conjunct in split_conjunction(&filter.predicate) {
            let bound = bound(conjunct, schema).filter(|(column, ..)| *column >= first);
            let narrowed = bound.and_then(|(column, op, number)| {
                let same = bounded.is_none_or(|b| b == column - first);
                same.then(|| range.and(op, number)).flatten().map(|r| (column - first, r))
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
        // The bounded one last: the others number all rows.
        let mut rel = self.plan(&window.input)?;
        let others = window.window_expr.iter().enumerate().filter(|(i, _)| *i != bounded);
        for (_, expr) in others {
            rel = self.numbered(rel, expr, &window.input, Range::ALL)?;
        }
        rel = self.numbered(rel, &window.window_expr[bounded], &window.input, range)?;
        let rank = rel.columns.pop().ok_or_else(|| SqlError::internal("a numbered plan has a number"))?;
        rel.columns.insert(first + bounded, rank);
        let types: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let rel = rel.with_types(types.iter())?;
        match rest.into_iter().cloned().reduce(Expr::and) {
            Some(rest) => Ok(Some(rel.filter(physical(&rest, schema)?)?)),
            None => Ok(Some(rel)),
        }
    }

    /// Adds the column of a window function over the columns of `input`, which are the first of the plan's.
    fn numbered(&mut self, rel: Rel, expr: &Expr, input: &LogicalPlan, range: Range) -> Result<Rel> {
        let mut expr = expr;
        while let Expr::Alias(alias) = expr {
            expr = &alias.expr;
        }
        let Expr::WindowFunction(function) = expr else {
            return Err(SqlError::internal(format!("{expr} is not a window function")));
        };
        let rank = rank(function)?;
        let schema = input.schema();
        let partition = function.params.partition_by.iter().map(|e| physical(e, schema)).collect::<Result<Vec<_>>>()?;
        let order = function.params.order_by.iter().map(|s| sort_key(s, schema)).collect::<Result<Vec<_>>>()?;
        self.top(rel, &partition, &order, range, rank)
    }

    /// The rows of each partition within a range of ranks. The rank becomes the last column.
    fn top(
        &mut self,
        mut input: Rel,
        partition: &[Phys],
        order: &[(Phys, KeyOrder)],
        range: Range,
        rank: Rank,
    ) -> Result<Rel> {
        let width = input.columns.len();
        let named = |e: &Phys| (text(e), e.clone());
        let partition_by = input.ensure(&partition.iter().map(named).collect::<Vec<_>>())?;
        let order_at = input.ensure(&order.iter().map(|(e, _)| named(e)).collect::<Vec<_>>())?;
        let order_by = sort_columns(&partition_by, &order_at, order);
        let plan = input.settle()?;
        let (plan, spread_by) = self.together(plan, &partition_by);
        let key = properties::stream_key(&plan);
        let rows = table(&plan.schema, &key, &partition_by, &order_by, self.table_id());
        let rows = TableDef { distribution: spread_by, ..rows };
        let mut fields = plan.schema.fields().to_vec();
        fields.push(Arc::new(Field::new(RANK, DataType::Int64, false)));
        let rank_at = fields.len() - 1;
        let node = TopN {
            input: Box::new(plan),
            partition_by,
            order_by,
            offset: range.offset,
            limit: range.limit,
            rank,
            emit_rank: true,
            rows,
        };
        let plan = StreamPlan { schema: Arc::new(Schema::new(fields)), node: Node::TopN(node) };
        let mut rel = Rel::first(plan, width);
        rel.columns.push(RelColumn { name: RANK.into(), expr: Arc::new(Column::new(RANK, rank_at)) });
        Ok(rel)
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

/// The order, without columns that are constant within a partition or sorted by already.
fn sort_columns(partition_by: &[usize], places: &[usize], order: &[(Phys, KeyOrder)]) -> Vec<SortColumn> {
    let mut columns: Vec<SortColumn> = Vec::new();
    for (column, (_, order)) in places.iter().zip(order) {
        if !partition_by.contains(column) && columns.iter().all(|c| c.column != *column) {
            columns.push(SortColumn { column: *column, order: *order });
        }
    }
    columns
}

fn rank(function: &WindowFunction) -> Result<Rank> {
    let name = match &function.fun {
        WindowFunctionDefinition::WindowUDF(function) => function.name(),
        WindowFunctionDefinition::AggregateUDF(function) => function.name(),
    };
    match name {
        "row_number" => Ok(Rank::RowNumber),
        "rank" => Ok(Rank::Rank),
        "dense_rank" => Ok(Rank::DenseRank),
        _ => Err(unsupported(format!("window function {name}")).with_hint(
            "Views keep row_number, rank and dense_rank. An aggregate over a whole partition can be joined.",
        )),
    }
}

/// A constant number of rows.
fn number(expr: Option<&Expr>, what: &str) -> Result<Option<u64>> {
    let Some(expr) = expr else { return Ok(None) };
    let value = super::super::context::literal(expr.clone(), what)?.cast_to(&DataType::Int64)?;
    match value {
        ScalarValue::Int64(Some(n)) if n >= 0 => Ok(Some(n as u64)),
        ScalarValue::Int64(None) => Ok(None),
        _ => Err(SqlError::new(weir_common::SqlState("2201W"), format!("{what} must not be negative"))),
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn comparisons_narrow_the_range() {
        let check = |bounds: &[(Operator, i64)], expected: (u64, Option<u64>)| {
            let range = bounds.iter().fold(Range::ALL, |r, (op, n)| r.and(*op, *n).unwrap());
            assert_eq!((range.offset, range.limit), expected, "{bounds:?}");
        };
        check(&[(Operator::LtEq, 3)], (0, Some(3)));
        check(&[(Operator::Lt, 3)], (0, Some(2)));
        check(&[(Operator::Eq, 3)], (2, Some(1)));
        check(&[(Operator::Gt, 2), (Operator::LtEq, 5)], (2, Some(3)));
        check(&[(Operator::GtEq, 2)], (1, None));
        check(&[(Operator::Lt, 1)], (0, Some(0)));
        check(&[(Operator::Eq, 0)], (0, Some(0)));
        check(&[(Operator::Eq, 2), (Operator::Eq, 3)], (2, Some(0)));
        check(&[(Operator::Gt, 5), (Operator::Lt, 3)], (5, Some(0)));
        assert!(Range::ALL.and(Operator::NotEq, 1).is_none());
    }
}
