//! The program `nap`: train, compare and explore normalized attention.
//!
//! Data flows one way: arguments and files -> [`resolve`] -> a plain
//! [`RunConfig`](nap_engine::config::RunConfig) -> the engine's trainer -> a [`run_dir`].

pub mod cli;
pub mod error;
pub mod export;
pub mod files;
pub mod output;
pub mod published;
pub mod record;
pub mod resolve;
pub mod run_dir;
pub mod sweep;
