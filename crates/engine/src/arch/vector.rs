//! 16 lanes at once: the vectors that pointwise kernels compute with, once per instruction set.
#![allow(unsafe_code)]

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Isa, isa};
use crate::panel::{LANES, Lanes};
use crate::real::Real;

/// 16 lanes of `T`. Every operation is lane by lane.
pub trait Vector<T: Real>:
    Copy
    + Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Proof that the processor has the instructions; only [`run`] hands it out.
    type Token: Copy;

    /// The same value in every lane.
    fn splat(token: Self::Token, x: T) -> Self;

    /// The lanes of a row.
    fn load(token: Self::Token, row: &Lanes<T>) -> Self;

    /// Writes the lanes to a row.
    fn store(self, row: &mut Lanes<T>);

    /// `self * factor + addend`, rounded once where the processor can.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// Square root.
    fn sqrt(self) -> Self;

    /// e^x; see [`crate::kernels::elementary`] for its error.
    fn exp(self) -> Self;

    /// `if self > other { self } else { other }`: the other where either is NaN.
    fn max(self, other: Self) -> Self;

    /// `if self < other { self } else { other }`: the other where either is NaN.
    fn min(self, other: Self) -> Self;

    /// `if self > other { then } else { otherwise }`; comparisons with NaN are false.
    fn if_greater(self, other: Self, then: Self, otherwise: Self) -> Self;

    /// `if self == other { then } else { otherwise }`
    fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self;

    /// The lanes.
    #[inline(always)]
    fn lanes(self) -> Lanes<T> {
        let mut lanes = [T::zero(); LANES];
        self.store(&mut lanes);
        lanes
    }

    /// The sum of the lanes, in a fixed order: halves are added to halves.
    fn total(self) -> T;
}

/// A computation on vectors of any instruction set.
pub trait Kernel<T: Real> {
    /// What it returns.
    type Output;

    /// Computes with vectors `V`. Mark it and what it calls in loops `#[inline(always)]`.
    fn run<V: Vector<T>>(self, token: V::Token) -> Self::Output;
}

/// Runs a kernel with the vectors of the path in use.
#[inline]
pub fn run<T: Real, K: Kernel<T>>(kernel: K) -> K::Output {
    match isa() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `isa` detected the instructions.
        Isa::Avx2 => unsafe { x86::avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `isa` detected the instructions.
        Isa::Avx512 => unsafe { x86::avx512(kernel) },
        _ => kernel.run::<Plain<T>>(()),
    }
}

/// Runs plain loops compiled for the path in use. The closure and what it calls in its loops must
/// be inlined into it to profit: mark it `#[inline(always)]`.
#[inline]
pub fn vectorize<R>(loops: impl FnOnce() -> R) -> R {
    match isa() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `isa` detected the instructions.
        Isa::Avx2 => unsafe { x86::vectorize_avx2(loops) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `isa` detected the instructions.
        Isa::Avx512 => unsafe { x86::vectorize_avx512(loops) },
        _ => loops(),
    }
}

/// Runs a kernel on every path this machine has, for tests.
#[cfg(test)]
pub(crate) fn run_on_every_path<T: Real, K: Kernel<T> + Copy>(kernel: K) -> Vec<(Isa, K::Output)> {
    let mut outputs = vec![(Isa::Portable, kernel.run::<Plain<T>>(()))];
    #[cfg(target_arch = "x86_64")]
    {
        if isa() != Isa::Portable {
            // SAFETY: `isa` detected AVX2, or AVX-512, which includes it.
            outputs.push((Isa::Avx2, unsafe { x86::avx2(kernel) }));
        }
        if isa() == Isa::Avx512 {
            // SAFETY: `isa` detected the instructions.
            outputs.push((Isa::Avx512, unsafe { x86::avx512(kernel) }));
        }
    }
    outputs
}

/// 16 lanes in plain loops: the portable path, and `f64` on every path.
#[derive(Debug, Clone, Copy)]
pub struct Plain<T>(Lanes<T>);

impl<T: Real> Plain<T> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        Self(std::array::from_fn(|lane| f(self.0[lane], other.0[lane])))
    }
}

/// Implements an operator lane by lane.
macro_rules! plain_operator {
    ($($operator:ident $method:ident),*) => {
        $(impl<T: Real> $operator for Plain<T> {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, |a, b| $operator::$method(a, b))
            }
        })*
    };
}

plain_operator!(Add add, Sub sub, Mul mul, Div div);

impl<T: Real> Neg for Plain<T> {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.map(|x| -x))
    }
}

impl<T: Real> Vector<T> for Plain<T> {
    type Token = ();

    #[inline(always)]
    fn splat((): (), x: T) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn load((): (), row: &Lanes<T>) -> Self {
        Self(*row)
    }

    #[inline(always)]
    fn store(self, row: &mut Lanes<T>) {
        *row = self.0;
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self * factor + addend
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(|x| x.sqrt()))
    }

    #[inline(always)]
    fn exp(self) -> Self {
        Self(self.0.map(|x| x.exp_fast()))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn if_greater(self, other: Self, then: Self, otherwise: Self) -> Self {
        Self(std::array::from_fn(|lane| {
            if self.0[lane] > other.0[lane] { then.0[lane] } else { otherwise.0[lane] }
        }))
    }

    #[inline(always)]
    fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self {
        Self(std::array::from_fn(|lane| {
            if self.0[lane] == other.0[lane] { then.0[lane] } else { otherwise.0[lane] }
        }))
    }

    #[inline(always)]
    fn total(self) -> T {
        let mut lanes = self.0;
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
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx2Token, Avx512, Avx512Token};

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each operation's result on these two rows.
    #[derive(Clone, Copy)]
    struct Operations<'a>(&'a Lanes<f32>, &'a Lanes<f32>);

    impl Kernel<f32> for Operations<'_> {
        type Output = Vec<Lanes<f32>>;

        fn run<V: Vector<f32>>(self, token: V::Token) -> Vec<Lanes<f32>> {
            let (x, y) = (V::load(token, self.0), V::load(token, self.1));
            let two = V::splat(token, 2.0);
            let results = [
                x + y,
                x - y,
                x * y,
                x / y,
                -x,
                x.sqrt(),
                x.if_greater(y, x, y),
                x.if_equal(y, two, x),
                two,
                x.max(y),
                x.min(y),
                y.max(x),
                y.min(x),
            ];
            let mut rows: Vec<_> = results.map(V::lanes).to_vec();
            rows.push([x.total(); LANES]);
            rows
        }
    }

    #[test]
    fn operations_are_the_same_on_every_path() {
        let x: Lanes<f32> = std::array::from_fn(|i| 0.37 * i as f32 - 2.1);
        let mut y: Lanes<f32> = std::array::from_fn(|i| 1.9 - 0.23 * i as f32);
        (y[3], y[5], y[7]) = (x[3], f32::NAN, f32::INFINITY);
        let bits = |rows: &[Lanes<f32>]| -> Vec<Option<u32>> {
            let bits = |x: &f32| (!x.is_nan()).then_some(x.to_bits());
            rows.as_flattened().iter().map(bits).collect()
        };
        let results = run_on_every_path(Operations(&x, &y));
        let plain = &results[0].1;
        assert_eq!(plain[0][0], x[0] + y[0]);
        assert_eq!(plain[6][7], f32::INFINITY, "the larger");
        assert_eq!(plain[7][3], 2.0, "where equal");
        assert!(plain[6][5].is_nan(), "a comparison with NaN is false");
        let sum: f64 = x.iter().map(|&x| f64::from(x)).sum();
        assert_eq!([plain[9][7], plain[10][7]], [f32::INFINITY, x[7]], "larger and smaller");
        assert!([plain[9][5], plain[10][5]].iter().all(|x| x.is_nan()), "the other");
        assert_eq!([plain[11][5], plain[12][5]], [x[5]; 2], "the other");
        assert!((f64::from(plain[13][0]) - sum).abs() < 1e-5);
        for (isa, rows) in &results {
            assert_eq!(bits(rows), bits(plain), "{isa:?}");
        }
    }
}
