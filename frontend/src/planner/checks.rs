//! What PostgreSQL refuses, but the binder lets pass.

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Union};
use weir_common::{SqlState, SqlType};

use crate::error::{SqlError, type_name};

/// Window functions where no rows are to be seen yet.
const WINDOWING_ERROR: SqlState = SqlState("42P20");

/// Refuses windows in conditions, aggregates of aggregates, and set operations of types that do not go together.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        refused = match node {
            LogicalPlan::Filter(filter) => condition(&filter.predicate),
            LogicalPlan::Aggregate(aggregate) => {
                aggregate.aggr_expr.iter().find_map(|e| nested(e).or_else(|| outer(e)))
            }
            LogicalPlan::Union(union) => mixed(union),
            _ => None,
        };
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

fn condition(predicate: &Expr) -> Option<SqlError> {
    contains(predicate, |e| matches!(e, Expr::WindowFunction(_)))
        .then(|| SqlError::new(WINDOWING_ERROR, "window functions are not allowed in WHERE"))
}

fn nested(expr: &Expr) -> Option<SqlError> {
    let mut aggregates = 0;
    contains(expr, |e| {
        aggregates += usize::from(matches!(e, Expr::AggregateFunction(_)));
        aggregates > 1
    })
    .then(|| SqlError::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested"))
}

/// In SQL, an aggregate over columns of an outer query alone is one of that query.
fn outer(expr: &Expr) -> Option<SqlError> {
    let is_outer = |e: &Expr| matches!(e, Expr::OuterReferenceColumn(..));
    let mut found = None;
    contains(expr, |e| {
        if let Expr::AggregateFunction(call) = e {
            let over_outer = call.params.args.iter().any(|a| contains(a, is_outer));
            let over_own = call.params.args.iter().any(|a| contains(a, |e| matches!(e, Expr::Column(_))));
            if over_outer && !over_own {
                found = Some(
                    SqlError::unsupported("an aggregate function over columns of an outer query alone")
                        .with_hint("Aggregate a column of the subquery, or move the aggregate to the outer query."),
                );
            }
        }
        found.is_some()
    });
    found
}

fn contains(expr: &Expr, mut found: impl FnMut(&Expr) -> bool) -> bool {
    expr.exists(|e| Ok(found(e))).unwrap_or(false)
}

fn mixed(union: &Union) -> Option<SqlError> {
    let first = union.inputs.first()?;
    for input in &union.inputs[1..] {
        let pairs = first.schema().fields().iter().zip(input.schema().fields());
        for (a, b) in pairs.map(|(a, b)| (a.data_type(), b.data_type())) {
            if !alike(a, b) {
                let message = format!("UNION types {} and {} cannot be matched", type_name(a), type_name(b));
                return Some(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
            }
        }
    }
    None
}

/// Whether values of two types can be compared or stand in one column. A text may be a literal, which takes any type.
pub(super) fn alike(a: &DataType, b: &DataType) -> bool {
    match (family(a), family(b)) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

/// Types of which values are compared with each other. `None`: any may be.
fn family(data_type: &DataType) -> Option<u8> {
    Some(match SqlType::from_arrow(data_type)? {
        SqlType::Boolean => 0,
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => 1,
        SqlType::Real | SqlType::Double | SqlType::Numeric(_) => 1,
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => 2,
        SqlType::Time => 3,
        SqlType::Interval => 4,
        _ => return None,
    })
}
