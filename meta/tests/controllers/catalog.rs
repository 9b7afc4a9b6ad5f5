//! What sessions do: objects made and dropped, subscriptions read.

use rand::Rng;
use weir_common::catalog::Retention;
use weir_common::{Epoch, JobId};
use weir_meta::controller::Event;

use crate::model::{ChangeLog, Cursor, Ddl, Progress, Reader, Stored, Subscription};
use crate::world::World;

/// Objects that there are at most.
const JOBS_MAX: usize = 8;

impl World {
    /// Begins a change of the catalog, if none is under way.
    pub fn ddl_begin(&mut self) {
        if self.ddl.is_some() {
            return;
        }
        let can_be_read = |(id, stored): (&JobId, &Stored)| (stored.created && !stored.dropped).then_some(*id);
        let relations: Vec<_> = self.disk.jobs.iter().filter_map(can_be_read).collect();
        let any = |world: &mut World| relations[world.rng.random_range(0..relations.len())];
        let ddl = match self.rng.random_range(0..10) {
            0..=4 if self.disk.jobs.len() < JOBS_MAX => self.create(&relations),
            5..=6 if !relations.is_empty() => {
                let (id, of) = (self.id(), any(self));
                let keep_ms = if self.chance(0.5) { 500 } else { 1_000_000 };
                self.job(of).log_readers.add_subscription(id, Epoch::ZERO);
                Ddl::Subscribe { id, of, keep_ms, asked: false }
            }
            7..=8 if !self.disk.subscriptions.is_empty() => {
                let nth = self.rng.random_range(0..self.disk.subscriptions.len());
                let (id, subscription) = self.disk.subscriptions.iter().nth(nth).map(|(id, s)| (*id, *s)).unwrap();
                self.disk.subscriptions.remove(&id);
                self.cursors.retain(|cursor| cursor.subscription != id);
                Ddl::Unsubscribe { id, of: subscription.of }
            }
            9 if !relations.is_empty() => {
                let id = any(self);
                if self.disk.jobs.values().any(|j| j.inputs.contains(&id))
                    || self.disk.subscriptions.values().any(|s| s.of == id)
                {
                    return;
                }
                self.stored(id).dropped = true;
                self.send(id, Event::Drop);
                Ddl::Drop { id }
            }
            _ => return,
        };
        self.busy = true;
        self.ddl = Some(ddl);
    }

    fn id(&mut self) -> JobId {
        self.next_id += 1;
        JobId(self.next_id)
    }

    fn create(&mut self, relations: &[JobId]) -> Ddl {
        // The newest first, so that there are views on views.
        let mut inputs: Vec<_> = relations.iter().rev().copied().filter(|_| self.rng.random_bool(0.6)).collect();
        inputs.truncate(3);
        let reader = |world: &mut World| Reader { left: world.rng.random_range(1..4), actors: vec![None] };
        let readers = inputs.iter().map(|input| (*input, reader(self))).collect();
        let stored = Stored {
            inputs: inputs.clone(),
            has_source: self.chance(0.3),
            limit: self.chance(0.4).then(|| self.rng.random_range(1..4)),
            background: self.chance(0.7),
            created: false,
            paused: false,
            dropped: false,
            frontier: Epoch::ZERO,
            progress: Progress { following: false, readers },
            log: ChangeLog::default(),
        };
        let id = self.id();
        self.disk.jobs.insert(id, stored);
        self.register(id);
        Ddl::Create { id, settle: inputs, asked: false }
    }

    /// Goes on with the change of the catalog. `told`: the commits that it waits for have ended.
    pub fn ddl_step(&mut self, told: bool) {
        let Some(ddl) = self.ddl.take() else { return };
        let settles = |world: &mut World, id: JobId, asked: bool| {
            let job = world.job(id);
            if !asked {
                job.settling = job.committing.is_some();
            }
            told || !job.settling
        };
        self.ddl = match ddl {
            Ddl::Create { id, mut settle, asked } => match settle.first().copied() {
                Some(input) if settles(self, input, asked) => {
                    let job = self.job(input);
                    job.log_readers.log_is_kept(job.frontier);
                    settle.remove(0);
                    Some(Ddl::Create { id, settle, asked: false })
                }
                Some(_) => Some(Ddl::Create { id, settle, asked: true }),
                None => {
                    self.send(id, Event::Start);
                    None
                }
            },
            Ddl::Subscribe { id, of, keep_ms, asked } if settles(self, of, asked) => {
                let retention = Retention { since: self.jobs[&of].frontier, keep_ms };
                Some(Ddl::Insert { id, subscription: Subscription { of, retention } })
            }
            Ddl::Subscribe { id, of, keep_ms, .. } => Some(Ddl::Subscribe { id, of, keep_ms, asked: true }),
            Ddl::Insert { id, subscription } => {
                if self.chance(0.1) {
                    self.job(subscription.of).log_readers.remove(id);
                } else {
                    self.disk.subscriptions.insert(id, subscription);
                    self.keep_log_for(id);
                }
                None
            }
            Ddl::Unsubscribe { id, of } => {
                self.job(of).log_readers.remove(id);
                None
            }
            Ddl::Drop { id } if self.jobs[&id].gone => {
                for input in self.disk.jobs[&id].inputs.clone() {
                    self.job(input).log_readers.remove(id);
                }
                self.saw("dropped");
                self.jobs.remove(&id);
                self.disk.jobs.remove(&id);
                None
            }
            unfinished @ Ddl::Drop { .. } => Some(unfinished),
        };
    }

    /// Keeps the log that a subscription asks for.
    pub fn keep_log_for(&mut self, id: JobId) {
        let Subscription { of, retention } = self.disk.subscriptions[&id];
        let now = self.now * 100;
        let readers = &mut self.job(of).log_readers;
        readers.add_subscription(id, retention.kept_after(now));
        readers.log_is_kept(retention.since);
    }

    /// A session declares a cursor, or fetches from one.
    pub fn read_subscription(&mut self) {
        if self.cursors.len() < 3 && !self.disk.subscriptions.is_empty() {
            let nth = self.rng.random_range(0..self.disk.subscriptions.len());
            let (id, subscription) = self.disk.subscriptions.iter().nth(nth).map(|(id, s)| (*id, *s)).unwrap();
            let frontier = self.jobs[&subscription.of].frontier;
            let kept = subscription.retention.kept_after(self.now * 100);
            // What a relation that is far behind will be at epochs that are too old already, no cursor asks for.
            let after = if self.chance(0.5) { kept.min(frontier) } else { frontier };
            self.cursors.push(Cursor { subscription: id, of: subscription.of, after });
        } else if !self.cursors.is_empty() {
            let nth = self.rng.random_range(0..self.cursors.len());
            let cursor = &mut self.cursors[nth];
            let frontier = self.jobs[&cursor.of].frontier;
            if frontier <= cursor.after {
                return;
            }
            match self.disk.jobs[&cursor.of].log.read(cursor.after, frontier) {
                Some(changed) => {
                    cursor.after = frontier;
                    if changed {
                        self.saw("changes fetched");
                    }
                }
                None => {
                    self.saw("cursor is told of a loss");
                    let cursor = self.cursors.remove(nth);
                    self.check_loss_is_known(&cursor);
                }
            }
        }
    }
}
