//! Joins, and what decorrelation makes of subqueries.
//!
//! | DataFusion's join | here |
//! |---|---|
//! | Inner, Left, Right, Full, LeftSemi, LeftAnti | the same |
//! | RightSemi, RightAnti | sides exchanged |
//! | LeftMark: a column that says whether there is a match | Left join with the distinct keys of the right side |
//! | LeftAnti, null-aware: `x NOT IN (…)` | LeftAnti, then what NULL means, from two counts of the right side |

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, JoinType, NullEquality, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Join as LogicalJoin, LogicalPlan, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr as PhysBinary, Column, IsNotNullExpr};
use weir_common::plan::{AggCall, AggFunction, Aggregate, Join, JoinKind, Node, StreamPlan};
use weir_stream::executor::aggregate::tables as aggregate_tables;
use weir_stream::executor::join::{full_join_needs_marker, tables};

use super::super::postgres::without_zero;
use super::super::properties;
use super::rel::{Phys, Rel, cast, encode, remap, text};
use super::{Builder, literal, physical, unsupported};
use crate::error::{Result, SqlError};

/// The condition of a join, taken apart.
pub(super) struct Condition {
    /// Equal keys: over the left columns, over the right columns.
    pub(super) on: Vec<(Phys, Phys)>,
    pub(super) null_equals_null: bool,
    /// Over the left columns followed by the right ones.
    pub(super) residual: Option<Phys>,
}

/// Both sides with real columns, and the condition over them.
struct Sides {
    left: StreamPlan,
    right: StreamPlan,
    /// Columns of the logical left and right side, which come first.
    left_count: usize,
    right_count: usize,
    on: Vec<(usize, usize)>,
}

impl Builder {
    pub(super) fn join(&mut self, join: &LogicalJoin) -> Result<Rel> {
        let (left, right) = (self.plan(&join.left)?, self.plan(&join.right)?);
        let condition = condition(join)?;
        match join.join_type {
            JoinType::LeftAnti if join.null_aware => self.not_in(join, left, right, condition),
            JoinType::LeftMark => self.mark(left, right, condition),
            JoinType::RightMark => Err(unsupported("a RightMark join")),
            JoinType::RightSemi => self.joined(right, left, flipped(condition, join)?, JoinKind::LeftSemi),
            JoinType::RightAnti => self.joined(right, left, flipped(condition, join)?, JoinKind::LeftAnti),
            JoinType::Inner => self.joined(left, right, condition, JoinKind::Inner),
            JoinType::Left => self.joined(left, right, condition, JoinKind::Left),
            JoinType::Right => self.joined(left, right, condition, JoinKind::Right),
            JoinType::Full => self.joined(left, right, condition, JoinKind::Full),
            JoinType::LeftSemi => self.joined(left, right, condition, JoinKind::LeftSemi),
            JoinType::LeftAnti => self.joined(left, right, condition, JoinKind::LeftAnti),
        }
    }

    /// The join of two plans; its columns are the left ones, then the right ones (of semi and anti joins the left ones).
    pub(super) fn joined(&mut self, left: Rel, right: Rel, condition: Condition, kind: JoinKind) -> Result<Rel> {
        let sides = self.sides(left, right, &condition, kind)?;
        let Sides { left, right, left_count, right_count, on } = sides;
        let (left_width, left_key) = (left.schema.fields().len(), properties::stream_key(&left));
        let mut left_key = left_key;
        let right_key = properties::stream_key(&right);
        if kind == JoinKind::Full && full_join_needs_marker(&left.schema, &left_key, &right.schema, &right_key, &on) {
            left_key.push(left_width - 1);
        }
        let residual = match condition.residual {
            Some(residual) => {
                let place = |i| if i < left_count { i } else { left_width + i - left_count };
                Some(encode(&remap(residual, place)?)?)
            }
            None => None,
        };
        let (left_rows, right_rows) =
            tables(&left.schema, &left_key, &right.schema, &right_key, kind, &on, &mut || self.table_id());
        let schema = joined_schema(&left.schema, &right.schema, kind);
        let node = Node::Join(Join {
            left: Box::new(left),
            right: Box::new(right),
            kind,
            on,
            null_equals_null: condition.null_equals_null,
            residual,
            left_rows,
            right_rows,
        });
        let plan = StreamPlan { schema, node };
        let left_columns = 0..left_count;
        Ok(match kind {
            JoinKind::LeftSemi | JoinKind::LeftAnti => Rel::pick(plan, left_columns),
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
                Rel::pick(plan, left_columns.chain(left_width..left_width + right_count))
            }
        })
    }

    /// Computes the keys as columns and brings equal keys to one actor.
    fn sides(&mut self, mut left: Rel, mut right: Rel, condition: &Condition, kind: JoinKind) -> Result<Sides> {
        let (left_count, right_count) = (left.columns.len(), right.columns.len());
        let key = |e: &Phys| (text(e), e.clone());
        let left_on = left.ensure(&condition.on.iter().map(|(l, _)| key(l)).collect::<Vec<_>>())?;
        let right_on = right.ensure(&condition.on.iter().map(|(_, r)| key(r)).collect::<Vec<_>>())?;
        let on: Vec<(usize, usize)> = left_on.iter().copied().zip(right_on.iter().copied()).collect();
        let (mut left, right) = (left.settle()?, right.settle()?);
        if kind == JoinKind::Full {
            left = with_marker(left, &right, &on)?;
        }
        let left = self.hashed(left, &left_on);
        let right = self.hashed(right, &right_on);
        for (l, r) in &on {
            let (l, r) = (left.schema.field(*l).data_type(), right.schema.field(*r).data_type());
            if l != r {
                return Err(SqlError::internal(format!("a join key is {l} on one side and {r} on the other")));
            }
        }
        Ok(Sides { left, right, left_count, right_count, on })
    }

    /// The left columns, then whether there is a match.
    fn mark(&mut self, left: Rel, right: Rel, condition: Condition) -> Result<Rel> {
        if condition.residual.is_some() {
            return Err(unsupported(
                "EXISTS or IN (subquery) under OR, with another comparison than =, to the outer query",
            )
            .with_hint("Write it as UNION of two queries."));
        }
        let left_count = left.columns.len();
        // The distinct keys of the right side, with a mark.
        let named = |(i, e): (usize, &Phys)| (format!("key{i}"), e.clone());
        let keys: Vec<_> = condition.on.iter().map(|(_, r)| r).enumerate().map(named).collect();
        let keyed = right.project(if keys.is_empty() { vec![("any".into(), literal(lit_true()))] } else { keys })?;
        let count = keyed.columns.len();
        let distinct = self.distinct_rel(keyed)?;
        let schema = distinct.schema()?;
        let mut exprs: Vec<(String, Phys)> =
            (0..count).map(|i| (schema.field(i).name().clone(), at(&schema, i))).collect();
        exprs.push(("mark".into(), literal(lit_true())));
        let marked = Rel::first(distinct.project(exprs)?.settle()?, count + 1);
        let right_schema = marked.schema()?;
        let on = condition.on.into_iter().enumerate().map(|(i, (l, _))| (l, at(&right_schema, i))).collect();
        let condition = Condition { on, null_equals_null: condition.null_equals_null, residual: None };
        let joined = self.joined(left, marked, condition, JoinKind::Left)?;
        let schema = joined.schema()?;
        let mut exprs: Vec<(String, Phys)> =
            (0..left_count).map(|i| (schema.field(i).name().clone(), at(&schema, i))).collect();
        let mark = at(&schema, left_count + count);
        exprs.push(("mark".into(), Arc::new(IsNotNullExpr::new(mark))));
        joined.project(exprs)
    }

    /// Rows without a match, where NULL on either side can make `x NOT IN (…)` unknown: it is true for every row when the
    /// right side is empty, else for rows whose x is not NULL and has no match, unless the right side has a NULL.
    fn not_in(&mut self, join: &LogicalJoin, left: Rel, right: Rel, condition: Condition) -> Result<Rel> {
        let [(x, y)] = &condition.on[..] else {
            return Err(unsupported("NOT IN with a correlated subquery over columns that may be NULL")
                .with_hint("Write NOT EXISTS, or add IS NOT NULL on both sides."));
        };
        if condition.residual.is_some() {
            return Err(unsupported("NOT IN with a correlated subquery over columns that may be NULL")
                .with_hint("Write NOT EXISTS, or add IS NOT NULL on both sides."));
        }
        let left_count = left.columns.len();
        let (x, y) = (x.clone(), y.clone());
        let counted = self.plan(&join.right)?.project(vec![("y".into(), y)])?;
        let counts = self.counts(counted)?;
        let anti = self.joined(left, right, condition, JoinKind::LeftAnti)?;
        let both = Condition { on: vec![], null_equals_null: false, residual: None };
        let joined = self.joined(anti, counts, both, JoinKind::Inner)?;
        let schema = joined.schema()?;
        let is_zero = |i| binary(at(&schema, i), Operator::Eq, literal(ScalarValue::Int64(Some(0))));
        let (empty, no_null) = (is_zero(left_count), is_zero(left_count + 1));
        let x_known: Phys = Arc::new(IsNotNullExpr::new(x));
        let predicate = binary(empty, Operator::Or, binary(x_known, Operator::And, no_null));
        let filtered = joined.filter(predicate)?;
        let exprs = (0..left_count).map(|i| (schema.field(i).name().clone(), at(&schema, i))).collect();
        filtered.project(exprs)
    }

    /// One row: whether there are rows, and whether there are some where the first column is NULL, as 0 or 1. It changes
    /// seldom, and with it the result for every row that is joined with it.
    fn counts(&mut self, input: Rel) -> Result<Rel> {
        let numbers = self.counted(input.settle_exactly()?, [vec![], vec![0]], [None, None])?;
        let schema = numbers.schema()?;
        let (rows, values) = (at(&schema, 0), at(&schema, 1));
        let any = binary(rows.clone(), Operator::Gt, literal(ScalarValue::Int64(Some(0))));
        let nulls = binary(rows, Operator::Gt, values);
        let flags = numbers.project(vec![("any".into(), any), ("nulls".into(), nulls)])?;
        self.counted(flags.settle_exactly()?, [vec![], vec![]], [Some(0), Some(1)])
    }

    /// One row with two counts.
    fn counted(&mut self, plan: StreamPlan, args: [Vec<usize>; 2], filters: [Option<usize>; 2]) -> Result<Rel> {
        let plan = self.single(plan);
        let append_only = properties::append_only(&plan);
        let count = |(args, filter)| AggCall {
            function: AggFunction::Count,
            args,
            filter,
            distinct: false,
            order_by: vec![],
            output: DataType::Int64,
            values: None,
        };
        let calls: Vec<_> = args.into_iter().zip(filters).map(count).collect();
        let (groups, _) = aggregate_tables(&plan.schema, &[], &calls, append_only, &mut || self.table_id());
        let fields = vec![Field::new("any", DataType::Int64, true), Field::new("nulls", DataType::Int64, true)];
        let node = Aggregate { input: Box::new(plan), group_by: vec![], calls, append_only, groups };
        let plan = StreamPlan { schema: Arc::new(Schema::new(fields)), node: Node::Aggregate(node) };
        Ok(Rel::first(plan, 2))
    }

    fn distinct_rel(&mut self, input: Rel) -> Result<Rel> {
        let schema = input.schema()?;
        let groups = (0..input.columns.len()).map(|i| (schema.field(i).name().clone(), at(&schema, i))).collect();
        self.grouped(input, groups, vec![])
    }
}

fn lit_true() -> ScalarValue {
    ScalarValue::Boolean(Some(true))
}

pub(super) fn at(schema: &SchemaRef, i: usize) -> Phys {
    Arc::new(Column::new(schema.field(i).name(), i))
}

fn binary(left: Phys, op: Operator, right: Phys) -> Phys {
    Arc::new(PhysBinary::new(left, op, right))
}

/// The left side of a full join with a column that is never NULL, if its key needs one: the last column.
fn with_marker(left: StreamPlan, right: &StreamPlan, on: &[(usize, usize)]) -> Result<StreamPlan> {
    let (left_key, right_key) = (properties::stream_key(&left), properties::stream_key(right));
    if !full_join_needs_marker(&left.schema, &left_key, &right.schema, &right_key, on) {
        return Ok(left);
    }
    let count = left.schema.fields().len();
    let mut rel = Rel::first(left, count);
    rel.ensure(&[("_left".to_string(), literal(lit_true()))])?;
    rel.settle()
}

fn joined_schema(left: &SchemaRef, right: &SchemaRef, kind: JoinKind) -> SchemaRef {
    let (pads_left, pads_right) = match kind {
        JoinKind::Inner => (false, false),
        JoinKind::Left => (false, true),
        JoinKind::Right => (true, false),
        JoinKind::Full => (true, true),
        JoinKind::LeftSemi | JoinKind::LeftAnti => return left.clone(),
    };
    let padded = |field: &Arc<Field>, pads: bool| {
        if pads { Arc::new(field.as_ref().clone().with_nullable(true)) } else { field.clone() }
    };
    let left = left.fields().iter().map(|f| padded(f, pads_left));
    let right = right.fields().iter().map(|f| padded(f, pads_right));
    Arc::new(Schema::new(left.chain(right).collect::<Vec<_>>()))
}

/// Takes the condition apart. Keys are `left = right`; if there is none, `left IS NOT DISTINCT FROM right`.
fn condition(join: &LogicalJoin) -> Result<Condition> {
    let (left, right) = (join.left.schema(), join.right.schema());
    let mut pairs: Vec<(Expr, Expr)> = join.on.clone();
    let mut null_equals_null = join.null_equality == NullEquality::NullEqualsNull;
    let mut rest: Vec<&Expr> = join.filter.iter().flat_map(|f| split_conjunction(f)).collect();
    rest.retain(|e| !matches!(e, Expr::Literal(ScalarValue::Boolean(Some(true)), _)));
    let mut take = |operator: Operator, pairs: &mut Vec<(Expr, Expr)>| {
        rest.retain(|e| match key_pair(e, operator, left, right) {
            Some(pair) => {
                pairs.push(pair);
                false
            }
            None => true,
        });
    };
    if !null_equals_null {
        take(Operator::Eq, &mut pairs);
    }
    if pairs.is_empty() || null_equals_null {
        take(Operator::IsNotDistinctFrom, &mut pairs);
        null_equals_null |= !pairs.is_empty();
    }
    let (left_schema, right_schema) = (left.inner().clone(), right.inner().clone());
    let mut on = Vec::with_capacity(pairs.len());
    for (l, r) in &pairs {
        let (l, r) = (physical(l, left)?, physical(r, right)?);
        let wanted = l.data_type(&left_schema)?;
        let r = cast(r, &wanted, &right_schema)?;
        on.push((l, r));
    }
    let both: DFSchema = left.join(right)?;
    let residual = match rest.into_iter().cloned().reduce(Expr::and) {
        Some(residual) => Some(physical(&residual, &both)?),
        None => None,
    };
    Ok(Condition { on, null_equals_null, residual })
}

/// `left op right`, whichever way it is written, if each side is over one input.
fn key_pair(expr: &Expr, operator: Operator, left: &DFSchema, right: &DFSchema) -> Option<(Expr, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = expr else { return None };
    if *op != operator {
        return None;
    }
    let over = |e: &Expr, schema: &DFSchema| {
        let columns = e.column_refs();
        !columns.is_empty() && columns.iter().all(|c| schema.is_column_from_schema(c))
    };
    if over(a, left) && over(b, right) {
        Some((without_zero(*a.clone()), without_zero(*b.clone())))
    } else if over(b, left) && over(a, right) {
        Some((without_zero(*b.clone()), without_zero(*a.clone())))
    } else {
        None
    }
}

/// The condition with the sides exchanged.
fn flipped(condition: Condition, join: &LogicalJoin) -> Result<Condition> {
    let (left, right) = (width(&join.left), width(&join.right));
    let place = |i| if i < left { right + i } else { i - left };
    let residual = condition.residual.map(|r| remap(r, place)).transpose()?;
    let on = condition.on.into_iter().map(|(l, r)| (r, l)).collect();
    Ok(Condition { on, null_equals_null: condition.null_equals_null, residual })
}

fn width(plan: &LogicalPlan) -> usize {
    plan.schema().fields().len()
}
