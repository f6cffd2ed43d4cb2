//! Adam in the form whose epsilon is not scaled by the bias correction.
//!
//! ```text
//! m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2
//! w -= lr sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)        t = 1, 2, ...
//! ```
//!
//! b1 = 0.9 and b2 = 0.999 as f32 values, eps = 1e-7.
//! Source: Kingma & Ba 2014 (arXiv 1412.6980), end of section 2; TensorFlow's `Adam`, which the
//! authors used. Differs from other frameworks where |g| is near or below 1e-6.

use crate::arch::vectorize;
use crate::real::Real;

const BETA1: f64 = 0.9f32 as f64;
const BETA2: f64 = 0.999f32 as f64;
const EPSILON: f64 = 1e-7;

/// The moments of every parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Adam<T> {
    /// First moments m.
    pub first: Vec<T>,
    /// Second moments v.
    pub second: Vec<T>,
}

impl<T: Real> Adam<T> {
    /// Moments 0 for `n` parameters.
    pub fn new(n: usize) -> Self {
        Self { first: vec![T::zero(); n], second: vec![T::zero(); n] }
    }

    /// Update number `step` (the first is 0) with this learning rate.
    pub fn update(&mut self, weights: &mut [T], gradient: &[T], learning_rate: f32, step: u64) {
        let t = (step + 1) as f64;
        let correction = (1.0 - libm::pow(BETA2, t)).sqrt() / (1.0 - libm::pow(BETA1, t));
        let rate = T::of(f64::from(learning_rate) * correction);
        let (beta1, beta2, epsilon) = (T::of(BETA1), T::of(BETA2), T::of(EPSILON));
        let (rest1, rest2) = (T::of(1.0 - BETA1), T::of(1.0 - BETA2));
        vectorize(
            #[inline(always)]
            || {
                let moments = self.first.iter_mut().zip(&mut self.second);
                for ((w, &g), (m, v)) in weights.iter_mut().zip(gradient).zip(moments) {
                    *m = beta1 * *m + rest1 * g;
                    *v = beta2 * *v + rest2 * g * g;
                    *w -= rate * *m / (v.sqrt() + epsilon);
                }
            },
        );
    }
}
