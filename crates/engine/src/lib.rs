//! Training engine for normalized attention (NAP) and the models it is compared with.
//!
//! Numbers only: no files, no terminal, no threads unless asked for. A run is a plain value,
//! [`config::RunConfig`]; [`train::Trainer`] executes it one optimiser step at a time.
//!
//! | module | what is in it |
//! |---|---|
//! | [`config`] | what a run is: model, task and training settings, validated once |
//! | [`kernels`] | one file per operation: equation, forward, backward |
//! | [`kernels::aggregate`] | one file per attention rule or pooling, and their registry |
//! | [`panel`] | how activations lie in memory |
//! | [`arch`] | instruction sets and matrix products, behind safe functions |
//! | [`model`] | parameters, layers, the whole model |
//! | [`mod@reference`] | the whole model family in plain loops: the oracle of every fast path |
//! | [`optim`] | Adam, learning rate schedules, gradient clipping |
//! | [`task`] | the tasks: generators, labels, tracked cases |
//! | [`data`] | data of one's own: examples, batches of similar lengths, their scores |
//! | [`random`] | keyed random streams |
//! | [`profile`] | where a step's time goes |
//! | [`train`] | the training loop, evaluation and checkpoints |
//!
//! ```
//! use nap_engine::config::RunConfig;
//! use nap_engine::train::{Trained, Trainer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = RunConfig::quickstart();
//! config.model.dim = 8;
//! config.task.length = 16;
//! (config.train.epochs, config.train.steps_per_epoch) = (1, 20);
//!
//! let mut trainer = Trainer::new(config)?;
//! while !trainer.finished() {
//!     while trainer.steps_done() < trainer.config().train.steps_per_epoch {
//!         trainer.step();
//!     }
//!     let epoch = trainer.finish_epoch();
//!     println!("epoch {}: {:.3}", epoch.epoch, epoch.validation.accuracy);
//! }
//!
//! let trained = Trained::read(&trainer.weights())?;
//! let scores = trained.evaluate(64, 4, 0)?; // length, batches, seed
//! println!("accuracy at length 64: {:.3}", scores.accuracy);
//! # Ok(())
//! # }
//! ```
//!
//! Source of the models, tasks and defaults: O. Richter and R. Wattenhofer,
//! "Normalized Attention Without Probability Cage", arXiv 2005.09561, and the program its
//! authors published.

pub mod arch;
pub mod config;
pub mod data;
pub mod kernels;
pub mod model;
pub mod optim;
pub mod panel;
pub mod profile;
pub mod random;
pub mod real;
pub mod reference;
pub mod task;
pub mod train;
