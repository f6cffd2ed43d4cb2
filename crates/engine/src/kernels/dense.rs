//! Dense layer.
//!
//! ```text
//! y = W^T x + b                     x: [in] per token, W: [in, out], b: [out]
//! dx = W dy,  dW += sum over tokens of x dy^T,  db += sum over tokens of dy
//! ```
//!
//! Several layers of one input (query, key, value) can be one: their outputs follow each other.

use std::ops::Range;

use crate::arch::{Kernel, Out, Start, Strips, Transposed, Vector, matmul, matmul_nt, run};
use crate::kernels::lanes::sum_rows;
use crate::panel::{LANES, Lanes, Panels, PanelsMut};
use crate::profile::{Part, time};
use crate::real::Real;

/// Dense layers of one input, each a `[in, out]` matrix followed by its `[out]` bias in the flat
/// parameter buffer, packed for products.
#[derive(Debug, Clone)]
pub struct Dense<T> {
    input: usize,
    parts: Vec<Layer>,
    forward: Strips<T>,
    backward: Strips<T>,
    bias: Vec<T>,
}

/// One of the layers.
#[derive(Debug, Clone)]
struct Layer {
    /// Its matrix and bias in the flat buffer.
    range: Range<usize>,
    /// Its outputs among all.
    outputs: Range<usize>,
}

impl<T: Real> Dense<T> {
    /// Layers of this input width whose parameters lie in these ranges.
    pub fn new(input: usize, parts: &[Range<usize>]) -> Self {
        let mut outputs = 0;
        let part = |range: &Range<usize>| {
            let first = outputs;
            outputs += range.len() / (input + 1);
            Layer { range: range.clone(), outputs: first..outputs }
        };
        let parts = parts.iter().map(part).collect();
        Self {
            input,
            parts,
            forward: Strips::new(outputs, input),
            backward: Strips::new(input, outputs),
            bias: vec![T::zero(); outputs],
        }
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
            self.forward.pack(outputs.clone(), 0..input, weight, 1, width);
            self.backward.pack(0..input, outputs.clone(), weight, width, 1);
            self.bias[outputs.clone()].copy_from_slice(bias);
        }
    }

    /// Writes the first `y.height()` outputs.
    pub fn forward(&self, x: Panels<T>, y: PanelsMut<T>) {
        time(Part::DenseProducts, || matmul(&self.forward, x, y, Start::Bias(&self.bias)));
    }

    /// Writes (or adds to) the gradient of the input; `dy` may have only the first outputs.
    pub fn backward_input(&self, dy: Panels<T>, dx: PanelsMut<T>, add: bool) {
        let start = if add { Start::Add } else { Start::Zero };
        time(Part::DenseProducts, || matmul(&self.backward, dy, dx, start));
    }

    /// Adds to the parameters' gradient. `scratch` has room for the `dy` of one layer.
    pub fn backward_parameters(
        &self,
        x: Panels<T>,
        dy: Panels<T>,
        gradient: &mut [T],
        scratch: &mut Transposed<T>,
    ) {
        for Layer { range, outputs } in &self.parts {
            let width = outputs.len();
            let (dweight, dbias) = gradient[range.clone()].split_at_mut(self.input * width);
            let end = outputs.end.min(dy.height());
            let columns = end - outputs.start;
            let dy = time(Part::Transposition, || scratch.set(dy.rows(outputs.start..end)));
            let out = Out::matrix(dweight, self.input, columns, width);
            time(Part::WeightGradients, || matmul_nt(x, dy, out, true));
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
