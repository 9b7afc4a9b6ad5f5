//! EXISTS, IN, ANY and ALL of subqueries, where their value is more than what a semi join answers.
//!
//! As a condition of its own, or with only AND and OR around it, `x IN (q)` may be false where SQL says NULL: DataFusion
//! makes a join of it. Everywhere else (in a select list, below NOT, in CASE) NULL must be told from false:
//!
//! ```text
//! x IN (q)       I LEFTMARK JOIN q ON x = c CROSS JOIN (SELECT whether there are rows, and where c is NULL FROM q)
//!                CASE WHEN mark THEN true WHEN some nulls OR x IS NULL AND some rows THEN NULL ELSE false END
//! x IN (q(I))    (SELECT CASE WHEN count(*) FILTER (WHERE x = c) > 0 THEN true
//!                             WHEN count(*) FILTER (WHERE x = c IS NULL) > 0 THEN NULL ELSE false END FROM q)
//! x op ANY (q)   likewise; as a condition: EXISTS (SELECT 1 FROM q WHERE x op c)
//! x op ALL (q)   likewise; as a condition: NOT EXISTS (SELECT 1 FROM q WHERE (x op c) IS NOT TRUE)
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, ExprSchema, JoinType, Result, ScalarValue, Spans, TableReference};
use datafusion::functions_aggregate::bool_and_or::bool_or_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, when,
};

use super::dependent::{Over, fresh, is_filtered, is_filtered_equally, outer_columns};
use super::hoist::has_subquery;
use crate::error::SqlError;

/// Where an expression stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    /// Its value is a column, or part of one.
    Shown,
    /// In a condition, with nothing around it but AND and OR.
    Asked,
    /// Elsewhere in a condition.
    Within,
}

impl Over {
    /// Takes in a condition, or gives back what is left of it.
    pub(super) fn conjunct(&mut self, conjunct: Expr) -> Result<Option<Expr>> {
        let conjunct = self.as_exists(conjunct)?;
        if self.existence(&conjunct)? {
            return Ok(None);
        }
        match conjunct {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let expr = Box::new(self.replaced(*expr, Place::Within)?);
                Ok(Some(Expr::InSubquery(InSubquery { expr, subquery, negated })))
            }
            Expr::Exists(_) => Ok(Some(conjunct)),
            Expr::Not(inner) if matches!(*inner, Expr::Exists(_)) => Ok(Some(Expr::Not(inner))),
            other => self.replaced(other, Place::Asked).map(Some),
        }
    }

    /// The expression with columns instead of subqueries.
    pub(super) fn replaced(&mut self, expr: Expr, place: Place) -> Result<Expr> {
        match expr {
            Expr::Alias(mut alias) => {
                alias.expr = Box::new(self.replaced(*alias.expr, place)?);
                Ok(Expr::Alias(alias))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let (left, right) = (self.replaced(*left, place)?, self.replaced(*right, place)?);
                Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
            }
            Expr::ScalarSubquery(subquery) => self.value(subquery),
            Expr::Exists(exists) => self.exists(exists, place),
            Expr::InSubquery(is_in) => self.is_in(is_in, place),
            Expr::SetComparison(compared) => {
                let SetComparison { expr, subquery, op, quantifier } = compared;
                self.compared(*expr, op, quantifier, &subquery)
            }
            other => {
                let place = if place == Place::Asked { Place::Within } else { place };
                other.map_children(|child| self.replaced(child, place).map(Transformed::yes)).data()
            }
        }
    }

    fn exists(&mut self, exists: Exists, place: Place) -> Result<Expr> {
        let Exists { subquery, negated } = &exists;
        let outer = outer_columns(&subquery.subquery, &self.outer);
        let kept = place != Place::Shown && (outer.is_empty() || is_mark(&subquery.subquery));
        if kept {
            return Ok(Expr::Exists(exists));
        }
        let value = if outer.is_empty() {
            self.changed = true;
            let rows = count(lit(1i64), None).alias("rows");
            let any = by_name("rows").gt(lit(0i64));
            let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
            scalar(plan.aggregate(Vec::<Expr>::new(), vec![rows])?.project(vec![any])?.build()?)
        } else if is_mark(&subquery.subquery) {
            Expr::Column(self.match_marked(&subquery.subquery)?)
        } else {
            Expr::Column(self.marked(subquery, outer)?)
        };
        Ok(negate(value, *negated))
    }

    fn is_in(&mut self, is_in: InSubquery, place: Place) -> Result<Expr> {
        let InSubquery { expr, subquery, negated } = is_in;
        let outer = outer_columns(&subquery.subquery, &self.outer);
        let asked = place == Place::Asked && !negated;
        let may_be_null = expr.nullable(self.input.schema()).unwrap_or(true)
            || subquery.subquery.schema().fields().first().is_none_or(|f| f.is_nullable());
        if (asked || !may_be_null) && place != Place::Shown && (outer.is_empty() || is_mark(&subquery.subquery)) {
            let expr = Box::new(self.replaced(*expr, Place::Within)?);
            return Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }));
        }
        if !outer.is_empty() {
            let value = self.compared(*expr, Operator::Eq, SetQuantifier::Any, &subquery)?;
            return Ok(negate(value, negated));
        }
        let expr = self.replaced(*expr, Place::Within)?;
        let mark = Expr::Column(self.match_of(&expr, &subquery.subquery)?);
        let value = if may_be_null {
            let (rows, nulls) = self.has_rows(&subquery.subquery)?;
            let unknown = nulls.or(expr.is_null().and(rows));
            when(mark, lit(true)).when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(false))?
        } else {
            mark
        };
        Ok(negate(value, negated))
    }

    /// A column that says whether the value is among those of a query.
    fn match_of(&mut self, value: &Expr, query: &LogicalPlan) -> Result<Column> {
        let name = TableReference::bare(fresh("in"));
        let column = query.schema().columns().remove(0);
        let right = LogicalPlanBuilder::from(query.clone()).project(vec![Expr::Column(column).alias("c")])?;
        let right = right.alias(name.clone())?.build()?;
        let condition = value.clone().eq(Expr::Column(Column::new(Some(name.clone()), "c")));
        self.join_with(right, JoinType::LeftMark, Some(condition))?;
        Ok(Column::new(Some(name), "mark"))
    }

    /// Whether a query has rows, and whether it has some that are NULL. The second step makes numbers that change with
    /// every row into ones that seldom do, as each change goes to all outer rows.
    fn has_rows(&mut self, query: &LogicalPlan) -> Result<(Expr, Expr)> {
        let name = TableReference::bare(fresh("counts"));
        let value = Expr::Column(query.schema().columns().remove(0));
        let numbers = vec![count(lit(1i64), None).alias("rows"), count(value, None).alias("values")];
        let rows = by_name("rows").gt(lit(0i64)).alias("any");
        let nulls = by_name("rows").gt(by_name("values")).alias("nulls");
        let or = |name: &str| call(bool_or_udaf(), by_name(name), None).alias(name);
        let right = LogicalPlanBuilder::from(query.clone())
            .aggregate(Vec::<Expr>::new(), numbers)?
            .project(vec![rows, nulls])?
            .aggregate(Vec::<Expr>::new(), vec![or("any"), or("nulls")])?;
        self.join_with(right.alias(name.clone())?.build()?, JoinType::Inner, None)?;
        let column = |c: &str| Expr::Column(Column::new(Some(name.clone()), c));
        Ok((column("any"), column("nulls")))
    }

    /// The value of a comparison with the values of a query.
    fn compared(&mut self, left: Expr, op: Operator, quantifier: SetQuantifier, query: &Subquery) -> Result<Expr> {
        let (rows, compared) = self.comparison(left, op, &query.subquery)?;
        let decided = quantifier == SetQuantifier::Any;
        let decides = if decided { compared.clone() } else { !compared.clone() };
        let counts = vec![
            count(lit(1i64), Some(decides)).alias("decided"),
            count(lit(1i64), Some(compared.is_null())).alias("unknown"),
        ];
        let some = |name: &str| by_name(name).gt(lit(0i64));
        let value = when(some("decided"), lit(decided))
            .when(some("unknown"), lit(ScalarValue::Boolean(None)))
            .otherwise(lit(!decided))?;
        let plan = LogicalPlanBuilder::from(rows).aggregate(Vec::<Expr>::new(), counts)?;
        let Expr::ScalarSubquery(subquery) = scalar(plan.project(vec![value.alias("value")])?.build()?) else {
            return Err(SqlError::internal("a scalar subquery is one").into());
        };
        self.changed = true;
        self.value(subquery)
    }

    /// The rows of a query, and the comparison of a value outside with theirs.
    fn comparison(&self, left: Expr, op: Operator, query: &LogicalPlan) -> Result<(LogicalPlan, Expr)> {
        if has_subquery(&left) {
            let message = "a subquery that is compared with the rows of another one";
            return Err(SqlError::unsupported(message).with_hint("Compare them in a query over one of them.").into());
        }
        let value = fresh("value");
        let column = Expr::Column(query.schema().columns().remove(0)).alias(&value);
        let rows = LogicalPlanBuilder::from(query.clone()).project(vec![column])?.build()?;
        let outer = self.outer.schema();
        let left = left.transform_up(|e| {
            Ok(match e {
                Expr::Column(column) if outer.has_column(&column) => {
                    let field = outer.field_from_column(&column)?.clone();
                    Transformed::yes(Expr::OuterReferenceColumn(field, column))
                }
                other => Transformed::no(other),
            })
        });
        Ok((rows, Expr::BinaryExpr(BinaryExpr::new(Box::new(left.data()?), op, Box::new(by_name(&value))))))
    }

    /// ANY and ALL as a condition, and NOT IN of a query that depends on the outer row, are about rows that exist.
    fn as_exists(&mut self, conjunct: Expr) -> Result<Expr> {
        let (inner, negated) = match &conjunct {
            Expr::Not(inner) => (&**inner, true),
            inner => (inner, false),
        };
        let (rows, condition, none) = match inner {
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                let (rows, compared) = self.comparison(expr.as_ref().clone(), *op, &subquery.subquery)?;
                match (quantifier, negated) {
                    (SetQuantifier::Any, false) => (rows, compared, false),
                    (SetQuantifier::Any, true) => (rows, compared.is_not_false(), true),
                    (SetQuantifier::All, false) => (rows, compared.is_not_true(), true),
                    (SetQuantifier::All, true) => (rows, compared.is_false(), false),
                }
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated: not_in })
                if negated != *not_in && !outer_columns(&subquery.subquery, &self.outer).is_empty() =>
            {
                let (rows, compared) = self.comparison(expr.as_ref().clone(), Operator::Eq, &subquery.subquery)?;
                (rows, compared.is_not_false(), true)
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated: not_in }) if negated => {
                let (expr, subquery) = (expr.clone(), subquery.clone());
                self.changed = true;
                return Ok(Expr::InSubquery(InSubquery { expr, subquery, negated: !not_in }));
            }
            _ => return Ok(conjunct),
        };
        self.changed = true;
        let plan = LogicalPlanBuilder::from(rows).filter(condition)?.build()?;
        Ok(Expr::Exists(Exists { subquery: subquery(plan), negated: none }))
    }
}

/// Whether DataFusion, and a view, can make a column of it that says whether there are rows.
fn is_mark(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_filtered(plan) && is_mark(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_mark(&alias.input),
        other => is_filtered_equally(other),
    }
}

fn count(arg: Expr, filter: Option<Expr>) -> Expr {
    call(count_udaf(), arg, filter)
}

fn call(function: Arc<AggregateUDF>, arg: Expr, filter: Option<Expr>) -> Expr {
    let call = AggregateFunction::new_udf(function, vec![arg], false, filter.map(Box::new), vec![], None);
    Expr::AggregateFunction(call)
}

fn by_name(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn negate(expr: Expr, negated: bool) -> Expr {
    if negated { !expr } else { expr }
}

fn subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }
}

fn scalar(plan: LogicalPlan) -> Expr {
    Expr::ScalarSubquery(subquery(plan))
}
