//! Results as a page and as pictures: [`panel`] arranges grids, ours beside the published ones;
//! [`page`] makes one interactive HTML file of them, [`crate::plot`] pictures for print.

pub mod command;
pub mod page;
pub mod panel;
pub mod summary;
pub mod words;
