//! `FROM t, unnest(t.list)`: a lateral item that only computes with the row before it needs no join.
//!
//! ```text
//! Join                                   Projection t.*, x
//!   t                                      Unnest list
//!   Subquery                       ──>       Projection t.*, t.list AS list
//!     Unnest list                              t
//!       Projection outer(t.list) AS list
//!         EmptyRelation (one row)
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result, TableReference};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, Unnest};

/// The join's result without a join, if its right side is of this kind.
pub(super) fn inline(join: &Join) -> Result<Option<LogicalPlan>> {
    let (subquery, alias) = match &*join.right {
        LogicalPlan::Subquery(subquery) => (subquery, None),
        LogicalPlan::SubqueryAlias(alias) => match &*alias.input {
            LogicalPlan::Subquery(subquery) => (subquery, Some(&alias.alias)),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let keeps_unmatched = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left if join.on.is_empty() && is_true(join.filter.as_ref()) => true,
        _ => return Ok(None),
    };
    // A filter would drop what the join is to keep.
    if !join.on.is_empty() || !computes_only(&subquery.subquery, !keeps_unmatched) {
        return Ok(None);
    }
    let left = Arc::unwrap_or_clone(join.left.clone());
    let kept: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
    let over = Over { kept, keeps_unmatched };
    let plan = over.place(&subquery.subquery, left)?;
    let plan = qualified(plan, &over.kept, subquery, alias)?;
    let plan = match &join.filter {
        Some(filter) if !is_true(Some(filter)) => LogicalPlanBuilder::from(plan).filter(filter.clone())?.build()?,
        _ => plan,
    };
    Ok(Some(plan))
}

fn is_true(filter: Option<&Expr>) -> bool {
    use datafusion::common::ScalarValue;
    matches!(filter, None | Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _)))
}

/// Whether the plan is made of steps that compute row by row, on top of a single row.
fn computes_only(plan: &LogicalPlan, may_filter: bool) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Projection(projection) => computes_only(&projection.input, may_filter),
        LogicalPlan::Unnest(unnest) => computes_only(&unnest.input, may_filter),
        LogicalPlan::SubqueryAlias(alias) => computes_only(&alias.input, may_filter),
        LogicalPlan::Filter(filter) => may_filter && computes_only(&filter.input, may_filter),
        _ => false,
    }
}

/// Steps over the rows of another plan, whose columns are kept.
struct Over {
    kept: Vec<Expr>,
    keeps_unmatched: bool,
}

impl Over {
    fn place(&self, plan: &LogicalPlan, left: LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::EmptyRelation(_) => Ok(left),
            LogicalPlan::Projection(projection) => {
                let input = self.place(&projection.input, left)?;
                let computed = projection.expr.iter().map(|e| {
                    let name = e.schema_name().to_string();
                    let inner = inside(e.clone())?;
                    Ok(if matches!(inner, Expr::Column(_) | Expr::Alias(_)) { inner } else { inner.alias(name) })
                });
                let computed = computed.collect::<Result<Vec<_>>>()?;
                let exprs = self.kept.iter().cloned().chain(computed).collect::<Vec<_>>();
                Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
            }
            LogicalPlan::Unnest(unnest) => {
                let input = self.place(&unnest.input, left)?;
                let options = unnest.options.clone().with_preserve_nulls(self.keeps_unmatched);
                Ok(LogicalPlan::Unnest(Unnest::try_new(Arc::new(input), unnest.exec_columns.clone(), options)?))
            }
            LogicalPlan::Filter(filter) => {
                let input = self.place(&filter.input, left)?;
                LogicalPlanBuilder::from(input).filter(inside(filter.predicate.clone())?)?.build()
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let input = self.place(&alias.input, left)?;
                requalified(input, &self.kept, &alias.input, &alias.alias)
            }
            other => Ok(other.clone()),
        }
    }
}

/// References to the outer query are to the input now.
fn inside(expr: Expr) -> Result<Expr> {
    expr.transform_up(|e| {
        Ok(match e {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    })
    .data()
}

fn qualified(
    plan: LogicalPlan,
    kept: &[Expr],
    subquery: &Subquery,
    alias: Option<&TableReference>,
) -> Result<LogicalPlan> {
    match alias {
        Some(alias) => requalified(plan, kept, &subquery.subquery, alias),
        None => Ok(plan),
    }
}

/// The columns that are not kept ones, under another qualifier.
fn requalified(plan: LogicalPlan, kept: &[Expr], inner: &LogicalPlan, alias: &TableReference) -> Result<LogicalPlan> {
    let renamed = inner.schema().columns().into_iter().map(|column| {
        let name = column.name.clone();
        Expr::Column(column).alias_qualified(Some(alias.clone()), name)
    });
    let exprs: Vec<Expr> = kept.iter().cloned().chain(renamed).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
}
