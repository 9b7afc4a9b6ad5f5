//! At which epoch the relations of a query are read.
//!
//! ```text
//! latest    each relation at its own frontier, all of them in one snapshot of the store
//! aligned   all at one epoch: the newest that all of them have reached
//! as of     all at an epoch that is given: FOR SYSTEM_TIME AS OF, or SET query_epoch
//! ```
//!
//! A relation that is ahead of the common epoch is taken back to it by its change log: what happened since is undone, last
//! change first, as an overlay over the snapshot. A view keeps the log of what it reads until it has read it, so that a view and
//! its inputs always align. Where there is no log, the query waits for those that are behind.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::sql::sqlparser::ast::{self, TableFactor, TableVersion, Visit, VisitMut, Visitor, VisitorMut};
use weir_common::catalog::Object;
use weir_common::types::SqlType;
use weir_common::{Chunk, Epoch, JobId, TableDef};
use weir_storage::Snapshot;

use super::ddl::common_tables;
use super::{Moment, build};
use crate::batch::{self, Overlay};
use crate::error::{Result, SqlError, SqlState};
use crate::statement::Name;

/// Integers from here on are epochs, smaller ones seconds since 1970.
pub(super) const EPOCHS_FROM: u64 = 1 << 48;
/// Rows that a relation is taken back by, at most.
const UNDONE_ROWS_MAX: usize = 2_000_000;
/// Pause before another attempt to align relations that have no log.
const RETRY: Duration = Duration::from_millis(10);

/// What a query reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Latest,
    Aligned,
    AsOf(Epoch),
}

/// A snapshot, and what takes its relations back to the epoch that is read.
pub(crate) type Past = BTreeMap<JobId, Arc<Overlay>>;

impl Moment<'_> {
    /// What a query reads, and the query without the clauses that say so.
    pub async fn reading<'q>(&self, query: &'q ast::Query) -> Result<(Cow<'q, ast::Query>, Reading)> {
        let (stripped, versions) = without_versions(query);
        let Some((first, others)) = versions.given.split_first() else {
            let epoch = self.settings.get("query_epoch")?.parse().unwrap_or(0);
            let aligned = self.settings.get("query_consistency")? == "aligned";
            let reading = match (epoch, aligned) {
                (0, false) => Reading::Latest,
                (0, true) => Reading::Aligned,
                (epoch, _) => Reading::AsOf(Epoch(epoch)),
            };
            return Ok((stripped, reading));
        };
        if versions.without > 0 || others.iter().any(|other| other != first) {
            let error = SqlError::unsupported("relations of one query as of different times");
            return Err(error.with_hint("Give every relation of the query the same FOR SYSTEM_TIME AS OF."));
        }
        let epoch = self.epoch_of(first).await?;
        Ok((stripped, Reading::AsOf(epoch)))
    }

    async fn epoch_of(&self, version: &TableVersion) -> Result<Epoch> {
        let TableVersion::ForSystemTimeAsOf(expr) = version else {
            return Err(SqlError::unsupported("this way to name a version of a relation")
                .with_hint("Use FOR SYSTEM_TIME AS OF."));
        };
        if let ast::Expr::Value(value) = expr
            && let ast::Value::Number(digits, _) | ast::Value::SingleQuotedString(digits) = &value.value
            && let Ok(number) = digits.parse::<u64>()
        {
            return Ok(if number >= EPOCHS_FROM { Epoch(number) } else { newest_at(number.saturating_mul(1000)) });
        }
        let time = build::cast(expr.clone(), &SqlType::TimestampTz);
        let query = build::select(vec![ast::SelectItem::UnnamedExpr(time)], vec![], None);
        let bound = self.plan(&query, &[])?;
        let rows = batch::collect(&batch::state(self.config.clone())?, &bound.plan).await?;
        let times = rows.first().and_then(|b| b.column(0).as_primitive_opt::<TimestampMicrosecondType>().cloned());
        match times.and_then(|times| times.iter().next().flatten()) {
            Some(micros) if micros > 0 => Ok(newest_at(micros as u64 / 1000)),
            _ => {
                let message = "FOR SYSTEM_TIME AS OF needs an epoch or a time after 1970";
                Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            }
        }
    }

    /// A snapshot in which the relations can be read as wanted.
    pub async fn snapshot_for(&self, relations: &[Arc<Object>], reading: Reading) -> Result<(Snapshot, Past)> {
        let meta = self.session.meta();
        if reading == Reading::Latest {
            return Ok((meta.store().snapshot(), Past::new()));
        }
        let limit = self.settings.milliseconds("read_your_writes_timeout").map(Duration::from_millis);
        let deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
        loop {
            match self.attempt(relations, reading).await? {
                Ok(found) => return Ok(found),
                Err(why) if deadline.is_some_and(|d| tokio::time::Instant::now() >= d) => return Err(why),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// `Err` inside: not now, but maybe when those that are behind have caught up.
    async fn attempt(
        &self,
        relations: &[Arc<Object>],
        reading: Reading,
    ) -> Result<std::result::Result<(Snapshot, Past), SqlError>> {
        let meta = self.session.meta();
        let relations: Vec<(&Arc<Object>, &TableDef)> =
            relations.iter().filter_map(|o| Some((o, o.plan.as_ref()?.relation.as_ref()?))).collect();
        // Read before the snapshot, which then has at least that much.
        let reached: Vec<_> = relations.iter().map(|(o, _)| meta.frontier(o.id)).collect();
        let snapshot = meta.store().snapshot();
        let (mut frontiers, mut committed) = (Vec::new(), Vec::new());
        for ((object, _), reached) in relations.iter().zip(reached) {
            let stored = snapshot.frontier(object.id)?.unwrap_or(Epoch::ZERO);
            frontiers.push(stored.max(reached.unwrap_or(Epoch::ZERO)));
            committed.push(stored);
        }
        let common = match reading {
            Reading::AsOf(epoch) => epoch,
            Reading::Latest | Reading::Aligned => frontiers.iter().copied().min().unwrap_or(Epoch::ZERO),
        };
        let now_ms = weir_meta::now_ms();
        let mut past = Past::new();
        for (((object, def), frontier), committed) in relations.iter().zip(&frontiers).zip(&committed) {
            if *frontier < common {
                if common.unix_ms() <= now_ms {
                    return Ok(Err(not_aligned(object, common)));
                }
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("epoch {common} is in the future"),
                )
                .with_detail(format!("\"{}\" is at epoch {frontier}.", object.name)));
            }
            // What was committed last is not newer.
            if *committed <= common {
                continue;
            }
            let logged = meta.logged_after(object.id).is_some_and(|after| after <= common);
            let undo = if logged { self.undo(object, def, common, *committed).await? } else { None };
            match (undo, reading) {
                (Some(undo), _) => drop(past.insert(object.id, Arc::new(undo))),
                (None, Reading::AsOf(_)) => return Err(not_kept(object, common)),
                (None, _) => {
                    let mut behind = relations.iter().zip(&frontiers).filter(|(_, f)| **f == common);
                    let why = not_aligned(object, common);
                    return if behind.any(|((o, _), _)| meta.is_held_up(o.id)) { Err(why) } else { Ok(Err(why)) };
                }
            }
        }
        Ok(Ok((snapshot, past)))
    }

    /// What takes a relation from one epoch back to another; `None` if that is not, or not all, kept.
    async fn undo(&self, object: &Arc<Object>, def: &TableDef, to: Epoch, from: Epoch) -> Result<Option<Overlay>> {
        let (store, def, id) = (self.session.meta().store().clone(), def.clone(), object.id);
        let read = move || {
            let (mut changes, mut rows) = (Vec::new(), 0);
            // Truncated meanwhile.
            let Ok(log) = store.read_log(def.id, to, from) else { return Ok(None) };
            for chunk in log {
                let Ok(chunk) = chunk else { return Ok(None) };
                rows += chunk.chunk.len();
                if rows > UNDONE_ROWS_MAX {
                    return Ok(None);
                }
                changes.push(reversed(&chunk.chunk)?);
            }
            changes.reverse();
            Overlay::new(&def, &changes, false).map(Some)
        };
        let undo = tokio::task::spawn_blocking(read).await;
        undo.map_err(|error| SqlError::internal(format!("read the change log of job {id}: {error}")))?
    }
}

/// The newest epoch of a millisecond.
pub(super) fn newest_at(unix_ms: u64) -> Epoch {
    Epoch(Epoch::from_unix_ms(unix_ms.min(u64::MAX >> 17) + 1).0 - 1)
}

/// The changes that undo changes, in their order.
fn reversed(chunk: &Chunk) -> Result<Chunk> {
    let backwards = (0..chunk.len() as u32).rev().collect::<Vec<_>>().into();
    Ok(chunk.negated().take(&backwards)?)
}

fn not_kept(object: &Object, epoch: Epoch) -> SqlError {
    let message = format!("what \"{}\" was at epoch {epoch} is not kept any more", object.name);
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        .with_hint("A subscription on the relation keeps its changes for as long as its retention says.")
}

fn not_aligned(object: &Object, epoch: Epoch) -> SqlError {
    let message =
        format!("\"{}\" could not be read at epoch {epoch}, where the query's other relations are", object.name);
    SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)
        .with_hint("SET query_consistency = latest reads every relation as it is.")
}

/// The query as of no particular time, and what was said of time.
pub(super) fn without_versions(query: &ast::Query) -> (Cow<'_, ast::Query>, Versions) {
    if !has_versions(query) {
        return (Cow::Borrowed(query), Versions::default());
    }
    let mut versions = Versions { ctes: common_tables(query), ..Versions::default() };
    let mut query = query.clone();
    let _ = VisitMut::visit(&mut query, &mut versions);
    (Cow::Owned(query), versions)
}

/// Takes the versions off the relations of a query.
#[derive(Default)]
pub(super) struct Versions {
    ctes: HashSet<String>,
    given: Vec<TableVersion>,
    /// Relations without one.
    without: usize,
}

impl VisitorMut for Versions {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, version, args: None, .. } = factor {
            let is_cte = Name::from_ast(name).is_ok_and(|n| n.schema.is_none() && self.ctes.contains(&n.name.value));
            match version.take() {
                Some(version) => self.given.push(version),
                None if is_cte => {}
                None => self.without += 1,
            }
        }
        ControlFlow::Continue(())
    }
}

/// What is kept, and what changes rows, has no versions.
pub(super) fn refuse_versions(query: &ast::Query) -> Result<()> {
    if !has_versions(query) {
        return Ok(());
    }
    let error = SqlError::unsupported("FOR SYSTEM_TIME AS OF here");
    Err(error.with_hint("It is for queries that are run once."))
}

fn has_versions(query: &ast::Query) -> bool {
    struct Find;
    impl Visitor for Find {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            match factor {
                TableFactor::Table { version: Some(_), .. } => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(query, &mut Find).is_break()
}
