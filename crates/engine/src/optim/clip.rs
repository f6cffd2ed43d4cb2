//! Clipping of each variable's gradient to norm 1, as the authors' program does it for BERT.
//!
//! ```text
//! g *= 1 / max(|g|, 1)        for each parameter by itself
//! ```
//!
//! For the token embedding |g| is the norm of the gradient at the look-up's output, before
//! equal tokens are summed.

use crate::kernels::square;
use crate::model::architecture::Architecture;
use crate::real::Real;

/// Clips `gradient`, laid out as the architecture's parameters. `embedding_square` is the sum
/// of squares at the embedding's output.
pub fn clip<T: Real>(architecture: &Architecture, gradient: &mut [T], embedding_square: f64) {
    for parameter in &architecture.parameters {
        let gradient = &mut gradient[parameter.range()];
        let square = match parameter.name.as_str() {
            "embedding.weight" => embedding_square,
            _ => square(gradient),
        };
        // A NaN norm makes the gradient NaN, as the authors' program does.
        if square > 1.0 || square.is_nan() {
            let factor = T::of(1.0 / square.sqrt());
            gradient.iter_mut().for_each(|g| *g *= factor);
        }
    }
}
