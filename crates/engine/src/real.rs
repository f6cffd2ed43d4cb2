//! The scalar types the numbers are computed in.

use std::fmt::{Debug, Display};
use std::iter::Sum;

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
    /// The nearest value of this type.
    fn of(x: f64) -> Self;

    /// This value as `f64`, exactly.
    fn f64(self) -> f64;

    /// e^x, in a form compilers vectorise; see [`crate::kernels::elementary`] for its error.
    /// Finite: arguments are clamped to what the type can hold. NaN stays NaN.
    fn exp_fast(self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn exp_fast(self) -> f32 {
        crate::kernels::elementary::exp(self)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn exp_fast(self) -> f64 {
        libm::exp(self.clamp(-708.0, 709.0))
    }
}
