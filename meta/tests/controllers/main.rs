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
//! What decides is the code itself: `JobController`, `LogReaders`, `decide`. The world around it does what the runtime does, in
//! any order: it collects an injected epoch some time later, commits when told to, tells readers late, fails, is paused and rebuilt,
//! and crashes. It knows of every change that was ever committed, so it sees when a reader misses one.

#![allow(clippy::unwrap_used)]

mod care;
mod catalog;
mod checks;
mod model;
mod world;

use std::collections::BTreeMap;

use rand::Rng;
use weir_common::{Epoch, Generation};
use weir_meta::controller::{Action, Event, JobController};
use weir_stream::Remedy;

use crate::world::World;

/// Steps in which anything may happen.
const STEPS: usize = 3_000;
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
            31 if self.chance(0.1) => return self.crash(),
            _ => {}
        }
        if self.jobs.is_empty() {
            return;
        }
        let nth = self.rng.random_range(0..self.jobs.len());
        let id = *self.jobs.keys().nth(nth).unwrap();
        match self.rng.random_range(0..20) {
            0..3 => self.write(id),
            3..6 => self.hear(id),
            6..10 => self.collect(id),
            10..13 => self.land(id, true),
            13..16 => self.committed(id),
            16..18 => self.start(id),
            18 if self.chance(0.4) => self.fail(id),
            19 if self.chance(0.4) => self.alter(id),
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

#[test]
fn random_schedules_keep_the_invariants_and_make_progress() {
    let seeds = match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..2_000).collect(),
    };
    let mut seen = BTreeMap::<&str, usize>::new();
    for seed in seeds {
        let run = move || {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                world.step();
                world.check();
            }
            world.finish();
            world.check_end();
            world.seen
        };
        match std::panic::catch_unwind(run) {
            Ok(by_this) => by_this.into_iter().for_each(|(what, times)| *seen.entry(what).or_default() += times),
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{seen:?}");
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
