//! Adam, learning rate schedules, gradient clipping.
