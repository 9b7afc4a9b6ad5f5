//! DROP of relations, and CANCEL JOBS.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_common::JobId;
use weir_common::catalog::{Object, ObjectKind};
use weir_meta::{Catalog, MetaError};

use super::tag;
use crate::error::{Result, SqlError, SqlState};
use crate::session::show::with_article;
use crate::session::{Moment, Reply, Session};
use crate::statement::{Drop, Name};

/// Tries while others change the catalog in between.
const ATTEMPTS_MAX: usize = 20;
/// Dependants that an error or notice names.
const LISTED_MAX: usize = 100;

/// Objects to drop with all that depends on them.
pub(super) struct Dropped {
    /// Dependants after what they depend on.
    pub ids: Vec<JobId>,
}

impl Dropped {
    /// The objects and everything above them.
    pub fn closure(catalog: &Catalog, roots: &[JobId]) -> Dropped {
        let mut ids = roots.to_vec();
        let mut seen: BTreeSet<JobId> = roots.iter().copied().collect();
        let mut next = 0;
        while let Some(id) = ids.get(next).copied() {
            ids.extend(catalog.dependants(id).iter().map(|d| d.id).filter(|d| seen.insert(*d)));
            next += 1;
        }
        Dropped { ids }
    }

    /// `view v depends on table t`, for each dependant that was not named; indexes belong to their tables.
    fn dependants(&self, catalog: &Catalog, roots: &[JobId]) -> Vec<String> {
        let above = self.others(catalog, roots);
        let line = |object: Arc<Object>| {
            let nearest = object.depends_on.iter().filter(|d| self.ids.contains(d)).max();
            let on = nearest.and_then(|id| catalog.get(*id));
            let on = on.map_or_else(String::new, |o| format!(" depends on {} {}", o.kind.sql(), o.name));
            format!("{} {}{on}", object.kind.sql(), object.name)
        };
        above.into_iter().filter(|o| o.kind != ObjectKind::Index).map(line).collect()
    }

    fn others(&self, catalog: &Catalog, roots: &[JobId]) -> Vec<Arc<Object>> {
        self.ids.iter().filter(|id| !roots.contains(id)).filter_map(|id| catalog.get(*id).cloned()).collect()
    }

    /// What is dropped beside the objects that were named.
    pub fn cascaded(&self, catalog: &Catalog, roots: &[JobId]) -> Option<SqlError> {
        let others = self.others(catalog, roots);
        let names: Vec<String> = others
            .iter()
            .filter(|o| o.kind != ObjectKind::Index)
            .map(|o| format!("{} {}", o.kind.sql(), o.name))
            .collect();
        match names.as_slice() {
            [] => None,
            [one] => Some(SqlError::notice(format!("drop cascades to {one}"))),
            many => {
                let lines: Vec<String> = many.iter().map(|name| format!("drop cascades to {name}")).collect();
                let notice = SqlError::notice(format!("drop cascades to {} other objects", many.len()));
                Some(notice.with_detail(listed(&lines)))
            }
        }
    }
}

/// `cannot drop x because other objects depend on it`.
pub(super) fn refusal(what: &str, dependants: &[String]) -> SqlError {
    let message = format!("cannot drop {what} because other objects depend on it");
    SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
        .with_detail(listed(dependants))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

fn listed(lines: &[String]) -> String {
    let mut text = lines.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join("\n");
    if lines.len() > LISTED_MAX {
        text.push_str(&format!("\nand {} other objects", lines.len() - LISTED_MAX));
    }
    text
}

impl Session {
    pub(in crate::session) async fn drop_relations(&self, drop: &Drop) -> Result<Reply> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let moment = self.moment()?;
            let (roots, mut notices) = roots(&moment, drop)?;
            if roots.is_empty() {
                return Ok(Reply::noticed(tag("DROP", drop.kind), notices));
            }
            let dropped = Dropped::closure(&moment.catalog, &roots);
            let dependants = dropped.dependants(&moment.catalog, &roots);
            if !drop.cascade && !dependants.is_empty() {
                let first = moment.catalog.get(roots[0]);
                let what = first.map_or_else(String::new, |o| format!("{} {}", o.kind.sql(), o.name));
                return Err(refusal(&what, &dependants));
            }
            notices.extend(dropped.cascaded(&moment.catalog, &roots));
            match self.meta.drop_objects(&dropped.ids).await {
                Ok(()) => return Ok(Reply::noticed(tag("DROP", drop.kind), notices)),
                // Another session has created or dropped something since: look again.
                Err(MetaError::NoSuchObject(_) | MetaError::HasDependants { .. }) if attempts < ATTEMPTS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(in crate::session) async fn cancel_jobs(&self, jobs: &[u32]) -> Result<Reply> {
        let creating: Vec<JobId> =
            self.meta.jobs().iter().filter(|job| !job.state.created).map(|job| job.object.id).collect();
        let wanted: Vec<JobId> = jobs.iter().map(|id| JobId(*id)).filter(|id| creating.contains(id)).collect();
        if !wanted.is_empty() {
            let dropped = Dropped::closure(&self.meta.catalog(), &wanted);
            self.meta.drop_objects(&dropped.ids).await?;
        }
        Ok(Reply::command(format!("CANCEL JOBS {}", wanted.len())))
    }
}

/// The objects that a DROP names.
fn roots(moment: &Moment<'_>, drop: &Drop) -> Result<(Vec<JobId>, Vec<SqlError>)> {
    let (mut ids, mut notices) = (Vec::new(), Vec::new());
    for name in &drop.names {
        match moment.find(name)? {
            Some(object) if object.kind == drop.kind => {
                if !ids.contains(&object.id) {
                    ids.push(object.id);
                }
            }
            Some(object) => return Err(wrong_kind(name, &object, drop.kind)),
            None if drop.if_exists => {
                notices.push(SqlError::notice(format!("{}, skipping", missing(name, drop.kind))));
            }
            None => {
                let state = match drop.kind {
                    ObjectKind::Index | ObjectKind::Sink | ObjectKind::Subscription | ObjectKind::Secret => {
                        SqlState::UNDEFINED_OBJECT
                    }
                    _ => SqlState::UNDEFINED_TABLE,
                };
                return Err(name.mark(SqlError::new(state, missing(name, drop.kind))));
            }
        }
    }
    Ok((ids, notices))
}

fn missing(name: &Name, kind: ObjectKind) -> String {
    format!("{} \"{}\" does not exist", kind.sql(), name.name.value)
}

fn wrong_kind(name: &Name, object: &Object, wanted: ObjectKind) -> SqlError {
    let message = format!("\"{}\" is not {}", object.name, with_article(wanted));
    let hint = format!("Use DROP {} to remove {}.", object.kind.sql().to_uppercase(), with_article(object.kind));
    name.mark(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)).with_hint(hint)
}
