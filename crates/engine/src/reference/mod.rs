//! The whole model family in plain loops, generic over `f32` and `f64`.
