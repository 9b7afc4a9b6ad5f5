//! Backfills step back while others are at work.
//!
//! A backfill takes all the time that it can get, statements and sources only what they need. So a reader that backfills rests
//! for four times as long as its last step took, while a statement or source has brought rows within the last moments; with nobody
//! else at work it does not rest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long somebody counts as being at work.
const MOMENTS: Duration = Duration::from_millis(50);
/// Rest, as a multiple of the work before it.
const REST: u32 = 4;
/// The longest rest; a step that took longer was held up by others.
const REST_MAX: Duration = Duration::from_millis(50);

/// When rows came in last. Shared by all jobs.
#[derive(Debug)]
pub struct Courtesy {
    started: Instant,
    /// Milliseconds from then on, plus one; 0: never.
    last: AtomicU64,
}

impl Default for Courtesy {
    fn default() -> Courtesy {
        Courtesy { started: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Courtesy {
    /// Rows of a statement or source have come.
    pub fn rows_came(&self) {
        self.last.store(self.started.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    /// How long a backfill rests after a step that took so long.
    pub fn rest_after(&self, step: Duration) -> Duration {
        let last = self.last.load(Ordering::Relaxed);
        let now = self.started.elapsed().as_millis() as u64 + 1;
        let beside_others = last > 0 && now.saturating_sub(last) <= MOMENTS.as_millis() as u64;
        if beside_others { (step * REST).min(REST_MAX) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backfill_rests_only_beside_others() {
        let courtesy = Courtesy::default();
        let step = Duration::from_millis(3);
        assert_eq!(courtesy.rest_after(step), Duration::ZERO);
        courtesy.rows_came();
        assert_eq!(courtesy.rest_after(step), Duration::from_millis(12));
        assert_eq!(courtesy.rest_after(Duration::from_secs(9)), REST_MAX);
    }
}
