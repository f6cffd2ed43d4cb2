//! Graph layer.
