//! The models: parameters, layers, the whole model.

pub mod architecture;
pub mod family;
