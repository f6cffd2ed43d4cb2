//! Sweeps: grids of runs, executed by many workers, never losing what is finished.

pub mod axis;
pub mod directory;
pub mod grid;
pub mod identity;
pub mod journal;
pub mod presets;
pub mod record;
pub mod spec;
