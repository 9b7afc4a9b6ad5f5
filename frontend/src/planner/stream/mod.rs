//! From the optimized logical plan to a stream plan.
//!
//! Each node of the logical plan becomes a [`Rel`] whose columns are the node's, in order and of the same types. What a
//! stream plan needs besides, the columns that identify rows, is added where a plan is settled, behind those.
//!
//! | logical node | stream plan | file |
//! |---|---|---|
//! | TableScan, Values, EmptyRelation | Scan, Source, Values | `leaf` |
//! | Projection, Filter, SubqueryAlias | columns of the [`Rel`], Filter | here |
//! | Aggregate, Distinct | Aggregate; several grouping sets: a Union of them | `aggregate` |
//! | Join | Join, with Projects below that compute keys | `join` |
//! | Limit, Sort | TopN | `top_n` |
//! | Window | TopN, and joins with numbered rows | `over` |
//! | Union, Unnest | Union, Unnest | `set` |

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use datafusion::physical_expr::create_physical_expr;
use weir_common::TableId;
use weir_common::plan::{Distribution, Exchange, Node, StreamPlan};

use super::names::short as shown;
use super::properties;
use crate::error::{Result, SqlError};

mod aggregate;
mod join;
mod leaf;
mod over;
mod rel;
mod set;
mod top_n;

pub(super) use rel::{Phys, Rel, encode};

/// Makes stream plans.
#[derive(Default)]
pub(super) struct Builder {
    next_id: u32,
}

impl Builder {
    /// A number for a state table, unique within the job until its tables get their ids.
    pub(super) fn table_id(&mut self) -> TableId {
        self.next_id += 1;
        TableId(self.next_id)
    }

    /// The stream plan of an optimized query.
    pub(super) fn plan(&mut self, plan: &LogicalPlan) -> Result<Rel> {
        let rel = self.node(plan)?;
        let width = plan.schema().fields().len();
        assert_eq!(rel.columns.len(), width, "a stream plan has the columns of its logical node");
        let rel = rel.with_names(plan.schema().fields().iter().map(|f| shown(f.name()).to_string()));
        rel.with_types(plan.schema().fields().iter().map(|f| f.data_type()))
    }

    fn node(&mut self, plan: &LogicalPlan) -> Result<Rel> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::EmptyRelation(empty) => self.empty(empty),
            LogicalPlan::SubqueryAlias(alias) => self.plan(&alias.input),
            LogicalPlan::Projection(projection) => {
                let input = self.plan(&projection.input)?;
                let schema = projection.input.schema();
                let exprs = projection.expr.iter().map(|e| named(e, schema)).collect::<Result<Vec<_>>>()?;
                input.project(exprs)
            }
            LogicalPlan::Filter(filter) => {
                if let Some(rel) = self.ranked(filter)? {
                    return Ok(rel);
                }
                let input = self.plan(&filter.input)?;
                input.filter(physical(&filter.predicate, filter.input.schema())?)
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Distinct(Distinct::On(_)) => {
                Err(SqlError::internal("DISTINCT ON is a window function by now"))
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Limit(limit) => self.limit(limit),
            // Rows of a relation have no order; what needs one says so itself.
            LogicalPlan::Sort(sort) => match sort.fetch {
                Some(fetch) => self.sorted(sort, 0, Some(fetch as u64)),
                None => self.plan(&sort.input),
            },
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            LogicalPlan::Repartition(repartition) => self.plan(&repartition.input),
            LogicalPlan::Subquery(_) => Err(unsupported("a LATERAL subquery of this kind")
                .with_hint("Write it as a join, or with an aggregate and equalities with columns outside.")),
            LogicalPlan::RecursiveQuery(_) => Err(unsupported("WITH RECURSIVE")),
            LogicalPlan::Extension(extension) => Err(unsupported(extension.node.name())),
            LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::DescribeTable(_) => Err(unsupported("a statement that is no query")),
        }
    }

    /// The rows of a key at one actor.
    fn hashed(&self, plan: StreamPlan, columns: &[usize]) -> StreamPlan {
        if columns.is_empty() {
            return self.single(plan);
        }
        self.spread(plan, Distribution::Hash(columns.to_vec()))
    }

    /// The rows that are equal in these columns at one actor, moved only where needed: rows that are spread by some of the
    /// columns stay. Also tells the columns that they are spread by, as state tables must be.
    fn together(&self, plan: StreamPlan, columns: &[usize]) -> (StreamPlan, Vec<usize>) {
        let fits = properties::distributions(&plan).into_iter().find_map(|way| match way {
            Distribution::Hash(by) if by.iter().all(|c| columns.contains(c)) => Some(by),
            _ => None,
        });
        match fits {
            Some(by) => (plan, by),
            None => (self.hashed(plan, columns), columns.to_vec()),
        }
    }

    /// All rows at one actor.
    fn single(&self, plan: StreamPlan) -> StreamPlan {
        self.spread(plan, Distribution::Single)
    }

    /// The rows of a key at one actor, which may be the same for all.
    pub(super) fn spread(&self, plan: StreamPlan, wanted: Distribution) -> StreamPlan {
        if properties::distributions(&plan).contains(&wanted) {
            return plan;
        }
        let schema = plan.schema.clone();
        StreamPlan { schema, node: Node::Exchange(Exchange { input: Box::new(plan), distribution: wanted }) }
    }
}

/// What a view cannot do.
pub(super) fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(format!("{what} in a materialized view or sink"))
}

/// The physical expression over the columns of a logical schema.
pub(super) fn physical(expr: &Expr, schema: &DFSchema) -> Result<Phys> {
    refuse_subqueries(expr)?;
    Ok(create_physical_expr(expr, schema, &ExecutionProps::new())?)
}

fn named(expr: &Expr, schema: &DFSchema) -> Result<(String, Phys)> {
    Ok((shown(&expr.schema_name().to_string()).to_string(), physical(expr, schema)?))
}

/// Subqueries that decorrelation left in place.
fn refuse_subqueries(expr: &Expr) -> Result<()> {
    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
    let mut found = None;
    expr.apply(|e| {
        found = match e {
            Expr::Exists(_) => Some("EXISTS here"),
            Expr::InSubquery(_) => Some("IN (subquery) here"),
            Expr::ScalarSubquery(_) => Some("a scalar subquery here"),
            Expr::SetComparison(_) => Some("a comparison with ANY or ALL of a subquery here"),
            Expr::OuterReferenceColumn(..) => Some("a reference to an outer query here"),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    })?;
    match found {
        Some(what) => Err(unsupported(what)
            .with_hint("Subqueries are kept in WHERE and, if scalar, in SELECT; elsewhere write a join.")),
        None => Ok(()),
    }
}

/// A constant column.
fn literal(value: datafusion::common::ScalarValue) -> Phys {
    Arc::new(datafusion::physical_expr::expressions::Literal::new(value))
}
