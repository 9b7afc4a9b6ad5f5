//! Delivery: what leaves a sink's log for a table or the outside.
//!
//! ```text
//! protocol.rs    what is done next: a pure machine
//! ledger.rs      generations, offsets and commits in doubt, in the meta store
//! outside.rs     carries the machine's steps out: destinations outside
//! into_table.rs  into a table: the offset is part of the table's state
//! ```
//!
//! The job of a sink writes a change log and nothing else. A delivery reads it at its own pace, and the log is kept until what it
//! says is delivered: a destination that is slow or down costs the job, and all that it reads, nothing.

mod into_table;
mod ledger;
mod outside;
mod protocol;

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use rand::Rng;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_common::catalog::Object;
use weir_common::plan::{Fragment, Node};
use weir_common::{Epoch, Generation, TableDef};
use weir_storage::{LogStats, Store};
use weir_stream::StreamError;

pub use ledger::PendingCommit;

use crate::job::Job;
use crate::meta::Meta;
use crate::{MetaError, Result};

/// The first pause after a failure; each further one is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// The longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Bytes of log that are read before it is looked whether a commit is due.
const STEP_BYTES: u64 = 16 << 20;

/// What is known of a delivery from outside.
#[derive(Clone, Debug, Default)]
pub struct DeliveryState {
    /// What it does now.
    pub step: &'static str,
    pub generation: Generation,
    /// All changes up to here are delivered.
    pub offset: Epoch,
    /// Rows delivered since the process began.
    pub rows: u64,
    /// Commits since then.
    pub commits: u64,
    /// Failures since then.
    pub failures: u64,
    pub last_error: Option<String>,
    /// When it is tried again after a failure.
    pub next_attempt: Option<SystemTime>,
    /// Another process has taken over: it goes on when it is resumed.
    pub stopped: bool,
}

/// A sink's line in `weir_catalog.sinks`.
pub struct SinkStatus {
    pub object: Arc<Object>,
    pub delivery: DeliveryState,
    /// What is in the log and not delivered.
    pub lag: LogStats,
}

/// A delivery that runs. Dropped, it is aborted.
pub(crate) struct Delivery {
    pub state: watch::Receiver<DeliveryState>,
    task: JoinHandle<()>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Delivery {
    /// Ends it; when this returns it does nothing any more.
    pub async fn stop(mut self) {
        self.task.abort();
        // It was aborted, or had ended.
        let _ = (&mut self.task).await;
    }
}

/// What a delivery needs from its surroundings.
#[derive(Clone)]
pub(crate) struct Around {
    pub meta: Weak<Meta>,
    pub store: Arc<Store>,
    pub ledger: Arc<crate::meta_store::MetaStore>,
    pub job: Arc<Job>,
    /// Where the log is.
    pub table: TableDef,
}

/// Where the log of a sink's job is; `None`: it has none, and nothing is delivered from it.
pub(crate) fn log_table(object: &Object) -> Option<&TableDef> {
    let root: &Fragment = object.plan.as_ref()?.fragments.last()?;
    match &root.plan.node {
        Node::Log(log) => Some(&log.table),
        _ => None,
    }
}

/// Whether a delivery has to be started anew for what has changed: limits are obeyed while it runs.
pub(crate) fn other_options(before: &Object, after: &Object) -> bool {
    let own = |object: &Object| -> Vec<(String, String)> {
        let limits = weir_stream::rate_limit::RateLimits::OPTIONS;
        let own = object.options.iter().filter(|(name, _)| !limits.contains(&name.as_str()));
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    own(before) != own(after)
}

/// Starts the delivery of a sink; `None` if it has no log.
pub(crate) fn start(meta: &Arc<Meta>, job: &Arc<Job>) -> Option<Delivery> {
    let object = job.object();
    let table = log_table(&object)?.clone();
    let around = Around {
        meta: Arc::downgrade(meta),
        store: meta.store().clone(),
        ledger: meta.store.clone(),
        job: job.clone(),
        table,
    };
    let (sender, state) = watch::channel(DeliveryState { step: "starting", ..DeliveryState::default() });
    let task = match object.into {
        Some(target) => tokio::spawn(into_table::run(around, target, sender)),
        None => tokio::spawn(outside::run(around, sender)),
    };
    Some(Delivery { state, task })
}

impl Around {
    /// Waits until the job's log goes beyond an epoch, while the sink is not paused. The epoch up to which it is to be read.
    async fn more(&self, after: Epoch) -> Epoch {
        let mut state = self.job.state.clone();
        let ready = |s: &crate::job::JobState| !s.phase.is_halted() && s.frontier > after && s.changed > after;
        let Ok(frontier) = state.wait_for(ready).await.map(|s| s.frontier) else {
            // The job is gone, and so will be this.
            return std::future::pending().await;
        };
        let step = self.store.log_step(self.table.id, after, STEP_BYTES);
        step.map_or(frontier, |step| step.min(frontier))
    }

    /// The log is wanted from here on.
    fn keep_log_after(&self, offset: Epoch) {
        self.job.set_offset(self.job.id, offset);
    }
}

/// Why a step failed.
#[derive(Debug)]
enum Failure {
    /// Somebody else has taken over.
    Fenced(String),
    Other(String),
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Failure {
        match error {
            StreamError::Connector(error) => error.into(),
            error => Failure::Other(error.to_string()),
        }
    }
}

impl From<weir_connector::ConnectorError> for Failure {
    fn from(error: weir_connector::ConnectorError) -> Failure {
        match error {
            weir_connector::ConnectorError::Fenced { .. } => Failure::Fenced(error.to_string()),
            error => Failure::Other(error.to_string()),
        }
    }
}

impl From<MetaError> for Failure {
    fn from(error: MetaError) -> Failure {
        Failure::Other(error.to_string())
    }
}

impl From<weir_storage::StorageError> for Failure {
    fn from(error: weir_storage::StorageError) -> Failure {
        Failure::Other(error.to_string())
    }
}

impl Failure {
    fn text(&self) -> &str {
        match self {
            Failure::Fenced(text) | Failure::Other(text) => text,
        }
    }
}

/// Says that a step failed.
fn report(state: &watch::Sender<DeliveryState>, name: &str, failure: &Failure) {
    tracing::warn!(sink = name, error = failure.text(), "delivery failed");
    state.send_modify(|s| {
        s.failures += 1;
        s.last_error = Some(failure.text().to_owned());
    });
}

/// Waits after the `attempt`-th failure in a row.
async fn back_off(state: &watch::Sender<DeliveryState>, attempt: u32) {
    let pause = BACKOFF_FIRST.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(BACKOFF_MAX);
    state.send_modify(|s| s.next_attempt = Some(SystemTime::now() + pause));
    tokio::time::sleep(pause).await;
    state.send_modify(|s| s.next_attempt = None);
}

/// A random UUID (version 4, RFC 9562).
pub fn uuid() -> String {
    let mut bytes: [u8; 16] = rand::rng().random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

impl Meta {
    /// Every sink, for system views.
    pub fn sinks(&self) -> Vec<SinkStatus> {
        let deliveries = self.shared.deliveries();
        let mut sinks = Vec::new();
        for job in self.all_jobs() {
            let object = job.object();
            let Some(delivery) = deliveries.get(&job.id) else { continue };
            let delivery = delivery.state.borrow().clone();
            let lag = log_table(&object).map(|table| self.store().log_stats_after(table.id, delivery.offset));
            sinks.push(SinkStatus { object, delivery, lag: lag.unwrap_or_default() });
        }
        sinks
    }

    /// Commits of sinks that are about to be carried out, or may have been.
    pub async fn pending_sink_commits(&self) -> Result<Vec<PendingCommit>> {
        self.store.records().await
    }

    /// Starts the delivery of a sink anew: its options have changed, or it had stopped.
    pub(crate) async fn restart_delivery(self: &Arc<Self>, job: &Arc<Job>) {
        let running = self.shared.deliveries().remove(&job.id);
        if let Some(running) = running {
            running.stop().await;
            if let Some(delivery) = start(self, job) {
                self.shared.deliveries().insert(job.id, delivery);
            }
        }
    }

    /// Ends the delivery of a sink that was dropped, and removes what it has written and not committed.
    pub(crate) async fn end_delivery(&self, object: &Object) -> Result<()> {
        let running = self.shared.deliveries().remove(&object.id);
        let Some(running) = running else { return Ok(()) };
        running.stop().await;
        if object.into.is_none() {
            if let Some(commit) = self.store.record_of(object.id).await? {
                outside::abandon(object, &commit).await;
            }
            self.store.forget_sink(object.id).await?;
        }
        Ok(())
    }
}
