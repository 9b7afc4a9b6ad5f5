//! The runtime of jobs: builds a job's actors from its plan, feeds them barriers, collects and commits their state.
//!
//! Whoever steers a job (meta) speaks to it through [`RunningJob`] and hears from it through [`JobEvent`]s. The runtime
//! decides nothing: which barrier comes next, when an epoch is committed and whether a failed job is started again is
//! decided outside.

mod build;
mod collect;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use weir_common::plan::JobPlan;
use weir_common::{Epoch, Generation, JobId};
use weir_storage::{JobCommit, LogChunk, MemoryLimit, SealedTable, Store};

use crate::Result;
use crate::courtesy::Courtesy;
use crate::driver::Backfill;
use crate::error::StreamError;
use crate::executor::dml::Statement;
use crate::message::Barrier;
use crate::rate_limit::RateLimits;

pub use build::slots;
pub use stats::{BadRecords, JobStats, TaskStats};

/// What all jobs of the process share.
#[derive(Clone)]
pub struct Engine {
    pub store: Arc<Store>,
    pub memory: Arc<MemoryLimit>,
    pub courtesy: Arc<Courtesy>,
}

/// What to start.
pub struct JobSpec {
    pub id: JobId,
    pub generation: Generation,
    pub plan: Arc<JobPlan>,
    /// The newest epoch that the job has committed, [`Epoch::ZERO`] for a new job.
    pub frontier: Epoch,
    pub limits: RateLimits,
    pub stats: Arc<JobStats>,
}

/// What a running job reports.
pub enum JobEvent {
    /// A barrier has passed every task: the epoch may be committed.
    Collected { generation: Generation, epoch: CollectedEpoch },
    /// A commit is durable.
    Committed { generation: Generation, epoch: Epoch, persisted: bool, backfills: Vec<Backfill> },
    /// A task or a commit failed. The job makes no progress any more and should be stopped.
    /// `commit`: it was a commit.
    Failed { generation: Generation, error: StreamError, commit: bool },
}

/// What belongs to the commit of an epoch.
pub struct CollectedEpoch {
    pub epoch: Epoch,
    pub backfills: Vec<Backfill>,
    tables: Vec<SealedTable>,
    log: Vec<LogChunk>,
    /// Rows that left any task.
    rows: u64,
}

impl CollectedEpoch {
    /// Whether the relation of the job changed.
    pub fn changed(&self) -> bool {
        !self.log.is_empty()
    }

    /// Whether nothing was read or written, so that a commit would only move the frontier.
    pub fn is_idle(&self) -> bool {
        self.rows == 0 && self.log.is_empty() && self.tables.iter().all(SealedTable::is_empty)
    }
}

/// A job whose tasks run. Dropped, they are aborted; what is not committed is gone.
pub struct RunningJob {
    id: JobId,
    generation: Generation,
    barriers: Vec<mpsc::UnboundedSender<Barrier>>,
    dml: Option<mpsc::UnboundedSender<Statement>>,
    following: bool,
    committed: Arc<AtomicU64>,
    events: mpsc::UnboundedSender<JobEvent>,
    engine: Engine,
    _supervisor: AbortOnDrop,
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// Builds the actors of a job and starts them. They do nothing before the first barrier but read ahead.
    pub async fn start(&self, spec: JobSpec, events: mpsc::UnboundedSender<JobEvent>) -> Result<RunningJob> {
        let committed = Arc::new(AtomicU64::new(spec.frontier.0));
        let generation = spec.generation;
        let id = spec.id;
        let built = build::build(self, &spec, committed.clone()).await?;
        let supervisor = supervise(built.tasks, built.sealed, built.task_count, spec, events.clone());
        Ok(RunningJob {
            id,
            generation,
            barriers: built.barriers,
            dml: built.dml,
            following: built.following,
            committed,
            events,
            engine: self.clone(),
            _supervisor: AbortOnDrop(tokio::spawn(supervisor)),
        })
    }
}

impl RunningJob {
    /// The generation that was started.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether every reader of a relation follows its input at the job's frontier already (or there is none): then its
    /// barriers are aligned from the first.
    pub fn following(&self) -> bool {
        self.following
    }

    /// Lets a barrier into every reader of the job.
    pub fn inject(&self, barrier: Barrier) {
        for reader in &self.barriers {
            // A reader that is gone has failed, and its failure is on its way.
            let _ = reader.send(barrier);
        }
    }

    /// Hands the rows of a statement to the table. Returns it when the job takes no DML.
    pub fn dml(&self, statement: Statement) -> std::result::Result<(), Statement> {
        match &self.dml {
            Some(dml) => dml.send(statement).map_err(|e| e.0),
            None => Err(statement),
        }
    }

    /// Commits an epoch in the background; [`JobEvent::Committed`] or [`JobEvent::Failed`] follows. `keep_log`: the relation
    /// has readers. `persist`: write the frontier even when nothing else is to be written.
    pub fn commit(&self, epoch: CollectedEpoch, keep_log: bool, persist: bool) {
        let persisted = persist || !epoch.is_idle();
        let committed = self.committed.clone();
        let events = self.events.clone();
        let store = self.engine.store.clone();
        let (job, generation) = (self.id, self.generation);
        let backfills = epoch.backfills;
        let commit = JobCommit {
            job,
            epoch: epoch.epoch,
            tables: epoch.tables,
            log: if keep_log { epoch.log } else { Vec::new() },
        };
        tokio::task::spawn_blocking(move || {
            let epoch = commit.epoch;
            let result = if persisted { store.commit(commit) } else { Ok(()) };
            let event = match result {
                Ok(()) => {
                    committed.store(epoch.0, Ordering::Release);
                    JobEvent::Committed { generation, epoch, persisted, backfills }
                }
                Err(error) => JobEvent::Failed { generation, error: error.into(), commit: true },
            };
            let _ = events.send(event);
        });
    }
}

/// Collects what tasks report, and reports the first failure.
async fn supervise(
    mut tasks: JoinSet<Result<()>>,
    mut sealed: mpsc::UnboundedReceiver<crate::driver::Sealed>,
    task_count: usize,
    spec: JobSpec,
    events: mpsc::UnboundedSender<JobEvent>,
) {
    let generation = spec.generation;
    let mut collector = collect::Collector::new(task_count);
    let mut echo = None;
    loop {
        tokio::select! {
            Some(report) = sealed.recv() => {
                spec.stats.report(report.task, report.epoch, report.rows);
                if let Some(epoch) = collector.add(report) {
                    let _ = events.send(JobEvent::Collected { generation, epoch });
                }
            }
            ended = tasks.join_next() => {
                let error = match ended {
                    // Tasks end by themselves only when the job is being stopped.
                    Some(Ok(Ok(()))) => continue,
                    Some(Ok(Err(error))) if error.is_echo() => {
                        // The failure that it echoes is more telling, and on its way.
                        echo = Some(error);
                        continue;
                    }
                    Some(Ok(Err(error))) => error,
                    Some(Err(join)) if join.is_cancelled() => continue,
                    Some(Err(join)) => StreamError::Panicked(panic_message(join)),
                    None => match echo.take() {
                        Some(error) => error,
                        None => return,
                    },
                };
                let _ = events.send(JobEvent::Failed { generation, error, commit: false });
                return;
            }
        }
    }
}

fn panic_message(join: tokio::task::JoinError) -> String {
    let Ok(panic) = join.try_into_panic() else { return "cancelled".into() };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().map_or("unknown panic".into(), |m| (*m).into()),
    }
}
