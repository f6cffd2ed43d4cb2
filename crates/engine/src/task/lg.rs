//! Local vs global: every token answers with a position.
//!
//! ```text
//! answer_i(x) = i              if 64 is in x     (local)
//!               argmin_j x_j   else              (global)
//! ```
//!
//! Positions count from 0; of equal tokens the first is meant.

use super::{Case, DECIDING, Info, first_smallest};

/// The task in words.
pub const INFO: Info = Info {
    name: "lg",
    summary: "each token points at itself if token 64 occurs, else at the smallest token",
    rule: "for each i: i if 64 in x; else argmin_j x_j (first of equals)",
    source: "arXiv 2005.09561, the local vs global task",
};

/// The tracked cases.
pub const CASES: [Case; 2] = [
    Case { name: "local", meaning: "64 occurs", main: true },
    Case { name: "global", meaning: "64 does not occur", main: true },
];

/// The answer of each token: a position.
pub fn label(tokens: &[u32], targets: &mut [u32]) {
    if tokens.contains(&DECIDING) {
        for (i, target) in targets.iter_mut().enumerate() {
            *target = i as u32;
        }
    } else {
        targets.fill(first_smallest(tokens));
    }
}

/// Which of [`CASES`] the sequence belongs to.
pub fn membership(tokens: &[u32]) -> [bool; 2] {
    let local = tokens.contains(&DECIDING);
    [local, !local]
}
