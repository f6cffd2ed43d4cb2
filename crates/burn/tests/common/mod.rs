//! What the tests share: random tensors, a module's parameters as one flat list, and the
//! attention in plain loops.

#![allow(dead_code, reason = "each test binary uses its own part")]

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::Linear;
use burn::tensor::{Gradients, Tensor, TensorCreationOptions, TensorData};
use nap_burn::{LAYER_NORM_EPSILON, NormalizedAttention};
use nap_engine::random::{Purpose, Stream};
use nap_engine::reference::ops;

/// A stream of test randomness.
pub fn stream(seed: u64) -> Stream {
    Stream::new(seed, Purpose::Evaluation, 0, 0)
}

pub fn pick<T: Copy>(s: &mut Stream, of: &[T]) -> T {
    of[s.below(of.len() as u32) as usize]
}

/// Normal values.
pub fn random<const D: usize>(
    s: &mut Stream,
    shape: [usize; D],
    on: impl Into<TensorCreationOptions>,
) -> Tensor<D> {
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| s.normal()).collect();
    Tensor::from_data(TensorData::new(values, shape), on)
}

/// The values, row-major.
pub fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.try_into_vec_as::<f64>().expect("float values")
}

/// The largest difference relative to the largest expected magnitude; infinite for anything that
/// is not finite.
pub fn error(actual: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len(), "number of values");
    let largest = expected.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let one = |(a, e): (&f64, &f64)| {
        if a.is_finite() && e.is_finite() { (a - e).abs() / scale } else { f64::INFINITY }
    };
    actual.iter().zip(expected).map(one).fold(0.0, f64::max)
}

/// Panics unless [`error`] is within the tolerance.
#[track_caller]
pub fn assert_close(what: &str, actual: &[f64], expected: &[f64], tolerance: f64) {
    let error = error(actual, expected);
    assert!(
        error <= tolerance,
        "{what}: {error:.1e} > {tolerance:.0e}\n actual   {:?}\n expected {:?}",
        &actual[..actual.len().min(8)],
        &expected[..expected.len().min(8)],
    );
}

/// A module's float parameters in the order of its fields.
pub fn parameters(module: &impl Module) -> Vec<f64> {
    struct Read(Vec<f64>);
    impl ModuleVisitor for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(numbers(param.val()));
        }
    }
    let mut read = Read(Vec::new());
    module.visit(&mut read);
    read.0
}

/// The module with these parameters.
pub fn with_parameters<M: Module>(module: M, values: &[f64]) -> M {
    struct Write<'a>(&'a [f64]);
    impl ModuleMapper for Write<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let old = param.val();
            let (values, rest) = self.0.split_at(old.shape().num_elements());
            self.0 = rest;
            let data = TensorData::new(values.to_vec(), old.shape());
            Param::from_tensor(Tensor::from_data(data, (&old.device(), old.dtype())))
        }
    }
    let mut write = Write(values);
    let module = module.map(&mut write);
    assert!(write.0.is_empty(), "number of parameters");
    module
}

/// The gradient of every parameter, in the order of [`parameters`]; 0 where none arrived.
pub fn gradient(module: &impl Module, gradients: &Gradients) -> Vec<f64> {
    struct Read<'a>(Vec<f64>, &'a Gradients);
    impl ModuleVisitor for Read<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            match param.val().grad(self.1) {
                Some(gradient) => self.0.extend(numbers(gradient)),
                None => self.0.resize(self.0.len() + param.val().shape().num_elements(), 0.0),
            }
        }
    }
    let mut read = Read(Vec::new(), gradients);
    module.visit(&mut read);
    read.0
}

/// All parameters random: gains and norms away from 1, biases away from 0.
pub fn randomised<M: Module>(module: M, s: &mut Stream) -> M {
    let values: Vec<_> = parameters(&module).iter().map(|_| 0.7 * s.normal()).collect();
    with_parameters(module, &values)
}

/// The attention layer in plain loops.
pub struct Naive {
    matrices: [Vec<f64>; 4],
    biases: [Vec<f64>; 4],
    gain: Vec<f64>,
    bias: Vec<f64>,
    norm: Option<[Vec<f64>; 2]>,
    gelu: bool,
    epsilon: f64,
    scale: f64,
    d: usize,
    heads: usize,
}

impl Naive {
    pub fn of(layer: &NormalizedAttention) -> Self {
        let layers = [&layer.query, &layer.key, &layer.value, &layer.output];
        let (d, heads) = (layer.d_model, layer.n_heads);
        let bias = |layer: &Linear| match &layer.bias {
            Some(bias) => numbers(bias.val()),
            None => vec![0.0; d],
        };
        let per_head = |param: &Option<Param<Tensor<1>>>, otherwise: f64| match param {
            Some(param) => numbers(param.val()),
            None => vec![otherwise; heads],
        };
        Self {
            matrices: layers.map(|layer| numbers(layer.weight.val())),
            biases: layers.map(bias),
            gain: per_head(&layer.gain, 1.0),
            bias: per_head(&layer.bias, 0.0),
            norm: layer.norm.as_ref().map(|norm| {
                let beta = norm.beta.as_ref().expect("a norm with beta");
                [numbers(norm.gamma.val()), numbers(beta.val())]
            }),
            gelu: layer.gelu.is_some(),
            epsilon: layer.epsilon,
            scale: layer.logit_scale,
            d,
            heads,
        }
    }

    /// `x W + b` of layer 0 to 3 (query, key, value, output).
    pub fn dense(&self, layer: usize, x: &[f64]) -> Vec<f64> {
        let d = self.d;
        let row = |x: &[f64]| -> Vec<f64> {
            let one = |c: usize| {
                let products =
                    x.iter().enumerate().map(|(r, x)| x * self.matrices[layer][r * d + c]);
                products.sum::<f64>() + self.biases[layer][c]
            };
            (0..d).map(one).collect()
        };
        x.chunks_exact(d).flat_map(row).collect()
    }

    /// Weights of one query over the kept of these keys, and the aggregate: head after head.
    pub fn attend(
        &self,
        q: &[f64],
        keys: &[f64],
        values: &[f64],
        keep: impl Fn(usize) -> bool,
    ) -> (Vec<Vec<f64>>, Vec<f64>) {
        let (d, width) = (self.d, self.d / self.heads);
        let kept: Vec<usize> = (0..keys.len() / d).filter(|&j| keep(j)).collect();
        let n = kept.len() as f64;
        let (mut weights, mut out) = (Vec::new(), vec![0.0; d]);
        for head in 0..self.heads {
            let columns = head * width..(head + 1) * width;
            let logit = |&j: &usize| {
                let products = columns.clone().map(|c| q[c] * keys[j * d + c]);
                self.scale * products.sum::<f64>()
            };
            let z: Vec<f64> = kept.iter().map(logit).collect();
            let mean = z.iter().sum::<f64>() / n;
            let variance = z.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / n;
            let factor = self.gain[head] / (variance.sqrt() + self.epsilon);
            let mut row = vec![0.0; keys.len() / d];
            for (z, &j) in z.iter().zip(&kept) {
                row[j] = (z - mean) * factor + self.bias[head];
                columns.clone().for_each(|c| out[c] += row[j] * values[j * d + c]);
            }
            weights.push(row);
        }
        (weights, out)
    }

    /// What follows the aggregate of one token.
    pub fn finish(&self, pooled: &[f64]) -> Vec<f64> {
        let mut x = pooled.to_vec();
        if let Some([gamma, beta]) = &self.norm {
            x = ops::layer_norm(&x, gamma, beta, LAYER_NORM_EPSILON);
        }
        if self.gelu {
            x.iter_mut().for_each(|x| *x = ops::gelu(*x));
        }
        self.dense(3, &x)
    }

    /// The layer on one sequence: weights `[heads, n1, n2]` and result `[n1, d]`.
    pub fn forward(
        &self,
        [query, key, value]: [&[f64]; 3],
        keep: impl Fn(usize, usize) -> bool,
    ) -> (Vec<f64>, Vec<f64>) {
        let (q, k, v) = (self.dense(0, query), self.dense(1, key), self.dense(2, value));
        let (mut weights, mut out) = (vec![Vec::new(); self.heads], Vec::new());
        for (i, q) in q.chunks_exact(self.d).enumerate() {
            let (rows, pooled) = self.attend(q, &k, &v, |j| keep(i, j));
            weights.iter_mut().zip(rows).for_each(|(all, row)| all.extend(row));
            out.extend(self.finish(&pooled));
        }
        (weights.concat(), out)
    }
}
