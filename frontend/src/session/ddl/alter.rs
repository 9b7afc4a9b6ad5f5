//! ALTER of relations.
//!
//! A change is a set of catalog entries with what they were made from; meta takes all of them or none. What other objects
//! say about a renamed one is rewritten with it (`renamed.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_common::JobId;
use weir_common::catalog::{Object, ObjectKind};
use weir_connector::{SINK_OPTIONS, SinkSettings, open_sink};
use weir_meta::logs::LIMIT_OPTION;
use weir_meta::{Catalog, MetaError};
use weir_stream::delivery::spec;

use super::renamed::{Renames, Spelled};
use super::sink::{BLACKHOLE, connector};
use super::{bytes, check_options, exists, is_job_option, rate_limits, secret, tag};
use crate::error::{Result, SqlError, SqlState};
use crate::session::show::with_article;
use crate::session::{DEFAULT_USER, Moment, Reply, Session};
use crate::statement::{self, Alter, AlterAction, Ident, Name};

/// Tries while others change the same objects in between.
const ATTEMPTS_MAX: usize = 20;

/// Objects as they are, and as they are to be.
type Changes = Vec<(Arc<Object>, Object)>;

impl Session {
    pub(in crate::session) async fn alter(&self, alter: &Alter) -> Result<Reply> {
        let reply = || Reply::command(tag("ALTER", alter.kind));
        for attempt in 1.. {
            let moment = self.moment()?;
            let Some(object) = moment.find(&alter.name)? else { return absent(alter) };
            check_kind(alter, &object)?;
            let done = match &alter.action {
                AlterAction::Pause | AlterAction::Resume => {
                    let paused = matches!(alter.action, AlterAction::Pause);
                    self.meta.pause(object, paused).await
                }
                action => self.meta.alter(self.changes(&moment, &object, action)?).await,
            };
            match done {
                Ok(()) => return Ok(reply()),
                // Look again: it may have another name by now, or be gone.
                Err(MetaError::Changed { .. } | MetaError::NoSuchObject(_)) if attempt < ATTEMPTS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(reply())
    }

    fn changes(&self, moment: &Moment<'_>, object: &Arc<Object>, action: &AlterAction) -> Result<Changes> {
        let catalog = moment.catalog.as_ref();
        Ok(match action {
            AlterAction::Rename(name) => {
                if catalog.find(&object.schema, &name.value).is_some() {
                    return Err(name.mark(exists(&name.value)));
                }
                let spelled = Spelled { schema: object.schema.clone(), name: name.value.clone() };
                renamed(catalog, vec![(object.clone(), spelled)])
            }
            AlterAction::SetSchema(schema) => self.other_schema(moment, object, schema)?,
            AlterAction::Swap(with) => {
                let other = moment.get(with)?;
                if other.kind != object.kind {
                    let message = format!("\"{}\" is not {}", other.name, with_article(object.kind));
                    return Err(with.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)));
                }
                let moves = [(object, &other), (&other, object)].map(|(from, to)| (from.clone(), Spelled::of(to)));
                if object.id == other.id { vec![] } else { renamed(catalog, moves.to_vec()) }
            }
            AlterAction::Owner(owner) => {
                let owner = self.role(owner)?;
                let owned = with_indexes(catalog, object).into_iter();
                owned.map(|o| (o.clone(), Object { owner: owner.clone(), ..o.as_ref().clone() })).collect()
            }
            AlterAction::Parallelism(wanted) => {
                let mut changed = object.as_ref().clone();
                changed.parallelism = *wanted;
                if let Some(plan) = &mut changed.plan {
                    plan.parallelism = weir_meta::actors(*wanted);
                }
                vec![(object.clone(), changed)]
            }
            AlterAction::LogLimit(limit) => {
                let mut changed = object.as_ref().clone();
                match limit {
                    Some(limit) => changed.options.insert(LIMIT_OPTION.to_string(), bytes(limit)?.to_string()),
                    None => changed.options.remove(LIMIT_OPTION),
                };
                vec![(object.clone(), changed)]
            }
            AlterAction::RateLimit { option, rows_per_s } => {
                // A source has no job: those that read it obey.
                let readers = catalog.dependants(object.id).into_iter();
                let readers = readers.filter(|o| object.kind == ObjectKind::Source && o.plan.is_some());
                let limited = |o: Arc<Object>| {
                    let mut changed = o.as_ref().clone();
                    match rows_per_s {
                        Some(limit) => changed.options.insert(option.to_string(), limit.to_string()),
                        None => changed.options.remove(*option),
                    };
                    (o, changed)
                };
                std::iter::once(object.clone()).chain(readers).map(limited).collect()
            }
            AlterAction::Options(options) => {
                let (resolved, secrets) = secret::resolved(moment, options)?;
                let mut changed = with_options(object, &resolved)?;
                changed.depends_on.extend(secrets);
                vec![(object.clone(), changed)]
            }
            AlterAction::Pause | AlterAction::Resume => vec![],
        })
    }

    fn other_schema(&self, moment: &Moment<'_>, object: &Arc<Object>, schema: &Ident) -> Result<Changes> {
        let name = Name {
            database: None,
            schema: Some(schema.clone()),
            name: Ident { value: object.name.clone(), ..schema.clone() },
        };
        // Checks the schema.
        moment.target(&name)?;
        if object.kind == ObjectKind::Index {
            let message = format!("cannot change schema of index \"{}\"", object.name);
            let error = SqlError::new(SqlState::WRONG_OBJECT_TYPE, message);
            return Err(error.with_hint("Change the schema of the table instead."));
        }
        if schema.value == object.schema {
            return Ok(vec![]);
        }
        let moved = with_indexes(&moment.catalog, object);
        if let Some(taken) = moved.iter().find(|o| moment.catalog.find(&schema.value, &o.name).is_some()) {
            let message = format!("relation \"{}\" already exists in schema \"{}\"", taken.name, schema.value);
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
        }
        let spelled = |o: &Arc<Object>| Spelled { schema: schema.value.clone(), name: o.name.clone() };
        Ok(renamed(&moment.catalog, moved.iter().map(|o| (o.clone(), spelled(o))).collect()))
    }

    /// The role that a name stands for.
    fn role(&self, name: &Ident) -> Result<String> {
        match name.value.as_str() {
            "current_user" | "session_user" | "current_role" => Ok(self.user().to_string()),
            role if role == self.user() || role == DEFAULT_USER => Ok(role.to_string()),
            role => {
                let error = SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{role}\" does not exist"));
                Err(name.mark(error))
            }
        }
    }
}

/// The object and, of a table or view, its indexes, which go where it goes.
fn with_indexes(catalog: &Catalog, object: &Arc<Object>) -> Vec<Arc<Object>> {
    let indexes = catalog.dependants(object.id).into_iter().filter(|o| o.kind == ObjectKind::Index);
    std::iter::once(object.clone()).chain(indexes).collect()
}

/// Objects under other names, with everything that names them.
fn renamed(catalog: &Catalog, moves: Vec<(Arc<Object>, Spelled)>) -> Changes {
    let renames = Renames::new(moves.iter().map(|(object, to)| (Spelled::of(object), to.clone())).collect());
    let mut ids: Vec<JobId> = moves.iter().map(|(object, _)| object.id).collect();
    let dependants = moves.iter().flat_map(|(object, _)| catalog.dependants(object.id)).map(|o| o.id);
    ids.extend(dependants.collect::<Vec<_>>());
    ids.sort_unstable();
    ids.dedup();
    let changed = |object: &Arc<Object>| {
        let to = moves.iter().find(|(moved, _)| moved.id == object.id).map(|(_, to)| to);
        let mut changed = object.as_ref().clone();
        changed.definition = renames.in_statement(&object.definition, to);
        changed.query = object.query.as_ref().map(|query| renames.in_query(query));
        if let Some(to) = to {
            changed.schema = to.schema.clone();
            changed.name = to.name.clone();
        }
        (object.clone(), changed)
    };
    ids.iter().filter_map(|id| catalog.get(*id)).map(changed).collect()
}

/// Options that make a sink what it is: with others it would be another one.
const FIXED: [&str; 8] = [
    "connector",
    "type",
    "force_append_only",
    "primary_key",
    "snapshot",
    "database.name",
    "table.name",
    "warehouse.path",
];

/// A sink with other options of its connector.
fn with_options(object: &Arc<Object>, options: &BTreeMap<String, String>) -> Result<Object> {
    if let Some(fixed) = options.keys().find(|name| FIXED.contains(&name.as_str())) {
        let message = format!("option \"{fixed}\" of a sink cannot be changed");
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("Create another sink."));
    }
    let mut changed = object.as_ref().clone();
    changed.options.extend(options.iter().map(|(name, value)| (name.clone(), value.clone())));
    SinkSettings::parse(&changed.options)?;
    if changed.into.is_some() || connector(&changed.options).as_deref() == Some(BLACKHOLE) {
        check_options(&changed.options, |name| SINK_OPTIONS.contains(&name))?;
    } else {
        open_sink(&spec(&changed))?;
    }
    changed.definition = statement::with_options(&changed.definition, options);
    Ok(changed)
}

fn absent(alter: &Alter) -> Result<Reply> {
    let message = format!("{} \"{}\" does not exist", alter.kind.sql(), alter.name.name.value);
    if alter.if_exists {
        let notice = SqlError::notice(format!("{message}, skipping"));
        return Ok(Reply::noticed(tag("ALTER", alter.kind), vec![notice]));
    }
    Err(alter.name.mark(SqlError::new(SqlState::UNDEFINED_TABLE, message)))
}

/// As in PostgreSQL, ALTER TABLE gives names, schemas and owners to views and indexes too.
fn check_kind(alter: &Alter, object: &Object) -> Result<()> {
    use AlterAction::{Owner, RateLimit, Rename, SetSchema};
    let by_table = matches!(alter.action, Rename(_) | SetSchema(_) | Owner(_))
        && alter.kind == ObjectKind::Table
        && matches!(object.kind, ObjectKind::View | ObjectKind::MaterializedView | ObjectKind::Index);
    let refuse = |message: String| Err(alter.name.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)));
    if object.kind != alter.kind && !by_table {
        return refuse(format!("\"{}\" is not {}", object.name, with_article(alter.kind)));
    }
    match &alter.action {
        RateLimit { option, .. } if !rate_limits(object.kind).contains(option) => {
            refuse(format!("{} has no {option}", with_article(object.kind)))
        }
        AlterAction::Options(_) if object.kind != ObjectKind::Sink => {
            let message = format!("the options of {} cannot be changed", with_article(object.kind));
            Err(alter.name.mark(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)))
        }
        AlterAction::LogLimit(_) if !is_job_option(object.kind, LIMIT_OPTION) => {
            refuse(format!("{} has no {LIMIT_OPTION}", with_article(object.kind)))
        }
        AlterAction::Parallelism(_) | AlterAction::Pause | AlterAction::Resume if object.plan.is_none() => {
            let message = format!("{} \"{}\" has no job of its own", object.kind.sql(), object.name);
            let error = alter.name.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            Err(error.with_hint("Alter the jobs that read it."))
        }
        _ => Ok(()),
    }
}
