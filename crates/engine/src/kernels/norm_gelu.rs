//! LayerNorm and GELU, each of them optional.
//!
//! ```text
//! y = act(gamma (x - mean x) / sqrt(var x + 1e-3) + beta)       per token, act = GELU or identity
//! ```
//!
//! With a = gamma xhat + beta, da = act'(a) dy, e = gamma da and r = 1 / sqrt(var x + 1e-3):
//!
//! ```text
//! dx = r (e - mean(e) - xhat mean(e xhat)),  dgamma += da xhat,  dbeta += da
//! ```
//!
//! mean and var are over the token's features (population variance). The forward pass keeps
//! mean and r of each token; the backward pass recomputes the rest. Tensors are panels.

use super::elementary::{gelu, gelu_derivative};
use super::lanes::sum_rows;
use crate::arch::{Kernel, Vector, run, vectorize};
use crate::model::architecture::LAYER_NORM_EPSILON;
use crate::panel::Lanes;
use crate::profile::{Part, time};
use crate::real::Real;

/// Mean and reciprocal deviation of a panel's tokens.
pub type Moments<T> = [Lanes<T>; 2];

/// `y = LN(x)`: `x, y: [panels][d]`, `norm`: gamma then beta, `[2 d]`.
pub fn norm<T: Real>(norm: &[T], x: &[Lanes<T>], y: &mut [Lanes<T>], kept: &mut [Moments<T>]) {
    time(Part::NormGelu, || run(Forward::<T, false> { norm, x, skip: &[], y, kept }));
}

/// `y = skip + LN(x)`.
pub fn norm_add<T: Real>(
    norm: &[T],
    x: &[Lanes<T>],
    skip: &[Lanes<T>],
    y: &mut [Lanes<T>],
    kept: &mut [Moments<T>],
) {
    time(Part::NormGelu, || run(Forward::<T, false> { norm, x, skip, y, kept }));
}

/// `y = GELU(LN(x))`.
pub fn norm_gelu<T: Real>(norm: &[T], x: &[Lanes<T>], y: &mut [Lanes<T>], kept: &mut [Moments<T>]) {
    time(Part::NormGelu, || run(Forward::<T, true> { norm, x, skip: &[], y, kept }));
}

struct Forward<'a, T, const GELU: bool> {
    norm: &'a [T],
    x: &'a [Lanes<T>],
    /// Added to the result, unless empty.
    skip: &'a [Lanes<T>],
    y: &'a mut [Lanes<T>],
    kept: &'a mut [Moments<T>],
}

impl<T: Real, const GELU: bool> Kernel<T> for Forward<'_, T, GELU> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let d = self.norm.len() / 2;
        let (gamma, beta) = self.norm.split_at(d);
        let splat = |x| V::splat(token, x);
        let count = splat(T::of(d as f64));
        let epsilon = splat(T::of(LAYER_NORM_EPSILON));
        let panels = self.x.chunks_exact(d).zip(self.y.chunks_exact_mut(d)).zip(self.kept);
        let mut skips = self.skip.chunks_exact(d);
        for ((x, y), kept) in panels {
            let skip = skips.next();
            let sum = sum_rows(
                token,
                d,
                #[inline(always)]
                |i| V::load(token, &x[i]),
            );
            let mean = sum / count;
            let squares = sum_rows(
                token,
                d,
                #[inline(always)]
                |i| {
                    let centred = V::load(token, &x[i]) - mean;
                    centred * centred
                },
            );
            let r = splat(T::one()) / (squares / count + epsilon).sqrt();
            mean.store(&mut kept[0]);
            r.store(&mut kept[1]);
            for i in 0..d {
                let xhat = (V::load(token, &x[i]) - mean) * r;
                let mut a = xhat.mul_add(splat(gamma[i]), splat(beta[i]));
                if GELU {
                    a = gelu(token, a);
                }
                if let Some(skip) = skip {
                    a = a + V::load(token, &skip[i]);
                }
                a.store(&mut y[i]);
            }
        }
    }
}

/// Overwrites `dx` from the gradient `dy` of [`norm`]'s output; adds to `gradient: [2 d]`.
pub fn norm_backward<T: Real>(
    norm: &[T],
    x: &[Lanes<T>],
    moments: &[Moments<T>],
    dy: &[Lanes<T>],
    dx: &mut [Lanes<T>],
    gradient: &mut [T],
) {
    time(Part::NormGelu, || run(Backward::<T, false> { norm, x, moments, dy, dx, gradient }));
}

/// Overwrites `dx` from the gradient `dy` of [`norm_gelu`]'s output; adds to `gradient: [2 d]`.
pub fn norm_gelu_backward<T: Real>(
    norm: &[T],
    x: &[Lanes<T>],
    moments: &[Moments<T>],
    dy: &[Lanes<T>],
    dx: &mut [Lanes<T>],
    gradient: &mut [T],
) {
    time(Part::NormGelu, || run(Backward::<T, true> { norm, x, moments, dy, dx, gradient }));
}

struct Backward<'a, T, const GELU: bool> {
    norm: &'a [T],
    x: &'a [Lanes<T>],
    moments: &'a [Moments<T>],
    dy: &'a [Lanes<T>],
    dx: &'a mut [Lanes<T>],
    gradient: &'a mut [T],
}

impl<T: Real, const GELU: bool> Kernel<T> for Backward<'_, T, GELU> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let d = self.norm.len() / 2;
        let (gamma, beta) = self.norm.split_at(d);
        let (dgamma, dbeta) = self.gradient.split_at_mut(d);
        let splat = |x| V::splat(token, x);
        let count = splat(T::of(d as f64));
        let panels = self.x.chunks_exact(d).zip(self.dy.chunks_exact(d));
        let panels = panels.zip(self.dx.chunks_exact_mut(d)).zip(self.moments);
        for (((x, dy), dx), [mean, r]) in panels {
            let (mean, r) = (V::load(token, mean), V::load(token, r));
            let (mut e, mut e_xhat) = (splat(T::zero()), splat(T::zero()));
            for i in 0..d {
                let xhat = (V::load(token, &x[i]) - mean) * r;
                let mut da = V::load(token, &dy[i]);
                if GELU {
                    let a = xhat.mul_add(splat(gamma[i]), splat(beta[i]));
                    da = da * gelu_derivative(token, a);
                }
                let da_xhat = da * xhat;
                dgamma[i] += da_xhat.total();
                dbeta[i] += da.total();
                let gamma = splat(gamma[i]);
                let change = gamma * da;
                e = e + change;
                e_xhat = gamma.mul_add(da_xhat, e_xhat);
                change.store(&mut dx[i]);
            }
            // dx = r (e - mean(e)) - r mean(e xhat) xhat
            let (shift, slope) = (-(e / count), -(e_xhat / count));
            for (x, dx) in x.iter().zip(dx) {
                let xhat = (V::load(token, x) - mean) * r;
                let change = V::load(token, dx) + shift;
                (xhat.mul_add(slope, change) * r).store(dx);
            }
        }
    }
}

/// `y = GELU(x)`, without a norm.
pub fn plain_gelu<T: Real>(x: &[Lanes<T>], y: &mut [Lanes<T>]) {
    time(Part::NormGelu, || run(PlainGelu { x, y }));
}

struct PlainGelu<'a, T> {
    x: &'a [Lanes<T>],
    y: &'a mut [Lanes<T>],
}

impl<T: Real> Kernel<T> for PlainGelu<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        for (x, y) in self.x.iter().zip(self.y) {
            gelu(token, V::load(token, x)).store(y);
        }
    }
}

/// Overwrites `dx` from the gradient `dy` of [`plain_gelu`]'s output.
pub fn plain_gelu_backward<T: Real>(x: &[Lanes<T>], dy: &[Lanes<T>], dx: &mut [Lanes<T>]) {
    time(Part::NormGelu, || run(PlainGeluBackward { x, dy, dx }));
}

struct PlainGeluBackward<'a, T> {
    x: &'a [Lanes<T>],
    dy: &'a [Lanes<T>],
    dx: &'a mut [Lanes<T>],
}

impl<T: Real> Kernel<T> for PlainGeluBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        for ((x, dy), dx) in self.x.iter().zip(self.dy).zip(self.dx) {
            let slope = gelu_derivative(token, V::load(token, x));
            (V::load(token, dy) * slope).store(dx);
        }
    }
}

/// `out = a + b`
pub fn add<T: Real>(a: &[Lanes<T>], b: &[Lanes<T>], out: &mut [Lanes<T>]) {
    let sums = a.as_flattened().iter().zip(b.as_flattened());
    vectorize(
        #[inline(always)]
        || sums.zip(out.as_flattened_mut()).for_each(|((&a, &b), out)| *out = a + b),
    );
}
