//! Adam, learning rate schedules, gradient clipping.

mod adam;
mod clip;
mod schedule;

pub use adam::Adam;
pub use clip::clip;
pub use schedule::learning_rate;
