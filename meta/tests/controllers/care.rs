//! The care of logs: rounds that look at one relation after the other, while everything else goes on.

use weir_meta::controller::Event;
use weir_meta::log_readers::LogState;

use crate::model::{Round, Stage};
use crate::world::World;

impl World {
    pub fn care(&mut self) {
        let Some(mut round) = self.round.take() else {
            let subscriptions = self.disk.subscriptions.iter().map(|(id, s)| (*id, *s)).collect();
            let jobs = self.jobs.keys().copied().collect();
            self.round = Some(Round { subscriptions, jobs, stage: Stage::Next });
            return;
        };
        round.stage = match round.stage {
            Stage::Next => {
                let Some(id) = round.jobs.pop() else { return };
                match self.jobs.get_mut(&id) {
                    Some(job) => {
                        for (subscription, s) in round.subscriptions.iter().filter(|(_, s)| s.of == id) {
                            job.log_readers.advance(*subscription, s.retention.kept_after(self.now * 100));
                        }
                        let stored = &self.disk.jobs[&id];
                        let excess = stored.limit.and_then(|limit| stored.log.excess(limit));
                        let truncated = self.truncated.get(&id).copied().unwrap_or_default();
                        let (frontier, changed) = (job.frontier, job.changed);
                        Stage::Looked(id, LogState { frontier, changed, excess, truncated })
                    }
                    None => Stage::Next,
                }
            }
            Stage::Looked(id, log) => match self.jobs.get_mut(&id) {
                Some(job) => {
                    let decision = job.log_readers.decide(log);
                    let held = std::mem::replace(&mut job.held_by, decision.hold);
                    if !decision.lost.is_empty() {
                        self.saw("subscription loses");
                    }
                    self.lost.extend(decision.lost);
                    if held != decision.hold {
                        self.saw(if decision.hold.is_some() { "held" } else { "let go" });
                        self.send(id, Event::Hold { held: decision.hold.is_some() });
                    }
                    if let Some(reader) = decision.hold {
                        self.send(reader, Event::CatchUp);
                    }
                    decision.truncate_to.map_or(Stage::Next, |up_to| Stage::Truncate(id, up_to))
                }
                None => Stage::Next,
            },
            Stage::Truncate(id, up_to) => {
                if let Some(stored) = self.disk.jobs.get_mut(&id) {
                    stored.log.truncate(up_to);
                    self.truncated.insert(id, up_to);
                    self.saw("truncated");
                    self.busy = true;
                    self.check_truncation(id);
                }
                Stage::Next
            }
        };
        self.round = Some(round);
    }
}
