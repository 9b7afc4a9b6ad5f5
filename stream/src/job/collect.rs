//! Collects the reports of a job's tasks by epoch.
//!
//! Invariant: epochs are collected in order, since every task reports its epochs in order.

use std::collections::VecDeque;

use weir_common::Epoch;

use super::CollectedEpoch;
use crate::driver::Sealed;

/// Reports of the epochs that not every task has reported yet.
pub struct Collector {
    task_count: usize,
    open: VecDeque<(CollectedEpoch, usize)>,
}

impl Collector {
    /// For a job of so many tasks.
    pub fn new(task_count: usize) -> Collector {
        Collector { task_count, open: VecDeque::new() }
    }

    /// Adds a report; returns the epoch when it was the last one missing.
    pub fn add(&mut self, report: Sealed) -> Option<CollectedEpoch> {
        let at = self.at(report.epoch);
        let (epoch, reported) = &mut self.open[at];
        epoch.tables.extend(report.tables);
        epoch.log.extend(report.log);
        epoch.backfills.extend(report.backfill);
        epoch.rows += report.rows;
        *reported += 1;
        if *reported < self.task_count {
            return None;
        }
        assert_eq!(at, 0, "every task reports its epochs in order, so the oldest is complete first");
        self.open.pop_front().map(|(epoch, _)| epoch)
    }

    fn at(&mut self, epoch: Epoch) -> usize {
        if let Some(at) = self.open.iter().position(|(open, _)| open.epoch == epoch) {
            return at;
        }
        assert!(self.open.back().is_none_or(|(last, _)| last.epoch < epoch), "epochs of a task grow");
        let empty = CollectedEpoch { epoch, backfills: Vec::new(), tables: Vec::new(), log: Vec::new(), rows: 0 };
        self.open.push_back((empty, 0));
        self.open.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(task: usize, epoch: u64) -> Sealed {
        Sealed { task, epoch: Epoch(epoch), tables: vec![], log: vec![], rows: 1, backfill: None }
    }

    #[test]
    fn an_epoch_is_collected_with_its_last_report() {
        let mut collector = Collector::new(2);
        assert!(collector.add(report(0, 1)).is_none());
        assert!(collector.add(report(0, 2)).is_none());
        assert_eq!(collector.add(report(1, 1)).map(|e| (e.epoch, e.rows)), Some((Epoch(1), 2)));
        assert_eq!(collector.add(report(1, 2)).map(|e| e.epoch), Some(Epoch(2)));
    }
}
