//! CREATE and DROP.
//!
//! A CREATE checks names, plans the job, takes ids for it and its tables, and gives the object to meta, which starts the
//! job. DDL takes effect at once, also in a transaction block.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast;
use weir_common::catalog::{Object, ObjectKind};
use weir_common::plan::JobPlan;
use weir_common::{Chunk, JobId};
use weir_meta::logs::LIMIT_OPTION;
use weir_stream::rate_limit::RateLimits;

use super::{Moment, Reply, Session};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{self, Bound, Planned};
use crate::statement::{self, Body, Ident, Name, Statement};

mod alter;
mod backfill_order;
mod drop;
mod index;
mod names;
mod renamed;
mod schema;
mod secret;
mod sink;
mod subscription;
mod table;
mod view;

pub(super) use names::common_tables;

/// A new object: all but its plan and ids.
struct New<'a> {
    schema: String,
    name: String,
    kind: ObjectKind,
    statement: &'a Statement,
}

impl New<'_> {
    /// The object, without columns, plan and id.
    fn object(&self, owner: &str) -> Object {
        Object {
            id: JobId(0),
            schema: self.schema.clone(),
            name: self.name.clone(),
            kind: self.kind,
            columns: vec![],
            primary_key: vec![],
            append_only: false,
            definition: match self.kind {
                ObjectKind::Sink | ObjectKind::Source | ObjectKind::Table => statement::redacted(&self.statement.text),
                _ => self.statement.text.clone(),
            },
            query: None,
            options: Default::default(),
            format: None,
            depends_on: vec![],
            plan: None,
            owner: owner.to_string(),
            paused: false,
            replaces: None,
            into: None,
            retention: None,
            parallelism: None,
            created_ms: weir_meta::now_ms(),
        }
    }
}

impl Session {
    /// The place of a new object. `Err` with a reply inside: it is there already, and IF NOT EXISTS was said.
    fn place<'a>(
        &self,
        moment: &Moment<'_>,
        name: &Name,
        kind: ObjectKind,
        if_not_exists: bool,
        statement: &'a Statement,
    ) -> Result<Result<New<'a>, Reply>> {
        let (schema, object) = moment.target(name)?;
        if moment.catalog.find(&schema, &object).is_none() {
            return Ok(Ok(New { schema, name: object, kind, statement }));
        }
        if if_not_exists {
            return Ok(Err(skipped(&object, &tag("CREATE", kind))));
        }
        Err(name.mark(exists(&object)))
    }

    /// Gives an object its ids and hands it to meta.
    async fn register(
        &self,
        mut object: Object,
        planned: Option<Planned>,
        foreground: bool,
        first: impl FnOnce(&Object) -> Result<Vec<Chunk>>,
    ) -> Result<()> {
        let needed = planned.as_ref().map_or(0, Planned::ids_needed);
        let id = self.meta.allocate_ids(1 + needed).await?;
        object.id = JobId(id);
        if let Some(planned) = planned {
            let planned = planned.number(object.id, id + 1);
            object.columns = planned.columns;
            object.primary_key = planned.primary_key;
            object.append_only = planned.append_only;
            object.plan = Some(planned.plan);
        }
        let first = first(&object)?;
        Ok(self.meta.create(object, foreground, first).await?)
    }

    /// Registers an object; another session may have been faster.
    async fn create(
        &self,
        object: Object,
        planned: Option<Planned>,
        foreground: bool,
        if_not_exists: bool,
    ) -> Result<Reply> {
        let (name, tag) = (object.name.clone(), tag("CREATE", object.kind));
        match self.register(object, planned, foreground, |_| Ok(Vec::new())).await {
            Ok(_) => Ok(Reply::command(tag)),
            Err(error) if if_not_exists && error.state == SqlState::DUPLICATE_TABLE => Ok(skipped(&name, &tag)),
            Err(error) => Err(error),
        }
    }

    /// Actors of each fragment of a new job, if the session says how many.
    fn wanted_parallelism(&self, moment: &Moment<'_>, kind: ObjectKind) -> Option<usize> {
        let setting = match kind {
            ObjectKind::Table => "streaming_parallelism_for_table",
            ObjectKind::Index => "streaming_parallelism_for_index",
            ObjectKind::Sink => "streaming_parallelism_for_sink",
            ObjectKind::Source
            | ObjectKind::View
            | ObjectKind::MaterializedView
            | ObjectKind::Subscription
            | ObjectKind::Secret => "streaming_parallelism_for_materialized_view",
        };
        moment.settings.streaming_parallelism(setting)
    }

    /// Actors of each fragment of a new job.
    fn parallelism(&self, moment: &Moment<'_>, kind: ObjectKind) -> usize {
        weir_meta::actors(self.wanted_parallelism(moment, kind))
    }

    /// The options of a new job: those of WITH, which must be known, and the limits that the session sets.
    fn job_options(
        &self,
        moment: &Moment<'_>,
        kind: ObjectKind,
        given: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>> {
        let mut options = given.clone();
        for (name, value) in given {
            if RateLimits::OPTIONS.contains(&name.as_str()) && !rate_limits(kind).contains(&name.as_str()) {
                let message = format!("{} has no {name}", super::show::with_article(kind));
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            if rate_limits(kind).contains(&name.as_str()) {
                check_rate_limit(name, value)?;
            }
        }
        if let Some(limit) = options.get_mut(LIMIT_OPTION) {
            *limit = bytes(limit)?.to_string();
        }
        for name in rate_limits(kind) {
            let limit = moment.settings.get(name)?;
            if limit.parse::<u64>().is_ok() {
                options.entry(name.to_string()).or_insert(limit);
            }
        }
        Ok(options)
    }

    /// The plan of the job that a CREATE would make, for EXPLAIN. `None`: it makes none.
    pub(super) fn plan_job(&self, moment: &Moment<'_>, body: &Body) -> Result<Option<JobPlan>> {
        Ok(match body {
            Body::CreateTable(table) => Some(self.plan_table(moment, table)?.1.plan),
            Body::CreateView(view) if view.materialized => {
                let bound = view::bind(moment, view)?;
                Some(planner::plan_view(&bound, self.parallelism(moment, ObjectKind::MaterializedView))?.plan)
            }
            Body::CreateIndex(index) => Some(self.plan_index(moment, index)?.1.plan),
            Body::CreateSink(sink) => Some(self.plan_sink(moment, sink)?.1.plan),
            _ => None,
        })
    }
}

/// The limits that a job of this kind obeys.
fn rate_limits(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Table => &["source_rate_limit", "dml_rate_limit"],
        ObjectKind::MaterializedView => &["backfill_rate_limit", "source_rate_limit"],
        ObjectKind::Index => &["backfill_rate_limit"],
        ObjectKind::Sink => &["backfill_rate_limit", "source_rate_limit", "sink_rate_limit"],
        ObjectKind::Source => &["source_rate_limit"],
        ObjectKind::View | ObjectKind::Subscription | ObjectKind::Secret => &[],
    }
}

/// The options that jobs of this kind have, beside those of a connector.
fn is_job_option(kind: ObjectKind, name: &str) -> bool {
    let has_log = matches!(kind, ObjectKind::Table | ObjectKind::MaterializedView | ObjectKind::Sink);
    rate_limits(kind).contains(&name)
        || has_log && name == LIMIT_OPTION
        || kind == ObjectKind::MaterializedView && name == backfill_order::OPTION
}

/// Refuses options that are not known.
fn check_options(options: &BTreeMap<String, String>, is_known: impl Fn(&str) -> bool) -> Result<()> {
    match options.keys().find(|name| !is_known(name)) {
        Some(unknown) => Err(unrecognized(unknown)),
        None => Ok(()),
    }
}

fn unrecognized(option: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized parameter \"{option}\""))
}

/// A number of bytes: `1000`, `64 MB`, `1GB`.
fn bytes(text: &str) -> Result<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim().to_lowercase().as_str() {
        "" | "b" => Some(1),
        "kb" => Some(1 << 10),
        "mb" => Some(1 << 20),
        "gb" => Some(1 << 30),
        "tb" => Some(1 << 40),
        _ => None,
    };
    let number = text[..digits].parse::<u64>().ok();
    number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit)).ok_or_else(|| {
        let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid number of bytes: \"{text}\""));
        error.with_hint("Valid units are \"B\", \"kB\", \"MB\", \"GB\" and \"TB\".")
    })
}

fn check_rate_limit(name: &str, value: &str) -> Result<()> {
    if value == "-1" || value.eq_ignore_ascii_case("default") || value.parse::<u64>().is_ok() {
        return Ok(());
    }
    let message = format!("invalid value for option \"{name}\": \"{value}\"");
    let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    Err(error.with_hint("It is a number of rows per second; 0 pauses, -1 lifts the limit."))
}

/// The objects that a bound query names.
fn dependencies(bound: &Bound) -> Vec<JobId> {
    bound.relations.iter().map(|o| o.id).collect()
}

/// Gives the first columns of a query other names.
fn rename(bound: &mut Bound, names: &[Ident], what: &str) -> Result<()> {
    if let Some(extra) = names.get(bound.columns.len()) {
        return Err(extra.mark(SqlError::syntax(format!("{what} specifies more column names than columns"))));
    }
    for (column, name) in bound.columns.iter_mut().zip(names) {
        column.name = name.value.clone();
    }
    Ok(())
}

/// `CREATE MATERIALIZED VIEW`, `DROP TABLE` …
fn tag(act: &str, kind: ObjectKind) -> String {
    format!("{act} {}", kind.sql().to_uppercase())
}

fn exists(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

fn skipped(name: &str, tag: &str) -> Reply {
    let mut notice = SqlError::notice(format!("relation \"{name}\" already exists, skipping"));
    notice.state = SqlState::DUPLICATE_TABLE;
    Reply::noticed(tag, vec![notice])
}

/// `SELECT * FROM relation`.
pub(super) fn select_all(object: &Object) -> ast::Query {
    let from = super::build::table(&object.schema, &object.name, &object.name);
    let visible = object.columns.iter().filter(|c| !c.hidden);
    let items = visible.map(|c| super::build::named(super::build::column(&object.name, &c.name), &c.name)).collect();
    super::build::select(items, vec![from], None)
}
