//! A limit on rows per second that can be changed while it is used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a paused user of the limit looks whether it was lifted.
const PAUSED_POLL: Duration = Duration::from_millis(50);
/// Rows that may be taken at once are those of at most this time.
const BURST: Duration = Duration::from_millis(100);

/// Rows per second, shared by whoever sets it and whoever obeys. 0 pauses.
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<AtomicU64>);

impl RateLimit {
    /// No limit.
    pub const NONE: u64 = u64::MAX;

    /// `None`: no limit. `Some(0)`: paused.
    pub fn new(rows_per_s: Option<u64>) -> RateLimit {
        RateLimit(Arc::new(AtomicU64::new(rows_per_s.unwrap_or(Self::NONE))))
    }

    /// Changes the limit.
    pub fn set(&self, rows_per_s: Option<u64>) {
        self.0.store(rows_per_s.unwrap_or(Self::NONE), Ordering::Relaxed);
    }

    /// The limit, `None` when there is none.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|limit| *limit != Self::NONE)
    }
}

/// The limits of one job, shared with whoever obeys them.
#[derive(Clone, Debug)]
pub struct RateLimits {
    /// Of what each reader of a relation backfills.
    pub backfill: RateLimit,
    /// Of what each source gives.
    pub source: RateLimit,
    /// Of rows of statements that a table takes.
    pub dml: RateLimit,
    /// Of rows that each actor of a sink hands out.
    pub sink: RateLimit,
}

impl RateLimits {
    /// The options that set them.
    pub const OPTIONS: [&str; 4] = ["backfill_rate_limit", "source_rate_limit", "dml_rate_limit", "sink_rate_limit"];

    /// As the options of an object say; without one there is no limit.
    pub fn new(options: &BTreeMap<String, String>) -> RateLimits {
        let [backfill, source, dml, sink] = Self::OPTIONS.map(|name| RateLimit::new(rows_per_s(options, name)));
        RateLimits { backfill, source, dml, sink }
    }

    /// Changes them to what the options say now.
    pub fn set(&self, options: &BTreeMap<String, String>) {
        let limits = [&self.backfill, &self.source, &self.dml, &self.sink];
        for (limit, name) in limits.into_iter().zip(Self::OPTIONS) {
            limit.set(rows_per_s(options, name));
        }
    }
}

fn rows_per_s(options: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    options.get(name).and_then(|limit| limit.parse().ok())
}

/// One user's account under a limit.
pub struct Allowance {
    limit: RateLimit,
    rows: f64,
    at: Instant,
}

impl Allowance {
    /// Starts with nothing saved up.
    pub fn new(limit: RateLimit) -> Allowance {
        Allowance { limit, rows: 0.0, at: Instant::now() }
    }

    /// Waits until some rows are allowed and returns how many of the `wanted` are. Cancel-safe: nothing is spent before
    /// [`Allowance::spend`].
    pub async fn wait(&mut self, wanted: usize) -> usize {
        loop {
            let allowed = self.allowed(wanted);
            if allowed > 0 {
                return allowed;
            }
            let pause = match self.limit.get() {
                Some(limit) if limit > 0 => Duration::from_secs_f64((1.0 / limit as f64).min(0.05)),
                _ => PAUSED_POLL,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// How many of the `wanted` rows are allowed now.
    pub fn allowed(&mut self, wanted: usize) -> usize {
        let now = Instant::now();
        let passed = now.duration_since(self.at);
        self.at = now;
        match self.limit.get() {
            None => wanted,
            Some(limit) => {
                let burst = (limit as f64 * BURST.as_secs_f64()).max(1.0);
                self.rows = (self.rows + limit as f64 * passed.as_secs_f64()).min(burst);
                if limit == 0 { 0 } else { (self.rows as usize).min(wanted) }
            }
        }
    }

    /// Takes rows off the account, which may become a debt: nothing is allowed until it is paid.
    pub fn spend(&mut self, rows: usize) {
        self.rows -= rows as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_pauses_and_none_lifts() {
        let limit = RateLimit::new(Some(0));
        let mut allowance = Allowance::new(limit.clone());
        assert_eq!(allowance.allowed(10), 0);
        limit.set(None);
        assert_eq!(allowance.allowed(10), 10);
        assert_eq!(limit.get(), None);
    }

    #[tokio::test]
    async fn a_limit_gives_out_no_more_than_a_burst_at_once() {
        let mut allowance = Allowance::new(RateLimit::new(Some(1_000)));
        let first = allowance.wait(1_000_000).await;
        assert!((1..=100).contains(&first), "{first}");
    }
}
