//! The operations that layers are made of, forward and backward side by side.
//!
//! ```text
//! dense        y = x W + b
//! LayerNorm    y = gamma (x - mean x) / sqrt(var x + eps) + beta
//! GELU         y = x/2 (1 + tanh( sqrt(2/pi) (x + 0.044715 x^3) ))
//! loss         L = mean over rows of  log sum_c exp(z_c) - z_target
//! ```
//!
//! A token is a row; backward functions return gradients in the order of the arguments.

use crate::real::Real;

/// `a += b`
pub fn add<T: Real>(a: &mut [T], b: &[T]) {
    assert_eq!(a.len(), b.len());
    for (a, &b) in a.iter_mut().zip(b) {
        *a += b;
    }
}

/// `sum_i a_i b_i`
pub fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// Gradients of input, weight and bias (or gain and shift).
pub struct Gradients<T> {
    /// Of the input.
    pub x: Vec<T>,
    /// Of the weight matrix, or of gamma.
    pub weight: Vec<T>,
    /// Of the bias, or of beta.
    pub bias: Vec<T>,
}

/// y = x W + b with `x: [rows, n]`, `w: [n, m]`, `b: [m]`.
pub fn dense<T: Real>(x: &[T], w: &[T], b: &[T]) -> Vec<T> {
    let m = b.len();
    let n = w.len() / m;
    let mut y = b.repeat(x.len() / n);
    for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(m)) {
        for (&x, w) in x.iter().zip(w.chunks_exact(m)) {
            for j in 0..m {
                y[j] += x * w[j];
            }
        }
    }
    y
}

/// dx = dy W^T, dW = x^T dy, db = sum of dy's rows.
pub fn dense_backward<T: Real>(x: &[T], w: &[T], dy: &[T], m: usize) -> Gradients<T> {
    let n = w.len() / m;
    let mut dx = vec![T::zero(); x.len()];
    let mut dw = vec![T::zero(); w.len()];
    let mut db = vec![T::zero(); m];
    for (r, dy) in dy.chunks_exact(m).enumerate() {
        add(&mut db, dy);
        for i in 0..n {
            let (w, dw) = (&w[i * m..][..m], &mut dw[i * m..][..m]);
            for j in 0..m {
                dx[r * n + i] += dy[j] * w[j];
                dw[j] += dy[j] * x[r * n + i];
            }
        }
    }
    Gradients { x: dx, weight: dw, bias: db }
}

/// A row's mean, and 1 / sqrt(population variance + eps).
fn moments<T: Real>(row: &[T], epsilon: T) -> (T, T) {
    let n = T::of(row.len() as f64);
    let mean = row.iter().copied().sum::<T>() / n;
    let variance = row.iter().map(|&x| (x - mean) * (x - mean)).sum::<T>() / n;
    (mean, T::one() / (variance + epsilon).sqrt())
}

/// LayerNorm of each row of `x: [rows, d]`, where d is the length of `gamma` and `beta`.
pub fn layer_norm<T: Real>(x: &[T], gamma: &[T], beta: &[T], epsilon: T) -> Vec<T> {
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks_exact(gamma.len()) {
        let (mean, scale) = moments(row, epsilon);
        for c in 0..row.len() {
            y.push(gamma[c] * (row[c] - mean) * scale + beta[c]);
        }
    }
    y
}

/// With `n = (x - mean) scale` and `g = gamma dy`: `dx = scale (g - mean(g) - n mean(g n))`.
pub fn layer_norm_backward<T: Real>(x: &[T], gamma: &[T], dy: &[T], epsilon: T) -> Gradients<T> {
    let d = gamma.len();
    let width = T::of(d as f64);
    let mut dx = Vec::with_capacity(x.len());
    let mut dgamma = vec![T::zero(); d];
    let mut dbeta = vec![T::zero(); d];
    for (row, dy) in x.chunks_exact(d).zip(dy.chunks_exact(d)) {
        let (mean, scale) = moments(row, epsilon);
        let normed = |c: usize| (row[c] - mean) * scale;
        let mean_g = (0..d).map(|c| gamma[c] * dy[c]).sum::<T>() / width;
        let mean_gn = (0..d).map(|c| gamma[c] * dy[c] * normed(c)).sum::<T>() / width;
        for c in 0..d {
            dx.push(scale * (gamma[c] * dy[c] - mean_g - normed(c) * mean_gn));
            dgamma[c] += dy[c] * normed(c);
            dbeta[c] += dy[c];
        }
    }
    Gradients { x: dx, weight: dgamma, bias: dbeta }
}

/// sqrt(2/pi) and the cubic coefficient of GELU's tanh form.
const GELU: (f64, f64) = (0.797_884_560_802_865_4, 0.044_715);

/// GELU, tanh form.
pub fn gelu<T: Real>(x: T) -> T {
    let inner = T::of(GELU.0) * (x + T::of(GELU.1) * x * x * x);
    T::of(0.5) * x * (T::one() + inner.tanh())
}

/// GELU's derivative.
pub fn gelu_derivative<T: Real>(x: T) -> T {
    let inner = T::of(GELU.0) * (x + T::of(GELU.1) * x * x * x);
    let slope = T::of(GELU.0) * (T::one() + T::of(3.0 * GELU.1) * x * x);
    let tanh = inner.tanh();
    T::of(0.5) * (T::one() + tanh + x * (T::one() - tanh * tanh) * slope)
}

/// Cross entropy of `logits: [rows, classes]` with softmax, mean over the rows. With weights,
/// one per row, each row's is multiplied by its weight, and rows of weight 0 do not count.
pub fn cross_entropy<T: Real>(logits: &[T], targets: &[u32], weights: Option<&[f32]>) -> T {
    let classes = logits.len() / targets.len();
    let loss = |row: usize| {
        let z = &logits[row * classes..][..classes];
        let (max, total) = max_and_sum(z);
        weight::<T>(weights, row) * ((max - z[targets[row] as usize]) + total.ln())
    };
    let rows = counted(targets, weights);
    rows.iter().map(|&row| loss(row)).sum::<T>() / T::of(rows.len() as f64)
}

/// dL/dz = weight (softmax(z) - onehot(target)) / rows
pub fn cross_entropy_backward<T: Real>(
    logits: &[T],
    targets: &[u32],
    weights: Option<&[f32]>,
) -> Vec<T> {
    let classes = logits.len() / targets.len();
    let mut dz = vec![T::zero(); logits.len()];
    let rows = counted(targets, weights);
    for &row in &rows {
        let z = &logits[row * classes..][..classes];
        let (max, total) = max_and_sum(z);
        let factor = weight::<T>(weights, row) / T::of(rows.len() as f64);
        for c in 0..classes {
            let hit = if c == targets[row] as usize { T::one() } else { T::zero() };
            dz[row * classes + c] = ((z[c] - max).exp() / total - hit) * factor;
        }
    }
    dz
}

/// The rows that count.
fn counted(targets: &[u32], weights: Option<&[f32]>) -> Vec<usize> {
    (0..targets.len()).filter(|&row| weights.is_none_or(|w| w[row] > 0.0)).collect()
}

fn weight<T: Real>(weights: Option<&[f32]>, row: usize) -> T {
    weights.map_or(T::one(), |weights| T::of(f64::from(weights[row])))
}

/// max z and sum exp(z - max z); their logarithm is never added to a max that would drown it.
fn max_and_sum<T: Real>(z: &[T]) -> (T, T) {
    let max = z.iter().copied().fold(T::neg_infinity(), T::max);
    (max, z.iter().map(|&z| (z - max).exp()).sum())
}

/// The first index of the largest value. NaN never beats: a row of NaN answers 0.
pub fn argmax<T: Real>(row: &[T]) -> usize {
    let mut best = 0;
    for i in 1..row.len() {
        if row[i] > row[best] || (row[best].is_nan() && !row[i].is_nan()) {
            best = i;
        }
    }
    best
}

/// The share of rows of `logits: [rows, classes]` that count whose arg-max is the target.
pub fn accuracy<T: Real>(logits: &[T], targets: &[u32], weights: Option<&[f32]>) -> f64 {
    let classes = logits.len() / targets.len();
    let right =
        |&&row: &&usize| argmax(&logits[row * classes..][..classes]) == targets[row] as usize;
    let rows = counted(targets, weights);
    rows.iter().filter(right).count() as f64 / rows.len() as f64
}
