//! Sums over rows in a fixed order that vectorises: 16 partial sums, then their sum.

use crate::real::Real;

const LANES: usize = 16;

/// `sum_i f(x_i)`, in the same order on every machine.
#[inline(always)]
pub fn sum<T: Real>(x: &[T], f: impl Fn(T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for x in chunks {
        for lane in 0..LANES {
            lanes[lane] += f(x[lane]);
        }
    }
    fold(lanes) + rest.iter().fold(T::zero(), |total, &x| total + f(x))
}

/// `sum_i f(x_i, y_i)`, likewise.
#[inline(always)]
pub fn sum2<T: Real>(x: &[T], y: &[T], f: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let (x_chunks, x_rest) = x.as_chunks::<LANES>();
    let (y_chunks, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x_chunks.iter().zip(y_chunks) {
        for lane in 0..LANES {
            lanes[lane] += f(x[lane], y[lane]);
        }
    }
    let rest = x_rest.iter().zip(y_rest);
    fold(lanes) + rest.fold(T::zero(), |total, (&x, &y)| total + f(x, y))
}

#[inline(always)]
fn fold<T: Real>(mut lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            let upper = lanes[lane + width];
            lanes[lane] += upper;
        }
        width /= 2;
    }
    lanes[0]
}

/// `max_i x_i`; NaN only if every value is NaN.
#[inline(always)]
pub fn max<T: Real>(x: &[T]) -> T {
    let mut lanes = [T::neg_infinity(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for x in chunks {
        for lane in 0..LANES {
            lanes[lane] = if x[lane] > lanes[lane] { x[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(rest).copied().fold(T::neg_infinity(), T::max)
}
