//! LayerNorm and GELU, each of them optional, and the norms at the skip connections.
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
//! mean and r of each token; the backward pass recomputes the rest.

use super::elementary::{gelu, gelu_derivative};
use super::lanes::{sum, sum2};
use crate::arch::vectorize;
use crate::model::architecture::LAYER_NORM_EPSILON;
use crate::real::Real;

/// Mean and reciprocal deviation of a token.
pub type Moments<T> = [T; 2];

#[inline(always)]
fn moments<T: Real>(x: &[T]) -> Moments<T> {
    let n = T::of(x.len() as f64);
    let mean = sum(x, |x| x) / n;
    let variance = sum(x, |x| (x - mean) * (x - mean)) / n;
    [mean, T::one() / (variance + T::of(LAYER_NORM_EPSILON)).sqrt()]
}

/// `y = LN(x)`: `x, y: [rows, d]`, `norm`: gamma then beta, `[2 d]`.
pub fn norm<T: Real>(norm: &[T], x: &[T], y: &mut [T], moments_out: &mut [Moments<T>]) {
    forward::<T, false>(norm, x, y, moments_out);
}

/// `y = GELU(LN(x))`.
pub fn norm_gelu<T: Real>(norm: &[T], x: &[T], y: &mut [T], moments_out: &mut [Moments<T>]) {
    forward::<T, true>(norm, x, y, moments_out);
}

fn forward<T: Real, const GELU: bool>(
    norm: &[T],
    x: &[T],
    y: &mut [T],
    moments_out: &mut [Moments<T>],
) {
    let d = norm.len() / 2;
    let (gamma, beta) = norm.split_at(d);
    vectorize(
        #[inline(always)]
        || {
            let rows = x.chunks_exact(d).zip(y.chunks_exact_mut(d)).zip(moments_out);
            for ((x, y), kept) in rows {
                let [mean, r] = moments(x);
                *kept = [mean, r];
                forward_row::<T, GELU>(gamma, beta, x, y, mean, r);
            }
        },
    );
}

#[inline(always)]
fn forward_row<T: Real, const GELU: bool>(
    gamma: &[T],
    beta: &[T],
    x: &[T],
    y: &mut [T],
    mean: T,
    r: T,
) {
    let d = gamma.len();
    let (beta, x, y) = (&beta[..d], &x[..d], &mut y[..d]);
    for i in 0..d {
        let a = gamma[i] * ((x[i] - mean) * r) + beta[i];
        y[i] = if GELU { gelu(a) } else { a };
    }
}

/// Overwrites `dx` from the gradient `dy` of [`norm`]'s output; adds to `gradient: [2 d]`.
pub fn norm_backward<T: Real>(
    norm: &[T],
    x: &[T],
    moments: &[Moments<T>],
    dy: &[T],
    dx: &mut [T],
    gradient: &mut [T],
) {
    backward::<T, false>(norm, x, moments, dy, dx, gradient);
}

/// Overwrites `dx` from the gradient `dy` of [`norm_gelu`]'s output; adds to `gradient: [2 d]`.
pub fn norm_gelu_backward<T: Real>(
    norm: &[T],
    x: &[T],
    moments: &[Moments<T>],
    dy: &[T],
    dx: &mut [T],
    gradient: &mut [T],
) {
    backward::<T, true>(norm, x, moments, dy, dx, gradient);
}

fn backward<T: Real, const GELU: bool>(
    norm: &[T],
    x: &[T],
    moments: &[Moments<T>],
    dy: &[T],
    dx: &mut [T],
    gradient: &mut [T],
) {
    let d = norm.len() / 2;
    let n = T::of(d as f64);
    let (gamma, beta) = norm.split_at(d);
    let (dgamma, dbeta) = gradient.split_at_mut(d);
    vectorize(
        #[inline(always)]
        || {
            let rows = x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d));
            for (((x, dy), dx), &[mean, r]) in rows.zip(moments) {
                backward_row::<T, GELU>(gamma, beta, x, dy, dx, mean, r, dgamma, dbeta);
                let mean_e = sum(dx, |e| e) / n;
                let mean_e_xhat = sum2(dx, x, |e, x| e * ((x - mean) * r)) / n;
                for (dx, &x) in dx.iter_mut().zip(x) {
                    *dx = r * (*dx - mean_e - (x - mean) * r * mean_e_xhat);
                }
            }
        },
    );
}

/// Writes e = gamma da to `dx`, adds to the parameters' gradient. A function of its own, so that
/// the compiler knows that the slices do not overlap and vectorises.
#[inline(always)]
fn backward_row<T: Real, const GELU: bool>(
    gamma: &[T],
    beta: &[T],
    x: &[T],
    dy: &[T],
    dx: &mut [T],
    mean: T,
    r: T,
    dgamma: &mut [T],
    dbeta: &mut [T],
) {
    let d = gamma.len();
    let (beta, x, dy, dx) = (&beta[..d], &x[..d], &dy[..d], &mut dx[..d]);
    let (dgamma, dbeta) = (&mut dgamma[..d], &mut dbeta[..d]);
    for i in 0..d {
        let xhat = (x[i] - mean) * r;
        let da = if GELU { dy[i] * gelu_derivative(gamma[i] * xhat + beta[i]) } else { dy[i] };
        dgamma[i] += da * xhat;
        dbeta[i] += da;
        dx[i] = gamma[i] * da;
    }
}

/// `y = GELU(x)`, without a norm.
pub fn plain_gelu<T: Real>(x: &[T], y: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = gelu(x);
            }
        },
    );
}

/// Overwrites `dx` from the gradient `dy` of [`plain_gelu`]'s output.
pub fn plain_gelu_backward<T: Real>(x: &[T], dy: &[T], dx: &mut [T]) {
    vectorize(
        #[inline(always)]
        || {
            for ((dx, &dy), &x) in dx.iter_mut().zip(dy).zip(x) {
                *dx = dy * gelu_derivative(x);
            }
        },
    );
}

/// `y += x`
pub fn add<T: Real>(y: &mut [T], x: &[T]) {
    vectorize(
        #[inline(always)]
        || {
            for (y, &x) in y.iter_mut().zip(x) {
                *y += x;
            }
        },
    );
}
