//! Drawing one sequence and changing which of the special tokens occur in it.

use super::DECIDING;
use crate::random::Stream;

/// Uniform tokens, in order of their positions.
pub(super) fn draw(tokens: &mut [u32], vocab: u32, stream: &mut Stream) {
    for token in tokens {
        *token = stream.below(vocab);
    }
}

/// `case_bias` passes, as in the [module's](super) words. A pass that finds nothing to do draws
/// nothing; else it tosses a coin, and draws further only on `true`.
pub(super) fn bias(tokens: &mut [u32], vocab: u32, case_bias: i32, stream: &mut Stream) {
    if vocab <= DECIDING {
        return;
    }
    // Each pass acts on the same side until it has acted once; then none is left to act.
    let wanted = case_bias > 0;
    if tokens.contains(&DECIDING) == wanted {
        return;
    }
    for _ in 0..case_bias.unsigned_abs() {
        if stream.coin() {
            if wanted {
                insert(tokens, DECIDING, stream);
            } else {
                remove(tokens, vocab, |token| token == DECIDING, stream);
            }
            return;
        }
    }
}

/// Overwrites a uniformly drawn position with `token`.
pub(super) fn insert(tokens: &mut [u32], token: u32, stream: &mut Stream) {
    let position = stream.below(tokens.len() as u32);
    tokens[position as usize] = token;
}

/// Redraws unwanted tokens, in order of their positions, each until it is not unwanted.
pub(super) fn remove(
    tokens: &mut [u32],
    vocab: u32,
    unwanted: impl Fn(u32) -> bool,
    stream: &mut Stream,
) {
    for token in tokens {
        while unwanted(*token) {
            *token = stream.below(vocab);
        }
    }
}
