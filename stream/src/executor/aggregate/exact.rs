//! A sum of floats without rounding, so that any addend can be taken back.
//!
//! Every finite `f64` is a whole multiple of 2^-1074, so a sum of them is a whole number of these, kept here in binary:
//!
//! ```text
//! sum = limbs × 2^(64·base − 1074)        limbs: two's complement, 64 bits each, lowest first; none for zero
//! ```
//!
//! Values of like size overlap in two or three limbs; the widest sums have 35. Limbs that say nothing are cut off at both
//! ends, so a sum has one form, whatever the order in which it came about. Only [`ExactSum::to_f64`] rounds, once: the
//! result is the `f64` nearest to the true sum. A running `f64` would drift with every row that is taken back, and a
//! group that lost a huge value would keep its rounding errors for ever.

/// Bits of the mantissa that an `f64` stores.
const FRACTION_BITS: u32 = 52;
/// Position of the lowest mantissa bit of the largest `f64`.
const POSITION_MAX: usize = 2045;
/// Bits of a limb.
const LIMB: usize = 64;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExactSum {
    limbs: Vec<u64>,
    base: usize,
}

impl ExactSum {
    /// Adds a finite value, or takes it back when the sign is negative.
    pub fn add(&mut self, value: f64, sign: i64) {
        debug_assert!(value.is_finite());
        let bits = value.to_bits();
        let exponent = (bits >> FRACTION_BITS) & 0x7ff;
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        // The value is `mantissa` × 2^(position - 1074).
        let (mantissa, position) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << FRACTION_BITS, exponent as usize - 1),
        };
        if mantissa == 0 {
            return;
        }
        let shifted = u128::from(mantissa) << (position % LIMB);
        let parts = [shifted as u64, (shifted >> LIMB) as u64];
        let first = self.cover(position / LIMB);
        if value.is_sign_negative() == (sign < 0) {
            self.increase(first, parts);
        } else {
            self.decrease(first, parts);
        }
        self.trim();
    }

    /// The nearest `f64`, ties to even. `None`: it is beyond the largest.
    pub fn to_f64(&self) -> Option<f64> {
        let Some(top) = self.limbs.last() else { return Some(0.0) };
        let negative = (*top as i64) < 0;
        let magnitude = if negative { negated(&self.limbs) } else { self.limbs.clone() };
        let leading = magnitude.iter().rposition(|l| *l != 0).expect("a sum that is not zero has a limb that is not");
        let top_bit = leading * LIMB + 63 - magnitude[leading].leading_zeros() as usize;
        let absolute = self.base * LIMB + top_bit;
        let bits = match absolute.saturating_sub(FRACTION_BITS as usize) {
            // Below 2^53 units it is a subnormal or one of the smallest normal numbers; its bits are its value.
            0 => magnitude[0],
            lowest if lowest > POSITION_MAX => return None,
            // A mantissa that is rounded up to 2^53 carries into the exponent, as it should.
            lowest => {
                ((lowest as u64) << FRACTION_BITS) + mantissa(&magnitude, lowest as isize - (self.base * LIMB) as isize)
            }
        };
        let result = f64::from_bits(bits);
        let result = if negative { -result } else { result };
        result.is_finite().then_some(result)
    }

    /// Its bytes in the groups table: the base, then the limbs, little endian.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.base as u8);
        self.limbs.iter().for_each(|l| out.extend_from_slice(&l.to_le_bytes()));
    }

    /// The sum with these bytes.
    pub fn read(bytes: &[u8]) -> ExactSum {
        let Some((base, limbs)) = bytes.split_first() else { return ExactSum::default() };
        let limb = |bytes: &[u8]| bytes.iter().rev().fold(0, |limb, byte| limb << 8 | u64::from(*byte));
        ExactSum { base: usize::from(*base), limbs: limbs.chunks(size_of::<u64>()).map(limb).collect() }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.limbs.capacity() * size_of::<u64>()
    }

    /// Has limbs `limb` and `limb + 1`, and one above for the carry. Returns the index of the first.
    fn cover(&mut self, limb: usize) -> usize {
        if self.limbs.is_empty() {
            self.base = limb;
        }
        if limb < self.base {
            self.limbs.splice(0..0, std::iter::repeat_n(0, self.base - limb));
            self.base = limb;
        }
        let first = limb - self.base;
        let extension = self.sign_limb();
        let len = self.limbs.len().max(first + 2) + 1;
        self.limbs.resize(len, extension);
        first
    }

    fn increase(&mut self, first: usize, parts: [u64; 2]) {
        let mut carry = false;
        for (i, limb) in self.limbs[first..].iter_mut().enumerate() {
            let part = parts.get(i).copied().unwrap_or(0);
            if i >= parts.len() && !carry {
                break;
            }
            (*limb, carry) = limb.carrying_add(part, carry);
        }
    }

    fn decrease(&mut self, first: usize, parts: [u64; 2]) {
        let mut borrow = false;
        for (i, limb) in self.limbs[first..].iter_mut().enumerate() {
            let part = parts.get(i).copied().unwrap_or(0);
            if i >= parts.len() && !borrow {
                break;
            }
            (*limb, borrow) = limb.borrowing_sub(part, borrow);
        }
    }

    /// Cuts off what says nothing: sign limbs at the top, zero limbs at the bottom.
    fn trim(&mut self) {
        while let [.., below, top] = self.limbs[..] {
            if sign_of(below) != top {
                break;
            }
            self.limbs.pop();
        }
        let zeros = self.limbs.iter().take_while(|l| **l == 0).count();
        if zeros > 0 {
            self.limbs.drain(..zeros);
            self.base += zeros;
        }
        if self.limbs.is_empty() {
            self.base = 0;
        }
    }

    fn sign_limb(&self) -> u64 {
        self.limbs.last().map_or(0, |top| sign_of(*top))
    }
}

/// What a number is extended with whose highest limb is this.
fn sign_of(limb: u64) -> u64 {
    if (limb as i64) < 0 { u64::MAX } else { 0 }
}

/// The magnitude of a negative number.
fn negated(limbs: &[u64]) -> Vec<u64> {
    let mut carry = true;
    let negate = |limb: &u64| {
        let negated;
        (negated, carry) = (!limb).carrying_add(0, carry);
        negated
    };
    limbs.iter().map(negate).collect()
}

/// The 53 bits from bit `lowest` on, which end with the highest bit of the magnitude; rounded to even by the bits below.
fn mantissa(magnitude: &[u64], lowest: isize) -> u64 {
    let Ok(lowest) = usize::try_from(lowest) else {
        return magnitude[0] << -lowest;
    };
    let (limb, shift) = (lowest / LIMB, lowest % LIMB);
    let above = magnitude.get(limb + 1).map_or(0, |above| above.checked_shl((LIMB - shift) as u32).unwrap_or(0));
    let kept = magnitude[limb] >> shift | above;
    let Some(half) = lowest.checked_sub(1) else { return kept };
    let is_set = |bit: usize| magnitude[bit / LIMB] >> (bit % LIMB) & 1 == 1;
    let rest =
        magnitude[..half / LIMB].iter().any(|l| *l != 0) || magnitude[half / LIMB] & ((1 << (half % LIMB)) - 1) != 0;
    kept + u64::from(is_set(half) && (rest || kept & 1 == 1))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn sum(values: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        values.iter().for_each(|v| sum.add(*v, 1));
        sum
    }

    #[test]
    fn one_value_is_itself() {
        let values =
            [1.0, -1.0, 0.1, 5e-324, -5e-324, f64::MIN_POSITIVE, f64::MIN_POSITIVE - 5e-324, f64::MAX, f64::MIN, 1e300];
        for value in values {
            assert_eq!(sum(&[value]).to_f64(), Some(value));
        }
        assert_eq!(sum(&[0.0, -0.0]), ExactSum::default());
    }

    #[test]
    fn the_sum_is_the_nearest_number() {
        assert_eq!(sum(&[0.1, 0.2]).to_f64(), Some(0.1 + 0.2));
        assert_eq!(sum(&[1e16, 1.0, 1.0]).to_f64(), Some(1e16 + 2.0));
        assert_eq!(sum(&[1e308, 1e-308, -1e308]).to_f64(), Some(1e-308));
        // Halfway: to even. And anything beyond half decides.
        assert_eq!(sum(&[9007199254740992.0, 1.0]).to_f64(), Some(9007199254740992.0));
        assert_eq!(sum(&[9007199254740992.0, 1.0, 5e-324]).to_f64(), Some(9007199254740994.0));
        assert_eq!(sum(&[9007199254740994.0, 1.0]).to_f64(), Some(9007199254740996.0));
        assert_eq!(sum(&[-9007199254740994.0, -1.0]).to_f64(), Some(-9007199254740996.0));
        // The largest number and less than half a unit more.
        assert_eq!(sum(&[f64::MAX, 1e291]).to_f64(), Some(f64::MAX));
        assert_eq!(sum(&[f64::MAX, 1e292]).to_f64(), None);
        assert_eq!(sum(&[f64::MAX, f64::MAX, f64::MIN]).to_f64(), Some(f64::MAX));
        assert_eq!(sum(&[f64::MAX, f64::MAX]).to_f64(), None);
    }

    #[test]
    fn any_order_gives_one_form_and_all_taken_back_is_nothing() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..500 {
            let values: Vec<f64> = (0..20)
                .map(|_| match random.random_range(0..3) {
                    0 => f64::from_bits(random.random()),
                    1 => random.random_range(-1000..1000) as f64 / 100.0,
                    _ => random.random::<f64>() - 0.5,
                })
                .filter(|v| v.is_finite())
                .collect();
            let forward = sum(&values);
            let backward = sum(&values.iter().rev().copied().collect::<Vec<_>>());
            assert_eq!(forward, backward);
            let mut bytes = Vec::new();
            forward.write(&mut bytes);
            let mut rest = ExactSum::read(&bytes);
            assert_eq!(rest, forward);
            values.iter().for_each(|v| rest.add(*v, -1));
            assert_eq!(rest, ExactSum::default());
        }
    }

    #[test]
    fn whole_numbers_sum_as_integers_do() {
        let mut random = StdRng::seed_from_u64(8);
        for _ in 0..500 {
            let shift = random.random_range(0..40);
            let values: Vec<i64> = (0..30).map(|_| random.random_range(-(1 << 53)..=1 << 53) >> shift).collect();
            let expected = values.iter().map(|v| i128::from(*v)).sum::<i128>() as f64;
            let floats: Vec<f64> = values.iter().map(|v| *v as f64).collect();
            assert_eq!(sum(&floats).to_f64(), Some(expected));
        }
    }
}
