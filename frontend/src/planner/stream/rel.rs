//! A stream plan in the making.
//!
//! Its columns are expressions over the columns of a plan. So projections cost nothing until somebody needs real columns,
//! and a projection of a projection is one.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result as DFResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use weir_common::plan::{Expr, Filter, Node, Project, StreamPlan};
use weir_stream::expr::Expression;

use super::super::properties;
use crate::error::{Result, SqlError};

/// An expression over the columns of a plan or a [`Rel`].
pub(in crate::planner) type Phys = Arc<dyn PhysicalExpr>;

/// A plan and the columns that are wanted of it.
#[derive(Clone)]
pub(in crate::planner) struct Rel {
    /// What the columns are computed from.
    pub(super) plan: StreamPlan,
    /// The columns of the logical node, in order.
    pub(super) columns: Vec<RelColumn>,
}

/// A column of a [`Rel`].
#[derive(Clone)]
pub(in crate::planner) struct RelColumn {
    pub(super) name: String,
    /// Over the columns of the plan.
    pub(super) expr: Phys,
}

impl Rel {
    /// The first columns of a plan.
    pub(super) fn first(plan: StreamPlan, count: usize) -> Rel {
        let columns = (0..count).map(|i| RelColumn::of(&plan.schema, i)).collect();
        Rel { plan, columns }
    }

    /// Some columns of a plan.
    pub(super) fn pick(plan: StreamPlan, indices: impl IntoIterator<Item = usize>) -> Rel {
        let columns = indices.into_iter().map(|i| RelColumn::of(&plan.schema, i)).collect();
        Rel { plan, columns }
    }

    /// Names and types of the columns.
    pub(super) fn schema(&self) -> Result<SchemaRef> {
        let fields = self.columns.iter().map(|c| c.field(&self.plan.schema)).collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Other columns, computed from the present ones. What is costly and used more than once is computed before.
    pub(super) fn project(self, exprs: Vec<(String, Phys)>) -> Result<Rel> {
        let mut uses = vec![0usize; self.columns.len()];
        for (_, expr) in &exprs {
            count_uses(expr, &mut uses)?;
        }
        let costly = |(column, uses): (&RelColumn, &usize)| *uses > 1 && !is_cheap(&column.expr);
        let rel = if self.columns.iter().zip(&uses).any(costly) { self.settled()? } else { self };
        let columns = exprs
            .into_iter()
            .map(|(name, expr)| {
                let expr = without_detour(substitute(expr, &rel.columns)?, &rel.plan.schema)?;
                Ok(RelColumn { name, expr })
            })
            .collect::<Result<_>>()?;
        Ok(Rel { plan: rel.plan, columns })
    }

    /// The rows for which a predicate over the columns is true.
    pub(super) fn filter(self, predicate: Phys) -> Result<Rel> {
        let mut uses = vec![0usize; self.columns.len()];
        count_uses(&predicate, &mut uses)?;
        let costly = |(column, uses): (&RelColumn, &usize)| *uses > 0 && !is_cheap(&column.expr);
        let rel = if self.columns.iter().zip(&uses).any(costly) { self.settled()? } else { self };
        let predicate = encode(&without_detour(substitute(predicate, &rel.columns)?, &rel.plan.schema)?)?;
        let schema = rel.plan.schema.clone();
        let node = Node::Filter(Filter { input: Box::new(rel.plan), predicate });
        Ok(Rel { plan: StreamPlan { schema, node }, columns: rel.columns })
    }

    /// Adds the expressions as columns where they are not, and tells which columns they are.
    pub(super) fn ensure(&mut self, exprs: &[(String, Phys)]) -> Result<Vec<usize>> {
        let present = self.columns.len();
        let mut indices = Vec::with_capacity(exprs.len());
        for (name, expr) in exprs {
            let substituted = substitute(expr.clone(), &self.columns[..present])?;
            let found = self.columns.iter().position(|c| same(&c.expr, &substituted));
            indices.push(found.unwrap_or_else(|| {
                self.columns.push(RelColumn { name: name.clone(), expr: substituted });
                self.columns.len() - 1
            }));
        }
        Ok(indices)
    }

    /// A plan whose columns are these, in order, then those that its rows are identified by and that are not among them.
    pub(in crate::planner) fn settle(mut self) -> Result<StreamPlan> {
        for key in properties::stream_key(&self.plan) {
            let wanted = RelColumn::of(&self.plan.schema, key);
            if self.columns.iter().all(|c| !same(&c.expr, &wanted.expr)) {
                self.columns.push(wanted);
            }
        }
        self.settle_exactly()
    }

    /// A plan whose columns are these and no others: what is above must not need the stream key.
    pub(in crate::planner) fn settle_exactly(mut self) -> Result<StreamPlan> {
        self.drop_unused_rank()?;
        let width = self.plan.schema.fields().len();
        let is_identity = self.columns.len() == width
            && self.columns.iter().enumerate().all(|(i, c)| column_index(&c.expr) == Some(i));
        if is_identity {
            let names = self.columns.iter().map(|c| c.name.clone()).collect();
            return Ok(rename(self.plan, names));
        }
        let schema = self.schema()?;
        let exprs = self.columns.iter().map(|c| encode(&c.expr)).collect::<Result<_>>()?;
        let node = Node::Project(Project { input: Box::new(self.plan), exprs });
        Ok(StreamPlan { schema, node })
    }

    /// A rank that nothing is computed from is not emitted: rows whose rank shifts stay as they are.
    fn drop_unused_rank(&mut self) -> Result<()> {
        let width = self.plan.schema.fields().len();
        let Node::TopN(top_n) = &mut self.plan.node else { return Ok(()) };
        let mut uses = vec![0usize; width];
        for column in &self.columns {
            count_uses(&column.expr, &mut uses)?;
        }
        if top_n.emit_rank && uses[width - 1] == 0 {
            top_n.emit_rank = false;
            self.plan.schema = Arc::new(Schema::new(self.plan.schema.fields()[..width - 1].to_vec()));
        }
        Ok(())
    }

    /// The same columns, real ones.
    pub(super) fn settled(self) -> Result<Rel> {
        let count = self.columns.len();
        Ok(Rel::first(self.settle()?, count))
    }

    /// Casts columns whose type is not the wanted one.
    pub(super) fn with_types<'a>(mut self, types: impl Iterator<Item = &'a DataType>) -> Result<Rel> {
        for (column, wanted) in self.columns.iter_mut().zip(types) {
            let present = column.expr.data_type(&self.plan.schema)?;
            if present != *wanted {
                column.expr = cast(column.expr.clone(), wanted, &self.plan.schema)?;
            }
        }
        Ok(self)
    }

    /// Other names for the columns.
    pub(in crate::planner) fn with_names(mut self, names: impl Iterator<Item = String>) -> Rel {
        for (column, name) in self.columns.iter_mut().zip(names) {
            column.name = name;
        }
        self
    }
}

impl RelColumn {
    pub(super) fn of(schema: &SchemaRef, i: usize) -> RelColumn {
        let name = schema.field(i).name();
        RelColumn { name: name.clone(), expr: Arc::new(Column::new(name, i)) }
    }

    /// Every expression may be NULL in a running view: on rows where it fails.
    fn field(&self, input: &SchemaRef) -> Result<Field> {
        let nullable = match column_index(&self.expr) {
            Some(i) => input.field(i).is_nullable(),
            None => match self.expr.downcast_ref::<Literal>() {
                Some(literal) => literal.value().is_null(),
                None => true,
            },
        };
        Ok(Field::new(&self.name, self.expr.data_type(input)?, nullable))
    }
}

/// The plan with other names for its columns. Names are for people only, so they are changed where the columns arise as
/// far as that is a projection or the like, and kept where the table of a relation says them.
fn rename(mut plan: StreamPlan, names: Vec<String>) -> StreamPlan {
    if let Node::Scan(_) | Node::Filter(_) = plan.node {
        return plan;
    }
    let fields = plan.schema.fields().iter().zip(names);
    plan.schema = Arc::new(Schema::new(fields.map(|(f, n)| f.as_ref().clone().with_name(n)).collect::<Vec<_>>()));
    plan
}

/// The expression as people read it.
pub(super) fn text(expr: &Phys) -> String {
    fmt_sql(expr.as_ref()).to_string()
}

/// The expression as the plan keeps it.
pub(in crate::planner) fn encode(expr: &Phys) -> Result<Expr> {
    Expression::encode(expr).map_err(|e| SqlError::internal(format!("cannot keep expression {expr}: {e}")))
}

/// The column that an expression is, if it is just a column.
pub(super) fn column_index(expr: &Phys) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// The expression with another type.
pub(super) fn cast(expr: Phys, wanted: &DataType, input: &SchemaRef) -> Result<Phys> {
    if expr.data_type(input)? == *wanted {
        return Ok(expr);
    }
    without_detour(Arc::new(CastExpr::new(expr, wanted.clone(), None)), input)
}

/// Without casts to a type that DataFusion declares and back to the one that is computed: an unsigned number for a rank, a
/// large string for `string_agg`.
fn without_detour(expr: Phys, input: &SchemaRef) -> Result<Phys> {
    let simplified: DFResult<_> = expr.transform_up(|e| {
        let Some(outer) = e.downcast_ref::<CastExpr>() else { return Ok(Transformed::no(e)) };
        let Some(inner) = outer.expr().downcast_ref::<CastExpr>() else { return Ok(Transformed::no(e)) };
        let (from, over) = (inner.expr().data_type(input)?, outer.expr().data_type(input)?);
        let is_detour = match (&from, &over) {
            (DataType::Int64, DataType::UInt64) | (DataType::Utf8, DataType::LargeUtf8) => true,
            (DataType::Decimal128(_, s), DataType::Decimal128(_, more)) => more >= s,
            _ => false,
        };
        if is_detour && e.data_type(input)? == from {
            return Ok(Transformed::yes(inner.expr().clone()));
        }
        Ok(Transformed::no(e))
    });
    Ok(simplified?.data)
}

/// Whether two expressions compute the same.
fn same(a: &Phys, b: &Phys) -> bool {
    a.as_ref() == b.as_ref()
}

/// Worth computing again instead of once before.
fn is_cheap(expr: &Phys) -> bool {
    expr.is::<Column>() || expr.is::<Literal>()
}

fn count_uses(expr: &Phys, uses: &mut [usize]) -> Result<()> {
    use datafusion::common::tree_node::TreeNodeRecursion;
    expr.apply(|e| {
        if let Some(i) = column_index(e)
            && let Some(uses) = uses.get_mut(i)
        {
            *uses += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The expression over columns, as one over what these are computed from.
fn substitute(expr: Phys, columns: &[RelColumn]) -> Result<Phys> {
    let replaced: DFResult<_> = expr.transform_down(|e| {
        Ok(match column_index(&e).and_then(|i| columns.get(i)) {
            // Jump: what is put in is over other columns.
            Some(column) => {
                let skip = datafusion::common::tree_node::TreeNodeRecursion::Jump;
                Transformed::new(column.expr.clone(), true, skip)
            }
            None => Transformed::no(e),
        })
    });
    Ok(replaced?.data)
}

/// The expression with each column moved to another place.
pub(super) fn remap(expr: Phys, place: impl Fn(usize) -> usize) -> Result<Phys> {
    let moved: DFResult<_> = expr.transform_up(|e| {
        Ok(match e.downcast_ref::<Column>() {
            Some(column) => {
                let moved = Column::new(column.name(), place(column.index()));
                Transformed::yes(Arc::new(moved) as Phys)
            }
            None => Transformed::no(e),
        })
    });
    Ok(moved?.data)
}
