//! The shell around a [`JobController`]: carries its actions out and brings it the events. One task per job; it decides
//! nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use weir_common::catalog::Object;
use weir_common::plan::{JobPlan, Node};
use weir_common::{Epoch, Generation, JobId};
use weir_stream::StreamError;
use weir_stream::driver::Backfill;
use weir_stream::executor::dml::Statement;
use weir_stream::job::{CollectedEpoch, Engine, JobEvent, JobSpec, JobStats, RunningJob};
use weir_stream::message::Barrier;
use weir_stream::rate_limit::{Allowance, RateLimits};

use crate::controller::{Action, BackfillState, Event, JobController};
use crate::log_readers::{Decision, LogReaders, LogState};
use crate::meta_store::MetaStore;

/// The first pause after a failure; each further one is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// How long a pause or a new plan waits for open epochs.
const HALT_PATIENCE: Duration = Duration::from_secs(1);
/// The same for a job without inputs: what statements have written is lost if the wait is cut short.
const ROOT_HALT_PATIENCE: Duration = Duration::from_secs(10);
/// Spans of lost epochs that are remembered for statements that still wait.
const LOST_KEPT: usize = 16;

/// What a job is doing, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Starting,
    /// Reads what exists.
    Creating,
    Running,
    /// Failed; waits for a commit that is under way or for the next attempt.
    Failing,
    /// Failed for good: stays down until somebody acts.
    Stopped,
    /// Stays down because somebody said so.
    Paused,
    Dropped,
}

impl Phase {
    /// The word in system views.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Creating => "creating",
            Phase::Running => "running",
            Phase::Failing => "failing",
            Phase::Stopped => "stopped",
            Phase::Paused => "paused",
            Phase::Dropped => "dropped",
        }
    }

    /// Whether it makes no progress until somebody acts.
    pub fn is_halted(self) -> bool {
        matches!(self, Phase::Stopped | Phase::Paused | Phase::Dropped)
    }
}

/// What is known of a job from outside.
#[derive(Clone, Debug)]
pub struct JobState {
    pub phase: Phase,
    pub generation: Generation,
    pub frontier: Epoch,
    /// The relation changed last at this epoch.
    pub changed: Epoch,
    /// It has caught up with its inputs and can be queried.
    pub created: bool,
    /// Failures since the job was made or the process began.
    pub failures: u64,
    pub last_error: Option<String>,
    /// The reader that must read the log of the relation before it may change any more.
    pub held_by: Option<JobId>,
    /// When it is started again after a failure.
    pub next_attempt: Option<SystemTime>,
    pub backfills: Vec<Backfill>,
    /// When the backfills were looked at first since the job was started, and the rows that they had read by then.
    pub backfilling_since: Option<(SystemTime, u64)>,
    /// Epochs after the first and up to the second were injected and then lost to a failure.
    lost: Vec<(Epoch, Epoch)>,
}

impl JobState {
    /// Whether what was written in this epoch was lost.
    pub fn has_lost(&self, epoch: Epoch) -> bool {
        self.lost.iter().any(|(after, up_to)| epoch > *after && epoch <= *up_to)
    }
}

/// A job's line in `weir_catalog.jobs`.
pub struct JobStatus {
    pub object: Arc<Object>,
    pub state: JobState,
    pub stats: Arc<JobStats>,
    /// Committed offsets of the readers of the job's change log.
    pub readers: BTreeMap<JobId, Epoch>,
}

/// What reaches the task of a job.
pub enum ShellEvent {
    Control(Event),
    Job(JobEvent),
    Dml(Statement),
    /// The first rows are in: the job counts as created as soon as it has caught up.
    Filled,
    /// Answer when no commit is under way that was begun before.
    Settle(oneshot::Sender<()>),
    /// Go on with this plan: the same, for another number of actors.
    Plan(Arc<JobPlan>),
    Pause,
    /// The log of the relation is full because of this reader, or not any more.
    Hold(Option<JobId>),
    /// The end of a pause, of a failure for good, or of the wait for the next attempt.
    Resume,
}

/// A job as the rest of meta sees it.
pub struct Job {
    pub id: JobId,
    object: Mutex<Arc<Object>>,
    pub events: mpsc::UnboundedSender<ShellEvent>,
    pub state: watch::Receiver<JobState>,
    pub stats: Arc<JobStats>,
    limits: RateLimits,
    dml: tokio::sync::Mutex<Allowance>,
    readers: Mutex<Vec<(JobId, mpsc::UnboundedSender<ShellEvent>)>>,
    log_readers: Mutex<LogReaders>,
}

impl Job {
    /// Its catalog entry as it is now.
    pub fn object(&self) -> Arc<Object> {
        lock(&self.object).clone()
    }

    /// Its catalog entry has changed; what runs follows.
    pub fn alter(&self, changed: Arc<Object>) {
        self.limits.set(&changed.options);
        if self.state.borrow().held_by.is_some() {
            self.limits.source.set(Some(0));
        }
        let before = std::mem::replace(&mut *lock(&self.object), changed.clone());
        let parallelism = |object: &Object| object.plan.as_ref().map(|plan| plan.parallelism);
        if let Some(plan) = &changed.plan
            && parallelism(&before) != parallelism(&changed)
        {
            let _ = self.events.send(ShellEvent::Plan(Arc::new(plan.clone())));
        }
    }

    /// Holds the relation back until a reader has read its log, or lets it go on.
    pub fn hold(&self, reader: Option<JobId>) {
        for (_, events) in lock(&self.readers).iter().filter(|(id, _)| Some(*id) == reader) {
            let _ = events.send(ShellEvent::Control(Event::CatchUp));
        }
        if self.state.borrow().held_by != reader {
            let _ = self.events.send(ShellEvent::Hold(reader));
        }
    }

    /// Waits until rows of a statement may be handed over.
    pub async fn allow_dml(&self, rows: usize) {
        let mut allowance = self.dml.lock().await;
        allowance.wait(1).await;
        allowance.spend(rows);
    }

    pub(crate) fn limits(&self) -> &RateLimits {
        &self.limits
    }

    /// Sends an event to the job's controller.
    pub fn send(&self, event: Event) {
        // A task that is gone belongs to a job that was dropped.
        let _ = self.events.send(ShellEvent::Control(event));
    }

    /// The state now.
    pub fn now(&self) -> JobState {
        self.state.borrow().clone()
    }

    /// From here on the job keeps its log for this reader, and tells it about its frontier.
    pub fn add_reader(&self, reader: JobId, offset: Epoch, events: mpsc::UnboundedSender<ShellEvent>) {
        lock(&self.log_readers).add_job(reader, offset);
        lock(&self.readers).push((reader, events));
    }

    /// From here on the job keeps its log for a subscription, as far as it is after an epoch.
    pub fn add_subscription(&self, reader: JobId, after: Epoch) {
        lock(&self.log_readers).add_subscription(reader, after);
    }

    /// The job keeps its log for the delivery of the sink that it is.
    pub fn add_delivery(&self) {
        let mut readers = lock(&self.log_readers);
        readers.add_job(self.id, Epoch::ZERO);
        readers.log_is_kept(Epoch::ZERO);
    }

    /// A reader has what is up to this epoch, or needs it no more.
    pub fn set_offset(&self, reader: JobId, offset: Epoch) {
        lock(&self.log_readers).advance(reader, offset);
    }

    /// What becomes of the log, of which so much was truncated, and so much is in excess of its limit.
    pub fn decide(&self, truncated: Epoch, excess: Option<Epoch>) -> Decision {
        let (frontier, changed) = {
            let state = self.state.borrow();
            (state.frontier, state.changed)
        };
        // Looked at after the frontier: a reader that is new since needs nothing up to there.
        lock(&self.log_readers).decide(LogState { frontier, changed, excess, truncated })
    }

    /// The reader is gone.
    pub fn remove_reader(&self, reader: JobId) {
        lock(&self.readers).retain(|(id, _)| *id != reader);
        lock(&self.log_readers).remove(reader);
    }

    /// The log has been kept since this epoch at the latest.
    pub fn log_is_kept(&self, after: Epoch) {
        lock(&self.log_readers).log_is_kept(after);
    }

    /// The epoch after which the log is complete, if it is kept.
    pub fn logged_after(&self) -> Option<Epoch> {
        lock(&self.log_readers).logged_after()
    }

    /// Committed offsets of the readers.
    pub fn offsets(&self) -> BTreeMap<JobId, Epoch> {
        lock(&self.log_readers).offsets()
    }

    /// The commits that were begun before this call have ended.
    pub async fn settle(&self) {
        let (sender, receiver) = oneshot::channel();
        let _ = self.events.send(ShellEvent::Settle(sender));
        let _ = receiver.await;
    }

    fn keeps_log(&self) -> bool {
        lock(&self.log_readers).keeps_log()
    }

    fn tell_readers(&self, frontier: Epoch, changed: Epoch) {
        for (_, events) in lock(&self.readers).iter() {
            let _ = events.send(ShellEvent::Control(Event::Input { job: self.id, frontier, changed }));
        }
    }
}

/// What is behind these locks is valid at any moment, also when a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a job's task needs from its surroundings.
pub struct Surroundings {
    pub engine: Engine,
    pub meta_store: Arc<MetaStore>,
    pub clock: Arc<Notify>,
    /// The jobs whose relations it reads.
    pub inputs: Vec<Arc<Job>>,
}

/// How far the creation of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    Done,
    /// Done when it has caught up with its inputs.
    UnderWay,
    /// The same, and not before [`ShellEvent::Filled`].
    Held,
}

/// Makes a job and spawns its task; it waits for [`Event::Start`].
pub fn spawn(
    object: Arc<Object>,
    plan: Arc<JobPlan>,
    frontier: Epoch,
    creation: Creation,
    around: Surroundings,
) -> Arc<Job> {
    let (events, received) = mpsc::unbounded_channel();
    let (state_sender, state) = watch::channel(JobState {
        phase: if object.paused { Phase::Paused } else { Phase::Starting },
        generation: Generation(0),
        frontier,
        changed: frontier,
        created: creation == Creation::Done,
        failures: 0,
        last_error: None,
        held_by: None,
        next_attempt: None,
        backfills: Vec::new(),
        backfilling_since: None,
        lost: Vec::new(),
    });
    let limits = RateLimits::new(&object.options);
    let job = Arc::new(Job {
        id: object.id,
        object: Mutex::new(object),
        dml: tokio::sync::Mutex::new(Allowance::new(limits.dml.clone())),
        limits,
        events,
        state,
        stats: Arc::new(JobStats::default()),
        readers: Mutex::new(Vec::new()),
        log_readers: Mutex::default(),
    });
    let shell = Shell {
        controller: JobController::new(frontier, &plan.inputs, has_source(&plan)),
        job: job.clone(),
        plan,
        around,
        running: None,
        collected: BTreeMap::new(),
        waiting: Vec::new(),
        committing: false,
        settling: Vec::new(),
        injected: frontier,
        stepping: false,
        held: creation == Creation::Held,
        caught_up: false,
        state: state_sender,
    };
    tokio::spawn(shell.run(received));
    job
}

fn has_source(plan: &JobPlan) -> bool {
    let mut found = false;
    for fragment in &plan.fragments {
        fragment.plan.visit(&mut |p| found |= matches!(p.node, Node::Source(_)));
    }
    found
}

struct Shell {
    controller: JobController,
    job: Arc<Job>,
    plan: Arc<JobPlan>,
    around: Surroundings,
    running: Option<RunningJob>,
    collected: BTreeMap<Epoch, CollectedEpoch>,
    /// DML that came while the job did not run.
    waiting: Vec<Statement>,
    committing: bool,
    settling: Vec<oneshot::Sender<()>>,
    /// The newest epoch that was injected.
    injected: Epoch,
    /// Inputs have committed more than the controller knows.
    stepping: bool,
    /// Does not count as created yet, though it may have caught up.
    held: bool,
    caught_up: bool,
    state: watch::Sender<JobState>,
}

impl Shell {
    async fn run(mut self, mut received: mpsc::UnboundedReceiver<ShellEvent>) {
        while let Some(event) = received.recv().await {
            let Some(event) = self.translate(event).await else { continue };
            for action in self.controller.on(event) {
                if action == Action::Gone {
                    self.state.send_modify(|s| s.phase = Phase::Dropped);
                    return;
                }
                self.perform(action).await;
            }
        }
    }

    async fn finish_creation(&mut self) {
        if self.held || !self.caught_up {
            return;
        }
        let id = self.job.id;
        if !self.state.borrow().created {
            // Nobody is told before it is durable: a creation that is not recorded is undone by the next start.
            while let Err(error) = self.around.meta_store.set_created(id).await {
                tracing::error!(job = %id, %error, "record that the job was created");
                tokio::time::sleep(BACKOFF_FIRST).await;
            }
        }
        self.state.send_modify(|s| {
            s.created = true;
            s.phase = Phase::Running;
        });
    }

    /// What an event means to the controller; rows and errors stay here.
    async fn translate(&mut self, event: ShellEvent) -> Option<Event> {
        match event {
            ShellEvent::Control(Event::Input { job, frontier, changed }) => Some(self.input(job, frontier, changed)),
            ShellEvent::Control(event) => Some(event),
            ShellEvent::Dml(statement) => {
                match &self.running {
                    // They wait for the next start.
                    Some(_) if self.controller.is_halting() => {
                        self.waiting.push(statement);
                        return None;
                    }
                    Some(running) => self.waiting.extend(running.dml(statement).err()),
                    // Dropped, which its session is told.
                    None if self.state.borrow().phase.is_halted() => {}
                    None => self.waiting.push(statement),
                }
                Some(Event::Dml)
            }
            ShellEvent::Filled => {
                self.held = false;
                self.finish_creation().await;
                None
            }
            ShellEvent::Plan(plan) => {
                self.plan = plan;
                self.halt_in_time();
                Some(Event::Rebuild)
            }
            ShellEvent::Pause => {
                self.halt_in_time();
                Some(Event::Pause)
            }
            ShellEvent::Hold(reader) => {
                self.state.send_modify(|s| s.held_by = reader);
                match reader {
                    Some(_) => self.job.limits.source.set(Some(0)),
                    None => self.job.limits.set(&self.job.object().options),
                }
                Some(Event::Hold { held: reader.is_some() })
            }
            ShellEvent::Resume => {
                self.state.send_if_modified(|s| {
                    let halted = s.phase.is_halted();
                    if halted {
                        s.phase = Phase::Starting;
                    }
                    halted
                });
                // One that waits for its next attempt need not.
                let _ = self.job.events.send(ShellEvent::Control(Event::Retry));
                Some(Event::Start)
            }
            ShellEvent::Settle(done) => {
                self.settling.push(done);
                self.settle();
                None
            }
            ShellEvent::Job(JobEvent::Collected { generation, epoch }) => {
                let backfill = summary(&epoch.backfills);
                let (at, changed) = (epoch.epoch, epoch.changed());
                if self.running.as_ref().is_some_and(|r| r.generation() == generation) {
                    self.collected.insert(at, epoch);
                }
                Some(Event::Collected { generation, epoch: at, changed, backfill })
            }
            ShellEvent::Job(JobEvent::Committed { epoch, persisted, backfills, .. }) => {
                self.committed(epoch, persisted, backfills);
                Some(Event::Committed { epoch })
            }
            ShellEvent::Job(JobEvent::Failed { generation, error, commit }) => {
                if commit {
                    self.committing = false;
                    self.settle();
                }
                Some(self.failure(generation, &error, commit))
            }
        }
    }

    /// What an input has committed, as far as the job takes it in one step: what a job has missed while it stood still may
    /// be more than fits into an epoch.
    fn input(&mut self, job: JobId, frontier: Epoch, changed: Epoch) -> Event {
        if changed <= self.injected {
            return Event::Input { job, frontier, changed };
        }
        let store = &self.around.engine.store;
        let input = self.around.inputs.iter().find(|input| input.id == job);
        let table = input.and_then(|input| Some(input.object().plan.as_ref()?.relation.as_ref()?.id));
        let step =
            table.and_then(|table| store.log_step(table, self.injected, (store.uncommitted().limit() / 2) as u64));
        self.stepping |= step.is_some();
        Event::Input { job, frontier: step.map_or(frontier, |step| step.min(frontier)), changed }
    }

    /// After a step that was not all there is: the next one.
    fn step_on(&mut self) {
        if std::mem::take(&mut self.stepping) {
            for input in &self.around.inputs {
                let state = input.now();
                self.job.send(Event::Input { job: input.id, frontier: state.frontier, changed: state.changed });
            }
        }
    }

    /// Open epochs may hold up a pause or a new plan, but not for long.
    fn halt_in_time(&self) {
        let patience = if self.around.inputs.is_empty() { ROOT_HALT_PATIENCE } else { HALT_PATIENCE };
        let generation = self.controller.generation();
        let events = self.job.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            let _ = events.send(ShellEvent::Control(Event::Halt { generation }));
        });
    }

    fn failure(&mut self, generation: Generation, error: &StreamError, commit: bool) -> Event {
        tracing::warn!(job = %self.job.object().full_name(), id = %self.job.id, %generation, %error, "job failed");
        self.state.send_modify(|s| {
            s.failures += 1;
            s.last_error = Some(error.to_string());
        });
        Event::Failed { generation, remedy: error.remedy(), commit }
    }

    fn committed(&mut self, epoch: Epoch, persisted: bool, backfills: Vec<Backfill>) {
        self.committing = false;
        let following = self.state.borrow().created;
        for input in &self.around.inputs {
            let id = input.id;
            let of_input = backfills.iter().filter(|b| b.input == id).map(|b| b.offset).min();
            // A reader that follows is where its job is. One that backfills is where its progress says: if nothing was
            // written it has not moved, but this process may not know yet where it is.
            let offset = if following { persisted.then_some(epoch) } else { of_input };
            if let Some(offset) = offset {
                input.set_offset(self.job.id, offset);
            }
        }
        self.state.send_modify(|s| {
            let rows = backfills.iter().map(|b| b.rows).sum();
            s.backfilling_since.get_or_insert_with(|| (SystemTime::now(), rows));
            s.backfills = backfills;
        });
    }

    fn settle(&mut self) {
        if !self.committing {
            for done in self.settling.drain(..) {
                let _ = done.send(());
            }
        }
    }

    async fn perform(&mut self, action: Action) {
        match action {
            Action::Start { generation } => self.start(generation).await,
            Action::Inject { epoch, aligned } => {
                self.injected = epoch;
                self.step_on();
                if let Some(running) = &self.running {
                    running.inject(Barrier { epoch, aligned });
                }
            }
            Action::Commit { epoch, persist } => {
                let collected = self.collected.remove(&epoch).expect("an epoch is committed after it was collected");
                let running = self.running.as_ref().expect("a commit is begun while the job runs");
                self.committing = true;
                running.commit(collected, self.job.keeps_log(), persist);
            }
            Action::Publish { frontier, changed } => {
                self.state.send_modify(|s| {
                    s.frontier = frontier;
                    s.changed = changed;
                });
                self.job.tell_readers(frontier, changed);
                // Not before the frontier is told: who waits takes the changes after it for those that are in the log.
                self.settle();
            }
            Action::Created => {
                self.caught_up = true;
                // The process may have begun after the commit that caught up: then no later one need tell this. What
                // was published last is that commit, and durable.
                let frontier = self.state.borrow().frontier;
                self.around.inputs.iter().for_each(|input| input.set_offset(self.job.id, frontier));
                self.finish_creation().await;
            }
            Action::Stop => {
                self.running = None;
                self.collected.clear();
            }
            Action::StayDown => {
                self.lose();
                self.waiting.clear();
                let phase = if self.job.object().paused { Phase::Paused } else { Phase::Stopped };
                self.state.send_modify(|s| {
                    s.phase = phase;
                    s.next_attempt = None;
                });
            }
            Action::Pause { attempt } => {
                self.lose();
                let pause = BACKOFF_FIRST.saturating_mul(1 << (attempt - 1).min(16)).min(BACKOFF_MAX);
                let events = self.job.events.clone();
                self.state.send_modify(|s| {
                    s.phase = Phase::Failing;
                    s.next_attempt = Some(SystemTime::now() + pause);
                });
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    let _ = events.send(ShellEvent::Control(Event::Retry));
                });
            }
            Action::RequestTick => self.around.clock.notify_one(),
            Action::Gone => unreachable!("handled by the loop"),
        }
    }

    /// Epochs that were injected beyond the frontier will never be committed.
    fn lose(&mut self) {
        let frontier = self.controller.frontier();
        if self.injected > frontier {
            let injected = self.injected;
            self.state.send_modify(|s| {
                s.lost.push((frontier, injected));
                if s.lost.len() > LOST_KEPT {
                    s.lost.remove(0);
                }
            });
        }
    }

    async fn start(&mut self, generation: Generation) {
        self.lose();
        self.state.send_modify(|s| (s.next_attempt, s.backfilling_since) = (None, None));
        let spec = JobSpec {
            id: self.job.id,
            generation,
            plan: self.plan.clone(),
            frontier: self.controller.frontier(),
            limits: self.job.limits.clone(),
            stats: self.job.stats.clone(),
        };
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let events = self.job.events.clone();
        let started = self.around.engine.start(spec, sender).await;
        tokio::spawn(async move {
            while let Some(event) = receiver.recv().await {
                if events.send(ShellEvent::Job(event)).is_err() {
                    return;
                }
            }
        });
        let event = match started {
            Ok(running) => {
                let following = running.following();
                for statement in self.waiting.drain(..) {
                    let _ = running.dml(statement);
                }
                self.running = Some(running);
                let created = self.state.borrow().created;
                self.state.send_modify(|s| {
                    s.generation = generation;
                    s.phase = if created { Phase::Running } else { Phase::Creating };
                });
                Event::Started { generation, following }
            }
            Err(error) => self.failure(generation, &error, false),
        };
        let _ = self.job.events.send(ShellEvent::Control(event));
    }
}

fn summary(backfills: &[Backfill]) -> Option<BackfillState> {
    let offset = backfills.iter().map(|b| b.offset).max()?;
    Some(BackfillState { finished: backfills.iter().all(Backfill::finished), offset })
}
