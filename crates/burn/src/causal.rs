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

use burn::tensor::{Bool, Tensor, TensorData};

use crate::aggregate::{Rule, quadratic_form};

/// What causal attention keeps of the tokens it has seen: `2 d_k (d_k + 1)` numbers per head and
/// sequence, whatever the number of tokens.
///
/// Starts empty; [`NormalizedAttention::step`](crate::NormalizedAttention::step) advances it.
#[derive(Debug, Clone, Default)]
pub struct NapState {
    count: usize,
    sums: Option<Sums>,
}

#[derive(Debug, Clone)]
struct Sums {
    /// m: `[batch, heads, 1, d_k]`
    mean: Tensor<4>,
    /// A: `[batch, heads, d_k, d_k]`
    scatter: Tensor<4>,
    /// S: `[batch, heads, d_k, d_k]`
    cross: Tensor<4>,
    /// V: `[batch, heads, 1, d_k]`
    values: Tensor<4>,
}

impl NapState {
    /// Number of tokens seen.
    pub fn tokens(&self) -> usize {
        self.count
    }

    /// The same state without its history in the autodiff graph, which otherwise grows with every
    /// step on an autodiff device.
    pub fn detach(self) -> Self {
        let detach = |sums: Sums| Sums {
            mean: sums.mean.detach(),
            scatter: sums.scatter.detach(),
            cross: sums.cross.detach(),
            values: sums.values.detach(),
        };
        Self { count: self.count, sums: self.sums.map(detach) }
    }

    /// The aggregate of new tokens, all `[batch, heads, tokens, d_k]`, chunk by chunk.
    pub(crate) fn advance(
        &mut self,
        rule: &Rule,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> Tensor<4> {
        let [batch, _, tokens, width] = query.dims();
        if let Some(sums) = &self.sums {
            let [held, ..] = sums.mean.dims();
            assert_eq!(held, batch, "a state of {held} sequences, got {batch}");
        }
        assert!(tokens > 0, "no tokens");
        let chunk = chunk_length(width);
        let parts = (0..tokens).step_by(chunk).map(|start| {
            let part = |x: &Tensor<4>| x.clone().narrow(2, start, chunk.min(tokens - start));
            self.advance_chunk(rule, part(&query), part(&key), part(&value))
        });
        let parts: Vec<_> = parts.collect();
        Tensor::cat(parts, 2)
    }

    fn advance_chunk(
        &mut self,
        rule: &Rule,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> Tensor<4> {
        let tokens = query.dims()[2];
        // Distances to one point, which moves neither deviations nor weights: the mean so far, or
        // the first key.
        let origin = match &self.sums {
            Some(sums) => sums.mean.clone(),
            None => key.clone().narrow(2, 0, 1).detach(),
        };
        let key = key - origin.clone();
        let future = (tokens > 1).then(|| {
            Tensor::<2, Bool>::tril_mask([tokens, tokens], 0, &query.device()).unsqueeze::<4>()
        });
        let hide = |x: Tensor<4>| match &future {
            Some(future) => x.mask_fill(future.clone(), 0),
            None => x,
        };
        // Row t (from 1) sees t keys of the chunk and `before` of the past.
        let before = self.count as f64;
        let column = |of: &dyn Fn(f64) -> f64| {
            let values: Vec<f64> = (1..=tokens).map(|t| of(t as f64)).collect();
            let data = TensorData::new(values, [1, 1, tokens, 1]);
            Tensor::<4>::from_data(data, (&query.device(), query.dtype()))
        };

        let logits = hide(query.clone().matmul(key.clone().transpose()));
        let chunk_mean = logits.clone().sum_dim(3) * column(&|t| 1.0 / t);
        let mut squares = hide(logits.clone() - chunk_mean.clone()).square().sum_dim(3);
        let mut mean = chunk_mean.clone();
        if let Some(sums) = &self.sums {
            let between = chunk_mean.clone().square() * column(&|t| before * t / (before + t));
            squares = squares + quadratic_form(&query, sums.scatter.clone()) + between;
            mean = chunk_mean * column(&|t| t / (before + t));
        }
        let factor = rule.factor(squares * column(&|t| 1.0 / (before + t)));
        let weights = hide(rule.add_bias((logits - mean.clone()) * factor.clone()));
        let pooled = weights.matmul(value.clone());
        let pooled = match &self.sums {
            Some(sums) => {
                let past = query.matmul(sums.cross.clone()) - mean * sums.values.clone();
                rule.add_biased(pooled + past * factor, sums.values.clone())
            }
            None => pooled,
        };
        self.merge(origin, key, value);
        pooled
    }

    /// Adds tokens, whose keys are relative to `origin`.
    fn merge(&mut self, origin: Tensor<4>, key: Tensor<4>, value: Tensor<4>) {
        let (before, new) = (self.count as f64, key.dims()[2] as f64);
        let all = before + new;
        let shift = key.clone().mean_dim(2);
        let centred = key - shift.clone();
        let scatter = centred.clone().transpose().matmul(centred.clone());
        let cross = centred.transpose().matmul(value.clone());
        let values = value.sum_dim(2);
        self.sums = Some(match self.sums.take() {
            None => Sums { mean: origin + shift, scatter, cross, values },
            Some(past) => {
                let down = shift.clone().transpose();
                let between = down.clone().matmul(shift.clone().mul_scalar(before * new / all));
                let moved = values.clone().mul_scalar(before / all)
                    - past.values.clone().mul_scalar(new / all);
                Sums {
                    mean: origin + shift.mul_scalar(new / all),
                    scatter: past.scatter + scatter + between,
                    cross: past.cross + cross + down.matmul(moved),
                    values: past.values + values,
                }
            }
        });
        self.count += new as usize;
    }
}

/// Pairs inside a chunk and the sums between chunks cost about the same at this length; below 64
/// the number of operations tells more than their size.
fn chunk_length(d_k: usize) -> usize {
    (2 * d_k).max(64)
}
