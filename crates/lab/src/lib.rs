//! The program `nap`: train, compare and explore normalized attention.
//!
//! Data flows one way. A single run: arguments and files -> [`resolve`] -> a plain
//! [`RunConfig`](nap_engine::config::RunConfig) -> the engine's trainer -> a [`run_dir`].
//! A sweep: a preset or a file -> [`sweep::spec`] -> [`sweep::grid`] -> [`sweep::runner`] ->
//! [`sweep::journal`] -> [`export`], or [`grids`] for comparisons
//! ([`compare`], by [`statistics`], with what [`published`] holds) and reports. Which model to
//! take: [`mod@choose`]. Speed: [`mod@bench`].

pub mod analyze;
pub mod bench;
pub mod chart;
pub mod choose;
pub mod cli;
pub mod compare;
pub mod data;
pub mod error;
pub mod escape;
pub mod export;
pub mod files;
pub mod grids;
pub mod inspect;
pub mod output;
pub mod parallel;
pub mod plot;
pub mod published;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod resolve;
pub mod run_dir;
pub mod statistics;
pub mod sweep;
