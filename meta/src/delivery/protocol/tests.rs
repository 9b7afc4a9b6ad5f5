//! Deliveries in a world where any step may fail before or after its effect, any process may end at any moment, and the one
//! that was taken for dead goes on.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_common::JobId;

use super::*;

/// What is durable, inside and outside.
#[derive(Default)]
struct World {
    generation: u64,
    offset: u64,
    record: Option<Commit>,
    /// Epochs up to here are in the log.
    frontier: u64,
    /// Outside: the generation that may commit, the commits by id with their epochs, files.
    fenced: u64,
    visible: BTreeMap<String, (u64, u64)>,
    newest: Option<Stamp>,
    files: BTreeMap<String, u64>,
    /// Epochs that held nothing, and were passed.
    empty: Vec<(u64, u64)>,
    named: u64,
}

/// A process: the machine, what it does next, and the generation that it took last (0: none yet).
struct Process {
    machine: Delivery,
    step: Step,
    generation: u64,
}

const SINK: JobId = JobId(1);

impl World {
    fn process(&self, protocol: Protocol) -> Process {
        Process { machine: Delivery::new(protocol, true), step: Step::Claim, generation: 0 }
    }

    /// Carries a step out, with all its effects.
    fn perform(&mut self, process: &mut Process, protocol: Protocol, rng: &mut StdRng) -> Outcome {
        let ours = process.generation;
        match process.step.clone() {
            Step::Claim if ours > 0 && self.generation > ours => Outcome::Fenced,
            Step::Claim => {
                self.generation += 1;
                process.generation = self.generation;
                let (generation, offset) = (Generation(self.generation), Epoch(self.offset));
                let frontier = Epoch(self.frontier);
                Outcome::Claimed { generation, offset, record: self.record.clone(), frontier }
            }
            Step::Open(_) | Step::Commit(_) if self.fenced > ours => Outcome::Fenced,
            Step::Open(_) => {
                self.fenced = ours;
                Outcome::Opened { newest: self.newest.clone() }
            }
            Step::LookUp(commit) => Outcome::Found(self.visible.contains_key(&commit.stamp.commit)),
            Step::Check(commit) => Outcome::Found(self.files.contains_key(&commit.stamp.commit)),
            Step::Discard(commit) => {
                self.files.remove(&commit.stamp.commit);
                Outcome::Done
            }
            Step::Clean(_) => {
                let left = self.files.keys().filter(|id| !self.visible.contains_key(*id)).cloned().collect::<Vec<_>>();
                for id in left {
                    if self.files[&id] < ours {
                        self.files.remove(&id);
                    }
                }
                Outcome::Done
            }
            Step::Write { after } => self.write(process, after, protocol, rng),
            Step::Record(_) | Step::Settle(_) | Step::Forget(_) if self.generation > ours => Outcome::Fenced,
            Step::Record(commit) => {
                self.record = Some(commit);
                Outcome::Done
            }
            Step::Forget(_) => {
                self.record = None;
                Outcome::Done
            }
            Step::Commit(commit) => {
                self.make_visible(&commit);
                Outcome::Done
            }
            Step::Settle(commit) => {
                if commit.parts.is_empty()
                    && protocol == Protocol::TwoPhase
                    && !self.visible.contains_key(&commit.stamp.commit)
                {
                    self.empty.push((self.offset, commit.stamp.epoch.0));
                }
                self.offset = commit.stamp.epoch.0;
                self.record = None;
                Outcome::Done
            }
            Step::Pause { .. } | Step::Stop => Outcome::Done,
        }
    }

    fn write(&mut self, process: &Process, after: Epoch, protocol: Protocol, rng: &mut StdRng) -> Outcome {
        if self.frontier <= after.0 {
            self.frontier += 1;
        }
        let epoch = rng.random_range(after.0 + 1..=self.frontier);
        self.named += 1;
        let generation = Generation(process.generation);
        let stamp = Stamp { sink: SINK, commit: format!("c{}", self.named), generation, epoch: Epoch(epoch) };
        // An epoch may hold nothing that is delivered.
        let empty = rng.random_bool(0.1);
        let parts = if empty { vec![] } else { vec![serde_json::json!([after.0, epoch])] };
        let commit = Commit { stamp, parts };
        match protocol {
            Protocol::TwoPhase if !empty => drop(self.files.insert(commit.stamp.commit.clone(), process.generation)),
            Protocol::Transactional if self.fenced > process.generation => return Outcome::Fenced,
            Protocol::Transactional => {
                self.visible.insert(commit.stamp.commit.clone(), (after.0, epoch));
                self.newest = Some(commit.stamp.clone());
            }
            _ => {}
        }
        Outcome::Written(commit)
    }

    fn make_visible(&mut self, commit: &Commit) {
        assert!(self.files.contains_key(&commit.stamp.commit), "a commit refers to files that are there");
        let range = (commit.parts[0][0].as_u64().unwrap_or(0), commit.parts[0][1].as_u64().unwrap_or(0));
        let before = self.visible.insert(commit.stamp.commit.clone(), range);
        assert!(before.is_none(), "a commit is carried out once");
    }

    /// No epoch is delivered twice, in whatever order the commits came.
    fn check(&self) {
        let mut ranges: Vec<_> = self.visible.values().copied().collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "delivered twice: {ranges:?}");
        }
    }
}

fn run(seed: u64, protocol: Protocol) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World { frontier: 3, ..World::default() };
    let mut processes = vec![world.process(protocol)];
    let faults = rng.random_range(0.0..0.4);
    for _ in 0..rng.random_range(20..200) {
        if rng.random_bool(0.03) {
            // The old one may be dead, or only slow.
            if rng.random_bool(0.5) {
                processes.clear();
                if rng.random_bool(0.5) {
                    // Meanwhile somebody else cleans up files that no table refers to.
                    world.files.retain(|id, _| world.visible.contains_key(id));
                }
            }
            processes.push(world.process(protocol));
        }
        let i = rng.random_range(0..processes.len());
        step(&mut world, &mut processes[i], protocol, &mut rng, faults);
        world.check();
    }
    // Whatever happened, one process alone comes to the end: all that is in the log is outside, or was empty.
    let mut last = world.process(protocol);
    let target = world.frontier;
    for _ in 0..100 {
        if world.offset >= target && matches!(last.step, Step::Write { .. }) {
            break;
        }
        step(&mut world, &mut last, protocol, &mut rng, 0.0);
    }
    world.check();
    assert!(world.offset >= target, "seed {seed}: stuck at {:?}", last.step);
    let mut passed: Vec<_> = world.visible.values().chain(&world.empty).copied().collect();
    passed.sort_unstable();
    let mut at = 0;
    for (after, up_to) in passed {
        assert_eq!(after, at, "seed {seed}: lost or doubled");
        at = up_to;
    }
    assert_eq!(at, world.offset, "seed {seed}: lost");
    assert!(world.record.is_none(), "seed {seed}: a record stays");
    let unseen: Vec<_> = world.files.keys().filter(|id| !world.visible.contains_key(*id)).collect();
    assert!(unseen.is_empty(), "seed {seed}: files stay behind: {unseen:?}");
}

fn step(world: &mut World, process: &mut Process, protocol: Protocol, rng: &mut StdRng, faults: f64) {
    let outcome = if rng.random_bool(faults / 2.0) {
        Outcome::Failed
    } else {
        let outcome = world.perform(process, protocol, rng);
        // It took effect, and nobody heard of it.
        if rng.random_bool(faults / 2.0) { Outcome::Failed } else { outcome }
    };
    process.step = process.machine.next(process.step.clone(), outcome);
}

#[test]
fn nothing_is_doubled_or_lost_in_two_phases() {
    (0..20_000).for_each(|seed| run(seed, Protocol::TwoPhase));
}

#[test]
fn nothing_is_doubled_or_lost_in_transactions() {
    (0..10_000).for_each(|seed| run(seed, Protocol::Transactional));
}

#[test]
fn a_record_beyond_the_frontier_is_dropped_with_its_files() {
    let stamp = Stamp { sink: SINK, commit: "c".into(), generation: Generation(1), epoch: Epoch(9) };
    let commit = Commit { stamp, parts: vec![serde_json::json!(1)] };
    let mut machine = Delivery::new(Protocol::TwoPhase, true);
    let (generation, record) = (Generation(2), Some(commit.clone()));
    let claimed = Outcome::Claimed { generation, offset: Epoch(5), record, frontier: Epoch(8) };
    let open = machine.next(Step::Claim, claimed);
    let look_up = machine.next(open, Outcome::Opened { newest: None });
    assert_eq!(look_up, Step::LookUp(commit.clone()));
    let discard = machine.next(look_up, Outcome::Found(false));
    assert_eq!(discard, Step::Discard(commit.clone()));
    let forget = machine.next(discard, Outcome::Done);
    assert_eq!(forget, Step::Forget(commit));
    let clean = machine.next(forget, Outcome::Done);
    assert_eq!(clean, Step::Clean(Generation(2)));
    assert_eq!(machine.next(clean, Outcome::Done), Step::Write { after: Epoch(5) });
}
