//! Dense layer.
//!
//! ```text
//! y = W^T x + b                     x: [in] per token, W: [in, out], b: [out]
//! dx = W dy,  dW += sum over tokens of x dy^T,  db += sum over tokens of dy
//! ```
//!
//! In bf16 ([`Precision::Bf16`]) the operands of these three products are rounded; db is not
//! a product and sums dy as it is. With [`Precision::Bf16x3`] an operand is the sum of two values
//! of bf16, high and low, and a product three of them: high by high, high by low, low by high.
//!
//! Several layers of one input (query, key, value) can be one: their outputs follow each other.

use std::ops::Range;

use crate::arch::{
    Kernel, Matrix16, Out, Panels16, Start, Strips, Term, Transposed, Vector, matmul, matmul_nt,
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
    F32 {
        forward: Strips<T>,
        backward: Strips<T>,
    },
    /// A matrix per term.
    Bf16 {
        forward: Vec<Matrix16<T>>,
        backward: Vec<Matrix16<T>>,
    },
}

/// How many terms of bf16 stand for a value.
fn terms(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 0,
        Precision::Bf16 => 1,
        Precision::Bf16x3 => 2,
    }
}

/// Which terms of the left operand and of the right are multiplied, of operands with this many.
fn pairs(terms: usize) -> &'static [[usize; 2]] {
    match terms {
        0 => &[],
        1 => &[[0, 0]],
        _ => &[[0, 0], [0, 1], [1, 0]],
    }
}

/// `Y = start + W X`, summed over the pairs of terms.
fn product<T: Real>(
    w: &[Matrix16<T>],
    x: Panels<T>,
    mut y: PanelsMut<T>,
    mut start: Start<T>,
    right: &mut [Panels16<T>],
) {
    for (&term, right) in TERMS.iter().zip(&mut *right) {
        right.set(term, x);
    }
    for &[a, b] in pairs(w.len()) {
        matmul16(&w[a], &right[b], y.reborrow(), start);
        start = Start::Add;
    }
}

/// In the order in which matrices and buffers hold them.
const TERMS: [Term; 2] = [Term::High, Term::Low];

/// Buffers of the layers' products, reused by all.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    transposed: Transposed<T>,
    /// Operands in bf16, one per term.
    left: Vec<Panels16<T>>,
    right: Vec<Panels16<T>>,
}

impl<T: Real> Scratch<T> {
    /// Room for inputs and outputs of up to `rows` features of `panels` panels.
    pub fn new(rows: usize, panels: usize, precision: Precision) -> Self {
        let operand = || (0..terms(precision)).map(|_| Panels16::new(rows, panels)).collect();
        Self { transposed: Transposed::new(rows, panels), left: operand(), right: operand() }
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
            Precision::Bf16 | Precision::Bf16x3 => {
                let each = 0..terms(precision);
                Weights::Bf16 {
                    forward: each.clone().map(|_| Matrix16::new(outputs, input)).collect(),
                    backward: each.map(|_| Matrix16::new(input, outputs)).collect(),
                }
            }
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
                    for (term, (forward, backward)) in
                        TERMS.into_iter().zip(forward.iter_mut().zip(backward))
                    {
                        forward.pack(term, outputs.clone(), 0..input, weight, 1, width);
                        backward.pack(term, 0..input, outputs.clone(), weight, width, 1);
                    }
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
            Weights::Bf16 { forward, .. } => product(forward, x, y, start, &mut scratch.right),
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
                product(backward, dy, dx, start, &mut scratch.right);
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
        time(Part::WeightGradients, || {
            for (&term, left) in TERMS.iter().zip(&mut *left) {
                left.set_left(term, x);
            }
        });
        for Layer { range, outputs } in &self.parts {
            let width = outputs.len();
            let (dweight, dbias) = gradient[range.clone()].split_at_mut(self.input * width);
            let end = outputs.end.min(dy.height());
            let columns = end - outputs.start;
            let dy = time(Part::Transposition, || transposed.set(dy.rows(outputs.start..end)));
            time(Part::WeightGradients, || {
                if left.is_empty() {
                    matmul_nt(x, dy, Out::matrix(dweight, self.input, columns, width), true);
                }
                for (&term, right) in TERMS.iter().zip(&mut *right) {
                    right.set(term, Panels::new(dy.data(), dy.tokens()));
                }
                for &[a, b] in pairs(left.len()) {
                    let out = Out::matrix(dweight, self.input, columns, width);
                    matmul_nt16(&left[a], &right[b], out, true);
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
