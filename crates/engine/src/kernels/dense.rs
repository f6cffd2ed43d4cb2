//! Dense layer.
//!
//! ```text
//! y = W^T x + b                     x: [in] per token, W: [in, out], b: [out]
//! dx = W dy,  dW += sum over tokens of x dy^T,  db += sum over tokens of dy
//! ```
//!
//! In bf16 ([`Precision::Bf16`]) the operands of these three products are rounded; db is not
//! a product and sums dy as it is.
//!
//! Several layers of one input (query, key, value) can be one: their outputs follow each other.

use std::ops::Range;

use crate::arch::{
    Kernel, Matrix16, Out, Panels16, Start, Strips, Transposed, Vector, matmul, matmul_nt,
    matmul_nt16, matmul16, run,
};
use crate::config::Precision;
use crate::kernels::lanes::sum_rows;
use crate::panel::{LANES, Lanes, Panels, PanelsMut};
use crate::profile::{Part, time};
use crate::real::Real;

/// Dense layers of one input, each a `[in, out]` matrix followed by its `[out]` bias in the flat
/// parameter buffer, packed for products.
#[derive(Debug)]
pub struct Dense<T> {
    input: usize,
    parts: Vec<Layer>,
    weights: Weights<T>,
    bias: Vec<T>,
}

/// The packed matrices: outputs by inputs for the forward pass, inputs by outputs for the way
/// back.
#[derive(Debug)]
enum Weights<T> {
    F32 { forward: Strips<T>, backward: Strips<T> },
    Bf16 { forward: Matrix16<T>, backward: Matrix16<T> },
}

/// Buffers of the layers' products, reused by all.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    transposed: Transposed<T>,
    /// Operands in bf16.
    left: Panels16<T>,
    right: Panels16<T>,
}

impl<T: Real> Scratch<T> {
    /// Room for inputs and outputs of up to `rows` features of `panels` panels.
    pub fn new(rows: usize, panels: usize, precision: Precision) -> Self {
        let transposed = Transposed::new(rows, panels);
        match precision {
            Precision::F32 => Self { transposed, ..Self::default() },
            Precision::Bf16 => {
                let operand = || Panels16::new(rows, panels);
                Self { transposed, left: operand(), right: operand() }
            }
        }
    }
}

/// One of the layers.
#[derive(Debug)]
struct Layer {
    /// Its matrix and bias in the flat buffer.
    range: Range<usize>,
    /// Its outputs among all.
    outputs: Range<usize>,
}

impl<T: Real> Dense<T> {
    /// Layers of this input width whose parameters lie in these ranges.
    pub fn new(input: usize, parts: &[Range<usize>], precision: Precision) -> Self {
        let mut outputs = 0;
        let part = |range: &Range<usize>| {
            let first = outputs;
            outputs += range.len() / (input + 1);
            Layer { range: range.clone(), outputs: first..outputs }
        };
        let parts = parts.iter().map(part).collect();
        let weights = match precision {
            Precision::F32 => Weights::F32 {
                forward: Strips::new(outputs, input),
                backward: Strips::new(input, outputs),
            },
            Precision::Bf16 => Weights::Bf16 {
                forward: Matrix16::new(outputs, input),
                backward: Matrix16::new(input, outputs),
            },
        };
        Self { input, parts, weights, bias: vec![T::zero(); outputs] }
    }

    /// Width of all outputs together.
    pub fn output(&self) -> usize {
        self.bias.len()
    }

    /// Takes over the parameters' values. Call it whenever they have changed.
    pub fn pack(&mut self, parameters: &[T]) {
        time(Part::Packing, || self.pack_parts(parameters));
    }

    fn pack_parts(&mut self, parameters: &[T]) {
        for Layer { range, outputs } in &self.parts {
            let (input, width) = (self.input, outputs.len());
            let (weight, bias) = parameters[range.clone()].split_at(input * width);
            match &mut self.weights {
                Weights::F32 { forward, backward } => {
                    forward.pack(outputs.clone(), 0..input, weight, 1, width);
                    backward.pack(0..input, outputs.clone(), weight, width, 1);
                }
                Weights::Bf16 { forward, backward } => {
                    forward.pack(outputs.clone(), 0..input, weight, 1, width);
                    backward.pack(0..input, outputs.clone(), weight, width, 1);
                }
            }
            self.bias[outputs.clone()].copy_from_slice(bias);
        }
    }

    /// Writes the first `y.height()` outputs.
    pub fn forward(&self, x: Panels<T>, y: PanelsMut<T>, scratch: &mut Scratch<T>) {
        let start = Start::Bias(&self.bias);
        time(Part::DenseProducts, || match &self.weights {
            Weights::F32 { forward, .. } => matmul(forward, x, y, start),
            Weights::Bf16 { forward, .. } => matmul16(forward, scratch.right.set(x), y, start),
        });
    }

    /// Writes (or adds to) the gradient of the input; `dy` may have only the first outputs.
    pub fn backward_input(
        &self,
        dy: Panels<T>,
        dx: PanelsMut<T>,
        add: bool,
        scratch: &mut Scratch<T>,
    ) {
        let start = if add { Start::Add } else { Start::Zero };
        time(Part::DenseProducts, || match &self.weights {
            Weights::F32 { backward, .. } => matmul(backward, dy, dx, start),
            Weights::Bf16 { backward, .. } => {
                matmul16(backward, scratch.right.set(dy), dx, start);
            }
        });
    }

    /// Adds to the parameters' gradient.
    pub fn backward_parameters(
        &self,
        x: Panels<T>,
        dy: Panels<T>,
        gradient: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let Scratch { transposed, left, right } = scratch;
        let bf16 = matches!(self.weights, Weights::Bf16 { .. });
        if bf16 {
            time(Part::WeightGradients, || left.set_left(x));
        }
        for Layer { range, outputs } in &self.parts {
            let width = outputs.len();
            let (dweight, dbias) = gradient[range.clone()].split_at_mut(self.input * width);
            let end = outputs.end.min(dy.height());
            let columns = end - outputs.start;
            let dy = time(Part::Transposition, || transposed.set(dy.rows(outputs.start..end)));
            let out = Out::matrix(dweight, self.input, columns, width);
            time(Part::WeightGradients, || {
                if bf16 {
                    let right = right.set(Panels::new(dy.data(), dy.tokens()));
                    matmul_nt16(left, right, out, true);
                } else {
                    matmul_nt(x, dy, out, true);
                }
            });
            run(BiasGradient { dy: dy.data(), tokens: dy.tokens(), dbias: &mut dbias[..columns] });
        }
    }
}

/// Adds the sums over tokens of `dy: [blocks][tokens][16]`.
struct BiasGradient<'a, T> {
    dy: &'a [Lanes<T>],
    tokens: usize,
    dbias: &'a mut [T],
}

impl<T: Real> Kernel<T> for BiasGradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<T>>(self, token: V::Token) {
        let blocks = self.dy.chunks_exact(self.tokens);
        for (dy, dbias) in blocks.zip(self.dbias.chunks_mut(LANES)) {
            let sums = sum_rows(
                token,
                dy.len(),
                #[inline(always)]
                |t| V::load(token, &dy[t]),
            )
            .lanes();
            dbias.iter_mut().zip(sums).for_each(|(dbias, sum)| *dbias += sum);
        }
    }
}
