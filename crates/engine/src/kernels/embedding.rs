//! Token embedding plus positions.
//!
//! ```text
//! x_t = E[token_t] + P[position_t]        E: [V, d], P: [N_max, d] or none
//! ```

use crate::panel::{LANES, Lanes, panels};
use crate::real::Real;

/// Writes one sequence's panels `x: [ceil(n / 16)][d]`; `positions: [>= n, d]`, if any. Padded
/// lanes copy the first token.
pub fn forward<T: Real>(
    table: &[T],
    positions: Option<&[T]>,
    tokens: &[u32],
    d: usize,
    x: &mut [Lanes<T>],
) {
    for (p, panel) in x.chunks_exact_mut(d).enumerate() {
        for lane in 0..LANES {
            let t = if p * LANES + lane < tokens.len() { p * LANES + lane } else { 0 };
            let embedded = &table[tokens[t] as usize * d..][..d];
            match positions {
                None => {
                    for (row, &e) in panel.iter_mut().zip(embedded) {
                        row[lane] = e;
                    }
                }
                Some(positions) => {
                    let position = &positions[t * d..][..d];
                    for ((row, &e), &p) in panel.iter_mut().zip(embedded).zip(position) {
                        row[lane] = e + p;
                    }
                }
            }
        }
    }
}

/// Adds one sequence's `dx: [ceil(n / 16)][d]` to the gradients of the table and, if given, of
/// the positions.
pub fn backward<T: Real>(
    tokens: &[u32],
    d: usize,
    dx: &[Lanes<T>],
    dtable: &mut [T],
    mut dpositions: Option<&mut [T]>,
) {
    debug_assert_eq!(dx.len(), panels(tokens.len()) * d);
    for (t, &token) in tokens.iter().enumerate() {
        let (panel, lane) = (&dx[t / LANES * d..][..d], t % LANES);
        let row = &mut dtable[token as usize * d..][..d];
        row.iter_mut().zip(panel).for_each(|(total, dx)| *total += dx[lane]);
        if let Some(dpositions) = dpositions.as_deref_mut() {
            let row = &mut dpositions[t * d..][..d];
            row.iter_mut().zip(panel).for_each(|(total, dx)| *total += dx[lane]);
        }
    }
}
