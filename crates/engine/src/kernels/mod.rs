//! One file per operation: the equation on top, forward and backward side by side.
//!
//! Conventions: matrices are row-major slices; a token is a row (`x: [tokens, d]`); the caller
//! owns every buffer; backward functions *add* to parameter gradients and *overwrite* input
//! gradients unless they say otherwise.

pub mod aggregate;
pub mod elementary;
