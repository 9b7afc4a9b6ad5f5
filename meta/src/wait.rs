//! Waiting for jobs: until they have reached an epoch, are created, or have changed.
//!
//! A wait ends early when it can't succeed: the job, or something that it reads, was paused or failed for good. Then what it has is
//! what can be had.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use weir_common::{Epoch, JobId};

use crate::error::{MetaError, Result};
use crate::job::{Job, JobState, Phase};
use crate::meta::Meta;

/// How often a wait for a job looks whether something holds it up for good.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How a wait for a job ended.
enum Reached {
    Yes,
    /// This job stands still.
    HeldUp(Arc<Job>),
    Late,
}

impl Meta {
    /// Everything written before this call is durable, and visible in every view that can be queried and does not fail.
    /// Returns the epoch that all have reached.
    pub async fn flush(&self) -> Result<Epoch> {
        let epoch = self.clock.fresh().await;
        for job in self.all_jobs() {
            let mut state = job.state.clone();
            let reached = |s: &JobState| s.frontier >= epoch || !s.created;
            let stands = |p: Phase| p.is_halted() || p == Phase::Failing;
            match self.reach(&mut state, &job, reached, stands).await {
                Reached::Yes | Reached::HeldUp(_) => {}
                Reached::Late => return Err(self.behind(&job, epoch, None)),
            }
        }
        Ok(epoch)
    }

    /// How far a job is.
    pub fn frontier(&self, id: JobId) -> Option<Epoch> {
        self.shared.jobs().get(&id).map(|job| job.state.borrow().frontier)
    }

    /// Waits until a relation has changed after an epoch, or is gone.
    pub async fn wait_changed(&self, id: JobId, after: Epoch) {
        let state = self.shared.jobs().get(&id).map(|job| job.state.clone());
        if let Some(mut state) = state {
            let _ = state.wait_for(|s| s.changed > after || s.phase == Phase::Dropped).await;
        }
    }

    /// Whether a job, or something that it reads, makes no progress until somebody acts.
    pub fn is_held_up(&self, id: JobId) -> bool {
        let job = self.shared.jobs().get(&id).cloned();
        job.is_some_and(|job| self.standing(&job, &Phase::is_halted).is_some())
    }

    /// The epoch after which all changes of a relation are in its log, but for those that were truncated; `None` if there is
    /// no log.
    pub fn logged_after(&self, id: JobId) -> Option<Epoch> {
        self.shared.jobs().get(&id).and_then(|job| job.logged_after())
    }

    /// Waits until jobs have reached an epoch, and what was committed before this process, and can be queried.
    pub async fn wait_for(&self, jobs: &[JobId], wanted: Epoch) -> Result<()> {
        let epoch = wanted.max(self.recovered);
        for id in jobs {
            let Some(job) = self.shared.jobs().get(id).cloned() else { continue };
            if !job.now().created {
                return Err(MetaError::NotCreated { name: job.object().name.clone() });
            }
            let mut state = job.state.clone();
            let reached = |s: &JobState| s.frontier >= epoch || s.phase == Phase::Dropped;
            match self.reach(&mut state, &job, reached, Phase::is_halted).await {
                Reached::Yes => {}
                // Newer than what is there it will not be, so that is what can be read.
                Reached::HeldUp(_) if job.now().frontier >= wanted => {}
                Reached::HeldUp(by) => return Err(self.behind(&job, wanted, Some(&by))),
                Reached::Late => return Err(self.behind(&job, epoch, None)),
            }
        }
        Ok(())
    }

    /// Waits for a state of a job, as long as neither it nor anything that it reads stands still.
    async fn reach(
        &self,
        state: &mut watch::Receiver<JobState>,
        job: &Arc<Job>,
        mut reached: impl FnMut(&JobState) -> bool,
        stands: impl Fn(Phase) -> bool,
    ) -> Reached {
        let deadline = tokio::time::Instant::now() + self.wait_timeout;
        loop {
            let look_again = deadline.min(tokio::time::Instant::now() + LOOK_AGAIN);
            if tokio::time::timeout_at(look_again, state.wait_for(&mut reached)).await.is_ok() {
                return Reached::Yes;
            }
            if let Some(by) = self.standing(job, &stands) {
                return Reached::HeldUp(by);
            }
            if tokio::time::Instant::now() >= deadline {
                return Reached::Late;
            }
        }
    }

    /// The job, or one that it reads directly or not, that stands still.
    fn standing(&self, job: &Arc<Job>, stands: &impl Fn(Phase) -> bool) -> Option<Arc<Job>> {
        let (mut open, mut seen) = (vec![job.clone()], BTreeSet::new());
        while let Some(job) = open.pop() {
            if stands(job.state.borrow().phase) {
                return Some(job);
            }
            open.extend(self.inputs(&job).into_iter().filter(|input| seen.insert(input.id)));
        }
        None
    }

    fn behind(&self, job: &Job, epoch: Epoch, held_up_by: Option<&Job>) -> MetaError {
        let why = match held_up_by.map(|by| (by.object(), by.now())) {
            Some((by, state)) => {
                let error = state.last_error.filter(|_| state.phase == Phase::Stopped);
                let error = error.map_or_else(String::new, |e| format!(": {e}"));
                format!("; {} \"{}\" is {}{error}", by.kind.sql(), by.name, state.phase.name())
            }
            None => {
                let error = job.now().last_error.map_or_else(String::new, |e| format!("; its last error: {e}"));
                format!(", though waited for {} s{error}", self.wait_timeout.as_secs())
            }
        };
        MetaError::Behind { name: job.object().name.clone(), epoch, why }
    }

    /// Waits until every creation has ended, well or badly.
    pub async fn wait_created(&self) -> Result<()> {
        for job in self.all_jobs() {
            let ended = |s: &JobState| s.created || s.phase.is_halted();
            let _ = job.state.clone().wait_for(ended).await;
        }
        Ok(())
    }
}
