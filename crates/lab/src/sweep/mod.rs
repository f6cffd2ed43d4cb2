//! Sweeps: grids of runs, executed by many workers, never losing what is finished.

pub mod axis;
pub mod grid;
pub mod identity;
pub mod presets;
pub mod spec;
