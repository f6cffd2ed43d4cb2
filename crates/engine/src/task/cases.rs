//! argmin-first-argmax, the case distinction task.
//!
//! ```text
//! answer(x) = argmin_i x_i   if 64 is in x
//!             0              else if 50 is in x
//!             argmax_i x_i   else
//! ```
//!
//! Positions count from 0; of equal tokens the first is meant.

use super::{Case, DECIDING, FIRST, Info, first_largest, first_smallest};

/// The task in words.
pub const INFO: Info = Info {
    name: "cases",
    summary: "point at the smallest, the first or the largest token, whichever token 64 or 50 asks for",
    rule: "argmin_i x_i if 64 in x; else 0 if 50 in x; else argmax_i x_i (first of equals)",
    source: "arXiv 2005.09561, the case distinction task (argmin-first-argmax)",
};

/// The tracked cases.
pub const CASES: [Case; 7] = [
    Case { name: "argmin", meaning: "64 occurs", main: true },
    Case {
        name: "argmin_at_first",
        meaning: "64 occurs and the smallest token is the first",
        main: false,
    },
    Case { name: "first", meaning: "50 occurs and 64 does not", main: true },
    Case {
        name: "first_argmin_at_first",
        meaning: "50 occurs, 64 does not, and the smallest token is the first",
        main: false,
    },
    Case {
        name: "first_argmax_at_first",
        meaning: "50 occurs, 64 does not, and the largest token is the first",
        main: false,
    },
    Case { name: "argmax", meaning: "neither 64 nor 50 occurs", main: true },
    Case {
        name: "argmax_at_first",
        meaning: "neither 64 nor 50 occurs, and the largest token is the first",
        main: false,
    },
];

/// The answer: a position.
pub fn label(tokens: &[u32]) -> u32 {
    if tokens.contains(&DECIDING) {
        first_smallest(tokens)
    } else if tokens.contains(&FIRST) {
        0
    } else {
        first_largest(tokens)
    }
}

/// Which of [`CASES`] the sequence belongs to.
pub fn membership(tokens: &[u32]) -> [bool; 7] {
    let argmin = tokens.contains(&DECIDING);
    let first = !argmin && tokens.contains(&FIRST);
    let argmax = !argmin && !first;
    let smallest = first_smallest(tokens) == 0;
    let largest = first_largest(tokens) == 0;
    [
        argmin,
        argmin && smallest,
        first,
        first && smallest,
        first && largest,
        argmax,
        argmax && largest,
    ]
}
