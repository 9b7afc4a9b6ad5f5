//! Names of a query, looked up for DataFusion's binder.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow::datatypes::{DataType, SchemaRef};
use chrono_tz::Tz;
use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, TableReference, plan_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, HigherOrderUDF, ScalarUDF, TableSource, Volatility, WindowUDF, create_udf,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::planner::{NullOrdering, ParserOptions};
use weir_common::catalog::{Object, ObjectKind};
use weir_common::{JobId, SqlState, SqlType};
use weir_stream::functions::cast_to;

use super::postgres::expr_planners;
use super::relation::{RelationTable, ViewTable};
use super::rewrite::{SERIES_ARRAY, WITH_TIES};
use super::types::Types;
use super::windows::relation_planners;
use super::{Scope, bind};
use crate::error::SqlError;

/// Views in views in views: a bound, in case a catalog is broken.
const VIEW_DEPTH_MAX: usize = 64;

/// What a table function is given as its session: it needs none, but must be given one.
static NO_SESSION: LazyLock<SessionState> = LazyLock::new(|| SessionStateBuilder::new().build());

/// Marks the number of `FETCH FIRST n ROWS WITH TIES`. It is never called.
static WITH_TIES_MARK: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let never = Arc::new(|args: &[ColumnarValue]| Ok(args[0].clone()));
    Arc::new(create_udf(WITH_TIES, vec![DataType::Int64], DataType::Int64, Volatility::Immutable, never))
});

/// Looks up the names of one query.
pub(super) struct Names<'a> {
    scope: &'a Scope<'a>,
    /// Identifiers in the query's text; a hidden column among them can be seen.
    identifiers: HashSet<String>,
    config: ConfigOptions,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    /// The objects that were looked up.
    used: Mutex<BTreeMap<JobId, Arc<Object>>>,
    view_depth: usize,
}

impl<'a> Names<'a> {
    pub(super) fn new(scope: &'a Scope<'a>, identifiers: HashSet<String>) -> Names<'a> {
        let mut config = scope.config.clone();
        config.sql_parser.enable_ident_normalization = true;
        Names {
            scope,
            identifiers,
            config,
            expr_planners: expr_planners(scope.functions),
            relation_planners: relation_planners(),
            used: Mutex::default(),
            view_depth: 0,
        }
    }

    /// How the binder reads SQL.
    pub(super) fn parser_options(&self) -> ParserOptions {
        ParserOptions::new()
            .with_parse_float_as_decimal(true)
            .with_enable_ident_normalization(true)
            .with_map_string_types_to_utf8view(false)
            .with_collect_spans(true)
            .with_default_null_ordering(NullOrdering::NullsMax)
    }

    /// The objects that were looked up, in the order of their ids.
    pub(super) fn used(&self) -> Vec<Arc<Object>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Whether the query may name a hidden column: these begin with an underscore.
    pub(super) fn may_name_hidden(&self) -> bool {
        self.identifiers.iter().any(|i| i.starts_with('_'))
    }

    pub(super) fn scope(&self) -> &'a Scope<'a> {
        self.scope
    }

    fn use_object(&self, object: &Arc<Object>) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(object.id, object.clone());
    }

    fn table(&self, name: &TableReference) -> Result<Arc<dyn TableProvider>> {
        if let Some(database) = name.catalog()
            && database != self.scope.database
        {
            let message = format!("cross-database references are not implemented: \"{name}\"");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
        }
        let schemas: Vec<&str> = match name.schema() {
            Some(schema) => vec![schema],
            None => std::iter::once("pg_catalog").chain(self.scope.search_path.iter().map(String::as_str)).collect(),
        };
        for schema in schemas {
            if let Some(object) = self.scope.relations.find(schema, name.table()) {
                return self.object(object);
            }
            if let Some(system) = self.scope.readers.system(schema, name.table())? {
                return Ok(system);
            }
        }
        let written = match name.schema() {
            Some(schema) => format!("{schema}.{}", name.table()),
            None => name.table().to_string(),
        };
        Err(SqlError::undefined_table(&written).into())
    }

    fn object(&self, object: Arc<Object>) -> Result<Arc<dyn TableProvider>> {
        match object.kind {
            ObjectKind::Table | ObjectKind::MaterializedView | ObjectKind::Source => {
                self.use_object(&object);
                let reader = self.scope.readers.relation(&object)?;
                let named = |name: &str| self.identifiers.contains(name);
                let table = Arc::new(RelationTable::new(object.clone(), reader, named));
                if object.kind == ObjectKind::Source && object.columns.iter().any(|c| c.generated.is_some()) {
                    return Ok(Arc::new(ViewTable::new(bind::generated(self.scope, &object, table)?)));
                }
                Ok(table)
            }
            ObjectKind::View => {
                self.use_object(&object);
                self.view(&object)
            }
            ObjectKind::Index | ObjectKind::Sink | ObjectKind::Subscription | ObjectKind::Secret => {
                let message = format!("\"{}\" is a{} {}", object.name, n(object.kind), object.kind.sql());
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into())
            }
        }
    }

    /// The query of a view, bound in its own scope.
    fn view(&self, object: &Object) -> Result<Arc<dyn TableProvider>> {
        if self.view_depth >= VIEW_DEPTH_MAX {
            let message = format!("view \"{}\" is nested too deeply", object.name);
            return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message).into());
        }
        let (plan, used) = bind::view(self.scope, object, self.view_depth + 1)?;
        used.iter().for_each(|o| self.use_object(o));
        Ok(Arc::new(ViewTable::new(plan)))
    }

    pub(super) fn at_depth(mut self, view_depth: usize) -> Names<'a> {
        self.view_depth = view_depth;
        self
    }
}

/// "an index", "a sink".
fn n(kind: ObjectKind) -> &'static str {
    if kind == ObjectKind::Index { "n" } else { "" }
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        self.table(&name).map(provider_as_source)
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let name = name.to_lowercase();
        let function = self.scope.functions.table.get(&name).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name} cannot be called in FROM"))
        })?;
        let args = args.into_iter().map(constant).collect::<Result<Vec<_>>>()?;
        let provider = function.create_table_provider_with_args(TableFunctionArgs::new(&args, &*NO_SESSION))?;
        Ok(provider_as_source(provider))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expr_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(Types))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if name == WITH_TIES {
            return Some(WITH_TIES_MARK.clone());
        }
        let name = if name == SERIES_ARRAY { "generate_series" } else { name };
        self.scope.functions.scalar.get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.scope.functions.higher_order.get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.scope.functions.aggregate.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.scope.functions.window.get(name).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.config
    }

    fn udf_names(&self) -> Vec<String> {
        self.scope.functions.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.scope.functions.higher_order.keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.scope.functions.aggregate.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.scope.functions.window.keys().cloned().collect()
    }
}

/// The value of an expression without columns.
pub(super) fn constant(expr: Expr) -> Result<Expr> {
    // Text becomes what it says as PostgreSQL reads it.
    let expr = expr.transform_up(|e| {
        Ok(match e {
            Expr::Cast(cast) if matches!(&*cast.expr, Expr::Literal(ScalarValue::Utf8(_), _)) => {
                match SqlType::from_arrow(cast.field.data_type()) {
                    Some(sql_type) => Transformed::yes(cast_to(*cast.expr, &sql_type, Tz::UTC)),
                    None => Transformed::no(Expr::Cast(cast)),
                }
            }
            other => Transformed::no(other),
        })
    })?;
    let simplifier = ExprSimplifier::new(SimplifyContext::builder().build());
    let coerced = simplifier.coerce(expr.data, &DFSchema::empty())?;
    simplifier.simplify(coerced)
}

/// The value of a constant expression, or an error that says what it is for.
pub(super) fn literal(expr: Expr, what: &str) -> Result<ScalarValue> {
    match constant(expr)? {
        Expr::Literal(value, _) => Ok(value),
        other => Err(plan_datafusion_err!("{what} must be a constant, not {other}")),
    }
}
