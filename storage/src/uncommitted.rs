//! How much is written and not committed yet, in all tables of a store, and how much may be.
//!
//! Nobody who writes is stopped: an epoch must end before it can be committed. Those who bring rows in wait instead, and
//! ask for the end of the epoch.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// See the module.
pub struct Uncommitted {
    limit: usize,
    used: AtomicUsize,
    freed: Notify,
    /// Asks for an epoch to end soon.
    ask: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Uncommitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uncommitted({} of {} bytes)", self.used(), self.limit)
    }
}

impl Uncommitted {
    /// Nothing is written, and so many bytes may be.
    pub fn new(limit_bytes: usize) -> Uncommitted {
        Uncommitted { limit: limit_bytes, used: AtomicUsize::new(0), freed: Notify::new(), ask: OnceLock::new() }
    }

    /// Whom to ask for the end of an epoch when there is no room. The first one counts.
    pub fn ask_with(&self, ask: impl Fn() + Send + Sync + 'static) {
        let _ = self.ask.set(Box::new(ask));
    }

    /// Bytes that may be uncommitted before those who bring rows have to wait.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are not committed.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Waits until less is uncommitted than may be. Cancel-safe. Not for those without whom an epoch can't end.
    pub async fn room(&self) {
        while self.used() > self.limit {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no notification is missed.
            freed.as_mut().enable();
            if self.used() <= self.limit {
                return;
            }
            if let Some(ask) = self.ask.get() {
                ask();
            }
            freed.await;
        }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: usize) {
        if self.used.fetch_sub(bytes, Ordering::Relaxed) > self.limit {
            self.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn whoever_brings_rows_waits_for_room_and_asks_for_an_epoch() {
        let uncommitted = Arc::new(Uncommitted::new(10));
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        uncommitted.ask_with(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        uncommitted.add(10);
        uncommitted.room().await;
        uncommitted.add(20);
        let waiting = tokio::spawn({
            let uncommitted = uncommitted.clone();
            async move { uncommitted.room().await }
        });
        while asked.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        uncommitted.sub(5);
        while asked.load(Ordering::Relaxed) == 1 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        uncommitted.sub(20);
        waiting.await.expect("the task ends");
        assert_eq!((uncommitted.used(), asked.load(Ordering::Relaxed)), (5, 2));
    }
}
