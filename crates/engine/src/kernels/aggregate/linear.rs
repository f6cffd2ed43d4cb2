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

use std::ops::Range;

use super::{Head, HeadGradient, kept};
use crate::arch::{Kernel, Out, Start, Strips, Transposed, Vector, matmul, matmul_nt, run};
use crate::kernels::lanes::sum_rows;
use crate::panel::{Buffer, Lanes, Panels, PanelsMut, panels};
use crate::profile::{Part, time};
use crate::real::Real;

/// Which of the two rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linear {
    /// NAP: centred keys, each query divided by its deviation.
    Standardised,
    /// NON: keys as they are.
    Plain,
}

/// Buffers for one head, reused by all. `[p]` stands for the sequence's panels.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    /// `[p][d_h]`: queries times the logit scale.
    q: Buffer<T>,
    /// `[p][2 d_h]`: K~ and V, 0 for masked and padded keys.
    kv: Buffer<T>,
    /// `[p][2 d_h]`: q C and u; then h q and s dout.
    qm: Buffer<T>,
    transposed: Transposed<T>,
    /// `[d_h, 2 d_h]`: C | S; then G / n | D.
    m: Vec<T>,
    /// [`Scratch::m`] or its transpose, packed.
    packed: [Strips<T>; 2],
    /// `[d_h]`: sum of the values.
    vsum: Vec<T>,
}

impl<T: Real> Scratch<T> {
    /// Room for sequences of up to `n` tokens.
    pub fn new(n: usize, head_dim: usize) -> Self {
        let rows = |width| Buffer::new(panels(n) * width);
        Self {
            q: rows(head_dim),
            kv: rows(2 * head_dim),
            qm: rows(2 * head_dim),
            transposed: Transposed::new(2 * head_dim, panels(n)),
            m: vec![T::zero(); 2 * head_dim * head_dim],
            packed: [Strips::new(2 * head_dim, head_dim), Strips::new(head_dim, 2 * head_dim)],
            vsum: vec![T::zero(); head_dim],
        }
    }
}

impl Linear {
    /// Writes the head's aggregate `out: [d_h]` per token.
    pub fn forward<T: Real>(self, head: &Head<T>, out: PanelsMut<T>, scratch: &mut Scratch<T>) {
        self.project(head, scratch);
        let Scratch { q, qm, vsum, .. } = scratch;
        time(Part::AttentionPointwise, || run(Aggregate { form: self, head, q, qm, vsum, out }));
    }

    /// Overwrites the gradients of the head's queries, keys and values from that of its
    /// aggregate (all `[d_h]` per token, 0 in padded lanes); returns those of gain and bias.
    pub fn backward<T: Real>(
        self,
        head: &Head<T>,
        dout: Panels<T>,
        mut gradient: HeadGradient<T>,
        scratch: &mut Scratch<T>,
    ) -> (T, T) {
        self.project(head, scratch);
        let (dh, count) = (head.width(), head.q.count());
        let Scratch { q, kv, qm, transposed, m, packed: [wide, narrow], vsum } = scratch;
        let dgain =
            time(Part::AttentionPointwise, || run(Reduce { form: self, head, dout, q, qm }));
        let halves = self.halves(dh);
        let r = Panels::new(&qm[..count * 2 * dh], 2 * dh).rows(halves.clone());
        let width = halves.len();
        narrow.pack(0..dh, 0..width, &m[halves.start..], 2 * dh, 1);
        time(Part::AttentionProducts, || matmul(narrow, r, gradient.q(), Start::Zero));

        let q = Panels::new(&q[..count * dh], dh);
        let out = Out::matrix(&mut m[halves.start..], dh, width, 2 * dh);
        let r = time(Part::Transposition, || transposed.set(r));
        time(Part::AttentionProducts, || matmul_nt(q, r, out, false));
        self.average(head, m);
        let kv = Panels::new(&kv[..count * 2 * dh], 2 * dh);
        narrow.pack(0..dh, 0..width, &m[halves.start..], 2 * dh, 1);
        time(Part::AttentionProducts, || {
            matmul(narrow, kv.rows(halves), gradient.k(), Start::Zero)
        });
        // V's gradient takes the transpose of D.
        wide.pack(0..dh, 0..dh, &m[dh..], 1, 2 * dh);
        time(Part::AttentionProducts, || matmul(wide, kv.rows(0..dh), gradient.v(), Start::Zero));
        let dbias = time(Part::AttentionPointwise, || {
            run(Finish { form: self, head, dout, vsum, gradient })
        });
        (dgain, dbias)
    }

    /// Fills `q`, `kv`, `vsum`, `m` and `qm`.
    fn project<T: Real>(self, head: &Head<T>, scratch: &mut Scratch<T>) {
        let (dh, count) = (head.width(), head.q.count());
        let Scratch { q, kv, qm, transposed, m, packed: [wide, _], vsum } = scratch;
        time(Part::AttentionPointwise, || run(Centre { form: self, head, q, kv, vsum }));
        let halves = self.halves(dh);
        let kv = Panels::new(&kv[..count * 2 * dh], 2 * dh);
        let out = Out::matrix(&mut m[halves.start..], dh, halves.len(), 2 * dh);
        let values = time(Part::Transposition, || transposed.set(kv.rows(halves.clone())));
        time(Part::AttentionProducts, || matmul_nt(kv.rows(0..dh), values, out, false));
        self.average(head, m);
        wide.pack(0..halves.len(), 0..dh, &m[halves.start..], 1, 2 * dh);
        let q = Panels::new(&q[..count * dh], dh);
        let qm = PanelsMut::new(&mut qm[..count * 2 * dh], 2 * dh).rows(halves);
        time(Part::AttentionProducts, || matmul(wide, q, qm, Start::Zero));
    }

    /// Divides the left half of `m: [d_h, 2 d_h]`, a sum over keys, by their number.
    fn average<T: Real>(self, head: &Head<T>, m: &mut [T]) {
        if self == Linear::Standardised {
            let factor = T::one() / head.count();
            for row in m.chunks_exact_mut(2 * head.width()) {
                row[..head.width()].iter_mut().for_each(|c| *c *= factor);
            }
        }
    }

    /// Which of the `2 d_h` rows are in use: NON has no left half.
    fn halves(self, head_dim: usize) -> Range<usize> {
        match self {
            Linear::Standardised => 0..2 * head_dim,
            Linear::Plain => head_dim..2 * head_dim,
        }
    }

    /// Deviation of the logits of a panel's queries and what their aggregates are multiplied
    /// by, gain aside.
    #[inline(always)]
    fn deviation<T: Real, V: Vector<T>>(
        self,
        token: V::Token,
        head: &Head<T>,
        q: &[Lanes<T>],
        qm: &[Lanes<T>],
    ) -> (V, V) {
        let (zero, one) = (V::splat(token, T::zero()), V::splat(token, T::one()));
        match self {
            Linear::Plain => (zero, one),
            Linear::Standardised => {
                let variance = sum_rows(
                    token,
                    q.len(),
                    #[inline(always)]
                    |i| V::load(token, &q[i]) * V::load(token, &qm[i]),
                );
                // Rounding can take a variance of 0 below it; NaN stays.
                let std = zero.max(variance).sqrt();
                (std, one / (std + V::splat(token, head.row.epsilon)))
            }
        }
    }
}

/// Fills q, K~ and V, and the sum of the values.
struct Centre<'a, T> {
    form: Linear,
    head: &'a Head<'a, T>,
    q: &'a mut [Lanes<T>],
    kv: &'a mut [Lanes<T>],
    vsum: &'a mut [T],
}

impl<T: Real> Kernel<T> for Centre<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let Self { form, head, q, kv, vsum } = self;
        let dh = head.width();
        let factor = match form {
            Linear::Standardised => T::one() / head.count(),
            Linear::Plain => T::zero(),
        };
        let (scale, zero) = (V::splat(token, head.scale), V::splat(token, T::zero()));
        for i in 0..dh {
            let (mut keys, mut values) = (zero, zero);
            for (p, keep) in head.keep.iter().enumerate() {
                let v = V::load(token, &head.v.panel(p)[i]);
                let (k, v) = (V::load(token, &head.k.panel(p)[i]), kept(token, v, keep, T::zero()));
                (keys, values) = (keys + kept(token, k, keep, T::zero()), values + v);
                v.store(&mut kv[p * 2 * dh + dh + i]);
                (V::load(token, &head.q.panel(p)[i]) * scale).store(&mut q[p * dh + i]);
            }
            vsum[i] = values.total();
            let mean = V::splat(token, keys.total() * factor);
            for (p, keep) in head.keep.iter().enumerate() {
                let centred = V::load(token, &head.k.panel(p)[i]) - mean;
                kept(token, centred, keep, T::zero()).store(&mut kv[p * 2 * dh + i]);
            }
        }
    }
}

/// Writes the aggregate from u.
struct Aggregate<'a, T> {
    form: Linear,
    head: &'a Head<'a, T>,
    q: &'a [Lanes<T>],
    qm: &'a [Lanes<T>],
    vsum: &'a [T],
    out: PanelsMut<'a, T>,
}

impl<T: Real> Kernel<T> for Aggregate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(mut self, token: V::Token) {
        let (head, dh) = (self.head, self.head.width());
        let queries = self.q.chunks_exact(dh).zip(self.qm.chunks_exact(2 * dh));
        for (p, (q, qm)) in queries.enumerate().take(head.q.count()) {
            let (_, inverse) = self.form.deviation::<T, V>(token, head, q, qm);
            let factor = inverse * V::splat(token, head.row.gain);
            for ((out, u), &vsum) in self.out.panel(p).iter_mut().zip(&qm[dh..]).zip(self.vsum) {
                let shift = V::splat(token, head.row.bias * vsum);
                V::load(token, u).mul_add(factor, shift).store(out);
            }
        }
    }
}

/// Turns `q C | u` into `h q | s dout`; returns the gain's gradient.
struct Reduce<'a, T> {
    form: Linear,
    head: &'a Head<'a, T>,
    dout: Panels<'a, T>,
    q: &'a [Lanes<T>],
    qm: &'a mut [Lanes<T>],
}

impl<T: Real> Kernel<T> for Reduce<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) -> T {
        let Self { form, head, dout, q, qm } = self;
        let (dh, gain) = (head.width(), V::splat(token, head.row.gain));
        let zero = V::splat(token, T::zero());
        let mut dgain = zero;
        let queries = q.chunks_exact(dh).zip(qm.chunks_exact_mut(2 * dh));
        for (p, (q, qm)) in queries.enumerate().take(dout.count()) {
            let (std, inverse) = form.deviation::<T, V>(token, head, q, qm);
            let (dout, (left, u)) = (dout.panel(p), qm.split_at_mut(dh));
            let dot = sum_rows(
                token,
                dh,
                #[inline(always)]
                |i| V::load(token, &dout[i]) * V::load(token, &u[i]),
            );
            let change = dot * inverse;
            dgain = dgain + change;
            let s = gain * inverse;
            let h = std.if_greater(zero, -(s * change) / std, zero);
            for ((left, u), (q, dout)) in left.iter_mut().zip(u).zip(q.iter().zip(dout)) {
                (V::load(token, q) * h).store(left);
                (V::load(token, dout) * s).store(u);
            }
        }
        dgain.total()
    }
}

/// The logit scale reaches the queries; the sum of `dout` every value; centring removes the mean
/// gradient of the keys; masked keys and values get none. Returns the bias' gradient.
struct Finish<'a, T> {
    form: Linear,
    head: &'a Head<'a, T>,
    dout: Panels<'a, T>,
    vsum: &'a [T],
    gradient: HeadGradient<'a, T>,
}

impl<T: Real> Kernel<T> for Finish<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) -> T {
        let Self { form, head, dout, vsum, mut gradient } = self;
        let (zero, factor) = (V::splat(token, T::zero()), T::one() / head.count());
        let mut dbias = T::zero();
        for (i, &vsum) in vsum.iter().enumerate() {
            let mut dsum = zero;
            for p in 0..head.keep.len() {
                dsum = dsum + V::load(token, &dout.panel(p)[i]);
            }
            let dsum = dsum.total();
            dbias += dsum * vsum;
            let shift = V::splat(token, head.row.bias * dsum);
            if head.scale != T::one() {
                let mut dq = gradient.q();
                for p in 0..head.keep.len() {
                    let dq = &mut dq.panel(p)[i];
                    (V::load(token, dq) * V::splat(token, head.scale)).store(dq);
                }
            }
            let mut dv = gradient.v();
            for (p, keep) in head.keep.iter().enumerate() {
                let dv = &mut dv.panel(p)[i];
                kept(token, V::load(token, dv) + shift, keep, T::zero()).store(dv);
            }
            let mut dk = gradient.k();
            let mut sum = zero;
            if form == Linear::Standardised {
                for (p, keep) in head.keep.iter().enumerate() {
                    sum = sum + kept(token, V::load(token, &dk.panel(p)[i]), keep, T::zero());
                }
            }
            let mean = V::splat(token, sum.total() * factor);
            for (p, keep) in head.keep.iter().enumerate() {
                let dk = &mut dk.panel(p)[i];
                kept(token, V::load(token, dk) - mean, keep, T::zero()).store(dk);
            }
        }
        dbias
    }
}
