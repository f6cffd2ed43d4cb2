//! Token embedding plus positions.
//!
//! ```text
//! x_t = E[token_t] + P[position_t]        E: [V, d], P: [N_max, d] or none
//! ```

use crate::real::Real;

/// Writes `x: [tokens, d]`; `positions: [>= length, d]`, if any, repeats for each sequence.
pub fn forward<T: Real>(
    table: &[T],
    positions: Option<&[T]>,
    tokens: &[u32],
    length: usize,
    x: &mut [T],
) {
    let d = x.len() / tokens.len();
    for (t, (x, &token)) in x.chunks_exact_mut(d).zip(tokens).enumerate() {
        x.copy_from_slice(&table[token as usize * d..][..d]);
        if let Some(positions) = positions {
            super::norm_gelu::add(x, &positions[t % length * d..][..d]);
        }
    }
}

/// Adds `dx: [tokens, d]` to the gradients of the table and, if given, of the positions.
pub fn backward<T: Real>(
    tokens: &[u32],
    length: usize,
    dx: &[T],
    dtable: &mut [T],
    mut dpositions: Option<&mut [T]>,
) {
    let d = dx.len() / tokens.len();
    for (t, (dx, &token)) in dx.chunks_exact(d).zip(tokens).enumerate() {
        super::norm_gelu::add(&mut dtable[token as usize * d..][..d], dx);
        if let Some(dpositions) = dpositions.as_deref_mut() {
            super::norm_gelu::add(&mut dpositions[t % length * d..][..d], dx);
        }
    }
}
