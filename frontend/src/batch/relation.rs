//! A relation of the store as DataFusion reads it.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use weir_common::catalog::Object;
use weir_common::{JobId, TableDef};

use super::lookup;
use super::overlay::SharedOverlay;
use super::readers::ReadPoint;
use super::scan::{RelationScan, Rows};
use crate::error::SqlError;

/// Relations with no more rows are read in one piece.
const SMALL_ROWS: usize = 1024;

/// Reads the rows of a table, materialized view or index.
pub(super) struct RelationReader {
    name: String,
    /// Not of a state table.
    relation: Option<JobId>,
    def: Arc<TableDef>,
    schema: SchemaRef,
    point: ReadPoint,
    overlay: SharedOverlay,
}

impl RelationReader {
    pub(super) fn new(object: Arc<Object>, def: TableDef, point: ReadPoint, overlay: SharedOverlay) -> RelationReader {
        let schema = crate::planner::relation_schema(&object);
        let (name, relation) = (object.full_name(), Some(object.id));
        RelationReader { name, relation, def: Arc::new(def), schema, point, overlay }
    }

    /// Of a table that is not a relation of the catalog.
    pub(super) fn of_state(name: String, def: TableDef, point: ReadPoint) -> RelationReader {
        let mut fields: Vec<Field> = Vec::new();
        for field in def.schema.fields() {
            let same = fields
                .iter()
                .filter(|f| f.name() == field.name() || f.name().starts_with(&format!("{}:", field.name())));
            let name = match same.count() {
                0 => field.name().clone(),
                n => format!("{}:{}", field.name(), n + 1),
            };
            fields.push(field.as_ref().clone().with_name(name));
        }
        let schema = Arc::new(Schema::new(fields));
        RelationReader { name, relation: None, def: Arc::new(def), schema, point, overlay: None }
    }

    /// A small relation is read at once: going through its vnodes one by one would take longer.
    async fn all_rows(&self) -> Result<Rows> {
        let (snapshot, def) = (self.point.get()?, self.def.clone());
        let read = tokio::task::spawn_blocking(move || snapshot.scan_table(&def, None, SMALL_ROWS)).await;
        let read = read.map_err(|e| SqlError::internal(format!("read a relation: {e}")))?;
        Ok(match read.map_err(SqlError::from)? {
            (rows, None) => Rows::Read(rows),
            (_, Some(_)) => Rows::All,
        })
    }
}

impl fmt::Debug for RelationReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelationReader({})", self.name)
    }
}

#[async_trait]
impl TableProvider for RelationReader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Looked-up rows are filtered again above: a key that is named is not all that a filter may say.
        let support = |filter: &&Expr| match lookup::is_useful(&self.def, filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&projection)?);
        let rows = match lookup::keys(&self.def, filters) {
            Some(keys) if !lookup::is_empty(&keys) => Rows::Keys(keys),
            _ => self.all_rows().await?,
        };
        // A limit counts rows after filtering, so with filters it is not ours to apply.
        let limit = limit.filter(|_| filters.is_empty());
        let past = self.relation.and_then(|relation| self.point.past(relation));
        let overlays = past.into_iter().chain(self.overlay.clone()).collect();
        let scan = RelationScan::new(
            self.name.clone(),
            self.def.clone(),
            schema,
            projection,
            rows,
            limit,
            self.point.clone(),
            overlays,
        );
        Ok(Arc::new(scan))
    }
}
