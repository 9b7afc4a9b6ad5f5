//! Where a column of a result comes from.

use std::any::Any;

use arrow::datatypes::DataType;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan};

use crate::planner::RelationTable;

/// The stored column behind a column of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Origin {
    /// Oid of the relation and number of the column.
    pub table: Option<(u32, i16)>,
    /// The scale that a numeric was declared with, by its column or a cast.
    pub scale: Option<i8>,
}

/// The origin of column `i` of a plan.
pub(super) fn of(plan: &LogicalPlan, i: usize) -> Origin {
    let scale = match plan.schema().fields().get(i).map(|f| f.data_type()) {
        Some(DataType::Decimal128(_, scale)) => Some(*scale),
        _ => None,
    };
    let (mut plan, mut i) = (plan, i);
    loop {
        match plan {
            LogicalPlan::Projection(projection) => {
                let Some(expr) = projection.expr.get(i) else { return Origin::default() };
                let column = match unalias(expr) {
                    Expr::Column(column) => column,
                    Expr::Cast(_) => return Origin { table: None, scale },
                    Expr::ScalarFunction(call) if call.name() == "pg_cast" => return Origin { table: None, scale },
                    // The minus of `-1.5::numeric(4, 2)` stands before a cast.
                    Expr::Negative(inner) if is_cast(inner) => return Origin { table: None, scale },
                    _ => return Origin::default(),
                };
                let Some(index) = projection.input.schema().maybe_index_of_column(column) else {
                    return Origin::default();
                };
                (plan, i) = (&projection.input, index);
            }
            LogicalPlan::Filter(filter) => plan = &filter.input,
            LogicalPlan::Sort(sort) => plan = &sort.input,
            LogicalPlan::Limit(limit) => plan = &limit.input,
            LogicalPlan::SubqueryAlias(alias) => plan = &alias.input,
            LogicalPlan::Distinct(Distinct::All(input)) => plan = input,
            LogicalPlan::Join(join) => {
                let left = join.left.schema().fields().len();
                match join.join_type {
                    JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full if i >= left => {
                        (plan, i) = (&join.right, i - left);
                    }
                    JoinType::RightSemi | JoinType::RightAnti => plan = &join.right,
                    _ if i < left => plan = &join.left,
                    _ => return Origin::default(),
                }
            }
            LogicalPlan::TableScan(scan) => {
                let Ok(provider) = source_as_provider(&scan.source) else { return Origin::default() };
                let any: &dyn Any = provider.as_ref();
                let Some(table) = any.downcast_ref::<RelationTable>() else { return Origin::default() };
                let i = scan.projection.as_ref().map_or(Some(i), |p| p.get(i).copied());
                let column = i.and_then(|i| table.columns().get(i).copied());
                let computed = column.and_then(|c| table.object().columns.get(c)).is_some_and(|c| c.computed);
                let scale = scale.filter(|_| !computed);
                let number = column.and_then(|c| i16::try_from(c + 1).ok());
                return Origin { table: number.map(|n| (table.object().id.0, n)), scale };
            }
            _ => return Origin::default(),
        }
    }
}

fn is_cast(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(_) => true,
        Expr::ScalarFunction(call) => call.name() == "pg_cast",
        _ => false,
    }
}

fn unalias(expr: &Expr) -> &Expr {
    let mut expr = expr;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    expr
}
