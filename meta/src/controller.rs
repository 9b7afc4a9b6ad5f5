//! Decides for one job when a barrier goes in, when an epoch is committed, and what becomes of a failure.
//!
//! A pure machine: `on(event) -> actions`, without I/O, clock or randomness.
//!
//! ```text
//!           Start            Started                     Failed (Retry)
//! Stopped ─────────> Starting ─────────> Running ───────────────────────> Draining ──> Backoff ─┐
//!    ^                  ^                                                    │   (commits end)   │ Retry
//!    └── Pause          └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A pause or a new plan lets the open epochs end first: after their commit the job stops, and with a new plan starts again
//! from there. One that takes too long is stopped without waiting for it ([`Event::Halt`]).
//!
//! Invariants
//! - epochs are injected in growing order, at most [`EPOCHS_IN_FLIGHT_MAX`] are open, and they commit one at a time, in order;
//! - the frontier only grows;
//! - an aligned epoch is never beyond the frontier of an input, nor before the offset of a reader;
//! - after a crash, too, a source puts no rows into an epoch that a reader of the job has behind it;
//! - an event of an older generation changes nothing, but for the end of a commit, which is always waited for: a job is
//!   started again only when no commit of an earlier generation can still land.

use std::collections::{BTreeMap, VecDeque};

use weir_common::{Epoch, Generation, JobId};
use weir_stream::Remedy;

/// Epochs of a job that are injected and not committed.
pub const EPOCHS_IN_FLIGHT_MAX: usize = 2;

/// Epochs that a job asks for while it backfills, so that a small backfill ends at once. A long one, or one with an input
/// that stands still, then goes on at the interval of the clock.
const EAGER_TICKS: u32 = 12;
/// Milliseconds between the epochs of a long backfill. Statements ask for epochs all the time, and what a backfill commits
/// with each would be in their way.
const BACKFILL_PACE_MS: u64 = 200;

/// What happens to a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Run, for the first time or after a stop.
    Start,
    /// Stop until [`Event::Start`].
    Pause,
    /// Start again, with another plan.
    Rebuild,
    /// What reads inputs takes no epoch while it is held.
    Hold { held: bool },
    /// Before this process a reader took what was there up to this epoch. Empty epochs are not stored, so it may be
    /// beyond the frontier that the job was found with.
    Taken { epoch: Epoch },
    /// An input is held back until this job has read its log.
    CatchUp,
    /// Enough waiting: the pause or new plan that this generation was told of takes place now.
    Halt { generation: Generation },
    /// The actors run. `following`: no reader has anything left to backfill, and all were aligned when last committed.
    Started { generation: Generation, following: bool },
    /// The epoch clock.
    Tick { epoch: Epoch },
    /// An input has a new frontier; its relation changed last at `changed`.
    Input { job: JobId, frontier: Epoch, changed: Epoch },
    /// Rows of a DML statement wait in the table.
    Dml,
    /// A barrier has passed every task.
    Collected { generation: Generation, epoch: Epoch, changed: bool, backfill: Option<BackfillState> },
    /// A commit is durable.
    Committed { epoch: Epoch },
    /// A task, a start or (`commit`) a commit failed.
    Failed { generation: Generation, remedy: Remedy, commit: bool },
    /// The pause before another attempt is over.
    Retry,
    /// Stop for good: the job is dropped.
    Drop,
}

/// Where the readers of a job are, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfillState {
    pub finished: bool,
    /// The greatest offset of a reader.
    pub offset: Epoch,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Build and start the actors.
    Start { generation: Generation },
    /// Let a barrier in.
    Inject { epoch: Epoch, aligned: bool },
    /// Commit what was collected for the epoch. `persist`: also if it is empty.
    Commit { epoch: Epoch, persist: bool },
    /// Everything up to `frontier` is readable; the relation changed last at `changed`.
    Publish { frontier: Epoch, changed: Epoch },
    /// The job has caught up with its inputs for the first time: it can be queried.
    Created,
    /// Abort the actors. [`Action::Pause`], [`Action::StayDown`] or [`Action::Gone`] follows when no commit is under way.
    Stop,
    /// Come back with [`Event::Retry`] after a pause, the longer the more attempts failed in a row.
    Pause { attempt: u32 },
    /// Ask the clock for an epoch soon.
    RequestTick,
    /// Nothing runs until somebody acts.
    StayDown,
    /// Nothing runs and nothing will: state may be removed.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Stopped,
    Starting,
    Running,
    /// Failed; a commit is still under way.
    Draining(After),
    Backoff,
    /// Dropped.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Retry,
    Rebuild,
    Stay,
    Drop,
}

#[derive(Clone, Copy, Debug)]
struct Input {
    frontier: Epoch,
    changed: Epoch,
    /// `changed` when an epoch was let in last that each reader goes on by itself with.
    seen: Epoch,
}

/// An epoch that was injected.
#[derive(Debug)]
struct OpenEpoch {
    epoch: Epoch,
    aligned: bool,
    collected: bool,
    changed: bool,
}

/// The controller of one job.
#[derive(Debug)]
pub struct JobController {
    phase: Phase,
    generation: Generation,
    /// Frontier of the job.
    frontier: Epoch,
    /// The job's relation changed last at this epoch (or, after a restart of the process, not later).
    changed: Epoch,
    /// The frontier is in the store at least since this process started the job.
    persisted: bool,
    inputs: BTreeMap<JobId, Input>,
    /// Reads a source of its own, so that every tick may bring rows.
    has_source: bool,
    /// Readers have taken the epochs up to here. A source must not put rows into them any more.
    taken: Epoch,
    /// DML rows wait, or the job is new: the next tick must go through the actors.
    dirty: bool,
    /// Readers are aligned.
    aligned: bool,
    backfill: Option<BackfillState>,
    /// Epochs that were asked for since the job was started.
    asked: u32,
    /// Epochs of the backfill since then.
    unaligned: u32,
    created: bool,
    /// The newest tick that was not used.
    tick: Epoch,
    last_injected: Epoch,
    open: VecDeque<OpenEpoch>,
    /// A commit is under way. At most one.
    committing: bool,
    /// Failures since the last commit.
    attempt: u32,
    /// No epoch of the inputs is taken.
    held: bool,
    /// An input waits for this job. Its readers go on even if they can't be put on one epoch before that.
    waited_for: bool,
    /// No epoch is let in any more, and this follows the commit of the open ones.
    halting: Option<After>,
}

impl JobController {
    /// Of a job whose committed frontier is `frontier` ([`Epoch::ZERO`]: none yet).
    pub fn new(frontier: Epoch, inputs: &[JobId], has_source: bool) -> JobController {
        let input = Input { frontier: Epoch::ZERO, changed: Epoch::ZERO, seen: Epoch::ZERO };
        JobController {
            phase: Phase::Stopped,
            generation: Generation(0),
            frontier,
            changed: frontier,
            persisted: frontier > Epoch::ZERO,
            inputs: inputs.iter().map(|job| (*job, input)).collect(),
            has_source,
            taken: Epoch::ZERO,
            dirty: frontier == Epoch::ZERO,
            aligned: false,
            backfill: None,
            asked: 0,
            unaligned: 0,
            created: false,
            tick: Epoch::ZERO,
            last_injected: frontier,
            open: VecDeque::new(),
            committing: false,
            attempt: 0,
            held: false,
            waited_for: false,
            halting: None,
        }
    }

    /// The generation that runs, or ran last.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether it is about to stop, for a pause or a new plan.
    pub fn is_halting(&self) -> bool {
        self.halting.is_some()
    }

    /// The newest committed epoch.
    pub fn frontier(&self) -> Epoch {
        self.frontier
    }

    /// Takes an event and says what is to be done.
    pub fn on(&mut self, event: Event) -> Vec<Action> {
        if self.phase == Phase::Gone {
            return vec![];
        }
        match event {
            Event::Start => self.start(),
            Event::Hold { held } => {
                self.held = held;
                self.advance()
            }
            Event::Taken { epoch } => {
                self.taken = self.taken.max(epoch);
                vec![]
            }
            Event::CatchUp => {
                self.waited_for = true;
                self.advance()
            }
            Event::Pause => self.halt(After::Stay),
            Event::Rebuild => self.halt(After::Rebuild),
            Event::Halt { generation } if generation == self.generation && self.phase == Phase::Running => {
                self.halting.map_or(vec![], |after| self.end(after))
            }
            Event::Halt { .. } => vec![],
            Event::Started { generation, following } => self.started(generation, following),
            Event::Tick { epoch } => {
                self.tick = self.tick.max(epoch);
                let mut actions = self.advance();
                actions.extend(self.halt_when_idle());
                actions
            }
            Event::Input { job, frontier, changed } => self.input(job, frontier, changed),
            Event::Dml => {
                self.dirty = true;
                vec![Action::RequestTick]
            }
            Event::Collected { generation, epoch, changed, backfill } => {
                if generation != self.generation || self.phase != Phase::Running {
                    return vec![];
                }
                self.collected(epoch, changed, backfill)
            }
            Event::Committed { epoch } => self.committed(epoch),
            Event::Failed { generation, remedy, commit } => self.failed(generation, remedy, commit),
            Event::Retry if self.phase == Phase::Backoff => self.begin(),
            Event::Retry => vec![],
            Event::Drop => self.end(After::Drop),
        }
    }

    fn start(&mut self) -> Vec<Action> {
        match self.phase {
            Phase::Stopped => return self.begin(),
            // Paused a moment ago: what the pause has put off may be a new plan.
            Phase::Starting | Phase::Running if self.halting == Some(After::Stay) => {
                self.halting = Some(After::Rebuild)
            }
            Phase::Draining(After::Stay) => self.phase = Phase::Draining(After::Rebuild),
            _ => {}
        }
        vec![]
    }

    fn halt(&mut self, after: After) -> Vec<Action> {
        match self.phase {
            // A pause outlives a new plan, which the next start takes anyway.
            Phase::Starting | Phase::Running if self.halting != Some(After::Stay) => {
                self.halting = Some(after);
                self.halt_when_idle()
            }
            Phase::Draining(After::Retry | After::Rebuild) if after == After::Stay => {
                self.phase = Phase::Draining(after);
                vec![]
            }
            Phase::Stopped | Phase::Backoff if after == After::Stay => self.drained(after),
            _ => vec![],
        }
    }

    fn halt_when_idle(&mut self) -> Vec<Action> {
        let Some(after) = self.halting else { return vec![] };
        if self.phase != Phase::Running || !self.open.is_empty() || self.committing {
            return vec![];
        }
        // Rows that were handed over would be lost.
        let waiting = self.inputs.is_empty() && self.dirty;
        match waiting {
            true if self.tick > self.last_injected => self.advance_to(self.tick, true, true),
            true => vec![Action::RequestTick],
            false => self.end(after),
        }
    }

    fn begin(&mut self) -> Vec<Action> {
        self.halting = None;
        self.phase = Phase::Starting;
        self.generation = self.generation.next();
        vec![Action::Start { generation: self.generation }]
    }

    fn started(&mut self, generation: Generation, following: bool) -> Vec<Action> {
        if generation != self.generation || self.phase != Phase::Starting {
            return vec![];
        }
        self.phase = Phase::Running;
        if self.halting.is_some() {
            return self.halt_when_idle();
        }
        self.aligned = following;
        self.backfill = None;
        self.asked = 0;
        self.unaligned = 0;
        self.waited_for = false;
        self.inputs.values_mut().for_each(|input| input.seen = Epoch::ZERO);
        if !self.inputs.is_empty() {
            // The inputs may have nothing newer than what the failed generation was about to commit. A root instead waits
            // for a newer tick, so that none of its epochs ever means two things: DML is acknowledged by epoch.
            self.last_injected = if self.has_source { self.frontier.max(self.taken) } else { self.frontier };
        }
        // What the failed generation took in and did not commit must go through again; so must DML rows that waited.
        self.dirty = true;
        let mut actions = Vec::new();
        if following && self.frontier > Epoch::ZERO {
            actions.extend(self.now_created());
        }
        actions.extend(self.advance());
        actions
    }

    fn now_created(&mut self) -> Option<Action> {
        (!std::mem::replace(&mut self.created, true)).then_some(Action::Created)
    }

    fn input(&mut self, job: JobId, frontier: Epoch, changed: Epoch) -> Vec<Action> {
        let Some(input) = self.inputs.get_mut(&job) else { return vec![] };
        input.frontier = input.frontier.max(frontier);
        input.changed = input.changed.max(changed);
        self.advance()
    }

    /// Lets the next barrier in, if there is reason to and room.
    fn advance(&mut self) -> Vec<Action> {
        if self.phase != Phase::Running || self.halting.is_some() || self.open.len() >= EPOCHS_IN_FLIGHT_MAX {
            return vec![];
        }
        if self.inputs.is_empty() {
            return self.advance_to(self.tick, true, self.has_source || self.dirty);
        }
        if self.held {
            return vec![];
        }
        let reached = self.inputs.values().map(|i| i.frontier).min().unwrap_or(Epoch::ZERO);
        if self.aligned {
            let changed = self.inputs.values().any(|i| i.changed > self.last_injected);
            return self.advance_to(reached, true, changed || self.has_source || self.dirty);
        }
        match self.backfill {
            Some(backfill) if backfill.finished => {
                // The readers are where their inputs were when last looked at. No barrier that lets them go on by
                // themselves may be open when they are put on one epoch.
                if !self.open.is_empty() {
                    return vec![];
                }
                if reached >= backfill.offset && reached > self.last_injected {
                    self.aligned = true;
                    return self.advance_to(reached, true, true);
                }
                // An input that is held back does not get beyond the last epoch, unless its log is read first.
                let can_read = self.inputs.values().any(|i| i.changed > i.seen);
                if self.waited_for && can_read && self.tick > self.last_injected {
                    return self.advance_to(self.tick, false, true);
                }
                self.ask()
            }
            _ if self.tick > self.last_injected && self.is_paced() => self.advance_to(self.tick, false, true),
            _ if self.open.is_empty() => self.ask(),
            _ => vec![],
        }
    }

    /// Whether the backfill may take the epoch of the clock.
    fn is_paced(&self) -> bool {
        self.unaligned <= EAGER_TICKS || self.tick.unix_ms() >= self.last_injected.unix_ms() + BACKFILL_PACE_MS
    }

    fn ask(&mut self) -> Vec<Action> {
        self.asked += 1;
        if self.asked > EAGER_TICKS { vec![] } else { vec![Action::RequestTick] }
    }

    fn advance_to(&mut self, epoch: Epoch, aligned: bool, active: bool) -> Vec<Action> {
        if epoch <= self.last_injected {
            return vec![];
        }
        if active {
            self.dirty = false;
            self.last_injected = epoch;
            if !aligned {
                self.unaligned += 1;
                self.waited_for = false;
                self.inputs.values_mut().for_each(|input| input.seen = input.changed);
            }
            self.open.push_back(OpenEpoch { epoch, aligned, collected: false, changed: false });
            return vec![Action::Inject { epoch, aligned }];
        }
        if !self.open.is_empty() {
            // Taken up again when the open epochs have committed.
            return vec![];
        }
        self.last_injected = epoch;
        self.frontier = epoch;
        vec![Action::Publish { frontier: epoch, changed: self.changed }]
    }

    fn collected(&mut self, epoch: Epoch, changed: bool, backfill: Option<BackfillState>) -> Vec<Action> {
        let Some(open) = self.open.iter_mut().find(|open| open.epoch == epoch) else { return vec![] };
        open.collected = true;
        open.changed = changed;
        if !open.aligned {
            self.backfill = backfill;
        }
        self.commit_next()
    }

    fn commit_next(&mut self) -> Vec<Action> {
        match self.open.front() {
            Some(open) if open.collected && !self.committing => {
                self.committing = true;
                vec![Action::Commit { epoch: open.epoch, persist: !self.persisted }]
            }
            _ => vec![],
        }
    }

    fn committed(&mut self, epoch: Epoch) -> Vec<Action> {
        assert!(self.committing, "a commit ends that was begun");
        self.committing = false;
        self.attempt = 0;
        self.persisted = true;
        self.frontier = self.frontier.max(epoch);
        let mut actions = Vec::new();
        // A job that failed meanwhile has let go of its open epochs, yet the commit counts: it is in the store.
        let open = if self.open.front().is_some_and(|open| open.epoch == epoch) { self.open.pop_front() } else { None };
        if open.as_ref().is_none_or(|open| open.changed) {
            self.changed = epoch;
        }
        actions.push(Action::Publish { frontier: self.frontier, changed: self.changed });
        if open.is_some_and(|open| open.aligned) {
            actions.extend(self.now_created());
        }
        match self.phase {
            Phase::Running => {
                actions.extend(self.commit_next());
                actions.extend(self.advance());
                actions.extend(self.halt_when_idle());
            }
            Phase::Draining(after) => actions.extend(self.drained(after)),
            Phase::Stopped | Phase::Starting | Phase::Backoff | Phase::Gone => {}
        }
        actions
    }

    fn failed(&mut self, generation: Generation, remedy: Remedy, commit: bool) -> Vec<Action> {
        if commit {
            self.committing = false;
            if let Phase::Draining(after) = self.phase {
                return self.drained(after);
            }
        }
        if generation != self.generation || !matches!(self.phase, Phase::Starting | Phase::Running) {
            return vec![];
        }
        self.end(match (self.halting, remedy) {
            (Some(After::Stay), _) | (_, Remedy::Reject | Remedy::Stop) => After::Stay,
            (_, Remedy::Retry) => After::Retry,
        })
    }

    /// Stops what runs and goes on when no commit is under way.
    fn end(&mut self, after: After) -> Vec<Action> {
        self.halting = None;
        self.open.clear();
        let mut actions = vec![Action::Stop];
        if self.committing {
            self.phase = Phase::Draining(after);
        } else {
            actions.extend(self.drained(after));
        }
        actions
    }

    fn drained(&mut self, after: After) -> Vec<Action> {
        match after {
            After::Retry => {
                self.phase = Phase::Backoff;
                self.attempt += 1;
                vec![Action::Pause { attempt: self.attempt }]
            }
            After::Rebuild => self.begin(),
            After::Stay => {
                self.phase = Phase::Stopped;
                vec![Action::StayDown]
            }
            After::Drop => {
                self.phase = Phase::Gone;
                vec![Action::Gone]
            }
        }
    }
}
