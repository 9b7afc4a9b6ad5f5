//! Points of the one timeline.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bits of the counter below the milliseconds.
const COUNTER_BITS: u32 = 16;

/// A point of the one timeline that meta gives out; the changes up to it belong to it.
///
/// Layout: Unix time in milliseconds `<< 16`, plus a counter that keeps epochs of one millisecond apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before every epoch that is given out.
    pub const ZERO: Epoch = Epoch(0);
    /// After every epoch that is given out.
    pub const MAX: Epoch = Epoch(u64::MAX);

    /// The first epoch of a millisecond of Unix time.
    pub fn from_unix_ms(unix_ms: u64) -> Epoch {
        Epoch(unix_ms << COUNTER_BITS)
    }

    /// The millisecond of Unix time that the epoch was given out in.
    pub fn unix_ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The epoch to give out at `now_ms` when `self` was the last one: later than `self` even if the clock went back.
    pub fn next(self, now_ms: u64) -> Epoch {
        Epoch::from_unix_ms(now_ms).max(Epoch(self.0 + 1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_grow_even_when_the_clock_goes_back() {
        let first = Epoch::ZERO.next(1_000);
        assert_eq!(first.unix_ms(), 1_000);
        let second = first.next(1_000);
        assert!(second > first && second.unix_ms() == 1_000);
        let third = second.next(500);
        assert!(third > second);
        assert_eq!(third.next(2_000), Epoch::from_unix_ms(2_000));
    }
}
