//! What a job tells about itself: rows by task, records and expressions that failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_common::{ActorId, Epoch, FragmentId};
use weir_connector::BadRecord;

use crate::expr::ErrorCounter;

/// Bad records that are kept to be looked at; older ones are only counted.
const BAD_RECORDS_KEPT: usize = 100;

/// Shared by the tasks of a job and whoever asks. Survives restarts of the job within the process.
#[derive(Default)]
pub struct JobStats {
    /// Cells that are NULL because their expression failed.
    pub expression_errors: Arc<ErrorCounter>,
    tasks: Mutex<Vec<TaskStats>>,
    bad_records: Mutex<BadRecords>,
}

/// A task of a job: an executor or reader of one actor.
#[derive(Clone, Debug)]
pub struct TaskStats {
    pub fragment: FragmentId,
    pub actor: ActorId,
    /// Name of the plan node.
    pub node: &'static str,
    /// Rows that have left it since it was started.
    pub rows: u64,
    /// The newest barrier that has passed it.
    pub epoch: Epoch,
}

/// Records of a source that could not be read.
#[derive(Clone, Debug, Default)]
pub struct BadRecords {
    pub count: u64,
    /// The newest ones.
    pub newest: Vec<BadRecord>,
}

impl JobStats {
    /// A new start: the tasks in order.
    pub fn restart(&self, tasks: Vec<TaskStats>) {
        *lock(&self.tasks) = tasks;
    }

    /// A barrier has passed a task.
    pub fn report(&self, task: usize, epoch: Epoch, rows: u64) {
        if let Some(task) = lock(&self.tasks).get_mut(task) {
            task.rows += rows;
            task.epoch = epoch;
        }
    }

    /// Records that were skipped.
    pub fn bad_records(&self, bad: Vec<BadRecord>) {
        if bad.is_empty() {
            return;
        }
        let mut records = lock(&self.bad_records);
        records.count += bad.len() as u64;
        records.newest.extend(bad);
        let surplus = records.newest.len().saturating_sub(BAD_RECORDS_KEPT);
        records.newest.drain(..surplus);
    }

    /// The tasks as they are now.
    pub fn tasks(&self) -> Vec<TaskStats> {
        lock(&self.tasks).clone()
    }

    /// The records that were skipped.
    pub fn bad(&self) -> BadRecords {
        lock(&self.bad_records).clone()
    }
}

/// What is behind these locks is valid at any moment, also when a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
