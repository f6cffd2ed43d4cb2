//! e^x and the GELU in forms that compilers vectorise.
//!
//! ```text
//! exp(x)  = 2^k p(r),   k = round(x / ln 2),  r = x - k ln 2,  |r| <= ln(2)/2
//! gelu(x) = x s(2u),    u = sqrt(2/pi) (x + 0.044715 x^3),  s(y) = 1 / (1 + exp(-y))
//! ```
//!
//! The second line is the tanh form of the GELU, since `(1 + tanh u)/2 = s(2u)`. The reduction
//! splits ln 2 into two parts (Cody and Waite) and `p` is the Taylor polynomial of degree 7.
//! Errors in f32, tested over the whole range: exp 2 units in the last place
//! for x in [-87, 88]; gelu 4e-7 of |x| at most.

use crate::arch::Vector;
use crate::real::Real;

const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding and subtracting 1.5 * 2^23 rounds an f32 to the nearest integer, which is then in the
/// low bits.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// Arguments beyond these are clamped, so that results are finite and positive.
const BOUNDS: [f32; 2] = [-87.0, 88.0];
/// Coefficients of the Taylor polynomial from the second power on.
const TAYLOR: [f32; 6] = [0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];

/// e^x in f32 on vectors; `power` computes 2^k where the lanes are `ROUND + k`. Arguments are
/// clamped to [-87, 88]; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<V: Vector<f32>>(token: V::Token, x: V, power: impl Fn(V) -> V) -> V {
    let (low, high) = (V::splat(token, BOUNDS[0]), V::splat(token, BOUNDS[1]));
    // In this order NaN stays.
    let x = high.min(low.max(x));
    let round = V::splat(token, ROUND);
    let shifted = x.mul_add(V::splat(token, std::f32::consts::LOG2_E), round);
    let k = shifted - round;
    let r = k.mul_add(V::splat(token, -LN2_HIGH), x);
    let r = k.mul_add(V::splat(token, -LN2_LOW), r);
    // Estrin's scheme: pairs, then squares, so that the chain of dependent operations is short.
    let r2 = r * r;
    let [c2, c3, c4, c5, c6, c7] = TAYLOR;
    let low = r.mul_add(V::splat(token, c3), V::splat(token, c2));
    let low = low.mul_add(r2, r + V::splat(token, 1.0));
    let middle = r.mul_add(V::splat(token, c5), V::splat(token, c4));
    let high = r.mul_add(V::splat(token, c7), V::splat(token, c6)).mul_add(r2, middle);
    high.mul_add(r2 * r2, low) * power(shifted)
}

/// [`exp`] of one value, on the portable path.
#[inline(always)]
pub(crate) fn exp_scalar(x: f32) -> f32 {
    let [low, high] = BOUNDS;
    let x = if x < low { low } else { x };
    let x = if x > high { high } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = x - k * LN2_HIGH - k * LN2_LOW;
    let [c2, c3, c4, c5, c6, c7] = TAYLOR;
    let r2 = r * r;
    let low = (1.0 + r) + (c2 + r * c3) * r2;
    let high = (c4 + r * c5) + (c6 + r * c7) * r2;
    // The low bits of `shifted` hold k; moved to the exponent's place they are 2^k.
    let exponent = (shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits());
    (low + high * (r2 * r2)) * f32::from_bits(exponent)
}

/// 0.044715 and sqrt(2/pi), of the tanh form.
const CUBIC: f64 = 0.044_715;
const SCALE: f64 = 0.797_884_560_802_865_4;

/// gelu(x), tanh form.
#[inline(always)]
pub fn gelu<T: Real, V: Vector<T>>(token: V::Token, x: V) -> V {
    let (linear, cubic) = (T::of(-2.0 * SCALE), T::of(-2.0 * SCALE * CUBIC));
    // -2 u
    let exponent = x * (x * x).mul_add(V::splat(token, cubic), V::splat(token, linear));
    x / (V::splat(token, T::one()) + exponent.exp())
}

/// d gelu(x) / dx, tanh form.
#[inline(always)]
pub fn gelu_derivative<T: Real, V: Vector<T>>(token: V::Token, x: V) -> V {
    // 0 or 1 beyond, to the last place; x^2 would overflow at last.
    let (low, high) = (V::splat(token, T::of(-16.0)), V::splat(token, T::of(16.0)));
    let x = high.min(low.max(x));
    let (linear, cubic) = (T::of(-2.0 * SCALE), T::of(-2.0 * SCALE * CUBIC));
    let square = x * x;
    let exponent = x * square.mul_add(V::splat(token, cubic), V::splat(token, linear));
    // 2 du/dx
    let (linear, cubic) = (T::of(2.0 * SCALE), T::of(6.0 * SCALE * CUBIC));
    let du = square.mul_add(V::splat(token, cubic), V::splat(token, linear));
    let e = exponent.exp();
    let one = V::splat(token, T::one());
    let s = one / (one + e);
    // e s = 1 - s, without the cancellation.
    (x * (e * s) * s).mul_add(du, s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{Isa, Kernel, run_on_every_path};
    use crate::panel::{LANES, Lanes};

    /// exp, gelu and gelu' of every value.
    #[derive(Clone, Copy)]
    struct All<'a>(&'a [Lanes<f32>]);

    impl Kernel<f32> for All<'_> {
        type Output = [Vec<f32>; 3];

        #[inline(always)]
        fn run<V: Vector<f32>>(self, token: V::Token) -> Self::Output {
            let mut results = [const { Vec::new() }; 3];
            for x in self.0 {
                let x = V::load(token, x);
                results[0].extend(x.exp().lanes());
                results[1].extend(gelu(token, x).lanes());
                results[2].extend(gelu_derivative(token, x).lanes());
            }
            results
        }
    }

    /// The values and what every path makes of them.
    fn all(x: &[f32]) -> Vec<(Isa, [Vec<f32>; 3])> {
        let mut rows = vec![[0.0; LANES]; x.len().div_ceil(LANES)];
        rows.as_flattened_mut()[..x.len()].copy_from_slice(x);
        run_on_every_path(All(&rows))
    }

    /// Every 97th float up to the bound, both signs.
    fn floats(most: f32) -> Vec<f32> {
        (0..=most.to_bits()).step_by(97).map(f32::from_bits).flat_map(|x| [x, -x]).collect()
    }

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        let x: Vec<f32> = floats(88.0).into_iter().filter(|x| (-87.0..=88.0).contains(x)).collect();
        for (isa, [y, ..]) in all(&x) {
            let mut worst = 0f64;
            for (&x, &y) in x.iter().zip(&y) {
                let exact = libm::exp(f64::from(x));
                worst = worst.max((f64::from(y) - exact).abs() / exact);
            }
            assert!(worst <= 2.0 * f64::from(f32::EPSILON), "{isa:?}: {worst:e}");
        }
    }

    #[test]
    fn exp_ends() {
        let x = [f32::NAN, 0.0, f32::INFINITY, 88.0, f32::NEG_INFINITY, -87.0];
        for (_, [y, ..]) in all(&x) {
            assert!(y[0].is_nan());
            assert_eq!(y[1], 1.0);
            assert_eq!(y[2], y[3]);
            assert_eq!(y[4], y[5]);
            assert!(y[5] > 0.0 && y[3].is_finite());
        }
    }

    #[test]
    fn gelu_and_its_derivative_are_right() {
        let x = floats(f32::MAX);
        for (isa, [_, y, slope]) in all(&x) {
            let (mut worst, mut worst_derivative) = (0f64, 0f64);
            for ((&x, &y), &slope) in x.iter().zip(&y).zip(&slope) {
                let exact = f64::from(x);
                let u = SCALE * (exact + CUBIC * exact.powi(3));
                let tanh = libm::tanh(u);
                let exact_slope = 1.0 - tanh * tanh;
                let gelu_exact = 0.5 * exact * (1.0 + tanh);
                let error = (f64::from(y) - gelu_exact).abs();
                worst = worst.max(error / exact.abs().max(f64::from(f32::MIN_POSITIVE)));
                let du = SCALE * (1.0 + 3.0 * CUBIC * exact * exact);
                let derivative = 0.5 * (1.0 + tanh) + 0.5 * exact * exact_slope * du;
                let error = (f64::from(slope) - derivative).abs();
                worst_derivative = worst_derivative.max(error);
            }
            assert!(worst <= 4e-7, "{isa:?}: {worst:e}");
            assert!(worst_derivative <= 2e-6, "{isa:?}: {worst_derivative:e}");
        }
    }

    #[test]
    fn gelu_of_nan_is_nan() {
        for (_, [_, y, slope]) in all(&[f32::NAN]) {
            assert!(y[0].is_nan() && slope[0].is_nan());
        }
    }
}
