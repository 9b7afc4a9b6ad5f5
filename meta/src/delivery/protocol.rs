//! What a delivery does next: a pure machine.
//!
//! ```text
//! claim a generation ── open, fence ──┬─ a record is left ── look up ─┬─ visible ───────────────┐
//!       ▲                             │                               └─ check ─┬─ intact ─┐    │
//!       │                             │             ┌── forget ── discard ──────┘          │    │
//!       │                             ▼             ▼                                      ▼    ▼
//!     pause ◄── any failure      clean ── write ── record ───────────────────────────── commit ── settle ──┐
//!                                           ▲                                                              │
//!                                           └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! *record* makes the commit durable inside, *commit* makes it visible outside, *settle* moves the offset and removes the
//! record, in one transaction. So at any moment at most one commit is in doubt, and the record says which. Whatever fails,
//! the next start begins at the top, with a newer generation: inside and outside refuse the older ones.
//!
//! Only destinations of two phases are recorded. A transactional one keeps the stamp of its newest commit by itself, which
//! opening it gives; without exactly-once there is no record, and a commit in doubt is written again.

use weir_common::{Epoch, Generation};
use weir_connector::{Commit, Protocol, Stamp};

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Take the next generation.
    Claim,
    /// Open the destination for this generation and shut older ones out.
    Open(Generation),
    /// Is the commit visible outside?
    LookUp(Commit),
    /// Is everything that it refers to still there?
    Check(Commit),
    /// Remove what the commit refers to.
    Discard(Commit),
    /// Remove the record, and leave the offset.
    Forget(Commit),
    /// Remove what earlier generations left behind.
    Clean(Generation),
    /// Write what is in the log after this epoch, and flush.
    Write { after: Epoch },
    /// Make the commit durable inside.
    Record(Commit),
    /// Make it visible outside.
    Commit(Commit),
    /// Move the offset to the commit's epoch and remove the record.
    Settle(Commit),
    /// Wait, longer with each attempt.
    Pause { attempt: u32 },
    /// A newer generation is at work somewhere else: nothing more.
    Stop,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Claimed {
        generation: Generation,
        offset: Epoch,
        record: Option<Commit>,
        /// How far the job has committed: what is recorded beyond is of a past that this store does not know.
        frontier: Epoch,
    },
    /// `newest`: of a transactional destination.
    Opened {
        newest: Option<Stamp>,
    },
    /// The answer of a look-up or check.
    Found(bool),
    Written(Commit),
    Done,
    Failed,
    /// There is a newer generation.
    Fenced,
}

/// The machine of one sink. It begins with [`Step::Claim`].
#[derive(Debug)]
pub struct Delivery {
    protocol: Protocol,
    exactly_once: bool,
    frontier: Epoch,
    generation: Generation,
    offset: Epoch,
    record: Option<Commit>,
    /// What earlier generations left behind is removed.
    cleaned: bool,
    attempt: u32,
}

impl Delivery {
    /// Nothing is known yet.
    pub fn new(protocol: Protocol, exactly_once: bool) -> Delivery {
        Delivery {
            protocol,
            exactly_once,
            frontier: Epoch::ZERO,
            generation: Generation(0),
            offset: Epoch::ZERO,
            record: None,
            cleaned: false,
            attempt: 0,
        }
    }

    /// The step after this one, which ended so.
    pub fn next(&mut self, step: Step, outcome: Outcome) -> Step {
        match (step, outcome) {
            (_, Outcome::Fenced) => Step::Stop,
            (_, Outcome::Failed) => {
                self.attempt += 1;
                Step::Pause { attempt: self.attempt }
            }
            (Step::Pause { .. }, _) => Step::Claim,
            (Step::Claim, Outcome::Claimed { generation, offset, record, frontier }) => {
                (self.generation, self.offset, self.record) = (generation, offset, record);
                self.frontier = frontier;
                self.cleaned = false;
                Step::Open(generation)
            }
            (Step::Open(_), Outcome::Opened { newest }) => self.opened(newest),
            (Step::LookUp(commit), Outcome::Found(true)) => Step::Settle(commit),
            (Step::LookUp(commit), Outcome::Found(false)) if commit.stamp.epoch > self.frontier => {
                Step::Discard(commit)
            }
            (Step::LookUp(commit), Outcome::Found(false)) => Step::Check(commit),
            (Step::Check(commit), Outcome::Found(true)) => Step::Commit(commit),
            (Step::Check(commit), Outcome::Found(false)) => Step::Discard(commit),
            (Step::Discard(commit), _) => Step::Forget(commit),
            (Step::Forget(_), _) | (Step::Clean(_), _) => self.go_on(),
            (Step::Write { .. }, Outcome::Written(commit)) => self.written(commit),
            (Step::Record(commit), _) => Step::Commit(commit),
            (Step::Commit(commit), _) => Step::Settle(commit),
            (Step::Settle(commit), _) => {
                self.offset = commit.stamp.epoch;
                self.attempt = 0;
                self.go_on()
            }
            (Step::Stop, _) => Step::Stop,
            (step, outcome) => unreachable!("{step:?} does not end with {outcome:?}"),
        }
    }

    fn opened(&mut self, newest: Option<Stamp>) -> Step {
        match (self.record.take(), newest) {
            (Some(record), _) => Step::LookUp(record),
            (None, Some(stamp)) if stamp.epoch > self.offset => Step::Settle(Commit { stamp, parts: vec![] }),
            (None, _) => self.go_on(),
        }
    }

    /// Nothing is in doubt any more.
    fn go_on(&mut self) -> Step {
        match std::mem::replace(&mut self.cleaned, true) {
            false => Step::Clean(self.generation),
            true => Step::Write { after: self.offset },
        }
    }

    fn written(&self, commit: Commit) -> Step {
        match self.protocol {
            Protocol::TwoPhase if commit.parts.is_empty() => Step::Settle(commit),
            Protocol::TwoPhase if self.exactly_once => Step::Record(commit),
            Protocol::TwoPhase => Step::Commit(commit),
            Protocol::Transactional | Protocol::AtLeastOnce => Step::Settle(commit),
        }
    }
}

#[cfg(test)]
mod tests;
