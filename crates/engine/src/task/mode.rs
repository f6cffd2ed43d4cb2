//! The most frequent token.
//!
//! ```text
//! answer(x) = argmax_v |{ i : x_i = v }|
//! ```
//!
//! Of equally frequent tokens the smallest is meant. The task has no cases.

use super::Info;

/// The task in words.
pub const INFO: Info = Info {
    name: "mode",
    summary: "name the most frequent token",
    rule: "argmax_v |{ i : x_i = v }| (smallest of equals)",
    source: "arXiv 2005.09561, the mode task",
};

/// Tokens counted at a time, in a table on the stack.
const WINDOW: usize = 1024;

/// The answer: a token.
pub fn label(tokens: &[u32]) -> u32 {
    let end = tokens.iter().max().map_or(0, |&t| t as usize + 1);
    let mut counts = [0u32; WINDOW];
    let (mut answer, mut most) = (0, 0);
    for start in (0..end).step_by(WINDOW) {
        let counts = &mut counts[..WINDOW.min(end - start)];
        counts.fill(0);
        for &token in tokens {
            if let Some(count) = counts.get_mut((token as usize).wrapping_sub(start)) {
                *count += 1;
            }
        }
        for (i, &count) in counts.iter().enumerate() {
            if count > most {
                (answer, most) = ((start + i) as u32, count);
            }
        }
    }
    answer
}
