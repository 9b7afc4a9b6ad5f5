//! ORDER BY with LIMIT, and rows numbered within partitions.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{self as logical, Expr, LogicalPlan, Operator};
use datafusion::physical_expr::expressions::Column;
use weir_common::TableDef;
use weir_common::key::{KeyOrder, SortColumn};
use weir_common::plan::{Node, Rank, StreamPlan, TopN};
use weir_stream::executor::top_n::table;

use super::super::properties;
use super::Builder;
use super::aggregate::sort_key;
use super::rel::{Phys, Rel, RelColumn, text};
use crate::error::{Result, SqlError};

/// The column of the rank.
const RANK: &str = "_rank";

/// Which rows of a partition come out.
pub(super) struct Range {
    offset: u64,
    limit: Option<u64>,
}

impl Range {
    pub(super) const ALL: Range = Range { offset: 0, limit: None };

    /// The ranks in this range for which `rank op number` is true. `None` when that is no range.
    pub(super) fn and(&self, op: Operator, number: i64) -> Option<Range> {
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

    /// The rows of each partition within a range of ranks. The rank becomes the last column.
    pub(super) fn top(
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
