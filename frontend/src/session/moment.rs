//! The catalog, settings and read point of one statement.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, ParamValues};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SessionConfig;
use datafusion::sql::sqlparser::ast;
use weir_common::catalog::{Object, ObjectKind};
use weir_common::types::SqlType;
use weir_common::{Epoch, JobId};
use weir_meta::Catalog;

use super::consistency::{Reading, refuse_versions};
use super::transaction::Transaction;
use super::{DATABASE, Params, Session, Settings};
use crate::batch::{self, Overlay, ReadPoint, StoreReaders};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{self, Bound, FunctionSet, NoReaders, Readers, Relations, Scope};
use crate::statement::Name;
use crate::system::{self, SystemRelations};

/// The functions that views, defaults and generated columns may call.
static KEPT_FUNCTIONS: LazyLock<FunctionSet> = LazyLock::new(FunctionSet::standard);

/// What a statement sees. Made once per statement, so that all of it sees the same.
pub(crate) struct Moment<'s> {
    pub session: &'s Session,
    pub catalog: Arc<Catalog>,
    pub settings: Settings,
    pub search_path: Vec<String>,
    pub config: SessionConfig,
    point: ReadPoint,
    overlays: HashMap<JobId, Arc<Overlay>>,
    /// Rows that stand in for those of a relation.
    replaced: BTreeMap<JobId, Arc<dyn TableProvider>>,
}

impl Relations for Catalog {
    fn find(&self, schema: &str, name: &str) -> Option<Arc<Object>> {
        Catalog::find(self, schema, name).cloned()
    }
}

impl Session {
    /// The moment for a new statement.
    pub(super) fn moment(&self) -> Result<Moment<'_>> {
        let (settings, overlays) = {
            let state = self.state();
            let mut overlays = HashMap::new();
            if let Transaction::Active(block) = &state.transaction {
                for (table, write) in &block.writes {
                    overlays.insert(*table, Arc::new(write.pending.overlay()?));
                }
            }
            (state.settings.clone(), overlays)
        };
        Ok(Moment {
            session: self,
            catalog: self.meta.catalog(),
            search_path: settings.search_path(),
            config: batch::config(settings.time_zone().name()),
            settings,
            point: ReadPoint::default(),
            overlays,
            replaced: BTreeMap::new(),
        })
    }
}

impl Moment<'_> {
    /// Binds a query that is going to be run.
    pub fn plan(&self, query: &ast::Query, declared: &[Option<SqlType>]) -> Result<Bound> {
        refuse_versions(query)?;
        let relations = SystemRelations { moment: self };
        let system = |schema: &str, name: &str| system::table(&relations, schema, name);
        let readers = StoreReaders {
            point: self.point.clone(),
            overlays: self.overlays.clone(),
            replaced: self.replaced.clone(),
            system: &system,
        };
        planner::plan_query(&self.scope(&readers), query, declared)
    }

    /// Binds a query that is kept: of a view or sink.
    pub fn plan_kept(&self, query: &ast::Query) -> Result<Bound> {
        refuse_versions(query)?;
        planner::plan_query(&self.kept_scope(), query, &[])
    }

    /// Binds an expression over columns.
    pub fn plan_expr(&self, expr: &ast::Expr, columns: &DFSchema, target: Option<&SqlType>) -> Result<Expr> {
        planner::plan_expr(&self.kept_scope(), expr, columns, target, &[])
    }

    /// What names mean in what is kept: no rows, and no function that tells about a session.
    pub fn kept_scope(&self) -> Scope<'_> {
        Scope { functions: &KEPT_FUNCTIONS, ..self.scope(&NoReaders) }
    }

    /// What names mean.
    fn scope<'a>(&'a self, readers: &'a dyn Readers) -> Scope<'a> {
        Scope {
            relations: self.catalog.as_ref(),
            readers,
            database: DATABASE,
            search_path: &self.search_path,
            functions: &self.session.functions,
            config: self.config.options(),
        }
    }

    /// What the statement's readers share.
    pub fn read_point(&self) -> ReadPoint {
        self.point.clone()
    }

    /// From here on a relation has these rows.
    pub fn replace(&mut self, relation: JobId, rows: Arc<dyn TableProvider>) {
        self.replaced.insert(relation, rows);
    }

    /// Waits until the relations of a plan can be read and hold what the session has written, then fixes the snapshot that
    /// the statement reads.
    pub async fn settle(&self, relations: &[Arc<Object>]) -> Result<()> {
        self.settle_for(relations, Reading::Latest).await
    }

    /// The same, for a query that may read all relations at one epoch.
    pub(super) async fn settle_for(&self, relations: &[Arc<Object>], reading: Reading) -> Result<()> {
        let meta = &self.session.meta;
        let written = self.session.state().written.clone();
        let with_rows = || relations.iter().filter(|o| o.plan.is_some());
        let own_writes = |object: &Object| match self.settings.is_on("read_your_writes") {
            true => self.last_write_into(object, &written),
            false => Epoch::ZERO,
        };
        let newest = match reading {
            Reading::Aligned => with_rows().map(|o| own_writes(o)).max().unwrap_or(Epoch::ZERO),
            Reading::Latest | Reading::AsOf(_) => Epoch::ZERO,
        };
        let wait = async {
            for object in with_rows() {
                let epoch = match reading {
                    Reading::Latest => own_writes(object),
                    // The common epoch must have them all.
                    Reading::Aligned => newest,
                    // What is asked for is older.
                    Reading::AsOf(_) => Epoch::ZERO,
                };
                meta.wait_for(&[object.id], epoch).await?;
            }
            Ok::<(), SqlError>(())
        };
        match self.settings.milliseconds("read_your_writes_timeout").map(Duration::from_millis) {
            Some(limit) => tokio::time::timeout(limit, wait).await.map_err(|_| behind())??,
            None => wait.await?,
        }
        let (snapshot, past) = self.snapshot_for(relations, reading).await?;
        self.point.set(snapshot, past);
        // What was dropped before the snapshot was taken has no rows in it.
        let now = meta.catalog();
        match relations.iter().find(|o| now.get(o.id).is_none()) {
            Some(gone) => Err(SqlError::undefined_table(&gone.name)),
            None => Ok(()),
        }
    }

    /// The newest epoch in which the session wrote to a table that the relation is computed from.
    fn last_write_into(&self, object: &Object, written: &BTreeMap<JobId, Epoch>) -> Epoch {
        if written.is_empty() {
            return Epoch::ZERO;
        }
        let (mut open, mut seen, mut newest) = (vec![object.id], BTreeSet::new(), Epoch::ZERO);
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                newest = newest.max(written.get(&id).copied().unwrap_or(Epoch::ZERO));
                open.extend(self.catalog.get(id).into_iter().flat_map(|o| o.depends_on.iter().copied()));
            }
        }
        newest
    }

    /// The snapshot that the statement reads.
    pub fn snapshot(&self) -> Result<weir_storage::Snapshot> {
        self.point.get()
    }

    /// What the open block has written to a table.
    pub fn overlay(&self, table: JobId) -> Option<&Arc<Overlay>> {
        self.overlays.get(&table)
    }

    /// The object that a name means, of whatever kind.
    pub fn find(&self, name: &Name) -> Result<Option<Arc<Object>>> {
        if let Some(database) = &name.database
            && database.value != DATABASE
        {
            let message = format!("cross-database references are not implemented: \"{}\"", database.value);
            return Err(database.mark(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)));
        }
        let find = |schema: &str| self.catalog.find(schema, &name.name.value).cloned();
        Ok(match &name.schema {
            Some(schema) => find(&schema.value),
            None => self.search_path.iter().find_map(|schema| find(schema)),
        })
    }

    /// The object that a name means, or `relation "x" does not exist`.
    pub fn get(&self, name: &Name) -> Result<Arc<Object>> {
        self.find(name)?.ok_or_else(|| name.mark(SqlError::undefined_table(&name.to_string())))
    }

    /// The table that a statement writes to.
    pub fn writable(&self, name: &Name) -> Result<Arc<Object>> {
        let Some(object) = self.find(name)? else {
            let schemas: Vec<&str> = match &name.schema {
                Some(schema) => vec![&schema.value],
                None => vec!["pg_catalog"],
            };
            if schemas.iter().any(|schema| system::exists(schema, &name.name.value)) {
                let message = format!("permission denied: \"{name}\" is a system catalog");
                return Err(name.mark(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)));
            }
            return Err(name.mark(SqlError::undefined_table(&name.to_string())));
        };
        let refuse = |message: String| name.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        match object.kind {
            ObjectKind::Table => Ok(object),
            ObjectKind::Index => Err(refuse(format!("cannot open relation \"{}\"", object.name))),
            kind => Err(refuse(format!("cannot change {} \"{}\"", kind.sql(), object.name))),
        }
    }

    /// The schema that a new object goes to, and its name.
    pub fn target(&self, name: &Name) -> Result<(String, String)> {
        self.find(&Name { schema: None, ..name.clone() })?;
        let schema = match &name.schema {
            Some(schema) => schema.value.clone(),
            None => self.search_path.iter().find(|s| self.catalog.has_schema(s)).cloned().ok_or_else(|| {
                SqlError::new(SqlState::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
            })?,
        };
        if system::is_system_schema(&schema) {
            let message = format!("permission denied to create \"{schema}.{}\"", name.name.value);
            return Err(name.mark(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)));
        }
        if !self.catalog.has_schema(&schema) {
            let message = format!("schema \"{schema}\" does not exist");
            return Err(name.mark(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message)));
        }
        Ok((schema, name.name.value.clone()))
    }
}

/// Puts values in the place of parameters.
pub(super) fn with_values(plan: LogicalPlan, params: Params<'_>) -> Result<LogicalPlan> {
    if params.values.is_empty() {
        return Ok(plan);
    }
    Ok(plan.with_param_values(ParamValues::from(params.values.to_vec()))?)
}

fn behind() -> SqlError {
    SqlError::new(
        SqlState::NOT_IN_PREREQUISITE_STATE,
        "the relations of the query do not hold the session's last writes yet",
    )
    .with_hint("Raise read_your_writes_timeout, or SET read_your_writes TO off to read what is there.")
}
