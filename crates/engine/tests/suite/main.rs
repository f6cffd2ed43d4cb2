//! The engine's tests in one program, so that its generic code is compiled once for all of them.
//! Those of one file: `cargo test -p nap-engine --test suite -- golden_ops::`.

mod data;
mod engine;
mod golden;
mod golden_graph;
mod golden_ops;
mod golden_tasks;
mod gradients;
#[path = "../support/mod.rs"]
mod support;
mod tasks;

// Where the rule of docs/adding-a-rule.md finds them in the engine, see gradients.rs.
use nap_engine::{arch, panel, real};
