//! What the world is made of: what is durable, and what a process knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Included};

use weir_common::catalog::Retention;
use weir_common::{Epoch, Generation, JobId};
use weir_meta::controller::{Event, JobController};
use weir_meta::log_readers::{LogReaders, LogState};

/// What outlives the process: catalog and store.
#[derive(Default)]
pub struct Disk {
    pub jobs: BTreeMap<JobId, Stored>,
    pub subscriptions: BTreeMap<JobId, Subscription>,
}

/// A job in the catalog and in the store.
pub struct Stored {
    pub inputs: Vec<JobId>,
    pub has_source: bool,
    /// Epochs that its log may have.
    pub limit: Option<usize>,
    /// Goes on being created after a crash.
    pub background: bool,
    pub created: bool,
    pub paused: bool,
    /// Has left the catalog.
    pub dropped: bool,
    pub frontier: Epoch,
    pub progress: Progress,
    pub log: ChangeLog,
}

/// How far a job has read its inputs.
#[derive(Clone, Default)]
pub struct Progress {
    /// Each input at the job's frontier.
    pub following: bool,
    pub readers: BTreeMap<JobId, Reader>,
}

/// The reader of one input.
#[derive(Clone)]
pub struct Reader {
    /// Steps of backfill that are left.
    pub left: u32,
    /// The offset of each actor, once it has begun.
    pub actors: Vec<Option<Epoch>>,
}

impl Reader {
    pub fn finished(&self) -> bool {
        self.left == 0 && self.actors.iter().all(Option::is_some)
    }

    /// The least offset, as it is reported.
    pub fn reported(&self) -> Epoch {
        self.actors.iter().map(|offset| offset.unwrap_or(Epoch::ZERO)).min().unwrap_or(Epoch::ZERO)
    }

    /// The epoch after which it needs the log, if it needs one.
    pub fn needs(&self) -> Option<Epoch> {
        self.actors.iter().flatten().min().copied()
    }

    /// Shares out what was read among so many actors: each begins at the least offset.
    pub fn rescale(&mut self, count: usize) {
        if count != self.actors.len() {
            self.actors = vec![self.needs(); count];
        }
    }
}

/// A subscription in the catalog.
#[derive(Clone, Copy)]
pub struct Subscription {
    pub of: JobId,
    pub retention: Retention,
}

/// The log of a relation, and the truth that it has to tell.
#[derive(Default)]
pub struct ChangeLog {
    /// Every epoch that changed the relation.
    pub changes: BTreeSet<Epoch>,
    kept: BTreeSet<Epoch>,
    /// Those that were committed when no log was kept.
    unlogged: BTreeSet<Epoch>,
    pub truncated: Epoch,
}

impl ChangeLog {
    pub fn add(&mut self, epoch: Epoch, keep: bool) {
        self.changes.insert(epoch);
        if keep {
            self.kept.insert(epoch)
        } else {
            self.unlogged.insert(epoch)
        };
    }

    /// Whether there are changes in `(after, up_to]`; `None` if some of them were truncated.
    pub fn read(&self, after: Epoch, up_to: Epoch) -> Option<bool> {
        if after < self.truncated && after != Epoch::ZERO {
            return None;
        }
        assert!(after >= self.truncated, "a reader from the beginning finds a truncated log");
        let missing = self.missing(after, up_to);
        assert_eq!(missing, None, "a reader at {after} does not find a change in the log");
        Some(self.changed(after, up_to))
    }

    pub fn changed(&self, after: Epoch, up_to: Epoch) -> bool {
        up_to > after && self.changes.range((Excluded(after), Included(up_to))).next().is_some()
    }

    /// A change in `(after, up_to]` that is not in the log, though it was not truncated.
    pub fn missing(&self, after: Epoch, up_to: Epoch) -> Option<Epoch> {
        (up_to > after).then(|| self.unlogged.range((Excluded(after), Included(up_to))).next().copied()).flatten()
    }

    pub fn truncate(&mut self, up_to: Epoch) {
        let rest = self.kept.split_off(&Epoch(up_to.0 + 1));
        if let Some(last) = std::mem::replace(&mut self.kept, rest).last() {
            self.truncated = *last;
        }
    }

    /// What the store says of a log that has more than it may.
    pub fn excess(&self, limit: usize) -> Option<Epoch> {
        self.kept.iter().rev().nth(limit).copied()
    }

    /// What is kept up to an epoch.
    pub fn kept_up_to(&self, epoch: Epoch) -> usize {
        self.kept.range(..=epoch).count()
    }
}

/// A job in a process: its controller, and what the shell and the runtime know.
pub struct Job {
    pub controller: JobController,
    pub log_readers: LogReaders,
    pub held_by: Option<JobId>,
    /// What its inputs have told it.
    pub inbox: VecDeque<Event>,
    pub starting: Option<Generation>,
    pub running: Option<Generation>,
    /// What the running generation has read.
    pub progress: Progress,
    /// Actors of each reader, from the next start on.
    pub actors: usize,
    /// Epochs that are not collected, and whether they are aligned.
    pub injected: VecDeque<(Epoch, bool)>,
    pub collected: BTreeMap<Epoch, Collected>,
    pub committing: Option<Commit>,
    /// Somebody waits for the end of the commit.
    pub settling: bool,
    pub retry: bool,
    /// Rows of a statement wait.
    pub rows: bool,
    pub frontier: Epoch,
    pub changed: Epoch,
    /// What the committed epochs have read.
    pub committed: Progress,
    pub created: bool,
    pub gone: bool,
}

impl Job {
    pub fn new(stored: &Stored) -> Job {
        Job {
            controller: JobController::new(stored.frontier, &stored.inputs, stored.has_source),
            log_readers: LogReaders::default(),
            held_by: None,
            inbox: VecDeque::new(),
            starting: None,
            running: None,
            progress: Progress::default(),
            actors: 1,
            injected: VecDeque::new(),
            collected: BTreeMap::new(),
            committing: None,
            settling: false,
            retry: false,
            rows: false,
            frontier: stored.frontier,
            changed: stored.frontier,
            committed: stored.progress.clone(),
            created: stored.created,
            gone: false,
        }
    }
}

/// What an epoch has done.
pub struct Collected {
    pub progress: Progress,
    /// The relation changed.
    pub changed: bool,
    /// Something is to be written.
    pub writes: bool,
}

/// A commit under way.
pub struct Commit {
    pub generation: Generation,
    pub epoch: Epoch,
    pub keep_log: bool,
    pub persisted: bool,
    pub collected: Collected,
    /// It is in the store; the process does not know yet.
    pub landed: bool,
}

/// A change of the catalog that is under way. There is one at a time.
pub enum Ddl {
    /// `settle`: the inputs whose commits have to end first. `asked`: the first of them.
    Create {
        id: JobId,
        settle: Vec<JobId>,
        asked: bool,
    },
    Subscribe {
        id: JobId,
        of: JobId,
        keep_ms: u64,
        asked: bool,
    },
    /// What is left of it: a line in the catalog.
    Insert {
        id: JobId,
        subscription: Subscription,
    },
    Unsubscribe {
        id: JobId,
        of: JobId,
    },
    Drop {
        id: JobId,
    },
}

/// A round of the care of logs.
pub struct Round {
    /// The catalog as it was when the round began.
    pub subscriptions: Vec<(JobId, Subscription)>,
    pub jobs: Vec<JobId>,
    pub stage: Stage,
}

pub enum Stage {
    Next,
    /// The relation was looked at, its readers not yet.
    Looked(JobId, LogState),
    Truncate(JobId, Epoch),
}

/// A session that reads a subscription.
pub struct Cursor {
    pub subscription: JobId,
    pub of: JobId,
    pub after: Epoch,
}
