//! Which relations of a job are read before which others.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use weir_common::JobId;
use weir_common::plan::{JobPlan, Node};

use crate::job::slots;

/// How many readers of each relation have not finished their backfill. Shared by all readers of a job.
#[derive(Clone, Debug)]
pub struct BackfillOrder(Arc<watch::Sender<BTreeMap<JobId, usize>>>);

impl BackfillOrder {
    /// Of a job that is to be started: nobody has finished.
    pub fn new(plan: &JobPlan) -> BackfillOrder {
        let mut unfinished = BTreeMap::new();
        for fragment in &plan.fragments {
            let actors = slots(fragment, plan).len();
            fragment.plan.visit(&mut |plan| {
                if let Node::Scan(scan) = &plan.node {
                    *unfinished.entry(scan.job).or_insert(0) += actors;
                }
            });
        }
        BackfillOrder(Arc::new(watch::Sender::new(unfinished)))
    }

    /// A reader of the relation has finished. To be said once.
    pub fn finished(&self, relation: JobId) {
        self.0.send_modify(|unfinished| {
            if let Some(readers) = unfinished.get_mut(&relation) {
                *readers = readers.saturating_sub(1);
            }
        });
    }

    /// Whether all readers of the relations have.
    pub fn are_finished(&self, relations: &[JobId]) -> bool {
        all_finished(&self.0.borrow(), relations)
    }

    /// Waits until all readers of the relations have.
    pub async fn wait_for(&self, relations: &[JobId]) {
        // It ends with the job.
        let _ = self.0.subscribe().wait_for(|unfinished| all_finished(unfinished, relations)).await;
    }
}

fn all_finished(unfinished: &BTreeMap<JobId, usize>, relations: &[JobId]) -> bool {
    relations.iter().all(|relation| unfinished.get(relation).is_none_or(|readers| *readers == 0))
}
