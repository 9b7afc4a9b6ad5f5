//! A process with its jobs: what the shell and the runtime do, one random step after the other.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weir_common::{Epoch, Generation, JobId};
use weir_meta::controller::{Action, BackfillState, Event};
use weir_stream::Remedy;

use crate::model::{Collected, Commit, Cursor, Ddl, Disk, Job, Progress, Reader, Round, Stored};

pub struct World {
    pub disk: Disk,
    pub jobs: BTreeMap<JobId, Job>,
    pub ddl: Option<Ddl>,
    pub round: Option<Round>,
    /// Up to where each log was truncated by this process.
    pub truncated: BTreeMap<JobId, Epoch>,
    pub cursors: Vec<Cursor>,
    /// Up to where a limit has cost a subscription its changes.
    pub lost: BTreeMap<JobId, Epoch>,
    pub rng: SmallRng,
    pub now: u64,
    pub next_id: u32,
    /// Something happened since this was reset.
    pub busy: bool,
    /// How often what a schedule is to lead to has happened.
    pub seen: BTreeMap<&'static str, usize>,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            disk: Disk::default(),
            jobs: BTreeMap::new(),
            ddl: None,
            round: None,
            truncated: BTreeMap::new(),
            cursors: vec![],
            lost: BTreeMap::new(),
            rng: SmallRng::seed_from_u64(seed),
            now: 1,
            next_id: 0,
            busy: false,
            seen: BTreeMap::new(),
        }
    }

    pub fn epoch(&self) -> Epoch {
        Epoch::from_unix_ms(self.now * 100)
    }

    pub fn job(&mut self, id: JobId) -> &mut Job {
        self.jobs.get_mut(&id).unwrap()
    }

    pub fn stored(&mut self, id: JobId) -> &mut Stored {
        self.disk.jobs.get_mut(&id).unwrap()
    }

    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    /// The process is gone, and another one starts on what it left.
    pub fn crash(&mut self) {
        self.saw("crash");
        self.jobs.clear();
        self.truncated.clear();
        self.cursors.clear();
        (self.ddl, self.round) = (None, None);
        self.disk.jobs.retain(|_, job| !job.dropped && (job.created || job.background));
        let ids: Vec<_> = self.disk.jobs.keys().copied().collect();
        for id in &ids {
            self.register(*id);
        }
        for id in self.disk.subscriptions.keys().copied().collect::<Vec<_>>() {
            self.keep_log_for(id);
        }
        for id in ids {
            if !self.disk.jobs[&id].paused {
                self.send(id, Event::Start);
            }
        }
    }

    /// Makes the job of an object, with its edges to its inputs.
    pub fn register(&mut self, id: JobId) {
        let stored = &self.disk.jobs[&id];
        let mut job = Job::new(stored);
        for input in &stored.inputs {
            let known = self.jobs.get_mut(input).unwrap();
            known.log_readers.add_job(id, if stored.created { stored.frontier } else { Epoch::ZERO });
            if stored.created {
                known.log_readers.log_is_kept(stored.frontier);
                known.controller.on(Event::Taken { epoch: stored.frontier });
            }
            job.inbox.push_back(Event::Input { job: *input, frontier: known.frontier, changed: known.changed });
        }
        self.jobs.insert(id, job);
    }

    pub fn send(&mut self, id: JobId, event: Event) {
        // What is said every time is no news.
        self.busy |= event != Event::CatchUp;
        for action in self.job(id).controller.on(event) {
            self.busy = true;
            self.perform(id, action);
        }
    }

    fn perform(&mut self, id: JobId, action: Action) {
        self.check_action(id, &action);
        let job = self.job(id);
        match action {
            Action::Start { generation } => job.starting = Some(generation),
            Action::Inject { epoch, aligned } => job.injected.push_back((epoch, aligned)),
            Action::Commit { epoch, persist } => {
                let collected = job.collected.remove(&epoch).unwrap();
                let keep_log = job.log_readers.keeps_log();
                let (generation, persisted) = (job.running.unwrap(), persist || collected.writes);
                let commit = Commit { generation, epoch, keep_log, persisted, collected, landed: false };
                job.committing = Some(commit);
            }
            Action::Publish { frontier, changed } => {
                (job.frontier, job.changed) = (frontier, changed);
                let input = Event::Input { job: id, frontier, changed };
                for (reader, stored) in &self.disk.jobs {
                    if stored.inputs.contains(&id) {
                        self.jobs.get_mut(reader).unwrap().inbox.push_back(input.clone());
                    }
                }
                self.settle(id);
            }
            Action::Created => {
                job.created = true;
                let frontier = job.frontier;
                let stored = self.stored(id);
                stored.created = true;
                let inputs = stored.inputs.clone();
                inputs.iter().for_each(|input| self.job(*input).log_readers.advance(id, frontier));
                if !inputs.is_empty() {
                    self.saw("view created");
                }
            }
            Action::Stop => {
                (job.running, job.starting) = (None, None);
                job.injected.clear();
                job.collected.clear();
                job.rows = false;
            }
            Action::Pause { .. } => job.retry = true,
            Action::Gone => job.gone = true,
            Action::RequestTick | Action::StayDown => {}
        }
    }

    pub fn tick(&mut self) {
        self.now += self.rng.random_range(1..3);
        let epoch = self.epoch();
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.send(id, Event::Tick { epoch });
        }
    }

    /// A statement writes to a table.
    pub fn write(&mut self, id: JobId) {
        let is_root = self.disk.jobs[&id].inputs.is_empty();
        let job = self.job(id);
        if is_root && job.held_by.is_none() && job.running.is_some() {
            job.rows = true;
            self.send(id, Event::Dml);
        }
    }

    /// The next of what inputs have told.
    pub fn hear(&mut self, id: JobId) {
        if let Some(event) = self.job(id).inbox.pop_front() {
            self.send(id, event);
        }
    }

    pub fn fail(&mut self, id: JobId) {
        let job = self.job(id);
        let Some(generation) = job.running.or(job.starting) else { return };
        // Sometimes a failure of long ago, sometimes one that no attempt can mend.
        let generation = if self.chance(0.2) { Generation(generation.0 - 1) } else { generation };
        let remedy = if self.chance(0.1) { Remedy::Stop } else { Remedy::Retry };
        self.send(id, Event::Failed { generation, remedy, commit: false });
    }

    /// What ALTER does: a pause, its end, another plan.
    pub fn alter(&mut self, id: JobId) {
        if self.is_beginning(id) {
            return;
        }
        let generation = self.job(id).controller.generation();
        match self.rng.random_range(0..6) {
            0 => {
                self.stored(id).paused = true;
                self.job(id).retry = false;
                self.send(id, Event::Pause);
            }
            1..4 => self.resume(id),
            4 => {
                self.job(id).actors = self.rng.random_range(1..4);
                self.send(id, Event::Rebuild);
            }
            _ => self.send(id, Event::Halt { generation }),
        }
    }

    pub fn resume(&mut self, id: JobId) {
        if self.is_beginning(id) {
            return;
        }
        self.stored(id).paused = false;
        self.send(id, Event::Retry);
        self.send(id, Event::Start);
    }

    /// What it reads has not settled yet.
    fn is_beginning(&self, id: JobId) -> bool {
        matches!(&self.ddl, Some(Ddl::Create { id: new, .. }) if *new == id)
    }

    /// A start, or another attempt.
    pub fn start(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).unwrap();
        if let Some(generation) = job.starting.take() {
            job.running = Some(generation);
            job.progress = job.committed.clone();
            let following = job.progress.following || self.disk.jobs[&id].inputs.is_empty();
            for reader in job.progress.readers.values_mut() {
                reader.rescale(job.actors);
                if following {
                    reader.actors = vec![Some(job.frontier); job.actors];
                }
            }
            self.send(id, Event::Started { generation, following });
        } else if std::mem::take(&mut job.retry) {
            self.send(id, Event::Retry);
        }
    }

    /// The next barrier passes every task.
    pub fn collect(&mut self, id: JobId) {
        let Some(generation) = self.job(id).running else { return };
        let Some((epoch, aligned)) = self.job(id).injected.pop_front() else { return };
        let mut progress = std::mem::take(&mut self.job(id).progress);
        let read = if aligned { self.read_aligned(&mut progress, epoch) } else { self.read_on(&mut progress) };
        self.job(id).progress = progress.clone();
        let backfill = (!progress.readers.is_empty()).then(|| BackfillState {
            finished: progress.readers.values().all(Reader::finished),
            offset: progress
                .readers
                .values()
                .flat_map(|r| r.actors.iter().flatten())
                .max()
                .copied()
                .unwrap_or_default(),
        });
        let rows = std::mem::take(&mut self.job(id).rows);
        let source = self.disk.jobs[&id].has_source && self.job(id).held_by.is_none() && self.chance(0.4);
        let changed = (read || rows || source) && self.chance(0.7);
        let writes = read || rows || source;
        self.job(id).collected.insert(epoch, Collected { progress, changed, writes });
        self.send(id, Event::Collected { generation, epoch, changed, backfill });
    }

    /// All readers take the log up to an epoch.
    fn read_aligned(&mut self, progress: &mut Progress, epoch: Epoch) -> bool {
        let mut found = !std::mem::replace(&mut progress.following, true) && !progress.readers.is_empty();
        for (input, reader) in &mut progress.readers {
            assert!(reader.finished(), "aligned before the backfill was finished");
            for offset in reader.actors.iter_mut().flatten() {
                assert!(*offset <= epoch, "an aligned epoch is before the offset of a reader");
                found |=
                    self.disk.jobs[input].log.read(*offset, epoch).expect("the log was truncated before it was read");
                *offset = epoch;
            }
        }
        found
    }

    /// Each reader follows its own input: the log for what was read, then more of the relation.
    fn read_on(&mut self, progress: &mut Progress) -> bool {
        let mut moved = false;
        for (input, reader) in &mut progress.readers {
            let frontier = self.disk.jobs[input].frontier;
            if reader.actors.iter().all(Option::is_some) {
                moved |= reader.left > 0;
                reader.left = reader.left.saturating_sub(1);
            }
            // One that has finished takes all of the log that there is.
            let finished = reader.finished();
            for offset in &mut reader.actors {
                // One may wait for another relation, or for its rate limit.
                if !finished && !self.rng.random_bool(0.7) {
                    continue;
                }
                if let Some(offset) = *offset {
                    let log = &self.disk.jobs[input].log;
                    log.read(offset, frontier.max(offset)).expect("the log was truncated before it was read");
                }
                moved |= *offset != Some(frontier);
                *offset = Some(offset.map_or(frontier, |offset| offset.max(frontier)));
            }
        }
        moved
    }

    /// A commit reaches the store, or fails.
    pub fn land(&mut self, id: JobId, may_fail: bool) {
        let fails = may_fail && self.chance(0.1);
        let job = self.jobs.get_mut(&id).unwrap();
        let Some(commit) = job.committing.as_mut().filter(|commit| !commit.landed) else { return };
        self.busy = true;
        if fails {
            let generation = commit.generation;
            job.committing = None;
            self.saw("commit failed");
            self.settle(id);
            self.send(id, Event::Failed { generation, remedy: Remedy::Retry, commit: true });
            return;
        }
        commit.landed = true;
        if !commit.persisted {
            return;
        }
        let stored = self.disk.jobs.get_mut(&id).unwrap();
        stored.frontier = commit.epoch;
        stored.progress = commit.collected.progress.clone();
        if commit.collected.changed {
            let epoch = commit.epoch;
            stored.log.add(epoch, commit.keep_log);
            self.check_nobody_has_passed(id, epoch);
        }
    }

    /// The process hears of a commit.
    pub fn committed(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).unwrap();
        let Some(commit) = job.committing.take_if(|commit| commit.landed) else { return };
        let following = job.created;
        job.committed = commit.collected.progress.clone();
        for (input, reader) in &commit.collected.progress.readers {
            if commit.persisted || !following {
                let offset = if following { commit.epoch } else { reader.reported() };
                self.job(*input).log_readers.advance(id, offset);
            }
        }
        self.send(id, Event::Committed { epoch: commit.epoch });
    }

    /// Whoever waits for the end of a commit goes on, at once or later.
    fn settle(&mut self, id: JobId) {
        if self.job(id).committing.is_none() && std::mem::take(&mut self.job(id).settling) {
            self.saw("waited for a commit");
            if self.chance(0.5) {
                self.ddl_step(true);
            }
        }
    }
}
