//! The memory that executors may use for what they remember.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Above the limit, caches shrink to this share of it, so that they don't have to shrink again at once.
const LOW_WATER: f64 = 0.9;

/// Bytes in use by all caches of the process, and how many there may be. Nobody is stopped from using more; whoever has a
/// cache asks for the [`pressure`](MemoryLimit::pressure) at its barriers and gives up that share of it.
#[derive(Debug)]
pub struct MemoryLimit {
    limit: usize,
    used: AtomicUsize,
}

impl MemoryLimit {
    /// Nothing is in use.
    pub fn new(limit_bytes: usize) -> MemoryLimit {
        MemoryLimit { limit: limit_bytes, used: AtomicUsize::new(0) }
    }

    /// A cache has grown, or shrunk, by as many bytes.
    pub fn add(&self, bytes: isize) {
        let change = |used: usize| Some(used.saturating_add_signed(bytes));
        // The closure always returns a value, so the update can't fail.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be in use.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The share of its memory that every cache should give up now, from 0 to 1. It is 0 when the limit is kept.
    pub fn pressure(&self) -> f64 {
        let used = self.used();
        if used <= self.limit {
            return 0.0;
        }
        1.0 - LOW_WATER * self.limit as f64 / used as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_brings_use_below_the_limit() {
        let memory = MemoryLimit::new(1_000);
        memory.add(1_000);
        assert_eq!(memory.pressure(), 0.0);
        memory.add(500);
        let left = memory.used() as f64 * (1.0 - memory.pressure());
        assert!((left - 900.0).abs() < 1.0, "{left}");
        memory.add(-5_000);
        assert_eq!((memory.used(), memory.limit()), (0, 1_000));
        assert!((MemoryLimit::new(0).pressure(), 0) == (0.0, 0));
    }
}
