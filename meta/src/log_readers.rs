//! Who reads the change log of a relation, how far they are, and what becomes of the log. Pure: the shell around it is
//! [`crate::job::Job`] and [`crate::logs`], and the simulation in `tests/controllers`.
//!
//! Invariants
//! - an offset only grows;
//! - nothing after the offset of a reader is truncated;
//! - only a subscription loses what it has not read, and only to a limit; for a job the relation is held back.

use std::collections::BTreeMap;

use weir_common::{Epoch, JobId};

/// The readers of a change log.
#[derive(Debug, Default)]
pub struct LogReaders {
    /// What is committed of each job, and what is kept for each subscription.
    offsets: BTreeMap<JobId, Epoch>,
    /// Every commit after this epoch left its changes in the log, unless they were truncated since.
    logged_after: Option<Epoch>,
}

/// A change log, as far as is to be known to decide what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct LogState {
    /// Frontier of the relation.
    pub frontier: Epoch,
    /// It changed last at this epoch.
    pub changed: Epoch,
    /// Up to here the log would have to be dropped to be within its limit. `None`: it is.
    pub excess: Option<Epoch>,
    /// Up to here it was truncated before.
    pub truncated: Epoch,
}

/// What is to be done about a change log.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// Drop the log up to here.
    pub truncate_to: Option<Epoch>,
    /// The relation may not change until this reader has read on.
    pub hold: Option<JobId>,
    /// Subscriptions that lose their changes up to an epoch.
    pub lost: Vec<(JobId, Epoch)>,
}

impl LogReaders {
    /// A job reads the log from here on.
    pub fn add_job(&mut self, reader: JobId, offset: Epoch) {
        self.offsets.insert(reader, offset);
    }

    /// Keeps the log after an epoch for a reader that is no job.
    pub fn keep(&mut self, reader: JobId, after: Epoch) {
        let offset = self.offsets.entry(reader).or_insert(after);
        *offset = (*offset).max(after);
    }

    /// A reader has got so far, if it still is one.
    pub fn advance(&mut self, reader: JobId, offset: Epoch) {
        if let Some(known) = self.offsets.get_mut(&reader) {
            *known = (*known).max(offset);
        }
    }

    /// A reader is gone.
    pub fn remove(&mut self, reader: JobId) {
        self.offsets.remove(&reader);
        if self.offsets.is_empty() {
            self.logged_after = None;
        }
    }

    /// Whether the changes of a commit that begins now go to the log.
    pub fn keeps_log(&self) -> bool {
        !self.offsets.is_empty()
    }

    /// The log has been kept since this epoch at the latest.
    pub fn log_is_kept(&mut self, after: Epoch) {
        self.logged_after = Some(self.logged_after.map_or(after, |known| known.min(after)));
    }

    /// The epoch after which the log is complete, if it is kept.
    pub fn logged_after(&self) -> Option<Epoch> {
        self.logged_after
    }

    /// How far the readers are.
    pub fn offsets(&self) -> &BTreeMap<JobId, Epoch> {
        &self.offsets
    }
}

/// What becomes of a log with these readers, of which some are subscriptions.
pub fn decide(offsets: &BTreeMap<JobId, Epoch>, subscriptions: &[JobId], log: LogState) -> Decision {
    let mut decision = Decision::default();
    let mut offsets = offsets.clone();
    if let Some(excess) = log.excess {
        for subscription in subscriptions {
            if offsets.get(subscription).is_none_or(|offset| *offset < excess) {
                offsets.insert(*subscription, excess);
                decision.lost.push((*subscription, excess));
            }
        }
    }
    let slowest = offsets.into_iter().min_by_key(|(_, offset)| *offset);
    let is_behind = |offset| log.excess.is_some_and(|excess| offset < excess);
    decision.hold = slowest.filter(|(_, offset)| is_behind(*offset)).map(|(reader, _)| reader);
    // Without readers nothing of it is wanted any more.
    let read = slowest.map_or(log.frontier, |(_, offset)| offset);
    decision.truncate_to = (read > log.truncated && log.changed > log.truncated).then_some(read);
    decision
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(1);
    const SUBSCRIPTION: JobId = JobId(2);

    fn check(offsets: &[(JobId, u64)], excess: Option<u64>, expected: (Option<u64>, Option<JobId>, Option<u64>)) {
        let offsets = offsets.iter().map(|(reader, offset)| (*reader, Epoch(*offset))).collect();
        let excess = excess.map(Epoch);
        let log = LogState { frontier: Epoch(10), changed: Epoch(9), excess, truncated: Epoch(2) };
        let (truncate_to, hold, lost) = expected;
        let lost = lost.map(|epoch| (SUBSCRIPTION, Epoch(epoch))).into_iter().collect();
        let expected = Decision { truncate_to: truncate_to.map(Epoch), hold, lost };
        assert_eq!(decide(&offsets, &[SUBSCRIPTION], log), expected);
    }

    #[test]
    fn a_log_is_truncated_up_to_its_slowest_reader() {
        check(&[(JOB, 5), (SUBSCRIPTION, 4)], None, (Some(4), None, None));
        check(&[(JOB, 3), (SUBSCRIPTION, 4)], None, (Some(3), None, None));
        // That was done before.
        check(&[(JOB, 2), (SUBSCRIPTION, 4)], None, (None, None, None));
    }

    #[test]
    fn without_readers_all_of_a_log_goes() {
        let log = LogState { frontier: Epoch(10), changed: Epoch(9), excess: None, truncated: Epoch(2) };
        assert_eq!(decide(&BTreeMap::new(), &[], log).truncate_to, Some(Epoch(10)));
        // Nothing was added since it was truncated last.
        let log = LogState { truncated: Epoch(9), ..log };
        assert_eq!(decide(&BTreeMap::new(), &[], log), Decision::default());
    }

    #[test]
    fn a_full_log_costs_a_subscription_its_oldest_changes() {
        check(&[(JOB, 9), (SUBSCRIPTION, 4)], Some(6), (Some(6), None, Some(6)));
        check(&[(JOB, 9), (SUBSCRIPTION, 6)], Some(6), (Some(6), None, None));
    }

    #[test]
    fn a_full_log_holds_the_relation_back_for_a_job() {
        check(&[(JOB, 4), (SUBSCRIPTION, 9)], Some(6), (Some(4), Some(JOB), None));
        check(&[(JOB, 4), (SUBSCRIPTION, 3)], Some(6), (Some(4), Some(JOB), Some(6)));
        check(&[(JOB, 6), (SUBSCRIPTION, 9)], Some(6), (Some(6), None, None));
    }

    #[test]
    fn a_log_that_nobody_reads_is_not_known_to_be_complete() {
        let mut readers = LogReaders::default();
        readers.add_job(JOB, Epoch(3));
        readers.keep(SUBSCRIPTION, Epoch(4));
        readers.log_is_kept(Epoch(4));
        readers.log_is_kept(Epoch(3));
        readers.log_is_kept(Epoch(5));
        readers.remove(JOB);
        assert_eq!((readers.logged_after(), readers.keeps_log()), (Some(Epoch(3)), true));
        readers.remove(SUBSCRIPTION);
        assert_eq!((readers.logged_after(), readers.keeps_log()), (None, false));
    }

    #[test]
    fn an_offset_only_grows_and_that_of_nobody_does_not() {
        let mut readers = LogReaders::default();
        readers.add_job(JOB, Epoch(3));
        readers.advance(JOB, Epoch(2));
        readers.keep(JOB, Epoch(1));
        readers.advance(SUBSCRIPTION, Epoch(9));
        assert_eq!(readers.offsets(), &BTreeMap::from([(JOB, Epoch(3))]));
    }
}
