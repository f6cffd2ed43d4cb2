//! One file per operation: the equation on top, forward and backward side by side.
//!
//! Conventions: activations are [`panels`](crate::panel) of 16 tokens; the caller owns every
//! buffer; backward functions *add* to parameter gradients and *overwrite* input gradients
//! unless they say otherwise. A dense layer's or norm's two parameters are adjacent in the flat
//! buffer and are passed as one slice.

pub mod aggregate;
pub mod cross_entropy;
pub mod dense;
pub mod dropout;
pub mod elementary;
pub mod embedding;
pub(crate) mod lanes;
pub mod norm_gelu;

use crate::arch::{Kernel, Vector, run};
use crate::panel::LANES;
use crate::real::Real;

/// Sum of squares, in `f64`.
pub fn square<T: Real>(x: &[T]) -> f64 {
    // Chunks keep the rounding of f32 sums small however long the slice is.
    x.chunks(1024).map(|x| run(Square(x)).f64()).sum()
}

struct Square<'a, T>(&'a [T]);

impl<T: Real> Kernel<T> for Square<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) -> T {
        let (rows, rest) = self.0.as_chunks::<LANES>();
        let squares = lanes::sum_rows(
            token,
            rows.len(),
            #[inline(always)]
            |i| V::load(token, &rows[i]) * V::load(token, &rows[i]),
        );
        rest.iter().fold(squares.total(), |total, &x| total + x * x)
    }
}
