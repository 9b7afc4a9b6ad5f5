//! Relations as queries see them: catalog objects, and where their rows come from when a query is run.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result, plan_datafusion_err};
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use weir_common::catalog::{Object, ObjectKind};

/// Where names of relations are looked up: the catalog.
pub trait Relations: Send + Sync {
    /// The object of that name, of whatever kind.
    fn find(&self, schema: &str, name: &str) -> Option<Arc<Object>>;
}

/// Where the rows of a batch query come from.
pub trait Readers: Send + Sync {
    /// Reads a table, materialized view, index or source. The schema must be [`relation_schema`].
    fn relation(&self, object: &Arc<Object>) -> Result<Option<Arc<dyn TableProvider>>>;

    /// A relation of `pg_catalog`, `information_schema` or `weir_catalog`.
    fn system(&self, schema: &str, name: &str) -> Result<Option<Arc<dyn TableProvider>>>;
}

/// For plans that are not run: views, EXPLAIN.
pub struct NoReaders;

impl Readers for NoReaders {
    fn relation(&self, _object: &Arc<Object>) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(None)
    }

    fn system(&self, _schema: &str, _name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(None)
    }
}

/// All columns of a relation, hidden ones included, in the order of its table.
pub fn relation_schema(object: &Object) -> SchemaRef {
    let field = |(i, column): (usize, &weir_common::catalog::ColumnDef)| {
        let not_null = column.not_null || object.primary_key.contains(&i);
        Field::new(&column.name, column.sql_type.to_arrow(), !not_null)
    };
    Arc::new(Schema::new(object.columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// A relation in a bound plan.
pub struct RelationTable {
    object: Arc<Object>,
    /// The columns that the query can name, as indices into the object's.
    columns: Vec<usize>,
    schema: SchemaRef,
    reader: Option<Arc<dyn TableProvider>>,
}

impl RelationTable {
    /// The relation with its visible columns, and those hidden ones that `named` wants.
    pub fn new(
        object: Arc<Object>,
        reader: Option<Arc<dyn TableProvider>>,
        named: impl Fn(&str) -> bool,
    ) -> RelationTable {
        // What a source generates is computed above it.
        let is_source = object.kind == ObjectKind::Source;
        let shown = |i: &usize| {
            let column = &object.columns[*i];
            (!column.hidden || named(&column.name)) && !(is_source && column.generated.is_some())
        };
        let columns: Vec<usize> = (0..object.columns.len()).filter(shown).collect();
        let all = relation_schema(&object);
        let fields: Vec<_> = columns.iter().map(|i| all.fields()[*i].clone()).collect();
        RelationTable { schema: Arc::new(Schema::new(fields)), object, columns, reader }
    }

    /// The object of the catalog.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// For each column of the table's schema, its index in the object's columns.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }
}

impl fmt::Debug for RelationTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelationTable({})", self.object.full_name())
    }
}

#[async_trait]
impl TableProvider for RelationTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let reader = self.reader.as_ref();
        let reader =
            reader.ok_or_else(|| plan_datafusion_err!("\"{}\" cannot be read by a query", self.object.name))?;
        let columns = match projection {
            Some(projection) => projection.iter().map(|i| self.columns[*i]).collect(),
            None => self.columns.clone(),
        };
        reader.scan(state, Some(&columns), filters, limit).await
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        match &self.reader {
            Some(reader) => reader.supports_filters_pushdown(filters),
            None => Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()]),
        }
    }
}

/// A view, as the plan of its query.
pub(super) struct ViewTable {
    plan: LogicalPlan,
}

impl ViewTable {
    pub(super) fn new(plan: LogicalPlan) -> ViewTable {
        ViewTable { plan }
    }
}

impl fmt::Debug for ViewTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ViewTable")
    }
}

#[async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        self.plan.schema().inner().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::Internal("a view is inlined where it is bound".into()))
    }
}
