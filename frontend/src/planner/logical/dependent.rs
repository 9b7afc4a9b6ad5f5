//! Correlated subqueries that DataFusion cannot take apart: computed once for each combination of the outer values that
//! they use, then joined to the outer rows by these values.
//!
//! ```text
//! outer rows I, subquery S that uses I.a          I LEFT JOIN (S for every d) ON I.a IS NOT DISTINCT FROM d.a
//!                                                   where d = SELECT DISTINCT a FROM I
//! ```
//!
//! "S for every d" moves d down through S, node by node: a filter on `I.a` becomes a filter on `d.a` over the product of d
//! with what the filter reads, and so on; the optimizer makes joins of these products again. What DataFusion can do itself
//! (aggregates over rows that equal outer values, filters of EXISTS) is left to it, for it needs no d.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result, ScalarValue, TableReference};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, Filter, Join, JoinConstraint, Limit, LogicalPlan, LogicalPlanBuilder,
    Operator, Projection, Subquery, SubqueryAlias, lit,
};

use super::super::names::NUMBERED;
use super::super::optimize::at_most_one_row;
use super::super::postgres::single_value;
use super::super::ranks::row_number;
use super::predicates::Place;
use crate::error::SqlError;

/// A name that nothing else has.
pub(super) fn fresh(name: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{name}{NUMBERED}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A node whose expressions contain such subqueries, with joins instead. `None`: it has none.
pub(super) fn joined(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let mut over = Over::new(&projection.input);
            let mut exprs = Vec::with_capacity(projection.expr.len());
            for expr in &projection.expr {
                let name = expr.schema_name().to_string();
                let replaced = over.replaced(expr.clone(), Place::Shown)?;
                exprs.push(if replaced == *expr { replaced } else { replaced.unalias().alias(name) });
            }
            over.finish(|input| LogicalPlanBuilder::from(input).project(exprs)?.build())
        }
        LogicalPlan::Filter(filter) => {
            let mut over = Over::new(&filter.input);
            let mut rest = Vec::new();
            for conjunct in split_conjunction_owned(filter.predicate.clone()) {
                rest.extend(over.conjunct(conjunct)?);
            }
            let columns: Vec<Expr> = filter.input.schema().columns().into_iter().map(Expr::Column).collect();
            over.finish(|input| {
                let plan = LogicalPlanBuilder::from(input);
                let plan = match conjunction(rest) {
                    Some(rest) => plan.filter(rest)?,
                    None => plan,
                };
                plan.project(columns)?.build()
            })
        }
        LogicalPlan::Join(join) => lateral(join),
        _ => Ok(None),
    }
}

/// The outer rows, joined with what was taken out of expressions over them.
pub(super) struct Over {
    pub(super) outer: Arc<LogicalPlan>,
    pub(super) input: LogicalPlan,
    pub(super) changed: bool,
}

impl Over {
    fn new(input: &Arc<LogicalPlan>) -> Over {
        Over { outer: input.clone(), input: input.as_ref().clone(), changed: false }
    }

    fn finish(self, above: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>) -> Result<Option<LogicalPlan>> {
        if self.changed { above(self.input).map(Some) } else { Ok(None) }
    }

    /// A scalar subquery, or the column that is its value.
    pub(super) fn value(&mut self, subquery: Subquery) -> Result<Expr> {
        let outer = outer_columns(&subquery.subquery, &self.outer);
        if outer.is_empty() || is_simple_aggregate(&subquery.subquery) {
            return Ok(Expr::ScalarSubquery(subquery));
        }
        if at_most_one_row(&subquery.subquery) && is_filtered(&subquery.subquery) {
            return Ok(Expr::Column(self.matched(&subquery.subquery)?));
        }
        Ok(Expr::Column(self.scalar(&subquery, outer)?))
    }

    /// The value of a subquery that is a filter of rows by their key, of which at most one is left.
    fn matched(&mut self, subquery: &LogicalPlan) -> Result<Column> {
        let (rows, conditions) = unfiltered(subquery)?;
        let value = fresh("value");
        let mut exprs = vec![Expr::Column(subquery.schema().columns().remove(0)).alias(&value)];
        let mut on = Vec::with_capacity(conditions.len());
        for condition in conditions {
            on.push(at_join(condition, &mut exprs)?);
        }
        let right = LogicalPlanBuilder::from(rows).project(exprs)?.build()?;
        self.join_with(right, JoinType::Left, conjunction(on))?;
        Ok(Column::new_unqualified(value))
    }

    pub(super) fn join_with(&mut self, right: LogicalPlan, kind: JoinType, condition: Option<Expr>) -> Result<()> {
        let join = Join::try_new(
            Arc::new(self.input.clone()),
            Arc::new(right),
            vec![],
            condition,
            kind,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        self.input = LogicalPlan::Join(join);
        self.changed = true;
        Ok(())
    }

    fn scalar(&mut self, subquery: &Subquery, outer: Vec<Column>) -> Result<Column> {
        let domain = Domain::of(&self.outer, outer)?;
        let (plan, used) = domain.place(&subquery.subquery)?;
        let value = subquery.subquery.schema().columns().remove(0);
        let name = fresh("value");
        let groups: Vec<Expr> = used.columns();
        let plan = if at_most_one_row(&subquery.subquery) {
            let exprs = groups.iter().cloned().chain([Expr::Column(value).alias(&name)]).collect::<Vec<_>>();
            LogicalPlanBuilder::from(plan).project(exprs)?.build()?
        } else {
            // Several rows for one outer row are an error, which is to be found when the query runs.
            let count = call(count_udaf(), lit(1i64)).alias("rows");
            let first = call(first_value_udaf(), Expr::Column(value)).alias("value");
            let counted = LogicalPlanBuilder::from(plan).aggregate(groups.clone(), vec![count, first])?;
            let by_name = |name: &str| Expr::Column(Column::new_unqualified(name));
            let value = single_value(by_name("rows"), by_name("value")).alias(&name);
            counted.project(groups.into_iter().chain([value]).collect::<Vec<_>>())?.build()?
        };
        self.join(plan, &used, JoinType::Left, None)?;
        Ok(Column::new_unqualified(name))
    }

    /// Takes in a condition that is EXISTS or IN of such a subquery.
    pub(super) fn existence(&mut self, conjunct: &Expr) -> Result<bool> {
        let (subquery, compared, negated) = match conjunct {
            Expr::Exists(Exists { subquery, negated }) => (subquery, None, *negated),
            Expr::InSubquery(InSubquery { expr, subquery, negated: false }) => (subquery, Some(expr), false),
            Expr::Not(inner) => match &**inner {
                Expr::Exists(Exists { subquery, negated }) => (subquery, None, !negated),
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        let outer = outer_columns(&subquery.subquery, &self.outer);
        if outer.is_empty() || is_filtered(&subquery.subquery) {
            return Ok(false);
        }
        let domain = Domain::of(&self.outer, outer)?;
        let (plan, used) = domain.place(&subquery.subquery)?;
        let value = subquery.subquery.schema().columns().remove(0);
        let condition = compared.map(|compared| compared.as_ref().clone().eq(Expr::Column(value)));
        let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
        self.join(plan, &used, kind, condition)?;
        Ok(true)
    }

    /// A column that says whether a subquery that is a filter of rows has some.
    pub(super) fn match_marked(&mut self, subquery: &LogicalPlan) -> Result<Column> {
        let (rows, conditions) = unfiltered(subquery)?;
        let name = TableReference::bare(fresh("exists"));
        let mut exprs = Vec::new();
        let mut on = Vec::with_capacity(conditions.len());
        for condition in conditions {
            on.push(at_join(condition, &mut exprs)?);
        }
        let is_key = |c: &Column| exprs.iter().any(|e| e.schema_name().to_string() == c.name);
        let qualified = |e: Expr| {
            Ok(match e {
                Expr::Column(c) if c.relation.is_none() && is_key(&c) => {
                    Transformed::yes(Expr::Column(Column::new(Some(name.clone()), c.name)))
                }
                other => Transformed::no(other),
            })
        };
        let on = on.into_iter().map(|c| c.transform_up(qualified).data()).collect::<Result<Vec<_>>>()?;
        let right = LogicalPlanBuilder::from(rows).project(exprs)?.alias(name.clone())?.build()?;
        self.join_with(right, JoinType::LeftMark, conjunction(on))?;
        Ok(Column::new(Some(name), "mark"))
    }

    /// A column that says whether such a subquery has rows.
    pub(super) fn marked(&mut self, subquery: &Subquery, outer: Vec<Column>) -> Result<Column> {
        let domain = Domain::of(&self.outer, outer)?;
        let (plan, used) = domain.place(&subquery.subquery)?;
        let right = LogicalPlanBuilder::from(plan).project(used.columns())?.build()?;
        self.join(right, &used, JoinType::LeftMark, None)?;
        Ok(Column::new(Some(TableReference::bare(used.name)), "mark"))
    }

    /// Joins the input with a plan that has the outer values.
    fn join(&mut self, right: LogicalPlan, used: &Domain, kind: JoinType, condition: Option<Expr>) -> Result<()> {
        let join = Join::try_new(
            Arc::new(self.input.clone()),
            Arc::new(right),
            used.pairs(),
            condition,
            kind,
            JoinConstraint::On,
            NullEquality::NullEqualsNull,
            false,
        )?;
        self.input = LogicalPlan::Join(join);
        self.changed = true;
        Ok(())
    }
}

fn call(function: Arc<datafusion::logical_expr::AggregateUDF>, arg: Expr) -> Expr {
    Expr::AggregateFunction(AggregateFunction::new_udf(function, vec![arg], false, None, vec![], None))
}

/// A lateral item with an aggregate or the like that uses columns of what stands before it.
fn lateral(join: &Join) -> Result<Option<LogicalPlan>> {
    let (subquery, alias) = match &*join.right {
        LogicalPlan::Subquery(subquery) => (subquery, None),
        LogicalPlan::SubqueryAlias(alias) => match &*alias.input {
            LogicalPlan::Subquery(subquery) => (subquery, Some(alias.alias.clone())),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let outer = outer_columns(&subquery.subquery, &join.left);
    let kept_by_datafusion = is_simple_aggregate(&subquery.subquery) || is_filtered(&subquery.subquery);
    if outer.is_empty() || kept_by_datafusion || !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let domain = Domain::of(&join.left, outer)?;
    let (plan, used) = domain.place(&subquery.subquery)?;
    let values = subquery.subquery.schema().columns();
    let requalified = |column: Column| {
        let name = column.name.clone();
        let relation = alias.clone().or(column.relation.clone());
        Expr::Column(column).alias_qualified(relation, name)
    };
    let exprs: Vec<Expr> = used.columns().into_iter().chain(values.into_iter().map(requalified)).collect();
    let right = LogicalPlanBuilder::from(plan).project(exprs)?.build()?;
    let joined = Join::try_new(
        join.left.clone(),
        Arc::new(right),
        used.pairs(),
        join.filter.clone(),
        join.join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNull,
        false,
    )?;
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(Some(LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()?))
}

/// The rows of a filtered plan without the conditions on outer columns, and these conditions; the columns that they use
/// are among those of the rows.
fn unfiltered(plan: &LogicalPlan) -> Result<(LogicalPlan, Vec<Expr>)> {
    if !has_outer(plan) {
        return Ok((plan.clone(), vec![]));
    }
    match plan {
        LogicalPlan::Filter(filter) => {
            let (rows, mut conditions) = unfiltered(&filter.input)?;
            let (outer, own): (Vec<_>, Vec<_>) =
                split_conjunction_owned(filter.predicate.clone()).into_iter().partition(Correlated::contains_outer);
            conditions.extend(outer);
            let rows = match conjunction(own) {
                Some(own) => LogicalPlanBuilder::from(rows).filter(own)?.build()?,
                None => rows,
            };
            Ok((rows, conditions))
        }
        LogicalPlan::Projection(projection) => {
            let (rows, conditions) = unfiltered(&projection.input)?;
            let mut exprs = projection.expr.clone();
            let conditions = conditions.into_iter().map(|c| at_projection(c, &mut exprs)).collect::<Result<_>>()?;
            Ok((LogicalPlanBuilder::from(rows).project(exprs)?.build()?, conditions))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let (rows, conditions) = unfiltered(&alias.input)?;
            let renamed = |e: Expr| {
                Ok(match e {
                    Expr::Column(c) => Transformed::yes(Expr::Column(Column::new(Some(alias.alias.clone()), c.name))),
                    other => Transformed::no(other),
                })
            };
            let conditions =
                conditions.into_iter().map(|c| c.transform_up(renamed).data()).collect::<Result<Vec<_>>>()?;
            Ok((LogicalPlanBuilder::from(rows).alias(alias.alias.clone())?.build()?, conditions))
        }
        other => Err(unsupported(other).into()),
    }
}

/// The condition above a projection, which gets the columns that it uses under new names.
fn at_projection(condition: Expr, exprs: &mut Vec<Expr>) -> Result<Expr> {
    let mut replace = |e: Expr| {
        Ok(match e {
            Expr::Column(_) => {
                let name = fresh("key");
                exprs.push(e.alias(&name));
                Transformed::yes(Expr::Column(Column::new_unqualified(name)))
            }
            other => Transformed::no(other),
        })
    };
    condition.transform_up(&mut replace).data()
}

/// The condition of a join with the projection: outer columns are those of the left side.
fn at_join(condition: Expr, exprs: &mut Vec<Expr>) -> Result<Expr> {
    let outer = |e: Expr| {
        Ok(match e {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    };
    at_projection(condition, exprs)?.transform_up(outer).data()
}

/// The outer columns of a plan that are columns of `outer`, each once.
pub(super) fn outer_columns(plan: &LogicalPlan, outer: &LogicalPlan) -> Vec<Column> {
    let mut found: Vec<Column> = Vec::new();
    for expr in plan.all_out_ref_exprs() {
        if let Expr::OuterReferenceColumn(_, column) = expr
            && outer.schema().has_column(&column)
            && !found.contains(&column)
        {
            found.push(column);
        }
    }
    found
}

fn has_outer(plan: &LogicalPlan) -> bool {
    !plan.all_out_ref_exprs().is_empty()
}

/// An aggregate without groups over rows that equal outer values: DataFusion groups by what is equal instead.
fn is_simple_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => !exprs_have_outer(&p.expr) && is_simple_aggregate(&p.input),
        LogicalPlan::SubqueryAlias(a) => is_simple_aggregate(&a.input),
        LogicalPlan::Aggregate(a) => {
            a.group_expr.is_empty() && !exprs_have_outer(&a.aggr_expr) && is_filtered_equally(&a.input)
        }
        _ => false,
    }
}

pub(super) fn is_filtered_equally(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => {
            let equal = |e: &&Expr| match e {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                    let (l, r) = (left.contains_outer(), right.contains_outer());
                    let plain = |e: &Expr, outer: bool| {
                        if outer { matches!(e, Expr::OuterReferenceColumn(..)) } else { matches!(e, Expr::Column(_)) }
                    };
                    l != r && plain(left, l) && plain(right, r)
                }
                _ => false,
            };
            let correlated = split_conjunction(&filter.predicate);
            correlated.iter().filter(|e| e.contains_outer()).all(equal) && !has_outer(&filter.input)
        }
        LogicalPlan::SubqueryAlias(alias) => is_filtered_equally(&alias.input),
        other => !has_outer(other),
    }
}

/// Outer columns only in filters that no other node than projections is above: DataFusion makes conditions of joins of
/// them.
pub(super) fn is_filtered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => !exprs_have_outer(&p.expr) && is_filtered(&p.input),
        LogicalPlan::SubqueryAlias(a) => is_filtered(&a.input),
        LogicalPlan::Filter(filter) => is_filtered(&filter.input),
        other => !has_outer(other),
    }
}

trait Correlated {
    fn contains_outer(&self) -> bool;
}

impl Correlated for Expr {
    fn contains_outer(&self) -> bool {
        let mut found = false;
        let _ = self.apply(|e| {
            found |= match e {
                Expr::OuterReferenceColumn(..) => true,
                Expr::ScalarSubquery(s) => has_outer(&s.subquery),
                _ => false,
            };
            Ok(TreeNodeRecursion::Continue)
        });
        found
    }
}

fn exprs_have_outer(exprs: &[Expr]) -> bool {
    exprs.iter().any(Correlated::contains_outer)
}

/// The combinations of outer values.
struct Domain {
    /// One row for each, with columns `name.c0`, `name.c1` …
    plan: LogicalPlan,
    name: String,
    outer: Vec<Column>,
}

impl Domain {
    fn of(input: &LogicalPlan, outer: Vec<Column>) -> Result<Domain> {
        let name = fresh("outer");
        let exprs = outer.iter().enumerate().map(|(i, c)| Expr::Column(c.clone()).alias(format!("c{i}")));
        let plan = LogicalPlanBuilder::from(input.clone())
            .project(exprs.collect::<Vec<_>>())?
            .distinct()?
            .alias(TableReference::bare(name.clone()))?
            .build()?;
        Ok(Domain { plan, name, outer })
    }

    /// The same combinations, under another name.
    fn again(&self) -> Result<Domain> {
        let name = fresh("outer");
        let plan = LogicalPlanBuilder::from(self.plan.clone()).alias(TableReference::bare(name.clone()))?.build()?;
        Ok(Domain { plan, name, outer: self.outer.clone() })
    }

    fn column(&self, i: usize) -> Expr {
        Expr::Column(Column::new(Some(TableReference::bare(self.name.clone())), format!("c{i}")))
    }

    fn columns(&self) -> Vec<Expr> {
        (0..self.outer.len()).map(|i| self.column(i)).collect()
    }

    /// The outer columns and what they are here.
    fn pairs(&self) -> Vec<(Expr, Expr)> {
        self.outer.iter().cloned().map(Expr::Column).zip(self.columns()).collect()
    }

    /// References to the outer columns are to the columns here.
    fn inside(&self, expr: Expr) -> Result<Expr> {
        let name = expr.schema_name().to_string();
        let replaced = expr.clone().transform_up(|e| {
            Ok(match &e {
                Expr::OuterReferenceColumn(_, column) => match self.outer.iter().position(|o| o == column) {
                    Some(i) => Transformed::yes(self.column(i)),
                    None => Transformed::no(e),
                },
                _ => Transformed::no(e),
            })
        })?;
        Ok(match replaced.data {
            same if !replaced.transformed => same,
            Expr::Alias(alias) => Expr::Alias(alias),
            changed => changed.alias(name),
        })
    }

    /// The rows of the plan for every combination: its columns, and those of the combination, which are of the domain that
    /// is returned.
    fn place(&self, plan: &LogicalPlan) -> Result<(LogicalPlan, Domain)> {
        if !has_outer(plan) {
            let domain = self.again()?;
            let product = LogicalPlanBuilder::from(domain.plan.clone()).cross_join(plan.clone())?.build()?;
            return Ok((product, domain));
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let (input, domain) = self.place(&filter.input)?;
                let predicate = domain.inside(filter.predicate.clone())?.unalias();
                Ok((LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?), domain))
            }
            LogicalPlan::Projection(projection) => {
                let (input, domain) = self.place(&projection.input)?;
                let mut exprs = domain.columns();
                for expr in &projection.expr {
                    exprs.push(domain.inside(expr.clone())?);
                }
                Ok((LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?), domain))
            }
            LogicalPlan::SubqueryAlias(alias) => self.place_alias(alias),
            LogicalPlan::Sort(sort) => self.place(&sort.input),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let (input, domain) = self.place(input)?;
                Ok((LogicalPlanBuilder::from(input).distinct()?.build()?, domain))
            }
            LogicalPlan::Aggregate(aggregate) => self.place_aggregate(aggregate),
            LogicalPlan::Limit(limit) => self.place_limit(limit),
            LogicalPlan::Join(join) => self.place_join(join),
            other => Err(unsupported(other).into()),
        }
    }

    fn place_alias(&self, alias: &SubqueryAlias) -> Result<(LogicalPlan, Domain)> {
        let (input, domain) = self.place(&alias.input)?;
        let inner = alias.input.schema().columns();
        let outer = alias.schema.columns();
        let renamed = inner
            .into_iter()
            .zip(outer)
            .map(|(inner, outer)| Expr::Column(inner).alias_qualified(outer.relation.clone(), outer.name));
        let exprs: Vec<Expr> = domain.columns().into_iter().chain(renamed).collect();
        Ok((LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?), domain))
    }

    fn place_aggregate(&self, aggregate: &Aggregate) -> Result<(LogicalPlan, Domain)> {
        let (input, domain) = self.place(&aggregate.input)?;
        let mut groups = domain.columns();
        for group in &aggregate.group_expr {
            groups.push(domain.inside(group.clone())?);
        }
        if aggregate.group_expr.is_empty() {
            return self.place_total(aggregate, input, &domain);
        }
        let mut exprs = Vec::with_capacity(aggregate.aggr_expr.len());
        for expr in &aggregate.aggr_expr {
            exprs.push(domain.inside(expr.clone())?);
        }
        let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, exprs)?);
        Ok((plan, domain))
    }

    /// An aggregate without groups has a row also where there is nothing to aggregate: the combinations keep theirs, and
    /// the rows that are aggregated carry a mark.
    fn place_total(&self, aggregate: &Aggregate, input: LogicalPlan, domain: &Domain) -> Result<(LogicalPlan, Domain)> {
        let all = self.again()?;
        let mark = fresh("mark");
        let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let marked = columns.into_iter().chain([lit(true).alias(&mark)]).collect::<Vec<_>>();
        let marked = LogicalPlanBuilder::from(input).project(marked)?.build()?;
        let on = all.columns().into_iter().zip(domain.columns()).collect();
        let joined = Join::try_new(
            Arc::new(all.plan.clone()),
            Arc::new(marked),
            on,
            None,
            JoinType::Left,
            JoinConstraint::On,
            NullEquality::NullEqualsNull,
            false,
        )?;
        let is_row = Expr::Column(Column::new_unqualified(mark)).is_not_null();
        let mut exprs = Vec::with_capacity(aggregate.aggr_expr.len());
        for expr in &aggregate.aggr_expr {
            let name = expr.schema_name().to_string();
            exprs.push(counted_where(domain.inside(expr.clone())?.unalias(), &is_row)?.alias(name));
        }
        let plan = Aggregate::try_new(Arc::new(LogicalPlan::Join(joined)), all.columns(), exprs)?;
        Ok((LogicalPlan::Aggregate(plan), all))
    }

    /// The first rows for every combination.
    fn place_limit(&self, limit: &Limit) -> Result<(LogicalPlan, Domain)> {
        // A projection may stand between, to drop what was only sorted by.
        let (projection, sorted) = match &*limit.input {
            LogicalPlan::Projection(projection) if matches!(&*projection.input, LogicalPlan::Sort(_)) => {
                (Some(projection), &*projection.input)
            }
            other => (None, other),
        };
        let (sort, below): (Vec<_>, &LogicalPlan) = match sorted {
            LogicalPlan::Sort(sort) => (sort.expr.clone(), &sort.input),
            other => (vec![], other),
        };
        let (input, domain) = self.place(below)?;
        let order = sort
            .into_iter()
            .map(|s| Ok(s.with_expr(domain.inside(s.expr.clone())?.unalias())))
            .collect::<Result<Vec<_>>>()?;
        let number = fresh("number");
        let window = super::window(row_number(), domain.columns(), order)?.unalias().alias(&number);
        let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let position = Expr::Column(Column::new_unqualified(number));
        let zero = Expr::Literal(ScalarValue::Int64(Some(0)), None);
        let skip = limit.skip.as_deref().cloned().unwrap_or(zero);
        let mut range = position.clone().gt(skip.clone());
        if let Some(fetch) = &limit.fetch {
            range = range.and(position.lt_eq(skip + fetch.as_ref().clone()));
        }
        let first = LogicalPlanBuilder::from(input).window(vec![window])?.filter(range)?;
        let exprs = match projection {
            Some(projection) => {
                let mut exprs = domain.columns();
                for expr in &projection.expr {
                    exprs.push(domain.inside(expr.clone())?);
                }
                exprs
            }
            None => columns,
        };
        Ok((first.project(exprs)?.build()?, domain))
    }

    fn place_join(&self, join: &Join) -> Result<(LogicalPlan, Domain)> {
        // With the combinations on the left, these kinds do for each combination what they do once.
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti) {
            return Err(unsupported(&LogicalPlan::Join(join.clone())).into());
        }
        let (left, domain) = self.place(&join.left)?;
        let mut on = Vec::with_capacity(join.on.len());
        for (l, r) in &join.on {
            on.push((domain.inside(l.clone())?.unalias(), domain.inside(r.clone())?.unalias()));
        }
        let mut filter = match &join.filter {
            Some(filter) => Some(domain.inside(filter.clone())?.unalias()),
            None => None,
        };
        let right = if !has_outer(&join.right) {
            join.right.as_ref().clone()
        } else {
            let (right, theirs) = self.place(&join.right)?;
            let same = domain.columns().into_iter().zip(theirs.columns());
            let same = same
                .map(|(a, b)| Expr::BinaryExpr(BinaryExpr::new(Box::new(a), Operator::IsNotDistinctFrom, Box::new(b))));
            filter = conjunction(same.chain(filter).collect::<Vec<_>>());
            right
        };
        let placed = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filter,
            join.join_type,
            JoinConstraint::On,
            join.null_equality,
            join.null_aware,
        )?;
        Ok((LogicalPlan::Join(placed), domain))
    }
}

/// The call over those rows that are rows.
fn counted_where(expr: Expr, is_row: &Expr) -> Result<Expr> {
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let filter = match params.filter.take() {
                Some(filter) => is_row.clone().and(*filter),
                None => is_row.clone(),
            };
            params.filter = Some(Box::new(filter));
            Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
        }
        other => Err(SqlError::internal(format!("{other} is not an aggregate function")).into()),
    }
}

fn unsupported(plan: &LogicalPlan) -> SqlError {
    let what = match plan {
        LogicalPlan::Union(_) => "UNION",
        LogicalPlan::Window(_) => "a window function",
        LogicalPlan::Unnest(_) => "unnest",
        LogicalPlan::Join(_) => "an outer join",
        _ => "this construct",
    };
    SqlError::unsupported(format!("{what} over columns of an outer query")).with_hint("Write a join.")
}
