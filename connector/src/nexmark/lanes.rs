//! Letters for several events at a time.
//!
//! A generator's next number depends on the one before, so drawing the letters of one event leaves most of a processor
//! idle, and letters are most of what there is to draw. Four generators in step fill one register of AVX2. That is
//! written out, for compilers do not find it: they keep the sixteen words of state in as many scalar registers. Without
//! AVX2 the generators take turns.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::random::{LETTER_ZONE, LETTERS, Random};
use super::strings::Strings;

/// Events at a time.
pub const LANES: usize = 4;
/// Letters in a word.
const WORD: usize = 8;
/// The longest text.
const LETTERS_MAX: usize = 400;

/// Generators in step, and the letters that they have drawn last.
pub struct Lanes {
    /// The four words of each generator's state.
    state: [[u64; LANES]; 4],
    letters: [[u8; LETTERS_MAX]; LANES],
}

impl Lanes {
    /// No generator yet.
    pub fn new() -> Box<Lanes> {
        Box::new(Lanes { state: [[0; LANES]; 4], letters: [[0; LETTERS_MAX]; LANES] })
    }

    /// Puts a generator into a lane.
    #[inline(always)]
    pub fn set(&mut self, lane: usize, random: &Random) {
        for (words, word) in self.state.iter_mut().zip(random.state) {
            words[lane] = word;
        }
    }

    /// The generator of a lane.
    #[inline(always)]
    pub fn get(&self, lane: usize) -> Random {
        Random { state: self.state.map(|words| words[lane]) }
    }

    /// Draws so many letters in every lane, a multiple of eight. Lanes in which a number was rejected, which happens once
    /// in 200 million, are told by `true`: their letters and their generators are wrong.
    pub fn draw(&mut self, letters: usize) -> [bool; LANES] {
        assert!(letters.is_multiple_of(WORD) && letters <= LETTERS_MAX, "a text has at most 400 letters");
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions, as was asked just now.
            return unsafe { self.draw_avx2(letters / WORD) };
        }
        self.draw_in_turns(letters);
        [false; LANES]
    }

    fn draw_in_turns(&mut self, letters: usize) {
        for lane in 0..LANES {
            let mut random = self.get(lane);
            self.letters[lane][..letters].fill_with(|| random.letter());
            self.set(lane, &random);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn draw_avx2(&mut self, words: usize) -> [bool; LANES] {
        let [mut a, mut b, mut c, mut d] = self.state.map(|words| to_register(words));
        let letters = _mm256_set1_epi64x(i64::from(LETTERS));
        let low = _mm256_set1_epi64x(i64::from(u32::MAX));
        // Added to the low half of a product, it overflows when the number is to be rejected.
        let rejected = _mm256_set1_epi64x(i64::from(u32::MAX - LETTER_ZONE));
        let all_a = _mm256_set1_epi8(b'a' as i8);
        let mut overflow = _mm256_setzero_si256();
        for word in 0..words {
            let mut eight = _mm256_setzero_si256();
            for _ in 0..WORD {
                let sum = _mm256_add_epi64(a, d);
                let rotated = _mm256_or_si256(_mm256_slli_epi64::<23>(sum), _mm256_srli_epi64::<41>(sum));
                let number = _mm256_add_epi64(rotated, a);
                let t = _mm256_slli_epi64::<17>(b);
                c = _mm256_xor_si256(c, a);
                d = _mm256_xor_si256(d, b);
                b = _mm256_xor_si256(b, c);
                a = _mm256_xor_si256(a, d);
                c = _mm256_xor_si256(c, t);
                d = _mm256_or_si256(_mm256_slli_epi64::<45>(d), _mm256_srli_epi64::<19>(d));
                let product = _mm256_mul_epu32(_mm256_srli_epi64::<32>(number), letters);
                overflow = _mm256_or_si256(overflow, _mm256_add_epi64(_mm256_and_si256(product, low), rejected));
                let letter = _mm256_slli_epi64::<56>(_mm256_srli_epi64::<32>(product));
                eight = _mm256_or_si256(_mm256_srli_epi64::<8>(eight), letter);
            }
            let eight = from_register(_mm256_add_epi8(eight, all_a));
            for (lane, letters) in self.letters.iter_mut().enumerate() {
                letters[word * WORD..][..WORD].copy_from_slice(&eight[lane].to_le_bytes());
            }
        }
        self.state = [a, b, c, d].map(|register| from_register(register));
        from_register(overflow).map(|overflow| overflow > u64::from(u32::MAX))
    }

    /// The first letters that were drawn in a lane.
    #[inline(always)]
    pub fn letters(&self, lane: usize, length: usize) -> &[u8] {
        &self.letters[lane][..length]
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn to_register(words: [u64; LANES]) -> __m256i {
    let [a, b, c, d] = words.map(u64::cast_signed);
    _mm256_setr_epi64x(a, b, c, d)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn from_register(register: __m256i) -> [u64; LANES] {
    [
        _mm256_extract_epi64::<0>(register),
        _mm256_extract_epi64::<1>(register),
        _mm256_extract_epi64::<2>(register),
        _mm256_extract_epi64::<3>(register),
    ]
    .map(i64::cast_unsigned)
}

/// Texts of different lengths that are drawn last of all draws of their events.
pub struct LastTexts {
    lanes: Box<Lanes>,
    lengths: [usize; LANES],
    used: usize,
}

impl LastTexts {
    /// None yet.
    pub fn new() -> LastTexts {
        LastTexts { lanes: Lanes::new(), lengths: [0; LANES], used: 0 }
    }

    /// Adds a text of this length; it is appended to the column now or later, in order.
    #[inline(always)]
    pub fn push(&mut self, random: &Random, length: usize, column: &mut Strings) {
        self.lanes.set(self.used, random);
        self.lengths[self.used] = length;
        self.used += 1;
        if self.used == LANES {
            self.flush(column);
        }
    }

    /// Appends the texts that are not appended yet.
    pub fn flush(&mut self, column: &mut Strings) {
        let randoms: [Random; LANES] = std::array::from_fn(|lane| self.lanes.get(lane));
        let longest = self.lengths[..self.used].iter().max().copied().unwrap_or(0);
        let rejected = self.lanes.draw(longest.next_multiple_of(WORD));
        for (lane, mut random) in randoms.into_iter().take(self.used).enumerate() {
            if rejected[lane] {
                column.letters(self.lengths[lane], &mut random);
            } else {
                column.bytes(self.lanes.letters(lane, self.lengths[lane]));
            }
            column.end();
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use arrow::array::AsArray;

    use super::*;

    #[test]
    fn lanes_draw_what_each_generator_draws_alone() {
        let (mut together, mut alone) = (Strings::with_capacity(0, 0), Strings::with_capacity(0, 0));
        let mut texts = LastTexts::new();
        for seed in 0..83 {
            let length = (seed * 7 % 400) as usize;
            texts.push(&Random::seed(seed), length, &mut together);
            alone.letters(length, &mut Random::seed(seed));
            alone.end();
        }
        texts.flush(&mut together);
        let (together, alone) = (together.finish(), alone.finish());
        assert_eq!(together.as_string::<i32>(), alone.as_string::<i32>());
    }

    #[test]
    fn a_rejected_number_is_noticed() {
        // Of these generators, the next number has the top half given.
        let with_next = |number: u32| Random { state: [0, 1, 2, (u64::from(number) << 32).rotate_right(23)] };
        let numbers: Vec<u32> =
            (0..u32::MAX).step_by(97).filter(|n| n.wrapping_mul(LETTERS) >= LETTER_ZONE - 100).collect();
        for numbers in numbers.chunks_exact(LANES) {
            let mut lanes = Lanes::new();
            for (lane, number) in numbers.iter().enumerate() {
                lanes.set(lane, &with_next(*number));
            }
            let rejected = lanes.draw(WORD);
            for (number, rejected) in numbers.iter().zip(rejected) {
                assert_eq!(rejected, number.wrapping_mul(LETTERS) > LETTER_ZONE, "{number}");
            }
        }
    }
}
