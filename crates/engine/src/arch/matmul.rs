//! Matrix products of strided views.
//!
//! The `gemm` crate computes them where the processor has AVX2 or better. It splits the inner
//! dimension by the machine's cache sizes beyond 512, which would make the bits depend on the
//! machine, so longer products are cut here, at fixed places. The portable path is plain loops.

use super::{Isa, isa};
use crate::real::Real;

/// The longest inner dimension given to the `gemm` crate at once; it never splits this.
const INNER: usize = 512;

/// A matrix seen in a slice: element (i, j) is `data[i * row_stride + j * col_stride]`.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, T> Mat<'a, T> {
    /// A row-major matrix `[rows, cols]` whose rows start `row_stride` apart.
    ///
    /// # Panics
    /// If the slice is too short.
    pub fn new(data: &'a [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        let mat = Self { data, rows, cols, row_stride, col_stride: 1 };
        assert!(span(rows, cols, row_stride) <= data.len(), "matrix exceeds its slice");
        mat
    }

    /// A dense row-major matrix `[rows, cols]`.
    pub fn dense(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::new(data, rows, cols, cols)
    }

    /// Its transpose.
    pub fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// A row-major matrix to write to.
#[derive(Debug)]
pub struct MatMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

impl<'a, T> MatMut<'a, T> {
    /// A row-major matrix `[rows, cols]` whose rows start `row_stride` apart.
    ///
    /// # Panics
    /// If the slice is too short or rows overlap.
    pub fn new(data: &'a mut [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(rows <= 1 || row_stride >= cols, "rows overlap");
        assert!(span(rows, cols, row_stride) <= data.len(), "matrix exceeds its slice");
        Self { data, rows, cols, row_stride }
    }

    /// A dense row-major matrix `[rows, cols]`.
    pub fn dense(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        Self::new(data, rows, cols, cols)
    }
}

/// Number of elements from the first to the last of a matrix.
fn span(rows: usize, cols: usize, row_stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row_stride + cols }
}

/// Whether a product replaces what is there or is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// out = factor * a b
    Set,
    /// out += factor * a b
    Add,
}

/// `out (+)= factor * a b`
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul<T: Real>(out: MatMut<T>, write: Write, factor: T, a: Mat<T>, b: Mat<T>) {
    assert!(
        a.rows == out.rows && b.cols == out.cols && a.cols == b.rows,
        "shapes do not fit: [{}, {}] = [{}, {}] [{}, {}]",
        out.rows,
        out.cols,
        a.rows,
        a.cols,
        b.rows,
        b.cols
    );
    if isa() == Isa::Portable {
        portable(out, write, factor, a, b);
    } else {
        library(out, write, factor, a, b);
    }
}

fn portable<T: Real>(out: MatMut<T>, write: Write, factor: T, a: Mat<T>, b: Mat<T>) {
    for i in 0..out.rows {
        let row = &mut out.data[i * out.row_stride..][..out.cols];
        if write == Write::Set {
            row.fill(T::zero());
        }
        for k in 0..a.cols {
            let x = factor * a.data[i * a.row_stride + k * a.col_stride];
            if b.col_stride == 1 {
                let b = &b.data[k * b.row_stride..][..row.len()];
                row.iter_mut().zip(b).for_each(|(out, &b)| *out += x * b);
            } else {
                let b = b.data[k * b.row_stride..].iter().step_by(b.col_stride);
                row.iter_mut().zip(b).for_each(|(out, &b)| *out += x * b);
            }
        }
    }
}

#[allow(unsafe_code)]
fn library<T: Real>(out: MatMut<T>, write: Write, factor: T, a: Mat<T>, b: Mat<T>) {
    if out.rows == 0 || out.cols == 0 {
        return;
    }
    let mut add = write == Write::Add;
    let mut start = 0;
    // An inner dimension of 0 still has to clear the output: one pass with nothing to add.
    while start < a.cols || start == 0 {
        let inner = (a.cols - start).min(INNER);
        let lhs = a.data.get(start * a.col_stride..).unwrap_or_default();
        let rhs = b.data.get(start * b.row_stride..).unwrap_or_default();
        // SAFETY: the constructors of Mat and MatMut checked that every (row, column) within
        // rows x cols lies in the slice (and `t` only swaps the two), the shapes were compared
        // by `matmul`, and `start + inner <= a.cols == b.rows`. `out` is borrowed mutably, so
        // it overlaps neither input, and its rows do not overlap each other. Strides are at
        // most slice lengths, which fit in isize.
        unsafe {
            gemm::gemm(
                out.rows,
                out.cols,
                inner,
                out.data.as_mut_ptr(),
                1,
                out.row_stride as isize,
                add,
                lhs.as_ptr(),
                a.col_stride as isize,
                a.row_stride as isize,
                rhs.as_ptr(),
                b.col_stride as isize,
                b.row_stride as isize,
                T::one(),
                factor,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
        add = true;
        start += inner.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(n: usize, seed: u32) -> Vec<f64> {
        let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
        (0..n)
            .map(|i| f64::from(hash(i).wrapping_mul(0x9E37_79B9) >> 8) / 8_388_608.0 - 1.0)
            .collect()
    }

    /// Compares one product in both precisions and on both paths with plain sums.
    fn check<T: Real>(
        dims: [usize; 3],
        pads: [usize; 3],
        flips: [bool; 2],
        write: Write,
        eps: f64,
    ) {
        let [m, n, k] = dims;
        // Storage shapes: transposed operands are stored the other way round.
        let (ar, ac) = if flips[0] { (k, m) } else { (m, k) };
        let (br, bc) = if flips[1] { (n, k) } else { (k, n) };
        let (sa, sb, so) = (ac + pads[0], bc + pads[1], n + pads[2]);
        let of = |v: Vec<f64>| v.into_iter().map(T::of).collect::<Vec<_>>();
        let (a, b) = (of(values(ar * sa, 1)), of(values(br * sb, 2)));
        let before = of(values(m * so, 3));
        let mat_a = Mat::new(&a, ar, ac, sa);
        let mat_b = Mat::new(&b, br, bc, sb);
        let mat_a = if flips[0] { mat_a.t() } else { mat_a };
        let mat_b = if flips[1] { mat_b.t() } else { mat_b };
        for path in [portable::<T>, library::<T>] {
            let mut out = before.clone();
            path(MatMut::new(&mut out, m, n, so), write, T::of(0.5), mat_a, mat_b);
            for i in 0..m {
                for j in 0..so {
                    let start = before[i * so + j].f64();
                    let expected = if j >= n {
                        start
                    } else {
                        let at = |l: usize| {
                            let x = if flips[0] { a[l * sa + i] } else { a[i * sa + l] };
                            let y = if flips[1] { b[j * sb + l] } else { b[l * sb + j] };
                            x.f64() * y.f64()
                        };
                        let product = 0.5 * (0..k).map(at).sum::<f64>();
                        if write == Write::Add { start + product } else { product }
                    };
                    let error = (out[i * so + j].f64() - expected).abs();
                    assert!(error <= eps * (k as f64 + 1.0), "({i}, {j}): {error:e}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_plain_sums(
            m in 1usize..40, n in 1usize..40, k in 0usize..40,
            pads in prop::array::uniform3(0usize..5),
            flips in prop::array::uniform2(any::<bool>()),
            add in any::<bool>(),
        ) {
            let write = if add { Write::Add } else { Write::Set };
            check::<f32>([m, n, k], pads, flips, write, f64::from(f32::EPSILON));
            check::<f64>([m, n, k], pads, flips, write, f64::EPSILON);
        }
    }

    #[test]
    fn long_inner_dimensions_are_cut() {
        for k in [511, 512, 513, 1025] {
            check::<f32>([5, 3, k], [0; 3], [true, false], Write::Add, f64::from(f32::EPSILON));
        }
    }

    #[test]
    #[should_panic(expected = "exceeds its slice")]
    fn a_view_beyond_its_slice_is_refused() {
        Mat::new(&[0f32; 11], 3, 4, 4);
    }
}
