//! Keyed random streams: every random number of a run has an address.
//!
//! A stream is ChaCha with 8 rounds (Bernstein's layout: 64-bit block counter from 0, 64-bit
//! stream id). Its key is 32 bytes, four `u64` in little-endian order:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | the run's seed |
//! | 8..16 | the [`Purpose`], as its number |
//! | 16..24 | the step (or epoch) |
//! | 24..32 | the sequence (or another index within the step) |
//!
//! and its 64-bit stream id is the *site*, 0 unless [`Stream::with_site`] says otherwise. The
//! output is read as little-endian `u32` words, in order. Nothing about the model or the
//! learning rate enters, so the cells of a grid that share a seed see the same data.
//!
//! The rules that turn words into numbers are written here and pinned by known-answer tests,
//! rather than taken from a library whose algorithms may change.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What random numbers are for. The numbers are part of every stream's key: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Purpose {
    /// Initial weights.
    Initialisation = 1,
    /// Training batches.
    Training = 2,
    /// Validation batches at the end of an epoch.
    Validation = 3,
    /// The equalised set at training length.
    CasesTraining = 4,
    /// The equalised set at validation length.
    CasesValidation = 5,
    /// Dropout masks.
    Dropout = 6,
    /// Evaluation of a finished model.
    Evaluation = 7,
    /// Bootstrap samples and random relabellings of results.
    Resampling = 8,
    /// Random vectors and directions that models are looked at with.
    Analysis = 9,
    /// The order of an epoch over data of one's own.
    Order = 10,
    /// Which of one's own sequences are kept for validation.
    Split = 11,
}

impl Purpose {
    /// Every purpose, in the order of their numbers.
    pub const ALL: [Purpose; 11] = [
        Purpose::Initialisation,
        Purpose::Training,
        Purpose::Validation,
        Purpose::CasesTraining,
        Purpose::CasesValidation,
        Purpose::Dropout,
        Purpose::Evaluation,
        Purpose::Resampling,
        Purpose::Analysis,
        Purpose::Order,
        Purpose::Split,
    ];

    /// The number that enters the key.
    pub fn number(self) -> u64 {
        self as u64
    }
}

/// A stream of random numbers with a known address.
#[derive(Debug, Clone)]
pub struct Stream {
    words: ChaCha8Rng,
}

impl Stream {
    /// The stream of this address, at its beginning.
    pub fn new(seed: u64, purpose: Purpose, step: u64, sequence: u64) -> Self {
        let mut key = [0; 32];
        for (bytes, part) in key.chunks_exact_mut(8).zip([seed, purpose.number(), step, sequence]) {
            bytes.copy_from_slice(&part.to_le_bytes());
        }
        Self { words: ChaCha8Rng::from_seed(key) }
    }

    /// The stream of the same key at another site (such as one weight matrix or one dropout
    /// layer), at its beginning.
    pub fn with_site(mut self, site: u64) -> Self {
        self.words.set_stream(site);
        self.words.set_word_pos(0);
        self
    }

    /// The next word.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        self.words.next_u32()
    }

    /// Uniform in `0..n`, exactly.
    ///
    /// For a word w the answer is the high half of the 64-bit product w n. The product's low
    /// half must be at least 2^32 mod n, else the next word is taken: what is left then is the
    /// same number of words for each answer.
    ///
    /// # Panics
    /// In debug builds, if `n` is 0 (the answer is 0 otherwise).
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        debug_assert!(n > 0, "no number is below 0");
        let mut product = u64::from(self.next_u32()) * u64::from(n);
        // The threshold is below n, so that the division is hardly ever needed.
        if (product as u32) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u32) < threshold {
                product = u64::from(self.next_u32()) * u64::from(n);
            }
        }
        (product >> 32) as u32
    }

    /// `true` with probability 1/2: the highest bit of the next word.
    #[inline]
    pub fn coin(&mut self) -> bool {
        self.next_u32() >> 31 == 1
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    ///
    /// Of two words, the first is the low half of a 64-bit number whose highest 53 bits are
    /// taken.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        let low = u64::from(self.next_u32());
        let high = u64::from(self.next_u32());
        ((high << 32 | low) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A normal variable of mean 0 and deviation 1: sqrt(-2 ln(1 - u)) cos(2 pi v) for two
    /// [`Stream::uniform`] numbers u, then v (Box and Muller, the cosine alone).
    #[inline]
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.uniform())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// [`Stream::normal`] times `deviation`, redrawn until it lies within two deviations (which
    /// leaves a deviation of 0.8796 times the given one).
    #[inline]
    pub fn truncated_normal(&mut self, deviation: f64) -> f64 {
        loop {
            let normal = self.normal();
            if normal.abs() <= 2.0 {
                return deviation * normal;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn words<const N: usize>(mut stream: Stream) -> [u32; N] {
        std::array::from_fn(|_| stream.next_u32())
    }

    #[test]
    fn purposes_keep_their_numbers() {
        let numbers = Purpose::ALL.map(Purpose::number);
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }

    /// Written down from the rules: the cipher, word by word, from its definition.
    fn chacha8_block(key: [u64; 4], counter: u64, site: u64) -> [u32; 16] {
        let mut input = [0u32; 16];
        for (word, bytes) in input.iter_mut().zip(b"expand 32-byte k".chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap());
        }
        for (i, part) in key.into_iter().chain([counter, site]).enumerate() {
            input[4 + 2 * i] = part as u32;
            input[5 + 2 * i] = (part >> 32) as u32;
        }
        let mut state = input;
        let mut quarter = |a: usize, b: usize, c: usize, d: usize| {
            for (rotate_d, rotate_b) in [(16, 12), (8, 7)] {
                state[a] = state[a].wrapping_add(state[b]);
                state[d] = (state[d] ^ state[a]).rotate_left(rotate_d);
                state[c] = state[c].wrapping_add(state[d]);
                state[b] = (state[b] ^ state[c]).rotate_left(rotate_b);
            }
        };
        for _ in 0..4 {
            for i in 0..4 {
                quarter(i, 4 + i, 8 + i, 12 + i);
            }
            for i in 0..4 {
                quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
            }
        }
        std::array::from_fn(|i| state[i].wrapping_add(input[i]))
    }

    #[test]
    fn streams_are_chacha8_with_the_documented_key() {
        for (key, site) in
            [([0, 2, 0, 0], 0), ([1, 6, 3199, 31], 7), ([u64::MAX, 4, 1 << 40, 2999], u64::MAX - 3)]
        {
            let purpose = Purpose::ALL[key[1] as usize - 1];
            let stream = Stream::new(key[0], purpose, key[2], key[3]).with_site(site);
            let all: [u32; 96] = words(stream);
            for (counter, block) in all.chunks_exact(16).enumerate() {
                assert_eq!(block, chacha8_block(key, counter as u64, site));
            }
        }
    }

    #[test]
    fn known_answers() {
        let stream = Stream::new(0, Purpose::Training, 0, 0);
        assert_eq!(words(stream.clone()), [0x352f_a201, 0xb9fb_9c6a, 0x4849_835d, 0x6b6b_7aa6]);
        assert_eq!(stream.clone().uniform(), 0.726_495_529_107_693_1);
        let stream = Stream::new(1, Purpose::Dropout, 3199, 31).with_site(7);
        assert_eq!(words(stream), [0x4373_23fe, 0x16a1_1c6d, 0x915e_c680, 0x0155_901e]);
        let mut stream = Stream::new(0, Purpose::Initialisation, 0, 0).with_site(3);
        let normal: [f64; 3] = std::array::from_fn(|_| stream.truncated_normal(0.02));
        assert_eq!(
            normal,
            [-0.034_159_953_452_338_264, 0.008_117_365_969_909_173, 0.000_728_951_969_895_678_2]
        );
    }

    #[test]
    fn with_site_starts_at_the_beginning() {
        let fresh = Stream::new(3, Purpose::Dropout, 1, 2);
        let mut used = fresh.clone();
        for _ in 0..70 {
            used.next_u32();
        }
        assert_eq!(words::<40>(used.with_site(9)), words::<40>(fresh.with_site(9)));
    }

    #[test]
    fn every_part_of_the_address_makes_another_stream() {
        let mut seen = HashSet::new();
        for seed in [0, 1, 2] {
            for purpose in Purpose::ALL {
                for step in [0, 1, 2, 1 << 32] {
                    for sequence in [0, 1, 2, 1 << 32] {
                        for site in [0, 1, 2, 1 << 32] {
                            let stream = Stream::new(seed, purpose, step, sequence).with_site(site);
                            assert!(seen.insert(words::<4>(stream)));
                        }
                    }
                }
            }
        }
    }

    /// Neighbouring addresses are uncorrelated: of 64-bit pairs, half the bits differ.
    #[test]
    fn neighbouring_streams_are_independent() {
        let words_each = 4096;
        for (step, sequence, site) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            let mut a = Stream::new(5, Purpose::Training, 0, 0);
            let mut b = Stream::new(5, Purpose::Training, step, sequence).with_site(site);
            let differing: u32 =
                (0..words_each).map(|_| (a.next_u32() ^ b.next_u32()).count_ones()).sum();
            let bits = f64::from(words_each * 32);
            let deviations = (f64::from(differing) - bits / 2.0) / (bits / 4.0).sqrt();
            assert!(deviations.abs() < 5.0, "{deviations}");
        }
    }

    #[test]
    fn below_is_uniform() {
        let draws = 200_000;
        for n in [1, 2, 3, 10, 100, 257] {
            let mut stream = Stream::new(11, Purpose::Training, 0, u64::from(n));
            let mut counts = vec![0u32; n as usize];
            for _ in 0..draws {
                counts[stream.below(n) as usize] += 1;
            }
            let expected = f64::from(draws) / f64::from(n);
            let chi2: f64 =
                counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
            // Chi-square of f degrees of freedom has mean f and deviation sqrt(2f).
            let freedom = f64::from(n - 1);
            let bound = freedom + 5.0 * (2.0 * freedom).sqrt() + 1e-9;
            assert!(chi2 <= bound, "{n}: {chi2} > {bound}");
        }
    }

    /// With n = 3 * 2^30 a quarter of the words must be refused.
    #[test]
    fn below_refuses_the_surplus_words() {
        let n = 3 << 30;
        let mut stream = Stream::new(12, Purpose::Training, 0, 0);
        let mut raw = stream.clone();
        for _ in 0..1000 {
            let expected = loop {
                let product = u64::from(raw.next_u32()) * u64::from(n);
                if product % (1 << 32) >= (1 << 32) % u64::from(n) {
                    break (product >> 32) as u32;
                }
            };
            assert_eq!(stream.below(n), expected);
        }
    }

    #[test]
    fn coin_and_uniform_are_fair() {
        let mut stream = Stream::new(13, Purpose::Training, 0, 0);
        let n = 100_000;
        let heads = (0..n).filter(|_| stream.coin()).count();
        assert!((heads as f64 - 5e4).abs() < 5.0 * (n as f64 / 4.0).sqrt());
        let mut sum = 0.0;
        for _ in 0..n {
            let u = stream.uniform();
            assert!((0.0..1.0).contains(&u));
            sum += u;
        }
        assert!((sum / n as f64 - 0.5).abs() < 5.0 * (1.0 / 12.0 / n as f64).sqrt());
    }

    #[test]
    fn truncated_normal_has_its_moments() {
        let n = 400_000;
        let mut stream = Stream::new(14, Purpose::Initialisation, 0, 0);
        let (mut sum, mut squares, mut inside) = (0.0, 0.0, 0);
        for _ in 0..n {
            let x = stream.truncated_normal(0.02);
            assert!(x.abs() <= 0.04);
            sum += x / 0.02;
            squares += (x / 0.02).powi(2);
            inside += u32::from(x.abs() < 0.02);
        }
        let n = f64::from(n);
        // Variance of the normal distribution cut at 2: 1 - 4 phi(2) / P(|z| < 2) = 0.8796^2.
        let variance: f64 = 0.773_741;
        assert!((variance.sqrt() - 0.8796).abs() < 1e-4);
        assert!((sum / n).abs() < 5.0 * (variance / n).sqrt());
        // The squares' own deviation is below 1.
        assert!((squares / n - variance).abs() < 5.0 / n.sqrt());
        let share = 0.682_689 / 0.954_500;
        let error = 5.0 * (share * (1.0 - share) / n).sqrt();
        assert!((f64::from(inside) / n - share).abs() < error);
    }
}
