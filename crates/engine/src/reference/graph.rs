//! The layer on the edges of a graph, in plain loops. It differs from the sequence layers in
//! several details, as the authors' program has it.
//!
//! ```text
//! edges       self loops removed, one appended per node; doubled edges count twice
//! logit       z_e = q_source . k_target             / sqrt(d_h) for softmax
//! weights     over the edges into one target, n of them, c_e = z_e - mean z:
//!   NAP       g c_e / sqrt((sum c^2 + 1e-16) / (n + 1e-16)) + b
//!   NON       z_e / sqrt(n)
//!   softmax   exp(z_e - max z) / (sum exp + 1e-16)
//! aggregated  a_t = sum_e w_e v_source              heads side by side; or sum, max of x_source
//! block       GELU(LN(a)) W + b                     BERT: a W + b; sum, max: a
//! ```
//!
//! The GELU is exact (erf), LayerNorm has epsilon 1e-5 and matrices are stored `[out, in]`. For
//! sequences the target asks; here the source supplies the query and the target the key.

use super::ops;
use crate::real::Real;

const NORM_EPSILON: f64 = 1e-5;
const TINY: f64 = 1e-16;

/// How the edges into a node are weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Normalised logits.
    Nap,
    /// The logits themselves.
    Non,
    /// Softmax in NAP's layout.
    Mte,
    /// Softmax, LayerNorm after the skip, no inner norms, no GELU in the attention block.
    Bert,
    /// The sum over incoming edges, without attention.
    Sum,
    /// The maximum, likewise.
    Max,
}

/// The graph's edges as the layer uses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    /// Number of nodes.
    pub nodes: usize,
    /// (source, target)
    pub pairs: Vec<(usize, usize)>,
}

impl Edges {
    /// Removes self loops and appends one per node.
    pub fn new(nodes: usize, pairs: &[(usize, usize)]) -> Self {
        let mut kept: Vec<_> = pairs.iter().copied().filter(|(s, t)| s != t).collect();
        kept.extend((0..nodes).map(|node| (node, node)));
        Self { nodes, pairs: kept }
    }

    /// The numbers of the edges into a node.
    fn into(&self, target: usize) -> Vec<usize> {
        (0..self.pairs.len()).filter(|&e| self.pairs[e].1 == target).collect()
    }
}

/// A layer's parameters by the name of their module, `module.weight` and `module.bias`; `gain`
/// and `shift` are `[heads]`.
pub trait Parameters<T> {
    /// The values of a parameter the layer has.
    fn get(&self, name: &str) -> &[T];

    /// Adds to a parameter's gradient.
    fn add(&mut self, name: &str, gradient: &[T]);
}

/// What a forward and backward pass give.
#[derive(Debug, Clone)]
pub struct Pass<T> {
    /// The layer's output, `[nodes, d]`.
    pub y: Vec<T>,
    /// The aggregated vectors before the inner norm, `[nodes, d]`.
    pub aggregated: Vec<T>,
    /// The weights, `[edges, heads]`; empty for sum and max.
    pub weights: Vec<T>,
    /// The gradient of the nodes.
    pub dx: Vec<T>,
}

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// How edges are weighed.
    pub rule: Rule,
    /// Heads.
    pub heads: usize,
    /// The graph.
    pub edges: &'a Edges,
}

impl Layer<'_> {
    /// Forward on `x: [nodes, d]`, then backward of `sum(y * upstream)`.
    pub fn pass<T: Real, P: Parameters<T>>(&self, p: &mut P, x: &[T], upstream: &[T]) -> Pass<T> {
        let attention = !matches!(self.rule, Rule::Sum | Rule::Max);
        let (inner, after) = (self.rule != Rule::Bert, self.rule == Rule::Bert);
        let project = |p: &P, name: &str| if attention { dense(p, name, x) } else { Vec::new() };
        let [q, k, v] = ["query_layer", "key_layer", "value_layer"].map(|name| project(p, name));

        // Forward.
        let (weights, aggregated) =
            if attention { self.attend(p, &q, &k, &v) } else { (Vec::new(), self.pool(x)) };
        let hidden = attention && inner;
        let normed = if hidden { norm(p, "layer_norm_1", &aggregated) } else { aggregated.clone() };
        let active: Vec<T> = if hidden { map(&normed, gelu) } else { normed.clone() };
        let branch = if attention { dense(p, "mixing_layer", &active) } else { active.clone() };
        let (sum1, mid) = skip(p, "layer_norm_2", after, x, &branch);
        let ff = dense(p, "ff1", &mid);
        let ff_normed = if inner { norm(p, "layer_norm_3", &ff) } else { ff.clone() };
        let ff_active = map(&ff_normed, gelu);
        let ff_out = dense(p, "ff2", &ff_active);
        let (sum2, y) = skip(p, "layer_norm_4", after, &mid, &ff_out);

        // Backward.
        let (mut dmid, dff_out) = skip_backward(p, "layer_norm_4", after, &sum2, &ff_out, upstream);
        let mut dff = dense_backward(p, "ff2", &ff_active, &dff_out);
        multiply(&mut dff, &map(&ff_normed, gelu_derivative));
        if inner {
            dff = norm_backward(p, "layer_norm_3", &ff, &dff);
        }
        ops::add(&mut dmid, &dense_backward(p, "ff1", &mid, &dff));
        let (mut dx, dbranch) = skip_backward(p, "layer_norm_2", after, &sum1, &branch, &dmid);
        let mut da =
            if attention { dense_backward(p, "mixing_layer", &active, &dbranch) } else { dbranch };
        if hidden {
            multiply(&mut da, &map(&normed, gelu_derivative));
            da = norm_backward(p, "layer_norm_1", &aggregated, &da);
        }
        if attention {
            let [dq, dk, dv] = self.attend_backward(p, &q, &k, &v, &weights, &da);
            for (name, dy) in [("query_layer", dq), ("key_layer", dk), ("value_layer", dv)] {
                ops::add(&mut dx, &dense_backward(p, name, x, &dy));
            }
        } else {
            self.pool_backward(x, &aggregated, &da, &mut dx);
        }
        Pass { y, aggregated, weights, dx }
    }

    fn width<T>(&self, nodes: &[T]) -> usize {
        nodes.len() / self.edges.nodes
    }

    /// The logits of one head's edges into a node.
    fn logits<T: Real>(&self, q: &[T], k: &[T], group: &[usize], head: usize) -> Vec<T> {
        let d = self.width(q);
        let columns = head * d / self.heads..(head + 1) * d / self.heads;
        let logit = |&e: &usize| {
            let (s, t) = self.edges.pairs[e];
            columns.clone().map(|c| q[s * d + c] * k[t * d + c]).sum::<T>() * self.scale(d)
        };
        group.iter().map(logit).collect()
    }

    fn scale<T: Real>(&self, d: usize) -> T {
        match self.rule {
            Rule::Mte | Rule::Bert => T::one() / T::of((d / self.heads) as f64).sqrt(),
            _ => T::one(),
        }
    }

    fn attend<T: Real, P: Parameters<T>>(
        &self,
        p: &P,
        q: &[T],
        k: &[T],
        v: &[T],
    ) -> (Vec<T>, Vec<T>) {
        let d = self.width(q);
        let mut weights = vec![T::zero(); self.edges.pairs.len() * self.heads];
        let mut aggregated = vec![T::zero(); v.len()];
        for target in 0..self.edges.nodes {
            let group = self.edges.into(target);
            for head in 0..self.heads {
                let w = self.weigh(p, &self.logits(q, k, &group, head), head);
                for (&e, &w) in group.iter().zip(&w) {
                    weights[e * self.heads + head] = w;
                    for c in head * d / self.heads..(head + 1) * d / self.heads {
                        aggregated[target * d + c] += w * v[self.edges.pairs[e].0 * d + c];
                    }
                }
            }
        }
        (weights, aggregated)
    }

    fn weigh<T: Real, P: Parameters<T>>(&self, p: &P, z: &[T], head: usize) -> Vec<T> {
        let n = T::of(z.len() as f64);
        match self.rule {
            Rule::Nap => {
                let (mean, deviation) = statistics(z);
                let (gain, shift) = (p.get("gain")[head], p.get("shift")[head]);
                map(z, |z| gain * (z - mean) / deviation + shift)
            }
            Rule::Non => map(z, |z| z / n.sqrt()),
            _ => {
                let max = z.iter().copied().fold(T::neg_infinity(), T::max);
                let total = z.iter().map(|&z| (z - max).exp()).sum::<T>() + T::of(TINY);
                map(z, |z| (z - max).exp() / total)
            }
        }
    }

    /// The gradient of the logits; adds those of gain and shift.
    fn weigh_backward<T: Real, P: Parameters<T>>(
        &self,
        p: &mut P,
        z: &[T],
        w: &[T],
        dw: &[T],
        head: usize,
    ) -> Vec<T> {
        let n = T::of(z.len() as f64);
        match self.rule {
            Rule::Nap => {
                let (mean, deviation) = statistics(z);
                let gain = p.get("gain")[head];
                let total: T = dw.iter().copied().sum();
                let dot: T = dw.iter().zip(z).map(|(&dw, &z)| dw * (z - mean)).sum();
                let mut gradient = vec![T::zero(); self.heads];
                gradient[head] = total;
                p.add("shift", &gradient);
                gradient[head] = dot / deviation;
                p.add("gain", &gradient);
                let through = dot / (deviation.powi(2) * (n + T::of(TINY)));
                let each = |(&dw, &z): (&T, &T)| {
                    gain / deviation * (dw - total / n - (z - mean) * through)
                };
                dw.iter().zip(z).map(each).collect()
            }
            Rule::Non => map(dw, |dw| dw / n.sqrt()),
            _ => {
                let dot: T = dw.iter().zip(w).map(|(&dw, &w)| dw * w).sum();
                dw.iter().zip(w).map(|(&dw, &w)| w * (dw - dot)).collect()
            }
        }
    }

    fn attend_backward<T: Real, P: Parameters<T>>(
        &self,
        p: &mut P,
        q: &[T],
        k: &[T],
        v: &[T],
        weights: &[T],
        da: &[T],
    ) -> [Vec<T>; 3] {
        let d = self.width(q);
        let zeros = || vec![T::zero(); q.len()];
        let (mut dq, mut dk, mut dv) = (zeros(), zeros(), zeros());
        for target in 0..self.edges.nodes {
            let group = self.edges.into(target);
            for head in 0..self.heads {
                let columns = head * d / self.heads..(head + 1) * d / self.heads;
                let w: Vec<T> = group.iter().map(|&e| weights[e * self.heads + head]).collect();
                let mut dw = vec![T::zero(); group.len()];
                for (i, &e) in group.iter().enumerate() {
                    for c in columns.clone() {
                        let (source, da) = (self.edges.pairs[e].0 * d + c, da[target * d + c]);
                        dw[i] += da * v[source];
                        dv[source] += da * w[i];
                    }
                }
                let z = self.logits(q, k, &group, head);
                let dz = self.weigh_backward(p, &z, &w, &dw, head);
                for (&e, &dz) in group.iter().zip(&dz) {
                    for c in columns.clone() {
                        let (s, t) = (self.edges.pairs[e].0 * d + c, target * d + c);
                        dq[s] += self.scale::<T>(d) * dz * k[t];
                        dk[t] += self.scale::<T>(d) * dz * q[s];
                    }
                }
            }
        }
        [dq, dk, dv]
    }

    fn pool<T: Real>(&self, x: &[T]) -> Vec<T> {
        let d = self.width(x);
        let start = if self.rule == Rule::Sum { T::zero() } else { T::neg_infinity() };
        let mut out = vec![start; x.len()];
        for &(s, t) in &self.edges.pairs {
            for c in 0..d {
                let (x, out) = (x[s * d + c], &mut out[t * d + c]);
                *out = if self.rule == Rule::Sum { *out + x } else { out.max(x) };
            }
        }
        out
    }

    /// Adds to `dx`; a maximum that several edges share is divided among them.
    fn pool_backward<T: Real>(&self, x: &[T], out: &[T], dout: &[T], dx: &mut [T]) {
        let d = self.width(x);
        for target in 0..self.edges.nodes {
            let sources: Vec<_> =
                self.edges.into(target).iter().map(|&e| self.edges.pairs[e].0).collect();
            for c in 0..d {
                let hit = |s: usize| self.rule == Rule::Sum || x[s * d + c] == out[target * d + c];
                let hits = sources.iter().filter(|&&s| hit(s)).count();
                let share = if self.rule == Rule::Sum { 1 } else { hits };
                for &s in sources.iter().filter(|&&s| hit(s)) {
                    dx[s * d + c] += dout[target * d + c] / T::of(share as f64);
                }
            }
        }
    }
}

/// Mean, and deviation with its epsilons.
fn statistics<T: Real>(z: &[T]) -> (T, T) {
    let n = T::of(z.len() as f64);
    let mean = z.iter().copied().sum::<T>() / n;
    let square: T = z.iter().map(|&z| (z - mean).powi(2)).sum();
    (mean, ((square + T::of(TINY)) / (n + T::of(TINY))).sqrt())
}

fn map<T: Real>(x: &[T], f: impl Fn(T) -> T) -> Vec<T> {
    x.iter().map(|&x| f(x)).collect()
}

fn multiply<T: Real>(x: &mut [T], y: &[T]) {
    x.iter_mut().zip(y).for_each(|(x, &y)| *x *= y);
}

/// x Phi(x), with the distribution function of the normal distribution.
fn gelu<T: Real>(x: T) -> T {
    x * phi(x)
}

fn gelu_derivative<T: Real>(x: T) -> T {
    let density = (-x.f64() * x.f64() / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    phi(x) + x * T::of(density)
}

fn phi<T: Real>(x: T) -> T {
    T::of(0.5 * (1.0 + libm::erf(x.f64() / std::f64::consts::SQRT_2)))
}

fn dense<T: Real, P: Parameters<T>>(p: &P, name: &str, x: &[T]) -> Vec<T> {
    let bias = p.get(&format!("{name}.bias"));
    ops::dense(x, &transposed(p.get(&format!("{name}.weight")), bias.len()), bias)
}

fn dense_backward<T: Real, P: Parameters<T>>(p: &mut P, name: &str, x: &[T], dy: &[T]) -> Vec<T> {
    let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
    let outputs = p.get(&bias).len();
    let inputs = p.get(&weight).len() / outputs;
    let gradients = ops::dense_backward(x, &transposed(p.get(&weight), outputs), dy, outputs);
    p.add(&weight, &transposed(&gradients.weight, inputs));
    p.add(&bias, &gradients.bias);
    gradients.x
}

/// The transpose of a matrix with this many rows.
fn transposed<T: Real>(x: &[T], rows: usize) -> Vec<T> {
    let columns = x.len() / rows;
    (0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect()
}

fn norm<T: Real, P: Parameters<T>>(p: &P, name: &str, x: &[T]) -> Vec<T> {
    let (gamma, beta) = (p.get(&format!("{name}.weight")), p.get(&format!("{name}.bias")));
    ops::layer_norm(x, gamma, beta, T::of(NORM_EPSILON))
}

fn norm_backward<T: Real, P: Parameters<T>>(p: &mut P, name: &str, x: &[T], dy: &[T]) -> Vec<T> {
    let gamma = format!("{name}.weight");
    let gradients = ops::layer_norm_backward(x, p.get(&gamma), dy, T::of(NORM_EPSILON));
    p.add(&gamma, &gradients.weight);
    p.add(&format!("{name}.bias"), &gradients.bias);
    gradients.x
}

/// The sum that an after-skip norm is given, and the stream after the skip.
fn skip<T: Real, P: Parameters<T>>(
    p: &P,
    name: &str,
    after: bool,
    x: &[T],
    branch: &[T],
) -> (Vec<T>, Vec<T>) {
    let mut sum = x.to_vec();
    if after {
        ops::add(&mut sum, branch);
        let y = norm(p, name, &sum);
        (sum, y)
    } else {
        ops::add(&mut sum, &norm(p, name, branch));
        (Vec::new(), sum)
    }
}

/// The gradients of stream and branch.
fn skip_backward<T: Real, P: Parameters<T>>(
    p: &mut P,
    name: &str,
    after: bool,
    sum: &[T],
    branch: &[T],
    dy: &[T],
) -> (Vec<T>, Vec<T>) {
    if after {
        let dsum = norm_backward(p, name, sum, dy);
        (dsum.clone(), dsum)
    } else {
        (dy.to_vec(), norm_backward(p, name, branch, dy))
    }
}
