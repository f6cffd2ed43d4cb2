//! The exact linear-time form of NAP and NON: no n x n matrix.
//!
//! The statistics of a row of logits z_ij = q_i . k_j are quadratic forms of the query. With
//! k~_j = k_j - mean(k) over the n unmasked keys, C = K~^T K~ / n and S = K~^T V:
//!
//! ```text
//! mean_j z_ij = q_i . mean(k)          std_j z_ij = sqrt(q_i C q_i^T)
//! out_i = g q_i S / (sqrt(q_i C q_i^T) + eps) + b sum_j v_j                  NAP
//! out_i = g q_i K^T V + b sum_j v_j                                          NON
//! ```
//!
//! Backward, with s_i = g / (std_i + eps), u_i = q_i S and
//! h_i = -g (dout_i . u_i) / ((std_i + eps)^2 std_i), taken as 0 where std_i = 0:
//!
//! ```text
//! dq_i = h_i q_i C + s_i dout_i S^T
//! G = sum_i h_i q_i^T q_i          (twice the gradient of C)
//! D = sum_i s_i q_i^T dout_i       (the gradient of S)
//! dK~ = K~ G / n + V D^T           dk_j = dk~_j - mean(dk~)
//! dV = K~ D + b sum_i dout_i
//! ```
//!
//! About 8 n d_h^2 operations forward instead of 4 n^2 d_h. Needs attention dropout 0.
//! This form is this project's own; it equals the quadratic one within rounding.

use super::Head;
use crate::arch::{Mat, MatMut, Write, matmul, vectorize};
use crate::kernels::lanes::sum2;
use crate::real::Real;

/// Which of the two rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linear {
    /// NAP: centred keys, each query divided by its deviation.
    Standardised,
    /// NON: keys as they are.
    Plain,
}

/// Buffers for one head, reused by all.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    /// `[n, d_h]`: queries times the logit scale.
    q: Vec<T>,
    /// `[n, 2 d_h]`: K~ | V, rows of masked keys 0.
    kv: Vec<T>,
    /// `[d_h, 2 d_h]`: C | S.
    m: Vec<T>,
    /// `[n, 2 d_h]`: q C | u.
    qm: Vec<T>,
    /// `[n, 2 d_h]`: h q | s dout.
    r: Vec<T>,
    /// `[d_h, 2 d_h]`: G / n | D.
    dm: Vec<T>,
    /// `[d_h]`: sum of the values.
    vsum: Vec<T>,
    /// `[d_h]`: mean of the keys, or of their gradients.
    mean: Vec<T>,
}

impl<T: Real> Scratch<T> {
    /// Room for sequences of up to `n` tokens.
    pub fn new(n: usize, head_dim: usize) -> Self {
        let zeros = |n| vec![T::zero(); n];
        Self {
            q: zeros(n * head_dim),
            kv: zeros(2 * n * head_dim),
            m: zeros(2 * head_dim * head_dim),
            qm: zeros(2 * n * head_dim),
            r: zeros(2 * n * head_dim),
            dm: zeros(2 * head_dim * head_dim),
            vsum: zeros(head_dim),
            mean: zeros(head_dim),
        }
    }
}

#[inline(always)]
fn accumulate<T: Real>(total: &mut [T], x: &[T]) {
    total.iter_mut().zip(x).for_each(|(total, &x)| *total += x);
}

impl Linear {
    /// Writes the head's aggregate `out: [n, d_h]`, rows `head.stride` apart.
    pub fn forward<T: Real>(self, head: &Head<T>, out: &mut [T], scratch: &mut Scratch<T>) {
        self.project(head, scratch);
        let (n, dh) = (head.length, head.width);
        let s = &*scratch;
        vectorize(
            #[inline(always)]
            || {
                for i in 0..n {
                    let (_, inverse) = self.deviation(head, s, i);
                    let factor = head.row.gain * inverse;
                    let u = &s.qm[(2 * i + 1) * dh..][..dh];
                    let out = &mut out[i * head.stride..][..dh];
                    for ((out, &u), &vsum) in out.iter_mut().zip(u).zip(&s.vsum) {
                        *out = factor * u + head.row.bias * vsum;
                    }
                }
            },
        );
    }

    /// Overwrites the gradients of the head's queries, keys and values from that of its
    /// aggregate (all `[n, d_h]`, rows `head.stride` apart); returns those of gain and bias.
    pub fn backward<T: Real>(
        self,
        head: &Head<T>,
        dout: &[T],
        [dq, dk, dv]: [&mut [T]; 3],
        scratch: &mut Scratch<T>,
    ) -> (T, T) {
        self.project(head, scratch);
        let (n, dh, stride) = (head.length, head.width, head.stride);
        let (gain, one) = (head.row.gain, T::one());
        let mut dgain = T::zero();
        let mut r = std::mem::take(&mut scratch.r);
        let s = &*scratch;
        vectorize(
            #[inline(always)]
            || {
                for (i, r) in r.chunks_exact_mut(2 * dh).take(n).enumerate() {
                    let (std, inverse) = self.deviation(head, s, i);
                    let dout = &dout[i * stride..][..dh];
                    let u = &s.qm[(2 * i + 1) * dh..][..dh];
                    let dot = sum2(dout, u, |dout, u| dout * u);
                    dgain += dot * inverse;
                    let h = if std > T::zero() {
                        -gain * dot * inverse * inverse / std
                    } else {
                        T::zero()
                    };
                    let (left, right) = r.split_at_mut(dh);
                    let q = &s.q[i * dh..][..dh];
                    left.iter_mut().zip(q).for_each(|(left, &q)| *left = h * q);
                    right
                        .iter_mut()
                        .zip(dout)
                        .for_each(|(right, &dout)| *right = gain * inverse * dout);
                }
            },
        );
        scratch.r = r;

        let first = self.first(dh);
        let width = 2 * dh - first;
        let q = Mat::dense(&scratch.q, n, dh);
        let r = Mat::new(&scratch.r[first..], n, width, 2 * dh);
        let m = Mat::new(&scratch.m[first..], dh, width, 2 * dh);
        matmul(MatMut::new(dq, n, dh, stride), Write::Set, head.scale, r, m.t());
        let dm = MatMut::new(&mut scratch.dm[first..], dh, width, 2 * dh);
        matmul(dm, Write::Set, one, q.t(), r);

        let keys = Mat::new(&scratch.kv, n, dh, 2 * dh);
        let values = Mat::new(&scratch.kv[dh..], n, dh, 2 * dh);
        let d_s = Mat::new(&scratch.dm[dh..], dh, dh, 2 * dh);
        matmul(MatMut::new(dk, n, dh, stride), Write::Set, one, values, d_s.t());
        if self == Linear::Standardised {
            let g = Mat::new(&scratch.dm, dh, dh, 2 * dh);
            let factor = one / head.count();
            matmul(MatMut::new(dk, n, dh, stride), Write::Add, factor, keys, g);
        }
        matmul(MatMut::new(dv, n, dh, stride), Write::Set, one, keys, d_s);
        let dbias = self.finish_backward(head, dout, dk, dv, scratch);
        (dgain, dbias)
    }

    /// The sum of `dout` reaches every value; centring removes the mean gradient of the keys;
    /// masked keys and values get none. Returns the bias' gradient.
    fn finish_backward<T: Real>(
        self,
        head: &Head<T>,
        dout: &[T],
        dk: &mut [T],
        dv: &mut [T],
        scratch: &mut Scratch<T>,
    ) -> T {
        let (n, dh, stride) = (head.length, head.width, head.stride);
        let (dsum, mean) = (&mut scratch.q[..dh], &mut scratch.mean[..dh]);
        dsum.fill(T::zero());
        mean.fill(T::zero());
        vectorize(
            #[inline(always)]
            || {
                for i in 0..n {
                    accumulate(dsum, &dout[i * stride..][..dh]);
                    if self == Linear::Standardised && head.row.keeps(i) {
                        accumulate(mean, &dk[i * stride..][..dh]);
                    }
                }
            },
        );
        let dbias = sum2(dsum, &scratch.vsum, |dsum, v| dsum * v);
        let factor = T::one() / head.count();
        mean.iter_mut().for_each(|mean| *mean *= factor);
        vectorize(
            #[inline(always)]
            || {
                for i in 0..n {
                    let (dk, dv) = (&mut dk[i * stride..][..dh], &mut dv[i * stride..][..dh]);
                    if head.row.keeps(i) {
                        dk.iter_mut().zip(&*mean).for_each(|(dk, &mean)| *dk -= mean);
                        dv.iter_mut()
                            .zip(&*dsum)
                            .for_each(|(dv, &dsum)| *dv += head.row.bias * dsum);
                    } else {
                        dk.fill(T::zero());
                        dv.fill(T::zero());
                    }
                }
            },
        );
        dbias
    }

    /// The first column of the `2 d_h` wide buffers in use: NON has no left halves.
    fn first(self, head_dim: usize) -> usize {
        match self {
            Linear::Standardised => 0,
            Linear::Plain => head_dim,
        }
    }

    /// Deviation of query i's logits and what its aggregate is multiplied by, gain aside.
    #[inline(always)]
    fn deviation<T: Real>(self, head: &Head<T>, s: &Scratch<T>, i: usize) -> (T, T) {
        match self {
            Linear::Plain => (T::zero(), T::one()),
            Linear::Standardised => {
                let dh = head.width;
                let (q, qc) = (&s.q[i * dh..][..dh], &s.qm[2 * i * dh..][..dh]);
                let variance = sum2(q, qc, |q, qc| q * qc);
                // Rounding can take a variance of 0 below it; NaN stays.
                let variance = if variance < T::zero() { T::zero() } else { variance };
                let std = variance.sqrt();
                (std, T::one() / (std + head.row.epsilon))
            }
        }
    }

    /// Fills `q`, `kv`, `vsum`, `m` and `qm`.
    fn project<T: Real>(self, head: &Head<T>, scratch: &mut Scratch<T>) {
        let (n, dh, stride) = (head.length, head.width, head.stride);
        let Scratch { q, kv, m, qm, vsum, mean, .. } = scratch;
        vsum.fill(T::zero());
        mean.fill(T::zero());
        vectorize(
            #[inline(always)]
            || {
                for j in (0..n).filter(|&j| head.row.keeps(j)) {
                    let (k, v) = (&head.k[j * stride..][..dh], &head.v[j * stride..][..dh]);
                    accumulate(vsum, v);
                    accumulate(mean, k);
                }
            },
        );
        let factor = match self {
            Linear::Standardised => T::one() / head.count(),
            Linear::Plain => T::zero(),
        };
        mean.iter_mut().for_each(|mean| *mean *= factor);
        vectorize(
            #[inline(always)]
            || {
                for j in 0..n {
                    let (k, v) = (&head.k[j * stride..][..dh], &head.v[j * stride..][..dh]);
                    let (left, right) = kv[2 * j * dh..][..2 * dh].split_at_mut(dh);
                    if head.row.keeps(j) {
                        for ((left, &k), &mean) in left.iter_mut().zip(k).zip(&*mean) {
                            *left = k - mean;
                        }
                        right.copy_from_slice(v);
                    } else {
                        left.fill(T::zero());
                        right.fill(T::zero());
                    }
                    let (q, from) = (&mut q[j * dh..][..dh], &head.q[j * stride..][..dh]);
                    q.iter_mut().zip(from).for_each(|(q, &from)| *q = head.scale * from);
                }
            },
        );
        let first = self.first(dh);
        let keys = Mat::new(kv, n, dh, 2 * dh);
        if self == Linear::Standardised {
            let c = MatMut::new(m, dh, dh, 2 * dh);
            matmul(c, Write::Set, T::one() / head.count(), keys.t(), keys);
        }
        let values = Mat::new(&kv[dh..], n, dh, 2 * dh);
        matmul(MatMut::new(&mut m[dh..], dh, dh, 2 * dh), Write::Set, T::one(), keys.t(), values);
        let width = 2 * dh - first;
        matmul(
            MatMut::new(&mut qm[first..], n, width, 2 * dh),
            Write::Set,
            T::one(),
            Mat::dense(q, n, dh),
            Mat::new(&m[first..], dh, width, 2 * dh),
        );
    }
}
