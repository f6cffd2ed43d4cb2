//! Vectorisable exp and tanh.

/// e^x.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    x.exp()
}

/// tanh(x).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    x.tanh()
}
