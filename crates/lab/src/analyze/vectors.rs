//! The aggregated vector of random queries, keys and values, by sequence length.
//!
//! ```text
//! q, k_j, v_j of d independent N(0, 1) entries,    z_j = scale q.k_j,    w = rule(z)
//! attention   a = sum_j w_j v_j     (NON: / sqrt(n))
//! pooling     a = pool_j v_j
//! ```
//!
//! with scale, epsilon, gain and bias as each rule has them at initialisation. Draw i is made
//! from the stream (seed, Analysis, i, 0): q, then k_j and v_j for j = 0, 1, ..., so a shorter
//! sequence is the beginning of a longer one.

use nap_engine::kernels::aggregate::{self, AttentionRule, Kind, Row};
use nap_engine::random::{Purpose, Stream};

use crate::parallel;

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Random {
    /// Width d of the vectors.
    pub width: usize,
    /// Number of sequences.
    pub draws: usize,
    /// Names the draws.
    pub seed: u64,
}

/// An aggregator's vector, over all draws, at one length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// Mean of |a| / sqrt(d): 1 for a vector of N(0, 1) entries, nearly.
    pub norm: f64,
    /// Mean of a's entries.
    pub mean: f64,
    /// Deviation of a's entries about that mean.
    pub deviation: f64,
}

/// The aggregators that are compared: all but `weighted`, which has parameters of its own.
pub fn aggregators() -> Vec<&'static str> {
    aggregate::names().into_iter().filter(|&name| name != aggregate::WEIGHTED).collect()
}

/// The moments of each aggregator at each length: `[aggregator][length]`.
///
/// # Panics
/// On an aggregator that is neither attention nor pooling, a length of 0, or nothing to draw.
pub fn measure(random: Random, aggregators: &[&str], lengths: &[usize]) -> Vec<Vec<Moments>> {
    let draws = parallel::map(random.draws, |draw| {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let sequence = Sequence::draw(random, draw as u64, longest);
        let of = |name: &&str| lengths.iter().map(|&n| sequence.sums(name, n)).collect::<Vec<_>>();
        aggregators.iter().map(of).collect::<Vec<_>>()
    });
    let (draw_count, entries) = (random.draws as f64, (random.draws * random.width) as f64);
    let moments = |aggregator: usize, length: usize| {
        let total = |part: usize| draws.iter().map(|d| d[aggregator][length][part]).sum::<f64>();
        let mean = total(1) / entries;
        let variance = total(2) / entries - mean * mean;
        Moments { norm: total(0) / draw_count, mean, deviation: variance.max(0.0).sqrt() }
    };
    (0..aggregators.len())
        .map(|aggregator| (0..lengths.len()).map(|n| moments(aggregator, n)).collect())
        .collect()
}

/// A query, and keys and values.
struct Sequence {
    query: Vec<f64>,
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl Sequence {
    fn draw(random: Random, draw: u64, length: usize) -> Self {
        let mut stream = Stream::new(random.seed, Purpose::Analysis, draw, 0);
        let mut vector = || (0..random.width).map(|_| stream.normal()).collect::<Vec<_>>();
        let query = vector();
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for _ in 0..length {
            keys.extend(vector());
            values.extend(vector());
        }
        Self { query, keys, values }
    }

    /// |a| / sqrt(d), the sum of a's entries, and that of their squares.
    fn sums(&self, aggregator: &str, n: usize) -> [f64; 3] {
        let a = self.aggregate(aggregator, n);
        let squares: f64 = a.iter().map(|a| a * a).sum();
        [(squares / a.len() as f64).sqrt(), a.iter().sum(), squares]
    }

    fn aggregate(&self, aggregator: &str, n: usize) -> Vec<f64> {
        let d = self.query.len();
        let (keys, values) = (&self.keys[..n * d], &self.values[..n * d]);
        let mut out = vec![0.0; d];
        match aggregate::find::<f64>(aggregator) {
            Some(Kind::Attention(rule)) => attend(rule, &self.query, keys, values, &mut out),
            Some(Kind::Pooling(pooling)) => pooling.forward(values, None, &mut out),
            Some(Kind::Weighted) | None => panic!("{aggregator} has no weights of its own"),
        }
        out
    }
}

fn attend(rule: &dyn AttentionRule<f64>, q: &[f64], keys: &[f64], values: &[f64], out: &mut [f64]) {
    let (d, defaults) = (q.len(), rule.defaults());
    let scale = if defaults.scaled { 1.0 / (d as f64).sqrt() } else { 1.0 };
    let logit = |k: &[f64]| scale * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
    let logits: Vec<f64> = keys.chunks_exact(d).map(logit).collect();
    let epsilon = defaults.epsilon;
    let row = Row { mask: None, gain: 1.0, bias: 0.0, epsilon, centre: false };
    let mut weights = vec![0.0; logits.len()];
    rule.weights(&row, &logits, &mut weights);
    let factor = if defaults.rescale { 1.0 / (logits.len() as f64).sqrt() } else { 1.0 };
    for (v, w) in values.chunks_exact(d).zip(weights) {
        out.iter_mut().zip(v).for_each(|(out, v)| *out += factor * w * v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: Random = Random { width: 32, draws: 64, seed: 0 };

    fn one(name: &str, lengths: &[usize]) -> Vec<Moments> {
        measure(RANDOM, &[name], lengths).remove(0)
    }

    /// The deviation of an estimated deviation, relative to it: 1 / sqrt(2 x entries).
    fn within_five_errors(actual: f64, expected: f64) {
        let error = 1.0 / (2.0 * (RANDOM.width * RANDOM.draws) as f64).sqrt();
        assert!((actual / expected - 1.0).abs() < 5.0 * error, "{actual} against {expected}");
    }

    #[test]
    fn one_token_is_itself_and_a_standardised_row_of_one_is_nothing() {
        let itself = one("sum", &[1])[0];
        within_five_errors(itself.deviation, 1.0);
        for name in ["softmax", "mean", "max"] {
            assert_eq!(one(name, &[1])[0], itself, "{name}");
        }
        // z / norm(z) is the sign of the one logit, but for an epsilon of 1e-6.
        assert!((one("normalized-l2", &[1])[0].norm / itself.norm - 1.0).abs() < 1e-4);
        assert_eq!(one("normalized", &[1])[0], Moments { norm: 0.0, mean: 0.0, deviation: 0.0 });
    }

    #[test]
    fn sums_grow_and_means_shrink_with_the_root_of_the_length() {
        let lengths = [1, 16, 256, 4096];
        for (n, (sum, mean)) in
            lengths.into_iter().zip(one("sum", &lengths).into_iter().zip(one("mean", &lengths)))
        {
            let root = (n as f64).sqrt();
            within_five_errors(sum.deviation, root);
            within_five_errors(mean.deviation, 1.0 / root);
        }
    }

    /// E sum w^2 = E e^(2z) / (n (E e^z)^2), for z of N(0, s^2) with s^2 = |q|^2 / d: e^(s^2) / n.
    #[test]
    fn softmax_shrinks_with_the_root_of_the_length() {
        let n = 4096;
        let squares = parallel::map(RANDOM.draws, |draw| {
            let q = Sequence::draw(RANDOM, draw as u64, 0).query;
            (q.iter().map(|q| q * q).sum::<f64>() / q.len() as f64).exp()
        });
        let expected = (squares.iter().sum::<f64>() / RANDOM.draws as f64 / n as f64).sqrt();
        within_five_errors(one("softmax", &[n])[0].deviation, expected);
    }

    #[test]
    fn normalised_weights_keep_unit_scale_and_standardised_ones_grow() {
        let lengths = [64, 1024, 4096];
        for (i, n) in lengths.into_iter().enumerate() {
            within_five_errors(one("normalized-l2", &lengths)[i].deviation, 1.0);
            within_five_errors(one("normalized", &lengths)[i].deviation, (n as f64).sqrt());
        }
    }

    /// Expected maxima of n normal variables: the integral of x d(Phi(x)^n), by scipy.
    #[test]
    fn maxima_grow_with_the_logarithm() {
        for (n, expected) in [(2, 0.564_189_58), (16, 1.765_991_39), (1024, 3.248_239_60)] {
            let max = one("max", &[n])[0];
            let error = max.deviation / ((RANDOM.width * RANDOM.draws) as f64).sqrt();
            assert!((max.mean - expected).abs() < 5.0 * error, "{n}: {max:?}");
            assert!(max.mean <= (2.0 * (n as f64).ln()).sqrt(), "the bound");
        }
    }

    #[test]
    fn longer_sequences_continue_shorter_ones() {
        assert_eq!(one("softmax", &[8, 64])[0], one("softmax", &[8])[0]);
        assert_ne!(measure(Random { seed: 1, ..RANDOM }, &["sum"], &[8])[0], one("sum", &[8]));
    }
}
