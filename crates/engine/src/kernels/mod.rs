//! One file per operation: the equation on top, forward and backward side by side.
//!
//! Conventions: matrices are row-major slices; a token is a row (`x: [tokens, d]`); the caller
//! owns every buffer; backward functions *add* to parameter gradients and *overwrite* input
//! gradients unless they say otherwise. A dense layer's or norm's two parameters are adjacent
//! in the flat buffer and are passed as one slice.

pub mod aggregate;
pub mod cross_entropy;
pub mod dense;
pub mod dropout;
pub mod elementary;
pub mod embedding;
mod lanes;
pub mod norm_gelu;

use crate::arch::vectorize;
use crate::real::Real;

/// Sum of squares, in `f64`.
pub fn square<T: Real>(x: &[T]) -> f64 {
    // Chunks keep the rounding of f32 sums small however long the slice is.
    x.chunks(1024)
        .map(|x| {
            vectorize(
                #[inline(always)]
                || lanes::sum(x, |x| x * x),
            )
            .f64()
        })
        .sum()
}
