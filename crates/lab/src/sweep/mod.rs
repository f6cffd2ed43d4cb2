//! Sweeps: grids of runs, executed by many workers, never losing what is finished.

pub mod axis;
pub mod directory;
pub mod execute;
pub mod grid;
pub mod identity;
pub mod journal;
pub mod map;
pub mod plan;
pub mod presets;
pub mod record;
pub mod runner;
pub mod schedule;
pub mod slurm;
pub mod spec;
pub mod view;
