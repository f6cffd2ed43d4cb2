//! The whole model family in plain loops, generic over `f32` and `f64`.
//!
//! This is the oracle that every fast path is compared with: it reads like the equations,
//! allocates as it likes, and uses nothing of the engine but the naive row forms of
//! [`crate::kernels::aggregate`]. It is itself compared with numbers that the authors' program
//! computed, and with finite differences.
//!
//! | file | what |
//! |---|---|
//! | [`ops`] | dense layer, LayerNorm, GELU, cross entropy, arg-max |
//! | [`block`] | the aggregation block: attention, pooling, weighted |
//! | [`model`] | embedding, layers, read-out, loss, and the gradient of all of it |
//! | [`graph`] | the layer on the edges of a graph, which differs in several details |

pub mod block;
pub mod graph;
pub mod model;
pub mod ops;

pub use model::{Evaluation, evaluate, forward, token_gradient, trace_bytes};

use crate::kernels::dropout::Site;
use crate::model::architecture::{Architecture, LAYER_NORM_EPSILON};
use crate::real::Real;

/// Which values dropout keeps: called with a site and a row-major index into the tensor of all
/// sequences there. Must answer the same whenever it is asked the same.
pub type Keep<'a> = &'a dyn Fn(Site, usize) -> bool;

/// Inverted dropout: kept values are multiplied by 1/(1 - rate), the others become 0.
#[derive(Clone, Copy)]
pub struct Dropout<'a> {
    /// The share of values that become 0.
    pub rate: f64,
    /// Which values stay; `None` leaves every value as it is.
    pub keep: Option<Keep<'a>>,
}

impl Dropout<'_> {
    /// What the value at an index of a site is multiplied by.
    pub fn factor<T: Real>(&self, site: Site, index: usize) -> T {
        match self.keep {
            None => T::one(),
            Some(keep) if keep(site, index) => T::of(1.0 / (1.0 - self.rate)),
            Some(_) => T::zero(),
        }
    }

    /// Multiplies a site's values (forward) or their gradient (backward).
    pub fn apply<T: Real>(&self, site: Site, values: &mut [T]) {
        for (index, value) in values.iter_mut().enumerate() {
            *value *= self.factor::<T>(site, index);
        }
    }
}

/// A model's parameters by name.
#[derive(Clone, Copy)]
pub struct Parameters<'a, T> {
    /// Names and places.
    pub architecture: &'a Architecture,
    /// The flat buffer.
    pub values: &'a [T],
}

impl<'a, T: Real> Parameters<'a, T> {
    /// The values of a parameter that the model must have.
    pub fn get(&self, name: &str) -> &'a [T] {
        self.find(name).unwrap_or_else(|| panic!("the model has no parameter {name}"))
    }

    /// The values of a parameter that the model may have.
    pub fn find(&self, name: &str) -> Option<&'a [T]> {
        Some(&self.values[self.architecture.parameter(name)?.range()])
    }

    /// The dense layer of this name.
    pub fn dense(&self, name: &str, x: &[T]) -> Vec<T> {
        ops::dense(x, self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")))
    }

    /// The LayerNorm of this name.
    pub fn norm(&self, name: &str, x: &[T]) -> Vec<T> {
        let (gamma, beta) = (self.get(&format!("{name}.gamma")), self.get(&format!("{name}.beta")));
        ops::layer_norm(x, gamma, beta, T::of(LAYER_NORM_EPSILON))
    }
}

/// The gradient of a model's parameters, accumulated by name.
pub struct Gradient<'a, T> {
    /// The parameters it belongs to.
    pub parameters: Parameters<'a, T>,
    /// The flat buffer.
    pub values: Vec<T>,
}

impl<'a, T: Real> Gradient<'a, T> {
    /// All zeros.
    pub fn zeros(parameters: Parameters<'a, T>) -> Self {
        Self { parameters, values: vec![T::zero(); parameters.values.len()] }
    }

    /// Adds a part of a parameter's gradient; ignores a parameter the model does not have.
    pub fn add(&mut self, name: &str, part: &[T]) {
        if let Some(parameter) = self.parameters.architecture.parameter(name) {
            let values = &mut self.values[parameter.range()];
            assert_eq!(values.len(), part.len(), "gradient of {name}");
            ops::add(values, part);
        }
    }

    /// Backward of [`Parameters::dense`]: adds the layer's gradients, returns that of `x`.
    pub fn dense(&mut self, name: &str, x: &[T], dy: &[T]) -> Vec<T> {
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let outputs = self.parameters.get(&bias).len();
        let gradients = ops::dense_backward(x, self.parameters.get(&weight), dy, outputs);
        self.add(&weight, &gradients.weight);
        self.add(&bias, &gradients.bias);
        gradients.x
    }

    /// Backward of [`Parameters::norm`]: adds the norm's gradients, returns that of `x`.
    pub fn norm(&mut self, name: &str, x: &[T], dy: &[T]) -> Vec<T> {
        let (gamma, beta) = (format!("{name}.gamma"), format!("{name}.beta"));
        let epsilon = T::of(LAYER_NORM_EPSILON);
        let gradients = ops::layer_norm_backward(x, self.parameters.get(&gamma), dy, epsilon);
        self.add(&gamma, &gradients.weight);
        self.add(&beta, &gradients.bias);
        gradients.x
    }
}
