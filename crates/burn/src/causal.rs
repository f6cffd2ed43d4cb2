//! Causal normalised attention: each query normalises over the keys up to its own.
//!
//! ```text
//! out_i = g q_i S_i / (sqrt(q_i A_i q_i^T / i) + eps) + b V_i
//! A_i = sum_{j<=i} (k_j - m_i)^T (k_j - m_i)      S_i = sum_{j<=i} (k_j - m_i)^T v_j
//! m_i = mean of k_1 .. k_i                        V_i = sum_{j<=i} v_j
//! ```
//!
//! `(i, m, A, S, V)` is all that the past is needed for. Sums of raw products would cancel as the
//! sequence grows; these are centred and are merged with a chunk of c new tokens (their own n0, m,
//! A, S, V without an index, those of the chunk with one) as Chan, Golub and LeVeque (1979) merge
//! variances, Welford's update being c = 1:
//!
//! ```text
//! d = m_c - m,   N = n0 + c
//! A <- A + A_c + d^T d n0 c / N              S <- S + S_c + d^T (V_c n0 - V c) / N
//! m <- m + d c / N                           V <- V + V_c
//! ```
//!
//! Inside a chunk the pairs of positions are visited, at a cost of c per token.
//!
//! A sum of many tokens in f32 rounds away a single one, so new tokens go to sums of their own,
//! which join the old ones when they have [`RECENT`] tokens.

use burn::tensor::{Bool, Device, Int, Tensor};

use crate::aggregate::{Rule, quadratic_form};

/// What causal attention keeps of the tokens it has seen: at most `4 d_k (d_k + 1)` numbers per
/// head and sequence, whatever the number of tokens.
///
/// Starts empty; [`NormalizedAttention::step`](crate::NormalizedAttention::step) advances it.
#[derive(Debug, Clone, Default)]
pub struct NapState {
    old: Option<Sums>,
    recent: Option<Sums>,
}

#[derive(Debug, Clone)]
struct Sums {
    /// Number of tokens.
    count: usize,
    /// m: `[batch, heads, 1, d_k]`
    mean: Tensor<4>,
    /// A: `[batch, heads, d_k, d_k]`
    scatter: Tensor<4>,
    /// S: `[batch, heads, d_k, d_k]`
    cross: Tensor<4>,
    /// V: `[batch, heads, 1, d_k]`
    values: Tensor<4>,
}

impl Sums {
    /// Those of some tokens, `[batch, heads, tokens, d_k]`.
    fn of(key: Tensor<4>, value: Tensor<4>) -> Self {
        // Relative to one key, so that a mean far from 0 costs no digits.
        let origin = key.clone().narrow(2, 0, 1).detach();
        let key = key - origin.clone();
        let shift = key.clone().mean_dim(2);
        let centred = key - shift.clone();
        let transposed = centred.clone().transpose();
        Self {
            count: value.dims()[2],
            mean: origin + shift,
            scatter: transposed.clone().matmul(centred),
            cross: transposed.matmul(value.clone()),
            values: value.sum_dim(2),
        }
    }

    fn merge(self, new: Self) -> Self {
        let (before, count) = (self.count as f64, new.count as f64);
        let all = before + count;
        let distance = new.mean - self.mean.clone();
        let down = distance.clone().transpose();
        let between = down.clone().matmul(distance.clone().mul_scalar(before * count / all));
        let moved = new.values.clone().mul_scalar(before / all)
            - self.values.clone().mul_scalar(count / all);
        Self {
            count: self.count + new.count,
            mean: self.mean + distance.mul_scalar(count / all),
            scatter: self.scatter + (new.scatter + between),
            cross: self.cross + (new.cross + down.matmul(moved)),
            values: self.values + new.values,
        }
    }

    fn map(self, f: impl Fn(Tensor<4>) -> Tensor<4>) -> Self {
        Self {
            count: self.count,
            mean: f(self.mean),
            scatter: f(self.scatter),
            cross: f(self.cross),
            values: f(self.values),
        }
    }
}

fn merge(past: Option<Sums>, new: Option<Sums>) -> Option<Sums> {
    match (past, new) {
        (Some(past), Some(new)) => Some(past.merge(new)),
        (past, new) => past.or(new),
    }
}

impl NapState {
    /// Number of tokens seen.
    pub fn tokens(&self) -> usize {
        self.sums().map(|sums| sums.count).sum()
    }

    /// Number of values held.
    pub fn num_elements(&self) -> usize {
        let elements = |sums: &Sums| {
            let Sums { count: _, mean, scatter, cross, values } = sums;
            [mean, scatter, cross, values].map(|x| x.shape().num_elements()).iter().sum::<usize>()
        };
        self.sums().map(elements).sum()
    }

    /// The same state without its history in the autodiff graph, which otherwise grows with every
    /// step on an autodiff device.
    pub fn detach(self) -> Self {
        self.map(Tensor::detach)
    }

    /// The same state for the layer's [`valid`](burn::module::Module::valid) form: without
    /// autodiff.
    pub fn inner(self) -> Self {
        self.map(Tensor::inner)
    }

    /// The same state on another device.
    pub fn to_device(self, device: &Device) -> Self {
        self.map(|x| x.to_device(device))
    }

    /// The states of these sequences, in this order, as beam search needs them; each may be taken
    /// more than once.
    pub fn select(self, sequences: Tensor<1, Int>) -> Self {
        self.map(|x| x.select(0, sequences.clone()))
    }

    fn map(self, f: impl Fn(Tensor<4>) -> Tensor<4>) -> Self {
        Self {
            old: self.old.map(|sums| sums.map(&f)),
            recent: self.recent.map(|sums| sums.map(&f)),
        }
    }

    fn sums(&self) -> impl Iterator<Item = &Sums> {
        self.old.iter().chain(&self.recent)
    }

    /// Those of all tokens.
    fn total(&self) -> Option<Sums> {
        merge(self.old.clone(), self.recent.clone())
    }

    fn add(&mut self, new: Sums) {
        self.recent = merge(self.recent.take(), Some(new));
        if self.recent.as_ref().is_some_and(|recent| recent.count >= RECENT) {
            self.old = merge(self.old.take(), self.recent.take());
        }
    }

    /// The aggregate of new tokens, all `[batch, heads, tokens, d_k]`.
    pub(crate) fn advance(
        &mut self,
        rule: &Rule,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> Tensor<4> {
        let [batch, heads, tokens, width] = query.dims();
        if let Some(sums) = self.sums().next() {
            let [held_batch, held_heads, _, held_width] = sums.mean.dims();
            assert_eq!(
                [held_batch, held_heads, held_width],
                [batch, heads, width],
                "the state's sequences, heads and width of a head are not those of the tokens"
            );
        }
        assert!(tokens > 0, "no tokens");
        if tokens == 1 {
            return self.advance_one(rule, query, key, value);
        }
        let length = chunk_length(width).min(tokens);
        let (device, dtype) = (query.device(), query.dtype());
        let counts = Tensor::<1, Int>::arange(1..length as i64 + 1, &device).float().cast(dtype);
        let chunk = Chunk {
            counts: counts.reshape([1, 1, length, 1]),
            future: Tensor::<2, Bool>::tril_mask([length, length], 0, &device).unsqueeze(),
        };
        let parts = (0..tokens).step_by(length).map(|start| {
            let part = |x: &Tensor<4>| x.clone().narrow(2, start, length.min(tokens - start));
            self.advance_chunk(rule, &chunk, part(&query), part(&key), part(&value))
        });
        let parts: Vec<_> = parts.collect();
        Tensor::cat(parts, 2)
    }

    /// The last position's aggregate needs nothing but the sums with its own key.
    fn advance_one(
        &mut self,
        rule: &Rule,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> Tensor<4> {
        self.add(Sums::of(key, value));
        let Some(Sums { count, scatter, cross, values, .. }) = self.total() else {
            unreachable!("a token was added");
        };
        let variance = quadratic_form(&query, scatter).mul_scalar(1.0 / count as f64);
        rule.add_biased(query.matmul(cross) * rule.factor(variance), values)
    }

    fn advance_chunk(
        &mut self,
        rule: &Rule,
        chunk: &Chunk,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> Tensor<4> {
        let tokens = query.dims()[2];
        let past = self.total();
        self.add(Sums::of(key.clone(), value.clone()));
        // Distances to one point, which moves neither deviations nor weights: the mean so far, or
        // the first key.
        let key = key.clone()
            - match &past {
                Some(past) => past.mean.clone(),
                None => key.narrow(2, 0, 1).detach(),
            };
        let future = chunk.future.clone().narrow(2, 0, tokens).narrow(3, 0, tokens);
        let hide = |x: Tensor<4>| x.mask_fill(future.clone(), 0);
        // Each row sees so many keys of the chunk, and those of the past.
        let counts = chunk.counts.clone().narrow(2, 0, tokens);

        let logits = hide(query.clone().matmul(key.transpose()));
        let mean = logits.clone().sum_dim(3) / counts.clone();
        let squares = hide(logits.clone() - mean.clone()).square().sum_dim(3);
        let Some(past) = past else {
            let factor = rule.factor(squares / counts);
            return hide(rule.add_bias((logits - mean) * factor)).matmul(value);
        };
        let before = past.count as f64;
        let all = counts.clone().add_scalar(before);
        let share = counts / all.clone();
        let between = mean.clone().square() * share.clone().mul_scalar(before);
        let squares = squares + quadratic_form(&query, past.scatter) + between;
        let factor = rule.factor(squares / all);
        let mean = mean * share;
        let weights = hide(rule.add_bias((logits - mean.clone()) * factor.clone()));
        let older = (query.matmul(past.cross) - mean * past.values.clone()) * factor;
        rule.add_biased(weights.matmul(value) + older, past.values)
    }
}

/// What all chunks share.
struct Chunk {
    /// 1, 2, ..: `[1, 1, length, 1]`
    counts: Tensor<4>,
    /// True where the key comes after the query: `[1, 1, length, length]`
    future: Tensor<4, Bool>,
}

/// After so many new tokens their sums join the old ones: few enough that each counts in f32.
const RECENT: usize = 1024;

/// Pairs inside a chunk and the sums between chunks cost about the same at this length; below 64
/// the number of operations tells more than their size.
fn chunk_length(d_k: usize) -> usize {
    (2 * d_k).max(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of 2^24 tokens, to which adding 1 in f32 changes nothing.
    #[test]
    fn single_tokens_count_after_many_others() {
        let device = Device::flex();
        let one = |x: f32| Tensor::<4>::full([1, 1, 1, 1], x, &device);
        let many = 1 << 24;
        let old = Sums {
            count: many,
            mean: one(0.0),
            scatter: one(many as f32),
            cross: one(many as f32),
            values: one(many as f32),
        };
        let mut state = NapState { old: Some(old), recent: None };
        let rule = Rule { gain: None, bias: None, epsilon: 1e-3 };
        let added = RECENT + 100;
        for t in 0..added {
            // In the mean: key 0, its square 1, value 1, their product 1.
            let (key, value) = if t % 2 == 0 { (1.0, 2.0) } else { (-1.0, 0.0) };
            state.advance(&rule, one(1.0), one(key), one(value));
        }
        assert_eq!(state.tokens(), many + added);
        let total = state.total().expect("tokens");
        for sum in [total.scatter, total.cross, total.values] {
            assert_eq!(sum.into_scalar::<f32>(), (many + added) as f32);
        }
    }
}
