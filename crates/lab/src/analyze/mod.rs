//! The paper's two arguments, measured: what aggregation does to scale at initialisation, and
//! that softmax cannot leave the hull of the values.
//!
//! | file | what |
//! |---|---|
//! | [`vectors`] | random queries, keys and values: norm and deviation of the aggregate by length |
//! | [`models`] | untrained models: aggregation branch against skip, and token isolation |
//! | [`hull`] | two dimensions: a target outside the hull, trained for |

pub mod hull;
pub mod models;
pub mod vectors;
