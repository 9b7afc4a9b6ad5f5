//! From a parsed query to a bound plan with PostgreSQL's meaning.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion::common::{Column, DFSchema, Result as DFResult, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast;
use weir_common::catalog::{ColumnDef, Object};
use weir_common::{SqlState, SqlType};

use super::context::Names;
use super::relation::RelationTable;
use super::using::{self, Columns};
use super::{Scope, logical, names, outer, rewrite};
use crate::error::{Result, SqlError};
use crate::statement;

/// A query, bound to the catalog.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Column `i` of the plan is `columns[i]`; the plan's fields may be named otherwise. Types are coerced, so analyzing it
    /// again changes nothing.
    pub plan: LogicalPlan,
    pub columns: Vec<BoundColumn>,
    /// The types of `$1`, `$2` …; what nothing tells the type of is text.
    pub params: Vec<SqlType>,
    /// The objects that the query names, views and what they name included.
    pub relations: Vec<Arc<Object>>,
}

/// A column of a query's result.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundColumn {
    pub name: String,
    pub sql_type: SqlType,
}

/// Binds a query. `params` are the declared types of `$1`, `$2` …, as far as there are any.
pub fn plan_query(scope: &Scope<'_>, query: &ast::Query, params: &[Option<SqlType>]) -> Result<Bound> {
    plan_query_with(scope, query, params, &[])
}

/// Binds a query that may name hidden columns in other ways than by its text: `hidden` lists those to show in `*`.
pub(super) fn plan_query_with(
    scope: &Scope<'_>,
    query: &ast::Query,
    params: &[Option<SqlType>],
    hidden: &[String],
) -> Result<Bound> {
    let identifiers: HashSet<String> = rewrite::identifiers(query).into_iter().chain(hidden.iter().cloned()).collect();
    let names = Names::new(scope, identifiers);
    let (plan, params) = bind(&names, query.clone(), params)?;
    let columns = columns(&plan)?;
    Ok(Bound { plan, columns, params, relations: names.used() })
}

/// Binds an expression over the given columns: a default, a generated column, the right side of SET. The result has the
/// type `target`, converted as an assignment does, if one is given. Evaluate it with
/// `datafusion::physical_expr::create_physical_expr` on the same schema.
pub fn plan_expr(
    scope: &Scope<'_>,
    expr: &ast::Expr,
    columns: &DFSchema,
    target: Option<&SqlType>,
    params: &[Option<SqlType>],
) -> Result<Expr> {
    let rewritten = rewrite::expr(expr)?;
    let names = Names::new(scope, HashSet::new());
    let planner = SqlToRel::new_with_options(&names, names.parser_options());
    let mut context = PlannerContext::new().with_prepare_param_data_types(declared(params));
    let expr = planner.sql_to_expr(rewritten, columns, &mut context)?;
    Ok(logical::expr(scope, expr, columns, target.map(SqlType::to_arrow).as_ref())?)
}

/// The plan of a view's query, its columns as they were when it was made, and the objects that it names.
pub(super) fn view(scope: &Scope<'_>, object: &Object, depth: usize) -> DFResult<(LogicalPlan, Vec<Arc<Object>>)> {
    let broken = |message: String| SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message);
    let text = object.query.as_deref().unwrap_or_default();
    let query = statement::parse_query(text)
        .map_err(|e| broken(format!("the query of view \"{}\" cannot be read: {e}", object.name)))?;
    let path = [object.schema.clone()];
    let scope = Scope { search_path: &path, ..*scope };
    let names = Names::new(&scope, rewrite::identifiers(&query)).at_depth(depth);
    let (plan, _) = bind(&names, *query, &[])?;
    let mut exprs = Vec::with_capacity(object.columns.len());
    for (i, column) in object.columns.iter().enumerate() {
        let field = view_column(&plan, i, column).ok_or_else(|| {
            broken(format!("column \"{}\" of view \"{}\" is not there any more", column.name, object.name))
        })?;
        exprs.push(cast(Expr::Column(field), column.sql_type.to_arrow()).alias(&column.name));
    }
    let plan = LogicalPlanBuilder::from(plan).project(exprs)?.build()?;
    Ok((plan, names.used()))
}

/// A source with the columns that it generates.
pub(super) fn generated(scope: &Scope<'_>, object: &Object, table: Arc<RelationTable>) -> DFResult<LogicalPlan> {
    let read = LogicalPlanBuilder::scan(object.name.clone(), provider_as_source(table), None)?.build()?;
    let mut exprs = Vec::with_capacity(object.columns.len());
    for column in &object.columns {
        let stored = Column::new(Some(TableReference::bare(object.name.clone())), &column.name);
        let expr = match &column.generated {
            None if !read.schema().has_column(&stored) => continue,
            None => Expr::Column(stored),
            Some(sql) => {
                let parsed = statement::parse_expr(sql);
                let parsed = parsed.map_err(|e| SqlError::syntax(e.to_string()))?;
                plan_expr(scope, &parsed, read.schema(), Some(&column.sql_type), &[])?.alias(&column.name)
            }
        };
        exprs.push(expr);
    }
    LogicalPlanBuilder::from(read).project(exprs)?.build()
}

/// The column of a view's plan: by position, unless what is there now has another name and exactly one has that.
fn view_column(plan: &LogicalPlan, i: usize, column: &ColumnDef) -> Option<datafusion::common::Column> {
    let fields = plan.schema().columns();
    let named: Vec<_> = fields.iter().filter(|f| names::shown(&f.name) == column.name).collect();
    match fields.get(i) {
        Some(field) if names::shown(&field.name) == column.name => Some(field.clone()),
        other => match named[..] {
            [one] => Some(one.clone()),
            _ => other.cloned(),
        },
    }
}

fn declared(params: &[Option<SqlType>]) -> Vec<Option<FieldRef>> {
    let field = |t: &SqlType| -> FieldRef { Arc::new(Field::new("", t.to_arrow(), true)) };
    params.iter().map(|p| p.as_ref().map(field)).collect()
}

/// What `*` of something in FROM gives.
struct VisibleColumns<'a>(&'a Scope<'a>);

impl Columns for VisibleColumns<'_> {
    fn columns(&self, query: &ast::Query) -> Result<Vec<(Option<String>, String)>> {
        let names = Names::new(self.0, rewrite::identifiers(query));
        let planner = SqlToRel::new_with_options(&names, names.parser_options());
        let statement = ast::Statement::Query(Box::new(rewrite::query(query)?));
        let plan = planner.sql_statement_to_plan(statement)?;
        let column = |(qualifier, field): (Option<&TableReference>, &FieldRef)| {
            (qualifier.map(|q| q.table().to_string()), names::shown(field.name()).to_string())
        };
        Ok(plan.schema().iter().map(column).collect())
    }
}

fn bind(names: &Names<'_>, mut query: ast::Query, params: &[Option<SqlType>]) -> DFResult<(LogicalPlan, Vec<SqlType>)> {
    outer::rename(&mut query, &VisibleColumns(names.scope()))?;
    using::expand(&mut query, &VisibleColumns(names.scope()), names.may_name_hidden())?;
    let query = rewrite::query(&query)?;
    let planner = SqlToRel::new_with_options(names, names.parser_options());
    let mut context = PlannerContext::new().with_prepare_param_data_types(declared(params));
    let statement = ast::Statement::Query(Box::new(query));
    let plan = planner.sql_statement_to_plan_with_context(statement, &mut context)?;
    let plan = logical::type_params(plan)?;
    let params = param_types(&plan, params)?;
    let plan = logical::analyze(names.scope(), plan)?;
    Ok((plan, params))
}

/// The types of all parameters, by number.
fn param_types(plan: &LogicalPlan, declared: &[Option<SqlType>]) -> DFResult<Vec<SqlType>> {
    let mut types: BTreeMap<usize, SqlType> = BTreeMap::new();
    for (name, data_type) in plan.get_parameter_types()? {
        let number = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()).filter(|n| *n > 0);
        let Some(number) = number else {
            return Err(SqlError::syntax(format!("there is no parameter {name}")).into());
        };
        let sql_type = data_type.as_ref().and_then(SqlType::from_arrow).unwrap_or(SqlType::Varchar);
        types.insert(number, sql_type);
    }
    let count = types.keys().next_back().copied().unwrap_or(0).max(declared.len());
    let by_number = |n: usize| {
        let declared = declared.get(n - 1).cloned().flatten();
        declared.or_else(|| types.get(&n).cloned()).unwrap_or(SqlType::Varchar)
    };
    Ok((1..=count).map(by_number).collect())
}

fn columns(plan: &LogicalPlan) -> Result<Vec<BoundColumn>> {
    let column = |field: &FieldRef| {
        let sql_type = SqlType::from_arrow(field.data_type()).ok_or_else(|| {
            SqlError::unsupported(format!("a column of type {}", field.data_type()))
                .with_hint("Cast it to another type.")
        })?;
        Ok(BoundColumn { name: names::shown(field.name()).to_string(), sql_type })
    };
    plan.schema().fields().iter().map(column).collect()
}
