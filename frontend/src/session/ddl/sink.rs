//! CREATE SINK.
//!
//! A sink is a job that keeps the change log of its query, and a delivery that reads it: into a table, or out through a
//! connector. `blackhole` needs neither: its job forgets the rows.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::sql::sqlparser::ast;
use weir_common::JobId;
use weir_common::catalog::{Object, ObjectKind};
use weir_connector::{SINK_OPTIONS, SinkKind, SinkSettings, open_sink};
use weir_meta::Catalog;
use weir_stream::delivery::spec;

use super::{Planned, check_options, dependencies, names, secret, select_all};
use crate::error::{Result, SqlError, SqlState};
use crate::planner::{self, Bound};
use crate::session::dml::query_into;
use crate::session::{Moment, Reply, Session};
use crate::statement::{CreateSink, SinkInput, Statement};

pub(super) const BLACKHOLE: &str = "blackhole";

/// What a sink is to be, beside its name.
struct Design {
    bound: Bound,
    planned: Planned,
    /// The table that it delivers to.
    target: Option<JobId>,
}

impl Session {
    pub(in crate::session) async fn create_sink(&self, sink: &CreateSink, statement: &Statement) -> Result<Reply> {
        let moment = self.moment()?;
        let (options, secrets) = secret::resolved(&moment, &sink.options)?;
        let sink = &CreateSink { options, ..sink.clone() };
        let new = match self.place(&moment, &sink.name, ObjectKind::Sink, sink.if_not_exists, statement)? {
            Ok(new) => new,
            Err(reply) => return Ok(reply),
        };
        let design = self.design_sink(&moment, sink)?;
        let mut object = new.object(&self.user);
        object.depends_on = dependencies(&design.bound);
        object.depends_on.extend(design.target);
        object.depends_on.extend(secrets);
        object.into = design.target;
        object.options = self.job_options(&moment, ObjectKind::Sink, &sink.options)?;
        decouple(&moment, &mut object)?;
        identify(&mut object);
        object.parallelism = self.wanted_parallelism(&moment, ObjectKind::Sink);
        object.format = sink.format.clone();
        if let SinkInput::Query(query) = &sink.from {
            object.query = Some(names::qualified(&moment, query).to_string());
        }
        if is_outside(sink) {
            let mut described = object.clone();
            described.columns = design.planned.columns.clone();
            described.primary_key = design.planned.primary_key.clone();
            described.append_only = design.planned.append_only;
            // Also what only the destination knows, and what is to be made there.
            open_sink(&spec(&described))?.prepare().await?;
        }
        let foreground = !moment.settings.is_on("background_ddl");
        self.create(object, Some(design.planned), foreground, sink.if_not_exists).await
    }

    /// The query of a sink and the plan of its job.
    pub(in crate::session) fn plan_sink(&self, moment: &Moment<'_>, sink: &CreateSink) -> Result<(Bound, Planned)> {
        let design = self.design_sink(moment, sink)?;
        Ok((design.bound, design.planned))
    }

    fn design_sink(&self, moment: &Moment<'_>, sink: &CreateSink) -> Result<Design> {
        let parallelism = self.parallelism(moment, ObjectKind::Sink);
        let query = match &sink.from {
            SinkInput::Query(query) => query.as_ref().clone(),
            SinkInput::Relation(name) => select_all(&*moment.get(name)?),
        };
        let connector = connector(&sink.options);
        if let Some(into) = &sink.into {
            if connector.is_some() {
                let message = "a sink into a table has no connector";
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            check_options(&sink.options, |name| SINK_OPTIONS.contains(&name))?;
            let target = moment.writable(into)?;
            return self.design_into(moment, sink, &target, &query, parallelism);
        }
        if connector.is_none() {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "a sink needs the option \"connector\""));
        }
        let settings = SinkSettings::parse(&sink.options)?;
        let bound = moment.plan_kept(&query)?;
        if connector.as_deref() == Some(BLACKHOLE) {
            check_options(&sink.options, |name| SINK_OPTIONS.contains(&name))?;
            let planned = planner::plan_sink(&bound, &sink.options, parallelism)?;
            return Ok(Design { bound, planned, target: None });
        }
        let key = named_key(&bound, &settings)?.or_else(|| default_key(moment, sink, &bound));
        let mut planned = planner::plan_log(&bound, key.as_deref(), !settings.snapshot, parallelism)?;
        let kind = kind(&settings, sink.format.as_ref(), planned.append_only);
        check_append_only(kind, &settings, planned.append_only)?;
        planned.append_only = kind == SinkKind::AppendOnly;
        planned.primary_key = match (kind, key) {
            (SinkKind::Upsert, None) => return Err(needs_key()),
            (_, key) => key.unwrap_or_default(),
        };
        Ok(Design { bound, planned, target: None })
    }

    fn design_into(
        &self,
        moment: &Moment<'_>,
        sink: &CreateSink,
        target: &Object,
        query: &ast::Query,
        parallelism: usize,
    ) -> Result<Design> {
        let settings = SinkSettings::parse(&sink.options)?;
        // The sink's own query is looked at by itself first: what is wrong with it is said in its own words.
        let own = moment.plan_kept(query)?;
        let inputs: Vec<JobId> = own.relations.iter().map(|o| o.id).collect();
        if feeds(&moment.catalog, target.id, &inputs) {
            let message =
                format!("the sink would read what is computed from \"{}\", which it delivers to", target.name);
            return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
        }
        let (query, columns) = query_into(moment, target, &sink.columns, query)?;
        let mut bound = moment.plan_kept(&query)?;
        for (column, place) in bound.columns.iter_mut().zip(&columns) {
            column.name = target.columns[*place].name.clone();
        }
        let place = |column: &usize| columns.iter().position(|c| c == column);
        let key: Option<Vec<usize>> = target.primary_key.iter().map(place).collect();
        let key = key.filter(|key| !key.is_empty());
        if !target.primary_key.is_empty() && key.is_none() {
            let message = format!("the sink must give the primary key of table \"{}\"", target.name);
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let mut planned = planner::plan_log(&bound, key.as_deref(), !settings.snapshot, parallelism)?;
        let keeps_rows = target.primary_key.is_empty() || target.append_only;
        if keeps_rows && !planned.append_only && !settings.force_append_only {
            let what = if target.append_only { "is append-only" } else { "has no primary key" };
            let message = format!("table \"{}\" {what}, and the rows of the sink change", target.name);
            let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
            return Err(error.with_hint(FORCE));
        }
        let kind = kind(&settings, None, planned.append_only);
        check_append_only(kind, &settings, planned.append_only)?;
        planned.append_only = kind == SinkKind::AppendOnly;
        planned.primary_key = key.unwrap_or_default();
        Ok(Design { bound, planned, target: Some(target.id) })
    }
}

const FORCE: &str = "With (type = 'append-only', force_append_only = 'true') only inserts are delivered.";

/// The connector of a sink, as it is compared.
pub(super) fn connector(options: &BTreeMap<String, String>) -> Option<String> {
    options.get("connector").map(|name| name.trim().to_ascii_lowercase())
}

/// Whether a destination outside is opened for it.
fn is_outside(sink: &CreateSink) -> bool {
    sink.into.is_none() && connector(&sink.options).as_deref() != Some(BLACKHOLE)
}

/// With `sink_decouple` off the log is bounded, and the job waits while it is full.
fn decouple(moment: &Moment<'_>, object: &mut Object) -> Result<()> {
    let decoupled = match moment.settings.get("sink_decouple")?.to_ascii_lowercase().as_str() {
        "default" | "true" | "on" | "t" | "1" => true,
        "false" | "off" | "f" | "0" => false,
        other => {
            let message = format!("invalid value for parameter \"sink_decouple\": \"{other}\"");
            let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
            return Err(error.with_hint("It is true, false or default."));
        }
    };
    if !decoupled {
        let limit = || COUPLED_LOG_BYTES.to_string();
        object.options.entry(weir_meta::logs::LIMIT_OPTION.to_string()).or_insert_with(limit);
    }
    Ok(())
}

/// Gives a sink its name outside, where a destination keeps one: ids are the same in every new catalog, and names change.
fn identify(object: &mut Object) {
    let option = match connector(&object.options).as_deref() {
        Some("postgres" | "fs" | "posix_fs" | "file") => "sink_id",
        Some("kafka") if object.options.get("transactional").is_some_and(|on| on.trim() == "true") => {
            "transactional.id"
        }
        _ => return,
    };
    object.options.entry(option.to_owned()).or_insert_with(weir_meta::uuid);
}

/// How much a sink that is not decoupled may be ahead of its delivery.
const COUPLED_LOG_BYTES: u64 = 16 << 20;

/// The key that `primary_key` names.
fn named_key(bound: &Bound, settings: &SinkSettings) -> Result<Option<Vec<usize>>> {
    if settings.primary_key.is_empty() {
        return Ok(None);
    }
    let place = |name: &String| {
        let found = bound.columns.iter().position(|c| c.name == *name);
        found.ok_or_else(|| {
            let message = format!("column \"{name}\" of primary_key does not exist");
            let names: Vec<&str> = bound.columns.iter().map(|c| c.name.as_str()).collect();
            let error = SqlError::new(SqlState::UNDEFINED_COLUMN, message);
            error.with_hint(format!("The sink has {}.", names.join(", ")))
        })
    };
    settings.primary_key.iter().map(place).collect::<Result<Vec<_>>>().map(Some)
}

/// The primary key of the table that a sink is from.
fn default_key(moment: &Moment<'_>, sink: &CreateSink, bound: &Bound) -> Option<Vec<usize>> {
    let SinkInput::Relation(name) = &sink.from else { return None };
    let relation = moment.find(name).ok().flatten()?;
    let names: Vec<&str> = match relation.primary_key.is_empty() {
        false => relation.primary_key.iter().map(|i| relation.columns[*i].name.as_str()).collect(),
        // What a view is keyed by, if it can be seen.
        true => {
            let table = relation.plan.as_ref()?.relation.as_ref()?;
            let columns: Vec<_> = table.key_indices().into_iter().map(|i| relation.columns.get(i)).collect();
            let visible = columns.iter().all(|c| c.is_some_and(|c| !c.hidden));
            if !visible || columns.is_empty() {
                return None;
            }
            columns.into_iter().flatten().map(|c| c.name.as_str()).collect()
        }
    };
    names.iter().map(|name| bound.columns.iter().position(|c| c.name == *name)).collect()
}

fn kind(settings: &SinkSettings, format: Option<&(String, String)>, append_only: bool) -> SinkKind {
    settings.kind.unwrap_or(match format.map(|(format, _)| format.to_ascii_uppercase()).as_deref() {
        Some("UPSERT") => SinkKind::Upsert,
        Some("DEBEZIUM") => SinkKind::Changes,
        Some("PLAIN") => SinkKind::AppendOnly,
        _ if append_only => SinkKind::AppendOnly,
        _ => SinkKind::Upsert,
    })
}

fn check_append_only(kind: SinkKind, settings: &SinkSettings, append_only: bool) -> Result<()> {
    if kind != SinkKind::AppendOnly || append_only || settings.force_append_only {
        return Ok(());
    }
    let message = "the sink is append-only, and its rows change";
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(FORCE))
}

fn needs_key() -> SqlError {
    let error =
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "the rows of the sink change, and it has no primary key");
    error.with_hint("Name the columns that identify a row: primary_key = 'a, b'.")
}

/// Whether one of these is the table, or is computed from it, through sinks into tables too.
fn feeds(catalog: &Catalog, table: JobId, inputs: &[JobId]) -> bool {
    let mut seen: BTreeSet<JobId> = inputs.iter().copied().collect();
    let mut next = inputs.to_vec();
    while let Some(id) = next.pop() {
        if id == table {
            return true;
        }
        let reads = catalog.get(id).into_iter().flat_map(|o| o.depends_on.clone());
        let sinks = catalog.objects().filter(|o| o.into == Some(id)).flat_map(|o| o.depends_on.clone());
        next.extend(reads.chain(sinks).filter(|on| seen.insert(*on)).collect::<Vec<_>>());
    }
    false
}
