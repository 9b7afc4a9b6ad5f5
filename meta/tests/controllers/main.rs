//! Many controllers at once, with the logs between them, under thousands of random schedules.
//!
//! ```text
//! model.rs     what the world is made of
//! world.rs     the process: what the shell and the runtime do
//! catalog.rs   sessions: objects made and dropped, subscriptions read
//! care.rs      truncation, limits, holding back
//! checks.rs    what must hold
//! ```
//!
//! What decides is the code itself: `JobController` and `LogReaders`. The world around them does what the runtime does, in any
//! order: it collects an injected epoch some time later, commits when told to, tells readers late, fails, is paused and
//! rebuilt, and crashes. It knows of every change that was ever committed, so it sees when a reader misses one.

#![allow(clippy::unwrap_used)]

mod care;
mod catalog;
mod checks;
mod model;
mod world;

use std::collections::BTreeMap;

use rand::Rng;
use weir_common::{Epoch, Generation, JobId};
use weir_meta::controller::{Action, BackfillState, Event, JobController};
use weir_stream::Remedy;

use crate::world::World;

/// Schedules, if nothing else is said.
const SEEDS: u64 = 1_000;
/// What they must lead to.
const SEEN: [&str; 10] = [
    "changes fetched",
    "commit failed",
    "crash",
    "cursor is told of a loss",
    "dropped",
    "held",
    "let go",
    "subscription loses",
    "view created",
    "waited for a commit",
];
/// Steps in which anything may happen.
const STEPS: usize = 2_000;
/// Ticks after which everything must be quiet.
const LAST_TICKS: usize = 40;
/// Passes over all jobs until nothing happens between two ticks.
const PASSES_MAX: usize = 200;

impl World {
    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..6 => return self.tick(),
            6..12 => return self.ddl_begin(),
            12..18 => return self.ddl_step(false),
            18..27 => return self.care(),
            27..31 => return self.read_subscription(),
            31 if self.chance(0.15) => return self.crash(),
            _ => {}
        }
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.job_step(id);
        }
    }

    fn job_step(&mut self, id: JobId) {
        match self.rng.random_range(0..100) {
            0..8 => self.write(id),
            8..28 => self.hear(id),
            28..50 => self.collect(id),
            50..68 => self.land(id, true),
            68..86 => self.committed(id),
            86..97 => self.start(id),
            97 if self.chance(0.4) => self.fail(id),
            98 if self.chance(0.4) => self.alter(id),
            _ => {}
        }
    }

    /// From here on nothing fails, and nobody writes. Everything that is under way comes to its end.
    fn finish(&mut self) {
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.resume(id);
        }
        for _ in 0..LAST_TICKS {
            self.tick();
            for pass in 0.. {
                assert!(pass < PASSES_MAX, "never quiet");
                self.busy = false;
                (0..8).for_each(|_| self.ddl_step(false));
                for id in self.jobs.keys().copied().collect::<Vec<_>>() {
                    while !self.jobs[&id].inbox.is_empty() {
                        self.hear(id);
                    }
                    self.start(id);
                    self.collect(id);
                    self.land(id, false);
                    self.committed(id);
                }
                while self.round.is_some() {
                    self.care();
                }
                self.care();
                self.check();
                if !self.busy {
                    break;
                }
            }
        }
    }
}

/// `WEIR_SEED` runs one schedule, `WEIR_SEEDS` as many as it says.
#[test]
fn random_schedules_keep_the_invariants_and_make_progress() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let one = number("WEIR_SEED");
    let seeds = one.map_or(0..number("WEIR_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let mut seen = BTreeMap::<&str, usize>::new();
    for seed in seeds {
        let run = move || {
            let mut world = World::new(seed);
            for step in 0..STEPS {
                world.step();
                // What is wrong stays wrong for a while, and to look takes longer than a step.
                if step % 4 == 0 {
                    world.check();
                }
            }
            world.finish();
            world.check_end();
            world.seen
        };
        match std::panic::catch_unwind(run) {
            Ok(by_this) => by_this.into_iter().for_each(|(what, times)| *seen.entry(what).or_default() += times),
            Err(panic) => {
                eprintln!("WEIR_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{seen:?}");
    // Schedules that lead nowhere check nothing.
    for what in SEEN.iter().filter(|_| one.is_none()) {
        assert!(seen.get(what).is_some_and(|times| *times > 100), "{what} is seldom: {seen:?}");
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

/// A job that has read two inputs up to an epoch, and is not aligned yet.
fn almost_created() -> JobController {
    let (one, other) = (JobId(1), JobId(2));
    let mut job = JobController::new(Epoch::ZERO, &[one, other], false);
    job.on(Event::Start);
    job.on(Event::Started { generation: Generation(1), following: false });
    job.on(Event::Input { job: one, frontier: Epoch(20), changed: Epoch(3) });
    job.on(Event::Input { job: other, frontier: Epoch(4), changed: Epoch(4) });
    assert_eq!(job.on(Event::Tick { epoch: Epoch(10) }), [Action::Inject { epoch: Epoch(10), aligned: false }]);
    let backfill = Some(BackfillState { finished: true, offset: Epoch(4) });
    job.on(Event::Collected { generation: Generation(1), epoch: Epoch(10), changed: true, backfill });
    job.on(Event::Committed { epoch: Epoch(10) });
    job.on(Event::Tick { epoch: Epoch(20) });
    job
}

#[test]
fn an_input_that_is_held_back_for_a_reader_that_is_not_aligned_yet_goes_on() {
    let mut job = almost_created();
    // It can't be aligned before the input is beyond epoch 10. The input, at epoch 6, waits until its log is read.
    job.on(Event::Input { job: JobId(2), frontier: Epoch(6), changed: Epoch(6) });
    assert_eq!(job.on(Event::CatchUp), [Action::Inject { epoch: Epoch(20), aligned: false }]);
    let mut job = almost_created();
    // There is nothing to read, so it does not put off when it can be aligned.
    assert!(!job.on(Event::CatchUp).iter().any(|action| matches!(action, Action::Inject { .. })));
    let aligned = job.on(Event::Input { job: JobId(2), frontier: Epoch(15), changed: Epoch(6) });
    assert_eq!(aligned, [Action::Inject { epoch: Epoch(15), aligned: true }]);
}

#[test]
fn after_a_crash_a_source_puts_no_rows_into_epochs_that_a_reader_has_taken() {
    let input = JobId(1);
    let mut job = JobController::new(Epoch(2), &[input], true);
    job.on(Event::Input { job: input, frontier: Epoch(3), changed: Epoch(2) });
    job.on(Event::Taken { epoch: Epoch(5) });
    job.on(Event::Start);
    assert_eq!(job.on(Event::Started { generation: Generation(1), following: true }), [Action::Created]);
    let next = job.on(Event::Input { job: input, frontier: Epoch(6), changed: Epoch(2) });
    assert_eq!(next, [Action::Inject { epoch: Epoch(6), aligned: true }]);
}
