//! What must hold, always and in the end.

use weir_common::{Epoch, JobId};
use weir_meta::controller::{Action, EPOCHS_IN_FLIGHT_MAX};

use crate::model::{Cursor, Progress, Reader};
use crate::world::World;

impl World {
    /// Before an action is carried out.
    pub fn check_action(&self, id: JobId, action: &Action) {
        let (job, stored) = (&self.jobs[&id], &self.disk.jobs[&id]);
        match action {
            Action::Start { .. } => {
                assert!(job.committing.is_none(), "started while a commit may still land");
                assert!(job.running.is_none() && !stored.paused);
            }
            Action::Inject { epoch, aligned } => {
                assert!(job.running.is_some());
                let last = job.injected.back().map(|(last, _)| last).or(job.collected.keys().next_back());
                assert!(last.is_none_or(|last| last < epoch) && *epoch > job.frontier);
                if *aligned {
                    let passed = stored.inputs.iter().find(|input| self.jobs[input].frontier < *epoch);
                    assert_eq!(passed, None, "an aligned reader passed an input");
                }
                assert!(job.injected.len() + job.collected.len() < EPOCHS_IN_FLIGHT_MAX);
            }
            Action::Commit { epoch, .. } => {
                assert!(job.committing.is_none(), "two commits at once");
                let first = job.collected.keys().next();
                assert_eq!(first, Some(epoch), "commits are in order");
            }
            Action::Publish { frontier, changed } => {
                assert!(*frontier >= job.frontier && *changed >= job.changed, "a frontier went back");
                assert!(stored.log.changes.last().is_none_or(|last| last <= changed), "a change is not published");
                if job.committed.following {
                    self.check_nothing_is_left_out(&job.committed, *frontier);
                }
            }
            Action::Pause { .. } => assert!(!stored.paused, "a paused job tries again"),
            _ => {}
        }
    }

    /// A job says that it has all of its inputs up to an epoch.
    fn check_nothing_is_left_out(&self, committed: &Progress, frontier: Epoch) {
        for (input, reader) in &committed.readers {
            let log = &self.disk.jobs[input].log;
            assert!(!log.changed(reader.reported(), frontier), "a change of job {input} was passed unread");
        }
    }

    /// A relation changes at an epoch that no reader has behind it: it would never see the change.
    pub fn check_nobody_has_passed(&self, id: JobId, epoch: Epoch) {
        for (reader, stored) in &self.disk.jobs {
            let passed = stored.progress.following && stored.inputs.contains(&id) && stored.frontier >= epoch;
            assert!(!passed, "job {id} changes at {epoch}, which its reader {reader} has behind it");
        }
        let cursor = self.cursors.iter().find(|cursor| cursor.of == id && cursor.after >= epoch);
        assert!(cursor.is_none(), "job {id} changes at {epoch}, which a cursor has behind it");
    }

    /// No job needs what was truncated.
    pub fn check_truncation(&self, id: JobId) {
        let truncated = self.disk.jobs[&id].log.truncated;
        for (reader, stored) in self.disk.jobs.iter().filter(|(_, stored)| stored.inputs.contains(&id)) {
            let needs = match stored.progress.following {
                true => Some(stored.frontier),
                false => stored.progress.readers[&id].needs(),
            };
            let running = self.jobs.get(reader).and_then(|job| job.progress.readers.get(&id)?.needs());
            let needs = needs.into_iter().chain(running).min();
            assert!(needs.is_none_or(|offset| offset >= truncated), "what job {reader} needs of {id} was truncated");
        }
    }

    /// A subscription loses what its retention has passed, and what a limit took.
    pub fn check_loss_is_known(&self, cursor: &Cursor) {
        let kept = self.disk.subscriptions[&cursor.subscription].retention.kept_after(self.now * 100);
        let known = self.lost.get(&cursor.subscription).copied().unwrap_or_default().max(kept);
        let truncated = self.disk.jobs[&cursor.of].log.truncated;
        assert!(truncated <= known, "a subscription lost changes up to {truncated}, and was told {known}");
    }

    /// At any moment.
    pub fn check(&self) {
        for (id, job) in &self.jobs {
            let log = &self.disk.jobs[id].log;
            if let Some(after) = job.log_readers.logged_after() {
                let missing = log.missing(after.max(log.truncated), Epoch::MAX);
                assert_eq!(missing, None, "job {id} should have logged everything after {after}");
            }
            // A reader that was created has told how far it is: the relation may be held back until it does.
            for (reader, known) in job.log_readers.offsets() {
                let Some(job) = self.jobs.get(&reader).filter(|job| job.created) else { continue };
                if job.committing.as_ref().is_none_or(|commit| !commit.landed) {
                    let durable = self.disk.jobs[&reader].frontier;
                    assert_eq!(known, durable, "what job {id} knows of its reader {reader}");
                }
            }
        }
        for (id, subscription) in &self.disk.subscriptions {
            let log = &self.disk.jobs[&subscription.of].log;
            let missing = log.missing(subscription.retention.since.max(log.truncated), Epoch::MAX);
            assert_eq!(missing, None, "subscription {id} has lost a change silently");
        }
    }

    /// When nothing fails any more and nothing is left to be done.
    pub fn check_end(&self) {
        let goal = self.epoch();
        for (id, job) in &self.jobs {
            let stored = &self.disk.jobs[id];
            assert_eq!(job.held_by, None, "job {id} is held for ever");
            assert_eq!(job.frontier, goal, "job {id} stands still: {:?}", job.controller);
            assert!(job.created, "job {id} was never created");
            assert!(stored.progress.readers.values().all(Reader::finished));
            let jobs = self.disk.jobs.iter().filter(|(_, reader)| reader.inputs.contains(id)).map(|(id, _)| *id);
            let subscriptions = self.disk.subscriptions.iter().filter(|(_, s)| s.of == *id).map(|(id, _)| *id);
            let mut readers: Vec<JobId> = jobs.chain(subscriptions).collect();
            readers.sort_unstable();
            let known: Vec<JobId> = job.log_readers.offsets().keys().copied().collect();
            assert_eq!(known, readers, "who reads the log of job {id}");
            let wanted = job.log_readers.offsets().values().min().copied().unwrap_or(Epoch::MAX);
            assert_eq!(stored.log.kept_up_to(wanted), 0, "job {id} keeps a log for nobody");
        }
    }
}
