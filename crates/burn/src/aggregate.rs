//! Normalised attention per head, on projected queries, keys and values.
//!
//! ```text
//! w_ij = g (z_ij - mean_j z_ij) / (std_j z_ij + eps) + b,   z_ij = q_i . k_j
//! ```
//!
//! Mean, deviation (division by n) and n run over unmasked keys; masked keys have weight 0. With
//! `k~_j = k_j - mean(k)` the same result needs no matrix over pairs of positions:
//!
//! ```text
//! out_i = g q_i S / (sqrt(q_i C q_i^T) + eps) + b sum_j v_j,   C = K~^T K~ / n,   S = K~^T V
//! ```

use burn::tensor::{Bool, Tensor};

/// What turns a centred row of logits into weights.
pub(crate) struct Rule {
    /// `[1, heads, 1, 1]`
    pub gain: Option<Tensor<4>>,
    /// `[1, heads, 1, 1]`
    pub bias: Option<Tensor<4>>,
    pub epsilon: f64,
}

impl Rule {
    /// `g / (std + eps)` of variances of any shape that broadcasts over heads.
    pub fn factor(&self, variance: Tensor<4>) -> Tensor<4> {
        let scale = deviation(variance).add_scalar(self.epsilon).recip();
        match &self.gain {
            Some(gain) => scale * gain.clone(),
            None => scale,
        }
    }

    /// `x + b y`
    pub fn add_biased(&self, x: Tensor<4>, y: Tensor<4>) -> Tensor<4> {
        match &self.bias {
            Some(bias) => x + y * bias.clone(),
            None => x,
        }
    }

    /// `x + b`
    pub fn add_bias(&self, x: Tensor<4>) -> Tensor<4> {
        match &self.bias {
            Some(bias) => x + bias.clone(),
            None => x,
        }
    }

    /// The weights of logits `[batch, heads, queries, keys]`; the mask (true: left out)
    /// broadcasts over them.
    pub fn weights(&self, logits: Tensor<4>, mask: Option<Tensor<4, Bool>>) -> Tensor<4> {
        let Some(mask) = mask else {
            let centred = logits.clone() - logits.mean_dim(3);
            let factor = self.factor(centred.clone().square().mean_dim(3));
            return self.add_bias(centred * factor);
        };
        let count = count_kept(&logits, &mask, 3);
        let logits = logits.mask_fill(mask.clone(), 0);
        let mean = logits.clone().sum_dim(3) / count.clone();
        let centred = (logits - mean).mask_fill(mask.clone(), 0);
        let factor = self.factor(centred.clone().square().sum_dim(3) / count);
        self.add_bias(centred * factor).mask_fill(mask, 0)
    }

    /// The aggregate `[batch, heads, queries, d_k]` in time linear in the lengths; the mask is
    /// one of keys, `[batch, 1, keys, 1]`, whose values are 0.
    pub fn linear(
        &self,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
        mask: Option<Tensor<4, Bool>>,
    ) -> Tensor<4> {
        let (centred, covariance) = match mask {
            None => {
                let centred = key.clone() - key.mean_dim(2);
                let n = centred.dims()[2] as f64;
                let covariance = centred.clone().transpose().matmul(centred.clone());
                // Not `div_scalar`, whose gradient burn 0.22 rounds to f32.
                (centred, covariance.mul_scalar(1.0 / n))
            }
            Some(mask) => {
                let count = count_kept(&key, &mask, 2);
                let key = key.mask_fill(mask.clone(), 0);
                let mean = key.clone().sum_dim(2) / count.clone();
                let centred = (key - mean).mask_fill(mask, 0);
                let covariance = centred.clone().transpose().matmul(centred.clone());
                (centred, covariance / count)
            }
        };
        let cross = centred.transpose().matmul(value.clone());
        let variance = quadratic_form(&query, covariance);
        let pooled = query.matmul(cross) * self.factor(variance);
        match &self.bias {
            Some(_) => self.add_biased(pooled, value.sum_dim(2)),
            None => pooled,
        }
    }
}

/// `q_i M q_i^T` of each query: `[batch, heads, queries, 1]`.
pub(crate) fn quadratic_form(query: &Tensor<4>, matrix: Tensor<4>) -> Tensor<4> {
    (query.clone().matmul(matrix) * query.clone()).sum_dim(3)
}

/// The square root, 0 with derivative 0 where the variance is 0 (or, by rounding, below).
fn deviation(variance: Tensor<4>) -> Tensor<4> {
    let flat = variance.clone().lower_equal_scalar(0);
    variance.mask_fill(flat.clone(), 1).sqrt().mask_fill(flat, 0)
}

/// How many entries of `dim` the mask keeps, at least 1, in the type of `like`.
fn count_kept(like: &Tensor<4>, mask: &Tensor<4, Bool>, dim: usize) -> Tensor<4> {
    let ones = Tensor::<4>::ones(mask.shape(), (&like.device(), like.dtype()));
    ones.mask_fill(mask.clone(), 0).sum_dim(dim).clamp_min(1)
}

/// Sums over keys cost `d_k^2 (n1 + n2)`, all pairs `d_k n1 n2`.
pub(crate) fn linear_is_cheaper(n1: usize, n2: usize, d_k: usize) -> bool {
    n1 * n2 > d_k * (n1 + n2)
}

#[cfg(test)]
mod tests {
    use super::linear_is_cheaper;

    #[test]
    fn the_linear_form_is_taken_above_two_widths_of_a_head() {
        assert!(!linear_is_cheaper(32, 32, 16));
        assert!(linear_is_cheaper(33, 33, 16));
        // One query is no reason to sum up all keys' products, whatever their number.
        assert!(!linear_is_cheaper(1, 100_000, 16));
    }
}
