//! The models: parameters, layers, the whole model.

mod aggregation;
pub mod architecture;
pub mod family;
mod feed_forward;
mod flops;
mod layer;
mod micro;
mod network;
pub mod positions;
mod readout;
mod skip;

pub use network::{Model, Pass};
