//! The scalar types the numbers are computed in.

use std::fmt::{Debug, Display};
use std::iter::Sum;

#[cfg(target_arch = "x86_64")]
use crate::arch::{self, Avx2Token, Avx512Token, Vector};

/// `f32` or `f64`.
///
/// The engine trains in `f32`; the same code in `f64` is what finite differences and the
/// reference tensors are checked with.
pub trait Real:
    num_traits::Float
    + num_traits::NumAssign
    + Sum
    + Debug
    + Display
    + Default
    + Send
    + Sync
    + bytemuck::Pod
    + 'static
{
    /// 16 lanes of this type where there is AVX2.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Vector<Self>;

    /// 16 lanes of this type where there is AVX-512.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Vector<Self>;

    /// The proof [`Real::Avx2`] asks for.
    #[cfg(target_arch = "x86_64")]
    fn avx2_token(token: Avx2Token) -> <Self::Avx2 as Vector<Self>>::Token;

    /// The proof [`Real::Avx512`] asks for.
    #[cfg(target_arch = "x86_64")]
    fn avx512_token(token: Avx512Token) -> <Self::Avx512 as Vector<Self>>::Token;

    /// The nearest value of this type.
    fn of(x: f64) -> Self;

    /// This value as `f64`, exactly.
    fn f64(self) -> f64;

    /// This value rounded to bf16: 8 significant bits, to nearest, ties to even.
    fn bf16(self) -> Self;

    /// e^x, in a form compilers vectorise; see [`crate::kernels::elementary`] for its error.
    /// Finite: arguments are clamped to what the type can hold. NaN stays NaN.
    fn exp_fast(self) -> Self;
}

impl Real for f32 {
    #[cfg(target_arch = "x86_64")]
    type Avx2 = arch::Avx2;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = arch::Avx512;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn avx2_token(token: Avx2Token) -> Avx2Token {
        token
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn avx512_token(token: Avx512Token) -> Avx512Token {
        token
    }
    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn bf16(self) -> f32 {
        crate::arch::round_to_bf16(self)
    }
    #[inline(always)]
    fn exp_fast(self) -> f32 {
        crate::kernels::elementary::exp_scalar(self)
    }
}

// f64 serves tests: plain loops on every path.
impl Real for f64 {
    #[cfg(target_arch = "x86_64")]
    type Avx2 = arch::Plain<f64>;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = arch::Plain<f64>;

    #[cfg(target_arch = "x86_64")]
    fn avx2_token(_: Avx2Token) {}
    #[cfg(target_arch = "x86_64")]
    fn avx512_token(_: Avx512Token) {}

    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn bf16(self) -> f64 {
        f64::from(crate::arch::round_to_bf16(self as f32))
    }
    #[inline(always)]
    fn exp_fast(self) -> f64 {
        libm::exp(self.clamp(-708.0, 709.0))
    }
}
