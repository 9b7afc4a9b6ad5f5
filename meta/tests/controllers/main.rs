//! Many controllers at once, under random orders of ticks, collections, commits, failures and restarts.
//!
//! The world here does what the runtime does: it collects an injected epoch some time later, commits when told to, fails at
//! random, and is paused and rebuilt. Checked all the time: frontiers only grow; epochs commit in order and never while an older generation's commit is
//! under way; an aligned reader never passes an input; and in the end, when failures stop, every job reaches the newest tick.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weir_common::{Epoch, Generation, JobId};
use weir_meta::controller::{Action, BackfillState, EPOCHS_IN_FLIGHT_MAX, Event, JobController};
use weir_stream::Remedy;

struct Job {
    controller: JobController,
    inputs: Vec<JobId>,
    /// Steps of backfill that are left; committed progress and progress of the running generation.
    backfill_left: u32,
    backfill_committed: u32,
    following: bool,
    offset: Epoch,
    running: Option<Generation>,
    starting: Option<Generation>,
    injected: Vec<(Epoch, bool)>,
    committing: Option<(Epoch, bool, u32)>,
    retry: bool,
    paused: bool,
    frontier: Epoch,
    created: bool,
}

struct World {
    jobs: BTreeMap<JobId, Job>,
    rng: SmallRng,
    now: u64,
    failures: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut jobs = BTreeMap::new();
        let count = rng.random_range(2..8u32);
        for id in 0..count {
            let mut inputs: Vec<_> = (0..id).filter(|_| rng.random_bool(0.4)).map(JobId).collect();
            inputs.truncate(3);
            let job = Job {
                controller: JobController::new(Epoch::ZERO, &inputs, rng.random_bool(0.2)),
                backfill_left: if inputs.is_empty() { 0 } else { rng.random_range(0..4) },
                backfill_committed: 0,
                following: inputs.is_empty(),
                inputs,
                offset: Epoch::ZERO,
                running: None,
                starting: None,
                injected: vec![],
                committing: None,
                retry: false,
                paused: false,
                frontier: Epoch::ZERO,
                created: false,
            };
            jobs.insert(JobId(id), job);
        }
        for job in jobs.values_mut() {
            job.backfill_committed = job.backfill_left;
        }
        World { jobs, rng, now: 0, failures: true }
    }

    fn send(&mut self, id: JobId, event: Event) {
        let actions = self.jobs.get_mut(&id).unwrap().controller.on(event);
        for action in actions {
            self.perform(id, action);
        }
    }

    fn perform(&mut self, id: JobId, action: Action) {
        let inputs: Vec<_> = self.jobs[&id].inputs.iter().map(|i| self.jobs[i].frontier).collect();
        let job = self.jobs.get_mut(&id).unwrap();
        match action {
            Action::Start { generation } => {
                assert!(job.committing.is_none(), "started while a commit may still land");
                assert!(job.running.is_none() && !job.paused);
                job.starting = Some(generation);
            }
            Action::Inject { epoch, aligned } => {
                assert!(job.running.is_some());
                assert!(job.injected.last().is_none_or(|(last, _)| *last < epoch) && epoch > job.frontier);
                if aligned {
                    assert!(inputs.iter().all(|i| *i >= epoch), "an aligned reader passed an input");
                    assert!(job.offset <= epoch, "an aligned epoch is before the offset of a reader");
                    assert_eq!(job.backfill_left, 0, "aligned before the backfill was finished");
                }
                job.injected.push((epoch, aligned));
                let open = job.injected.len() + usize::from(job.committing.is_some());
                assert!(open <= EPOCHS_IN_FLIGHT_MAX + 1);
            }
            Action::Commit { epoch, .. } => {
                assert!(job.committing.is_none(), "two commits at once");
                let (first, aligned) = job.injected.remove(0);
                assert_eq!(first, epoch, "commits are in order");
                job.committing = Some((epoch, aligned, job.backfill_left));
            }
            Action::Publish { frontier, .. } => {
                assert!(frontier >= job.frontier, "a frontier went back");
                job.frontier = frontier;
                let readers: Vec<_> =
                    self.jobs.iter().filter(|(_, j)| j.inputs.contains(&id)).map(|(r, _)| *r).collect();
                for reader in readers {
                    self.send(reader, Event::Input { job: id, frontier, changed: frontier });
                }
            }
            Action::Created => job.created = true,
            Action::Stop => {
                job.running = None;
                job.starting = None;
                job.injected.clear();
            }
            Action::Pause { .. } => {
                assert!(!job.paused, "a paused job tries again");
                job.retry = true;
            }
            Action::RequestTick | Action::StayDown | Action::Gone => {}
        }
    }

    fn step(&mut self) {
        let id = JobId(self.rng.random_range(0..self.jobs.len() as u32));
        match self.rng.random_range(0..11) {
            0 => {
                self.now += self.rng.random_range(1..3);
                let epoch = Epoch::from_unix_ms(self.now * 100);
                for id in self.jobs.keys().copied().collect::<Vec<_>>() {
                    self.send(id, Event::Tick { epoch });
                }
            }
            1 => self.send(id, Event::Dml),
            2 if self.failures => self.fail(id),
            3..=5 => self.collect(id),
            6..=7 => self.commit(id),
            8 if self.failures => self.alter(id),
            _ => self.start(id),
        }
    }

    fn fail(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).unwrap();
        let running = job.running.or(job.starting);
        if let Some(generation) = running {
            // Sometimes a failure of long ago.
            let late = self.rng.random_bool(0.2);
            let generation = if late { Generation(generation.0 - 1) } else { generation };
            self.send(id, Event::Failed { generation, remedy: Remedy::Retry, commit: false });
        }
    }

    /// What ALTER does: a pause, its end, another plan.
    fn alter(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).unwrap();
        let generation = job.controller.generation();
        let event = match self.rng.random_range(0..6) {
            0 => Event::Pause,
            1 => Event::Start,
            2 => Event::Rebuild,
            3 => Event::Hold { held: true },
            4 => Event::Hold { held: false },
            _ => Event::Halt { generation },
        };
        match event {
            Event::Pause => (job.paused, job.retry) = (true, false),
            Event::Start => job.paused = false,
            _ => {}
        }
        self.send(id, event);
    }

    fn collect(&mut self, id: JobId) {
        let input_frontier = self.jobs[&id].inputs.iter().map(|i| self.jobs[i].frontier).max();
        let job = self.jobs.get_mut(&id).unwrap();
        let Some(generation) = job.running else { return };
        // The oldest epoch that was not collected; collecting one twice changes nothing.
        let Some((epoch, aligned)) =
            job.injected.iter().copied().nth(usize::from(job.committing.is_some())).or(job.injected.first().copied())
        else {
            return;
        };
        let mut backfill = None;
        if !job.inputs.is_empty() {
            if aligned {
                job.offset = epoch;
            } else {
                job.backfill_left = job.backfill_left.saturating_sub(1);
                job.offset = job.offset.max(input_frontier.unwrap());
            }
            backfill = Some(BackfillState { finished: job.backfill_left == 0, offset: job.offset });
        }
        let changed = self.rng.random_bool(0.5);
        self.send(id, Event::Collected { generation, epoch, changed, backfill });
    }

    fn commit(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).unwrap();
        let Some((epoch, aligned, left)) = job.committing.take() else { return };
        if self.failures && self.rng.random_bool(0.1) {
            let generation = job.running.unwrap_or_default();
            self.send(id, Event::Failed { generation, remedy: Remedy::Retry, commit: true });
            return;
        }
        job.following |= aligned;
        job.backfill_committed = left;
        self.send(id, Event::Committed { epoch });
    }

    fn start(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).unwrap();
        if let Some(generation) = job.starting.take() {
            job.running = Some(generation);
            job.backfill_left = job.backfill_committed;
            if job.following {
                job.offset = job.frontier;
            }
            let following = job.following;
            self.send(id, Event::Started { generation, following });
        } else if std::mem::take(&mut job.retry) {
            self.send(id, Event::Retry);
        }
    }
}

#[test]
fn random_schedules_keep_the_invariants_and_make_progress() {
    for seed in 0..2_000 {
        let mut world = World::new(seed);
        for id in world.jobs.keys().copied().collect::<Vec<_>>() {
            world.send(id, Event::Start);
        }
        for _ in 0..300 {
            world.step();
        }
        world.failures = false;
        for id in world.jobs.keys().copied().collect::<Vec<_>>() {
            world.jobs.get_mut(&id).unwrap().paused = false;
            world.send(id, Event::Start);
            world.send(id, Event::Hold { held: false });
        }
        let goal = Epoch::from_unix_ms(world.now * 100);
        for _ in 0..3_000 {
            world.step();
        }
        for (id, job) in &world.jobs {
            assert!(
                job.frontier >= goal,
                "seed {seed}: job {id} stands at {} of {goal}: {:?}",
                job.frontier,
                job.controller
            );
            assert!(job.created, "seed {seed}: job {id} was never created");
        }
    }
}

#[test]
fn a_dropped_job_waits_for_its_commit() {
    let mut job = JobController::new(Epoch::ZERO, &[], false);
    assert_eq!(job.on(Event::Start), [Action::Start { generation: Generation(1) }]);
    job.on(Event::Started { generation: Generation(1), following: true });
    assert_eq!(job.on(Event::Tick { epoch: Epoch(5) }), [Action::Inject { epoch: Epoch(5), aligned: true }]);
    let collected = Event::Collected { generation: Generation(1), epoch: Epoch(5), changed: true, backfill: None };
    assert_eq!(job.on(collected), [Action::Commit { epoch: Epoch(5), persist: true }]);
    assert_eq!(job.on(Event::Drop), [Action::Stop]);
    assert!(job.on(Event::Committed { epoch: Epoch(5) }).contains(&Action::Gone));
    assert!(job.on(Event::Tick { epoch: Epoch(6) }).is_empty());
}

#[test]
fn only_a_failure_that_no_attempt_can_mend_stops_a_job_for_good() {
    let failed = |remedy| {
        let mut job = JobController::new(Epoch::ZERO, &[], false);
        job.on(Event::Start);
        job.on(Event::Started { generation: Generation(1), following: true });
        job.on(Event::Failed { generation: Generation(1), remedy, commit: false })
    };
    assert_eq!(failed(Remedy::Retry), [Action::Stop, Action::Pause { attempt: 1 }]);
    assert_eq!(failed(Remedy::Stop), [Action::Stop, Action::StayDown]);
}

#[test]
fn an_idle_root_moves_its_frontier_without_a_barrier() {
    let mut job = JobController::new(Epoch(3), &[], false);
    job.on(Event::Start);
    job.on(Event::Started { generation: Generation(1), following: true });
    // The first epoch after a start goes through the actors; the next one need not.
    assert!(matches!(job.on(Event::Tick { epoch: Epoch(5) })[..], [Action::Inject { .. }]));
    job.on(Event::Collected { generation: Generation(1), epoch: Epoch(5), changed: false, backfill: None });
    job.on(Event::Committed { epoch: Epoch(5) });
    assert!(matches!(job.on(Event::Tick { epoch: Epoch(6) })[..], [Action::Publish { frontier: Epoch(6), .. }]));
    assert_eq!(job.on(Event::Dml), [Action::RequestTick]);
    assert!(matches!(job.on(Event::Tick { epoch: Epoch(7) })[..], [Action::Inject { epoch: Epoch(7), .. }]));
}
