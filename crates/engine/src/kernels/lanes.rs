//! Sums over rows in a fixed order that vectorises: 16 partial sums, then their sum.

use crate::real::Real;

const LANES: usize = 16;

/// `sum_i f(i)` for `i < n`, in the same order on every machine.
#[inline(always)]
pub fn sum<T: Real>(n: usize, f: impl Fn(usize) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let whole = n / LANES * LANES;
    let mut start = 0;
    while start < whole {
        for (lane, partial) in lanes.iter_mut().enumerate() {
            *partial += f(start + lane);
        }
        start += LANES;
    }
    let mut rest = T::zero();
    for i in whole..n {
        rest += f(i);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = lanes[lane] + lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0] + rest
}

/// `max_i x_i`; NaN only if every value is NaN.
#[inline(always)]
pub fn max<T: Real>(x: &[T]) -> T {
    let mut lanes = [T::neg_infinity(); LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(T::neg_infinity(), T::max)
}
