//! The learning rate of each step.
//!
//! ```text
//! plain:     lr (1 - t/total), 0 from total on                t = 0 for the first update
//! warm-up:   lr t/w while t < w = total/10 (rounded down), then the plain rate at t
//! ```
//!
//! Where the two meet, the rate steps down to 0.9 lr. Rounded to f32, as the authors' program
//! computes it.

/// The learning rate of update number `step` (the first is 0) of `total`.
pub fn learning_rate(base: f64, step: u64, total: u64, warmup: bool) -> f32 {
    let warmup_steps = if warmup { total / 10 } else { 0 };
    if step < warmup_steps {
        (base * (step as f64 / warmup_steps as f64)) as f32
    } else {
        (base * (1.0 - step as f64 / total as f64).max(0.0)) as f32
    }
}
