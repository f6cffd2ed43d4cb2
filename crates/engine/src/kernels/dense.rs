//! Dense layer.
//!
//! ```text
//! y = x W + b                       x: [rows, in], W: [in, out], b: [out]
//! dx = dy W^T,  dW += x^T dy,  db += sum over rows of dy
//! ```

use crate::arch::{Mat, MatMut, Write, matmul, vectorize};
use crate::real::Real;

/// A dense layer's shape: `[in, out]` matrix, followed by `[out]` bias in the parameter slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dense {
    /// Width of the input.
    pub input: usize,
    /// Width of the output.
    pub output: usize,
}

impl Dense {
    /// Writes `y: [rows, out]`.
    pub fn forward<T: Real>(self, parameters: &[T], x: &[T], y: &mut [T]) {
        let rows = y.len() / self.output;
        self.forward_strided(parameters, Mat::dense(x, rows, self.input), y, self.output);
    }

    /// Only the first `columns` outputs, `y: [rows, columns]`, of rows of `x` that may lie apart.
    pub fn forward_strided<T: Real>(
        self,
        parameters: &[T],
        x: Mat<T>,
        y: &mut [T],
        columns: usize,
    ) {
        let (weight, bias) = parameters.split_at(self.input * self.output);
        let rows = y.len() / columns;
        y.chunks_exact_mut(columns).for_each(|y| y.copy_from_slice(&bias[..columns]));
        let weight = Mat::new(weight, self.input, columns, self.output);
        matmul(MatMut::dense(y, rows, columns), Write::Add, T::one(), x, weight);
    }

    /// Writes (or adds to) `dx`, adds to the parameters' gradient.
    pub fn backward<T: Real>(
        self,
        parameters: &[T],
        x: &[T],
        dy: &[T],
        dx: &mut [T],
        write: Write,
        gradient: &mut [T],
    ) {
        let rows = dy.len() / self.output;
        let x = Mat::dense(x, rows, self.input);
        let dx = MatMut::dense(dx, rows, self.input);
        self.backward_strided(parameters, x, dy, dx, write, gradient, self.output);
    }

    /// The backward of [`Dense::forward_strided`].
    pub fn backward_strided<T: Real>(
        self,
        parameters: &[T],
        x: Mat<T>,
        dy: &[T],
        dx: MatMut<T>,
        write: Write,
        gradient: &mut [T],
        columns: usize,
    ) {
        let rows = dy.len() / columns;
        let weight = Mat::new(parameters, self.input, columns, self.output);
        let (dweight, dbias) = gradient.split_at_mut(self.input * self.output);
        let dy_mat = Mat::dense(dy, rows, columns);
        matmul(dx, write, T::one(), dy_mat, weight.t());
        let dweight = MatMut::new(dweight, self.input, columns, self.output);
        matmul(dweight, Write::Add, T::one(), x.t(), dy_mat);
        vectorize(
            #[inline(always)]
            || {
                for dy in dy.chunks_exact(columns) {
                    for (dbias, &dy) in dbias.iter_mut().zip(dy) {
                        *dbias += dy;
                    }
                }
            },
        );
    }
}
