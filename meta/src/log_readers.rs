//! Who reads the change log of a relation, how far they are, and what becomes of the log. Pure: the shell around it is
//! [`crate::job::Job`] and [`crate::logs`], and the simulation in `tests/controllers`.
//!
//! Invariants
//! - an offset only grows;
//! - nothing after the offset of a reader is truncated;
//! - only a subscription loses what it has not read, and only to a limit; for a job the relation is held back;
//! - who was removed does not come back by a late word of how far it is.

use std::collections::BTreeMap;

use weir_common::{Epoch, JobId};

/// The readers of a change log.
#[derive(Debug, Default)]
pub struct LogReaders {
    readers: BTreeMap<JobId, Reader>,
    /// Every commit after this epoch left its changes in the log, unless they were truncated since.
    logged_after: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    /// What a job has committed, or before what is kept for a subscription.
    offset: Epoch,
    is_job: bool,
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
        self.readers.insert(reader, Reader { offset, is_job: true });
    }

    /// The log is kept for a subscription from here on.
    pub fn add_subscription(&mut self, reader: JobId, after: Epoch) {
        let known = self.readers.entry(reader).or_insert(Reader { offset: after, is_job: false });
        known.offset = known.offset.max(after);
    }

    /// A reader has got so far, if it still is one.
    pub fn advance(&mut self, reader: JobId, offset: Epoch) {
        if let Some(known) = self.readers.get_mut(&reader) {
            known.offset = known.offset.max(offset);
        }
    }

    /// A reader is gone.
    pub fn remove(&mut self, reader: JobId) {
        self.readers.remove(&reader);
        if self.readers.is_empty() {
            self.logged_after = None;
        }
    }

    /// Whether the changes of a commit that begins now go to the log.
    pub fn keeps_log(&self) -> bool {
        !self.readers.is_empty()
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
    pub fn offsets(&self) -> BTreeMap<JobId, Epoch> {
        self.readers.iter().map(|(id, reader)| (*id, reader.offset)).collect()
    }

    /// What becomes of the log now. `lost` is noted already, the rest is the caller's.
    pub fn decide(&mut self, log: LogState) -> Decision {
        let mut lost = Vec::new();
        if let Some(excess) = log.excess {
            for (id, reader) in self.readers.iter_mut().filter(|(_, r)| !r.is_job && r.offset < excess) {
                reader.offset = excess;
                lost.push((*id, excess));
            }
        }
        let slowest = self.readers.iter().min_by_key(|(_, reader)| reader.offset);
        let is_behind = |reader: &Reader| log.excess.is_some_and(|excess| reader.offset < excess);
        let hold = slowest.filter(|(_, reader)| is_behind(reader)).map(|(id, _)| *id);
        // Without readers nothing of it is wanted any more. What a retention has passed may still be to come.
        let read = slowest.map_or(log.frontier, |(_, reader)| reader.offset.min(log.frontier));
        let truncate_to = (read > log.truncated && log.changed > log.truncated).then_some(read);
        Decision { truncate_to, hold, lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(1);
    const SUBSCRIPTION: JobId = JobId(2);

    fn check(offsets: &[(JobId, u64)], excess: Option<u64>, expected: (Option<u64>, Option<JobId>, Option<u64>)) {
        let mut readers = LogReaders::default();
        for (reader, offset) in offsets {
            match *reader == JOB {
                true => readers.add_job(*reader, Epoch(*offset)),
                false => readers.add_subscription(*reader, Epoch(*offset)),
            }
        }
        let excess = excess.map(Epoch);
        let log = LogState { frontier: Epoch(10), changed: Epoch(9), excess, truncated: Epoch(2) };
        let (truncate_to, hold, lost) = expected;
        let lost = lost.map(|epoch| (SUBSCRIPTION, Epoch(epoch))).into_iter().collect();
        let expected = Decision { truncate_to: truncate_to.map(Epoch), hold, lost };
        assert_eq!(readers.decide(log), expected);
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
        assert_eq!(LogReaders::default().decide(log).truncate_to, Some(Epoch(10)));
        // Nothing was added since it was truncated last.
        let log = LogState { truncated: Epoch(9), ..log };
        assert_eq!(LogReaders::default().decide(log), Decision::default());
    }

    #[test]
    fn what_is_still_to_come_is_not_truncated() {
        check(&[(SUBSCRIPTION, 12)], None, (Some(10), None, None));
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
        readers.add_subscription(SUBSCRIPTION, Epoch(4));
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
        readers.advance(SUBSCRIPTION, Epoch(9));
        assert_eq!(readers.offsets(), BTreeMap::from([(JOB, Epoch(3))]));
    }
}
