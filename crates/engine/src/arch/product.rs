//! Matrix products of panels.
//!
//! | function | product | sums over |
//! |---|---|---|
//! | [`matmul`] | `Y = W X`, a matrix times tokens | features |
//! | [`matmul_nt`] | `C = X Y^T`, features times features | tokens |
//! | [`matmul_tn`] | `C = X^T Y`, tokens times tokens | features |
//!
//! with X: [features, tokens] and Y in panels. The order of summation is fixed: one sum per
//! element, first to last.
#![allow(unsafe_code)]

use std::ops::Range;

use super::tile::{self, Begin, Job, MAX_HEIGHT, lane_strip_height, max_height, strip_height};
use super::transpose::Transposed;
use crate::panel::{LANES, Lanes, Panels, PanelsMut};
use crate::real::Real;

/// A matrix `W: [rows, inner]`, packed for [`matmul`].
#[derive(Debug, Default)]
pub struct Strips<T> {
    /// Strips of `height` rows, `[inner][height]` each, the last padded with 0.
    data: Vec<T>,
    rows: usize,
    inner: usize,
    height: usize,
}

impl<T: Real> Strips<T> {
    /// Room for a matrix of this shape, all 0.
    pub fn new(rows: usize, inner: usize) -> Self {
        let height = strip_height::<T>(rows);
        let values = rows.next_multiple_of(height).checked_mul(inner).expect("a matrix in memory");
        Self { data: vec![T::zero(); values], rows, inner, height }
    }

    /// Packs a part of the matrix from `w`, whose element (i, k) is
    /// `w[i * row_stride + k * inner_stride]`.
    ///
    /// # Panics
    /// If there is no room or `w` is too short.
    pub fn pack(
        &mut self,
        rows: Range<usize>,
        inner: Range<usize>,
        w: &[T],
        row_stride: usize,
        inner_stride: usize,
    ) {
        self.pack_with(rows, inner, w, row_stride, inner_stride, |w| w);
    }

    /// [`Strips::pack`] of `f(w)`.
    pub(super) fn pack_with(
        &mut self,
        rows: Range<usize>,
        inner: Range<usize>,
        w: &[T],
        row_stride: usize,
        inner_stride: usize,
        f: impl Fn(T) -> T,
    ) {
        assert!(rows.end <= self.rows && inner.end <= self.inner, "no room for this part");
        let height = self.height;
        let mut row = rows.start;
        while row < rows.end {
            // The rows that lie in one strip.
            let end = rows.end.min(row / height * height + height);
            let strip = &mut self.data[row / height * height * self.inner..];
            let strip = strip[inner.start * height..inner.end * height].chunks_exact_mut(height);
            let first = (row - rows.start) * row_stride;
            for (k, to) in strip.enumerate() {
                let to = &mut to[row % height..][..end - row];
                let from = &w[first + k * inner_stride..][..(to.len() - 1) * row_stride + 1];
                if row_stride == 1 {
                    to.iter_mut().zip(from).for_each(|(to, &w)| *to = f(w));
                } else {
                    let from = from.iter().step_by(row_stride);
                    to.iter_mut().zip(from).for_each(|(to, &w)| *to = f(w));
                }
            }
            row = end;
        }
    }
}

/// What a product starts from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start<'a, T> {
    /// 0: the product replaces what is there.
    Zero,
    /// What is there: the product is added.
    Add,
    /// One value per row.
    Bias(&'a [T]),
}

/// A result with rows and columns: row-major in a slice, or one in panels.
#[derive(Debug)]
pub struct Out<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    /// From 16 columns to the next 16.
    block_stride: usize,
}

impl<'a, T: Real> Out<'a, T> {
    /// A row-major matrix whose rows start `row_stride` apart.
    ///
    /// # Panics
    /// If rows overlap or the slice is too short.
    pub fn matrix(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(rows <= 1 || row_stride >= columns, "rows overlap");
        let last_row = rows.saturating_sub(1).checked_mul(row_stride);
        let span = last_row.and_then(|last| last.checked_add(if rows == 0 { 0 } else { columns }));
        assert!(span.is_some_and(|span| span <= data.len()), "matrix exceeds its slice");
        Self { data, rows, columns, row_stride, block_stride: LANES }
    }

    /// Panels: rows are features, columns are tokens, padded ones included.
    pub fn panels(out: PanelsMut<'a, T>) -> Self {
        let (rows, count, stride) = (out.height(), out.count(), out.stride());
        let data = out.into_data().as_flattened_mut();
        Self { data, rows, columns: count * LANES, row_stride: LANES, block_stride: stride * LANES }
    }
}

impl<'a, T> Out<'a, T> {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Rows, columns, and the distances between rows and between blocks of 16 columns.
    pub(super) fn shape(&self) -> (usize, usize, usize, usize) {
        (self.rows, self.columns, self.row_stride, self.block_stride)
    }

    pub(super) fn into_data(self) -> &'a mut [T] {
        self.data
    }
}

/// `Y = start + W X` with the first `y.height()` rows of W and its first `x.height()` columns.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul<T: Real>(w: &Strips<T>, x: Panels<T>, y: PanelsMut<T>, start: Start<T>) {
    let (rows, inner) = (y.height(), x.height());
    assert!(rows <= w.rows && inner <= w.inner, "a matrix of {} x {}", w.rows, w.inner);
    assert_eq!(x.count(), y.count(), "panels");
    let begin = match start {
        Start::Zero => Begin::Zero,
        Start::Add => Begin::Add,
        Start::Bias(bias) => {
            assert!(rows <= bias.len(), "one bias per row");
            Begin::Bias(bias.as_ptr())
        }
    };
    let (blocks, c_block) = (y.count(), y.stride() * LANES);
    let job = Job {
        rows,
        height: w.height,
        blocks,
        segments: 1,
        inner,
        a: w.data.as_ptr(),
        a_row: w.inner,
        a_panel: LANES * w.inner,
        a_segment: 0,
        step: w.height,
        b: x.data().as_flattened().as_ptr(),
        b_block: x.stride() * LANES,
        c: y.into_data().as_flattened_mut().as_mut_ptr(),
        c_block,
        c_row: LANES,
        begin,
    };
    // SAFETY: a strip of `height` rows holds `w.inner >= inner` columns and there are strips for
    // `w.rows >= rows` rows (`Strips::new`); `data()` checked that the views' rows and panels
    // lie in their slices; `y` is borrowed mutably and the rows of a panel, and the panels, do
    // not overlap; there is a bias per row; `strip_height` is at most `max_height`.
    unsafe { tile::run::<T, false>(&job) }
}

/// `C (+)= X Y^T`: `x` features by `y` features, summed over tokens.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul_nt<T: Real>(x: Panels<T>, y: &Transposed<T>, out: Out<T>, add: bool) {
    assert_eq!(x.count() * LANES, y.tokens(), "tokens");
    matmul_rows(x, y.data(), out, add);
}

/// `C (+)= X B`: `x` features by 16 columns (or blocks of them), summed over tokens, where
/// `b: [blocks][tokens][16]`.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul_rows<T: Real>(x: Panels<T>, b: &[Lanes<T>], out: Out<T>, add: bool) {
    let tokens = x.count() * LANES;
    let blocks = out.columns.div_ceil(LANES);
    assert_eq!(out.rows, x.height(), "rows");
    assert!(blocks * tokens <= b.len(), "columns");
    let job = Job {
        rows: out.rows,
        height: max_height::<T>(),
        blocks,
        segments: x.count(),
        inner: LANES,
        a: x.data().as_flattened().as_ptr(),
        a_row: LANES,
        a_panel: LANES * LANES,
        a_segment: x.stride() * LANES,
        step: 1,
        b: b.as_flattened().as_ptr(),
        b_block: tokens * LANES,
        c: std::ptr::null_mut(),
        c_block: 0,
        c_row: 0,
        begin: Begin::Zero,
    };
    // SAFETY: `data()` checked that the rows of x's panels lie in its slice; b holds `blocks`
    // blocks of all tokens.
    unsafe { write::<T, true>(out, job, add) };
}

/// `C (+)= X^T Y`: tokens of `x` (as many as `out` has rows) by tokens of `y`, summed over
/// features.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul_tn<T: Real>(x: Panels<T>, y: Panels<T>, out: Out<T>, add: bool) {
    assert_eq!(x.height(), y.height(), "features");
    assert!(out.rows <= x.count() * LANES && out.columns <= y.count() * LANES, "tokens");
    let job = Job {
        rows: out.rows,
        height: lane_strip_height::<T>(),
        blocks: out.columns.div_ceil(LANES),
        segments: 1,
        inner: x.height(),
        a: x.data().as_flattened().as_ptr(),
        a_row: 1,
        a_panel: x.stride() * LANES,
        a_segment: 0,
        step: LANES,
        b: y.data().as_flattened().as_ptr(),
        b_block: y.stride() * LANES,
        c: std::ptr::null_mut(),
        c_block: 0,
        c_row: 0,
        begin: Begin::Zero,
    };
    // SAFETY: `data()` checked the panels of both, of which there are enough, and whose rows hold
    // 16 tokens; `lane_strip_height` divides these 16 and is at most `max_height`.
    unsafe { write::<T, false>(out, job, add) };
}

/// Runs a job whose result is `out`: whole blocks of columns in place, the rest by way of a
/// buffer.
///
/// # Safety
/// As [`tile::run`], but for C, which `out` supplies.
unsafe fn write<T: Real, const BY_ROW: bool>(out: Out<T>, job: Job<T>, add: bool) {
    let whole = out.columns / LANES;
    let direct = Job {
        blocks: whole,
        c: out.data.as_mut_ptr(),
        c_block: out.block_stride,
        c_row: out.row_stride,
        begin: if add { Begin::Add } else { Begin::Zero },
        ..job
    };
    // SAFETY: the constructors of Out checked that all rows and columns lie in its slice, which
    // is borrowed mutably, and that rows do not overlap; the rest is the caller's promise.
    unsafe { tile::run::<T, BY_ROW>(&direct) };
    let rest = out.columns % LANES;
    if rest == 0 {
        return;
    }
    let mut buffer = [[T::zero(); LANES]; MAX_HEIGHT];
    for row in (0..job.rows).step_by(job.height) {
        let rows = job.height.min(job.rows - row);
        // SAFETY: the last block of B and strips of A are part of the job; C is the buffer,
        // which has room for the tallest strip.
        unsafe {
            let strip = Job {
                rows,
                blocks: 1,
                a: job.a.add(job.a_at(row)),
                b: job.b.add(whole * job.b_block),
                c: buffer.as_flattened_mut().as_mut_ptr(),
                c_block: 0,
                c_row: LANES,
                ..job
            };
            tile::run::<T, BY_ROW>(&strip);
        }
        for (i, buffer) in buffer.iter().enumerate().take(rows) {
            let at = (row + i) * out.row_stride + whole * out.block_stride;
            for (out, &sum) in out.data[at..at + rest].iter_mut().zip(buffer) {
                *out = if add { *out + sum } else { sum };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values<T: Real>(n: usize, seed: u32) -> Vec<T> {
        let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
        let value = |i| f64::from(hash(i).wrapping_mul(0x9E37_79B9) >> 8) / 8_388_608.0 - 1.0;
        (0..n).map(|i| T::of(value(i))).collect()
    }

    fn lanes<T: Real>(rows: usize, seed: u32) -> Vec<Lanes<T>> {
        values(rows * LANES, seed).as_chunks().0.to_vec()
    }

    /// Row i of token t.
    fn at<T: Real>(x: Panels<T>, i: usize, t: usize) -> f64 {
        x.panel(t / LANES)[i][t % LANES].f64()
    }

    /// Whether `actual` is `begin` and the sum of the terms, as nearly as rounding once per term
    /// and once per sum promises.
    fn close<T: Real>(actual: T, begin: f64, terms: impl Iterator<Item = f64>) {
        let (mut sum, mut size, mut count) = (begin, begin.abs(), 2.0);
        for term in terms {
            (sum, size, count) = (sum + term, size + term.abs(), count + 1.0);
        }
        let error = (actual.f64() - sum).abs();
        assert!(error <= T::epsilon().f64() * count * size, "{error:e} of {size}");
    }

    /// `[rows, inner, panels]`: each product of views into wider tensors against plain sums.
    fn check<T: Real>([rows, inner, count]: [usize; 3], tokens: usize, start: usize) {
        let add = start == 1;
        let x = lanes::<T>((inner + 3) * count, 1);
        let x = Panels::new(&x, inner + 3).rows(2..2 + inner);

        // A matrix with more rows and columns than are used, packed in two parts.
        let (w, bias) = (values::<T>((rows + 2) * (inner + 1), 2), values::<T>(rows, 3));
        let (width, half) = (inner + 1, rows / 2);
        let mut strips = Strips::new(rows + 2, width);
        strips.pack(half..rows + 2, 0..width, &w[half * width..], width, 1);
        strips.pack(0..half, 0..width, &w, width, 1);
        let before = lanes::<T>((rows + 1) * count, 4);
        let mut y = before.clone();
        let start = [Start::Zero, Start::Add, Start::Bias(&bias)][start];
        matmul(&strips, x, PanelsMut::new(&mut y, rows + 1).rows(1..rows + 1), start);
        let (before, y) = (Panels::new(&before, rows + 1), Panels::new(&y, rows + 1));
        for t in 0..count * LANES {
            assert_eq!(at(y, 0, t), at(before, 0, t), "a row of its own");
            for i in 0..rows {
                let terms = (0..inner).map(|k| w[i * width + k].f64() * at(x, k, t));
                let begin = match start {
                    Start::Zero => 0.0,
                    Start::Add => at(before, i + 1, t),
                    Start::Bias(bias) => bias[i].f64(),
                };
                close(y.panel(t / LANES)[i + 1][t % LANES], begin, terms);
            }
        }

        // X Y^T into a matrix whose rows lie apart.
        let other = before.rows(1..rows + 1);
        let mut transposed = Transposed::new(rows, count);
        let c_before = values::<T>(inner * (rows + 1), 5);
        let mut c = c_before.clone();
        let out = Out::matrix(&mut c, inner, rows, rows + 1);
        matmul_nt(x, transposed.set(other), out, add);
        for i in 0..inner {
            assert_eq!(c[i * (rows + 1) + rows], c_before[i * (rows + 1) + rows], "between rows");
            for j in 0..rows {
                let terms = (0..count * LANES).map(|t| at(x, i, t) * at(other, j, t));
                let place = i * (rows + 1) + j;
                let begin = if add { c_before[place].f64() } else { 0.0 };
                close(c[place], begin, terms);
            }
        }

        // X^T Y, of some tokens of X by all of Y.
        let y = lanes::<T>(inner * count, 6);
        let y = Panels::new(&y, inner);
        let columns = (count * LANES).min(tokens + 5);
        let c_before = values::<T>(tokens * columns, 7);
        let mut c = c_before.clone();
        matmul_tn(x, y, Out::matrix(&mut c, tokens, columns, columns), add);
        for i in 0..tokens {
            for j in 0..columns {
                let terms = (0..inner).map(|k| at(x, k, i) * at(y, k, j));
                let begin = if add { c_before[i * columns + j].f64() } else { 0.0 };
                close(c[i * columns + j], begin, terms);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn products_of_views_equal_plain_sums(
            rows in 1usize..40, inner in 1usize..40, count in 1usize..6, used in 0.01f64..1.0,
            start in 0usize..3,
        ) {
            let tokens = ((count * LANES) as f64 * used).ceil() as usize;
            check::<f32>([rows, inner, count], tokens, start);
            check::<f64>([rows, inner, count], tokens, start);
        }
    }

    #[test]
    #[should_panic(expected = "exceeds its slice")]
    fn rows_so_far_apart_that_sizes_overflow_are_refused() {
        Out::matrix(&mut [0f32; 11], 9, 1, 1 << 61);
    }

    #[test]
    #[should_panic(expected = "a matrix in memory")]
    fn a_matrix_beyond_memory_is_refused() {
        Strips::<f32>::new(2, 1 << 63);
    }
}
