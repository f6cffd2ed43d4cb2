//! How activations lie in memory: panels of 16 tokens, feature by feature.
//!
//! A tensor of tokens with `d` features is `[panels][d][16]`: 16 tokens side by side (the
//! *lanes*), one row per feature. Each sequence starts a panel of its own, so a sequence of n
//! tokens has `ceil(n / 16)` panels, the last one padded. In this layout
//!
//! - whatever works token by token (LayerNorm, GELU, softmax over keys) runs down the rows, 16
//!   tokens at once, with no sums across a vector, at any width, also d = 8;
//! - a panel is already packed as the right-hand side of a matrix product, and the product's
//!   result is a panel again;
//! - 16 lanes are two AVX2 registers, one AVX-512 register, or the width of an AMX tile.
//!
//! Padded lanes start as a copy of the sequence's first token, so that they hold values like any
//! other's on the way forward, which nothing reads; their gradients are 0 on the way back.

use std::ops::{Deref, DerefMut, Range};

use crate::real::Real;

/// Tokens in a panel.
pub const LANES: usize = 16;

/// One feature of the 16 tokens of a panel.
pub type Lanes<T> = [T; LANES];

/// Panels that hold `tokens` tokens.
pub fn panels(tokens: usize) -> usize {
    tokens.div_ceil(LANES)
}

/// Rows of lanes, allocated once, each aligned to a cache line.
#[derive(Debug, Default)]
pub struct Buffer<T> {
    values: Vec<T>,
    /// The first aligned value.
    start: usize,
    rows: usize,
}

impl<T: Real> Buffer<T> {
    /// Room for `rows` rows, all 0.
    pub fn new(rows: usize) -> Self {
        const LINE: usize = 64;
        let values = vec![T::zero(); rows * LANES + LINE / size_of::<T>()];
        // The heap block stays where it is when the vector moves.
        let start = values.as_ptr().align_offset(LINE).min(LINE / size_of::<T>());
        Self { values, start, rows }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [Lanes<T>];

    fn deref(&self) -> &[Lanes<T>] {
        self.values[self.start..][..self.rows * LANES].as_chunks().0
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [Lanes<T>] {
        self.values[self.start..][..self.rows * LANES].as_chunks_mut().0
    }
}

/// Some rows of every panel: `[panels][rows][16]` inside a wider tensor.
#[derive(Debug, Clone, Copy)]
pub struct Panels<'a, T> {
    data: &'a [Lanes<T>],
    rows: usize,
    /// Rows from a panel to the next.
    stride: usize,
    count: usize,
}

/// Number of rows from the first to the last of a view.
fn span(rows: usize, stride: usize, count: usize) -> usize {
    // No overflow: the constructors take views of slices that have all these rows.
    if count == 0 || rows == 0 { 0 } else { (count - 1) * stride + rows }
}

impl<'a, T> Panels<'a, T> {
    /// All of a tensor with `rows` features.
    ///
    /// # Panics
    /// If the data is not whole panels.
    pub fn new(data: &'a [Lanes<T>], rows: usize) -> Self {
        assert!(rows > 0 && data.len().is_multiple_of(rows), "not whole panels of {rows} rows");
        Self { data, rows, stride: rows, count: data.len() / rows }
    }

    /// Some of its rows.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn rows(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "rows out of range");
        let data = self.data.get(range.start..).unwrap_or_default();
        Self { data, rows: range.len(), ..self }
    }

    /// Some of its panels.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn panels(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.count, "panels out of range");
        let data = self.data.get(range.start * self.stride..).unwrap_or_default();
        Self { data, count: range.len(), ..self }
    }

    /// One panel's rows.
    pub fn panel(&self, index: usize) -> &'a [Lanes<T>] {
        assert!(index < self.count, "panel {index} of {}", self.count);
        &self.data[index * self.stride..][..self.rows]
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.rows
    }

    /// Rows from a panel to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The memory from the first row on, at least up to the last.
    pub(crate) fn data(&self) -> &'a [Lanes<T>] {
        assert!(span(self.rows, self.stride, self.count) <= self.data.len());
        self.data
    }
}

/// [`Panels`] to write to.
#[derive(Debug)]
pub struct PanelsMut<'a, T> {
    data: &'a mut [Lanes<T>],
    rows: usize,
    stride: usize,
    count: usize,
}

impl<'a, T> PanelsMut<'a, T> {
    /// All of a tensor with `rows` features.
    ///
    /// # Panics
    /// If the data is not whole panels.
    pub fn new(data: &'a mut [Lanes<T>], rows: usize) -> Self {
        assert!(rows > 0 && data.len().is_multiple_of(rows), "not whole panels of {rows} rows");
        let count = data.len() / rows;
        Self { data, rows, stride: rows, count }
    }

    /// Some of its rows.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn rows(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "rows out of range");
        let data = self.data.get_mut(range.start..).unwrap_or_default();
        Self { data, rows: range.len(), ..self }
    }

    /// Some of its panels.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn panels(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.count, "panels out of range");
        let data = self.data.get_mut(range.start * self.stride..).unwrap_or_default();
        Self { data, count: range.len(), ..self }
    }

    /// The same view, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> PanelsMut<'_, T> {
        PanelsMut { data: self.data, rows: self.rows, stride: self.stride, count: self.count }
    }

    /// One panel's rows.
    pub fn panel(&mut self, index: usize) -> &mut [Lanes<T>] {
        assert!(index < self.count, "panel {index} of {}", self.count);
        &mut self.data[index * self.stride..][..self.rows]
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.rows
    }

    /// Rows from a panel to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The memory from the first row on, at least up to the last.
    pub(crate) fn into_data(self) -> &'a mut [Lanes<T>] {
        assert!(span(self.rows, self.stride, self.count) <= self.data.len());
        self.data
    }
}
