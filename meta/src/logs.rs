//! Change logs: who keeps them, when they are truncated, and what happens when one is full.
//!
//! A log is kept while somebody reads it: jobs, as far as they have committed, and subscriptions, for as long as they ask.
//! What all readers have behind them is dropped. With `change_log_limit` a relation says how many bytes its log may have. When it
//! has more, and the slowest reader is
//!
//! - a subscription: that loses its oldest changes; a cursor that needed them says so;
//! - a job: the relation is held back until the job has caught up or is dropped. Its sources wait, statements that write to it
//!   are refused, and a view takes no epoch, so that what it reads waits in turn. Nothing is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_common::catalog::{Object, Retention};
use weir_common::{Epoch, TableId};
use weir_storage::{StorageError, Store};

use crate::clock::now_ms;
use crate::error::{MetaError, Result};
use crate::job::Job;
use crate::meta::{Meta, Shared};

/// How often logs are looked after.
const INTERVAL: Duration = Duration::from_secs(1);
/// The option of a relation that limits its log, in bytes.
pub const LIMIT_OPTION: &str = "change_log_limit";

impl Meta {
    /// Adds a subscription, with which the log of its relation is kept from here on.
    pub async fn create_subscription(&self, mut object: Object, keep_ms: u64) -> Result<()> {
        let _ddl = self.ddl.lock().await;
        self.check_new(&object)?;
        let of = *object.depends_on.first().ok_or(MetaError::NoSuchObject(object.id))?;
        let job = self.shared.jobs().get(&of).cloned().ok_or(MetaError::InputGone(of))?;
        job.add_subscription(object.id, Epoch::ZERO);
        // Commits that were begun before keep no log.
        job.settle().await;
        let since = job.now().frontier;
        object.retention = Some(Retention { since, keep_ms });
        if let Err(error) = self.store.insert(&object, false).await {
            job.remove_reader(object.id);
            return Err(error);
        }
        self.keep_log_for(&object);
        self.shared.update_catalog(|c| c.insert(Arc::new(object)));
        Ok(())
    }

    /// Keeps the log that a subscription asks for.
    pub(crate) fn keep_log_for(&self, object: &Object) {
        let Some(retention) = object.retention else { return };
        for job in object.depends_on.iter().filter_map(|id| self.shared.jobs().get(id).cloned()) {
            job.add_subscription(object.id, retention.kept_after(now_ms()));
            job.log_is_kept(retention.since);
        }
    }
}

/// Looks after the logs of all relations, for ever.
pub(crate) async fn care(store: Arc<Store>, shared: Weak<Shared>) {
    let mut truncated = BTreeMap::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        let jobs: Vec<_> = shared.jobs().values().cloned().collect();
        let catalog = shared.catalog();
        drop(shared);
        let subscriptions: Vec<_> = catalog.objects().filter_map(|o| Some((o.clone(), o.retention?))).collect();
        for job in jobs {
            let object = job.object();
            let Some(table) = object.plan.as_ref().and_then(|p| p.relation.as_ref()).map(|t| t.id) else { continue };
            for (subscription, retention) in subscriptions.iter().filter(|(o, _)| o.depends_on.contains(&job.id)) {
                job.set_offset(subscription.id, retention.kept_after(now_ms()));
            }
            let done = truncated.entry(job.id).or_default();
            if let Err(error) = look_after(&store, &job, table, done).await {
                tracing::warn!(job = %job.id, %error, "look after a change log");
            }
        }
    }
}

/// Truncates a log. `done`: up to where that was done.
async fn look_after(
    store: &Arc<Store>,
    job: &Job,
    table: TableId,
    done: &mut Epoch,
) -> std::result::Result<(), StorageError> {
    let limit = job.object().options.get(LIMIT_OPTION).and_then(|bytes| bytes.parse().ok());
    let excess = limit.and_then(|limit| store.log_excess(table, limit));
    let decision = job.decide(*done, excess);
    for (subscription, epoch) in decision.lost {
        tracing::debug!(job = %job.id, %subscription, %epoch, "a full change log costs a subscription changes");
    }
    job.hold(decision.hold);
    if let Some(read) = decision.truncate_to {
        let store = store.clone();
        let result = tokio::task::spawn_blocking(move || store.truncate_log(table, read)).await;
        // An error of the thread is that of a shutdown.
        if let Ok(result) = result {
            result?;
            *done = read;
        }
    }
    Ok(())
}
