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

use crate::real::Real;

const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding and subtracting 1.5 * 2^23 rounds an f32 to the nearest integer.
const ROUND: f32 = 12_582_912.0;

/// e^x in f32. Arguments are clamped to [-87, 88], so the result is finite and positive;
/// NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Comparisons rather than min and max, which would swallow NaN.
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = x - k * LN2_HIGH - k * LN2_LOW;
    // Estrin's scheme: pairs, then squares, so that the chain of dependent operations is short.
    let r2 = r * r;
    let low = (1.0 + r) + (0.5 + r * (1.0 / 6.0)) * r2;
    let high = (1.0 / 24.0 + r * (1.0 / 120.0)) + (1.0 / 720.0 + r * (1.0 / 5040.0)) * r2;
    let p = low + high * (r2 * r2);
    // The low bits of `shifted` hold k; moved to the exponent's place they are 2^k.
    let exponent = (shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits());
    p * f32::from_bits(exponent)
}

/// 0.044715 and sqrt(2/pi), of the tanh form.
const CUBIC: f64 = 0.044_715;
const SCALE: f64 = 0.797_884_560_802_865_4;

/// gelu(x), tanh form.
#[inline(always)]
pub fn gelu<T: Real>(x: T) -> T {
    let u = T::of(SCALE) * (x + T::of(CUBIC) * x * x * x);
    x / (T::one() + (-(u + u)).exp_fast())
}

/// d gelu(x) / dx, tanh form.
#[inline(always)]
pub fn gelu_derivative<T: Real>(x: T) -> T {
    let u = T::of(SCALE) * (x + T::of(CUBIC) * x * x * x);
    let du = T::of(SCALE) * (T::one() + T::of(3.0 * CUBIC) * x * x);
    let e = (-(u + u)).exp_fast();
    let s = T::one() / (T::one() + e);
    // e s = 1 - s, without the cancellation.
    s + (x + x) * (e * s) * s * du
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 97th float between the bounds, both signs.
    fn floats(most: f32) -> impl Iterator<Item = f32> {
        (0..=most.to_bits()).step_by(97).map(f32::from_bits).flat_map(|x| [x, -x])
    }

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        let mut worst = 0f64;
        for x in floats(88.0).filter(|x| (-87.0..=88.0).contains(x)) {
            let exact = libm::exp(f64::from(x));
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst <= 2.0 * f64::from(f32::EPSILON), "{worst:e}");
    }

    #[test]
    fn exp_ends() {
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::INFINITY), exp(88.0));
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
        assert!(exp(-87.0) > 0.0 && exp(88.0).is_finite());
    }

    #[test]
    fn gelu_and_its_derivative_are_right() {
        let (mut worst, mut worst_derivative) = (0f64, 0f64);
        for x in floats(1e4) {
            let exact = f64::from(x);
            let u = SCALE * (exact + CUBIC * exact.powi(3));
            let tanh = libm::tanh(u);
            let gelu_exact = 0.5 * exact * (1.0 + tanh);
            let error = (f64::from(gelu(x)) - gelu_exact).abs();
            worst = worst.max(error / exact.abs().max(f64::from(f32::MIN_POSITIVE)));
            let du = SCALE * (1.0 + 3.0 * CUBIC * exact * exact);
            let derivative = 0.5 * (1.0 + tanh) + 0.5 * exact * (1.0 - tanh * tanh) * du;
            let error = (f64::from(gelu_derivative(x)) - derivative).abs();
            worst_derivative = worst_derivative.max(error);
        }
        assert!(worst <= 4e-7, "{worst:e}");
        assert!(worst_derivative <= 2e-6, "{worst_derivative:e}");
    }

    #[test]
    fn gelu_of_nan_is_nan() {
        assert!(gelu(f32::NAN).is_nan() && gelu_derivative(f32::NAN).is_nan());
        assert!(gelu(f64::NAN).is_nan());
    }
}
