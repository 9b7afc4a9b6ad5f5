//! The random numbers of an event.
//!
//! Draws the same numbers as `rand` 0.8's `SmallRng`, which the `nexmark` crate uses: xoshiro256++, seeded by a PCG32.
//! Ranges are drawn as there, by widening multiplication with rejection, each in the width that the crate happens to
//! use for it.

/// A generator seeded by the number of an event.
#[derive(Clone)]
pub struct Random {
    pub(super) state: [u64; 4],
}

/// How many letters there are to draw from.
pub const LETTERS: u32 = 26;
/// A letter's number is rejected when the low half of its product with [`LETTERS`] is above this.
pub const LETTER_ZONE: u32 = u32::MAX - (u32::MAX - LETTERS + 1) % LETTERS;

impl Random {
    /// The generator of one event.
    #[inline]
    pub fn seed(seed: u64) -> Random {
        let mut pcg = seed;
        let mut word = || {
            let low = pcg32(&mut pcg);
            low | pcg32(&mut pcg) << 32
        };
        // No seed gives four zeros, the one state that xoshiro must not have: PCG32 does not give eight zeros in a row.
        Random { state: [word(), word(), word(), word()] }
    }

    #[inline(always)]
    fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    #[inline(always)]
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `bound`, drawn from 64 bits.
    #[inline(always)]
    pub fn below(&mut self, bound: u64) -> u64 {
        let zone = (bound << bound.leading_zeros()).wrapping_sub(1);
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 <= zone {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number below `bound`, drawn from 32 bits.
    #[inline(always)]
    pub fn below_u32(&mut self, bound: u32) -> u32 {
        let zone = (bound << bound.leading_zeros()).wrapping_sub(1);
        loop {
            let product = u64::from(self.next_u32()) * u64::from(bound);
            if product as u32 <= zone {
                return (product >> 32) as u32;
            }
        }
    }

    /// A letter of the lower case.
    #[inline(always)]
    pub fn letter(&mut self) -> u8 {
        loop {
            let product = u64::from(self.next_u32()) * u64::from(LETTERS);
            if product as u32 <= LETTER_ZONE {
                return b'a' + (product >> 32) as u8;
            }
        }
    }

    /// A price in cents: its logarithm is uniform, from one to a million dollars.
    #[inline(always)]
    pub fn price(&mut self) -> i64 {
        const UNIT: f32 = 1.0 / (1 << 24) as f32;
        let unit = (self.next_u32() >> 8) as f32 * UNIT;
        (10.0_f32.powf(unit * 6.0) * 100.0).round() as i64
    }

    /// The length of text that brings an event to `average` bytes on average, of which it has `current`.
    #[inline(always)]
    pub fn extra_length(&mut self, current: u64, average: u64) -> usize {
        if current > average {
            return 0;
        }
        let wanted = average - current;
        let delta = (wanted + 2) / 5;
        let variation = if delta == 0 { 0 } else { self.below(2 * delta) };
        (wanted - delta + variation) as usize
    }
}

/// The next number of a PCG32, to seed from.
#[inline(always)]
fn pcg32(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11_634_580_027_462_260_723);
    let shifted = (((*state >> 18) ^ *state) >> 27) as u32;
    shifted.rotate_right((*state >> 59) as u32).into()
}
