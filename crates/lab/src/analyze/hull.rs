//! The probability cage in two dimensions: one query looks at values and is to give a target.
//!
//! ```text
//! z_j = scale q.k_j,   w = rule(z),   a = sum_j w_j v_j  (NON: / sqrt(n)),   loss = |a - target|^2
//! ```
//!
//! Values are fixed; the query, every key and whatever gain and bias the rule has are learned
//! by Adam, the learning rate falling linearly to 0. Each rule starts from the same query and
//! keys and takes the same steps. Weights of softmax are positive and sum to 1, so `a` cannot
//! leave the convex hull of the values.

use nap_engine::kernels::aggregate::{AttentionRule, Row};
use nap_engine::optim::{Adam, learning_rate};
use nap_engine::random::{Purpose, Stream};

/// A point of the plane.
pub type Point = [f64; 2];

/// What is to be learned, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The values, fixed.
    pub values: Vec<Point>,
    /// What the aggregate is to be.
    pub target: Point,
    /// Optimiser steps.
    pub steps: u64,
    /// Learning rate of the first step.
    pub learning_rate: f64,
    /// Names the initial query and keys.
    pub seed: u64,
}

/// How a rule fared.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The rule.
    pub rule: &'static str,
    /// The aggregate before each step, and after the last.
    pub points: Vec<Point>,
    /// The weights after the last step.
    pub weights: Vec<f64>,
}

impl Path {
    /// Where it ends.
    pub fn end(&self) -> Point {
        *self.points.last().expect("a path has a beginning")
    }
}

/// Values drawn uniformly from the square [-1, 1]^2.
pub fn random_values(count: usize, seed: u64) -> Vec<Point> {
    let mut stream = Stream::new(seed, Purpose::Analysis, 0, 0);
    let mut draw = || 2.0 * stream.uniform() - 1.0;
    (0..count).map(|_| [draw(), draw()]).collect()
}

/// Trains one rule.
pub fn train(problem: &Problem, rule: &dyn AttentionRule<f64>) -> Path {
    let n = problem.values.len();
    // q, then k_j, then gain and bias.
    let mut stream = Stream::new(problem.seed, Purpose::Analysis, 1, 0);
    let mut learned: Vec<f64> = (0..2 * n + 2).map(|_| stream.normal()).collect();
    learned.extend([1.0, 0.0]);
    let mut adam = Adam::new(learned.len());
    let mut points = Vec::new();
    for step in 0..problem.steps {
        let (a, _, gradient) = pass(problem, rule, &learned);
        let rate = learning_rate(problem.learning_rate, step, problem.steps, false);
        adam.update(&mut learned, &gradient, rate, step);
        points.push(a);
    }
    let (a, weights, _) = pass(problem, rule, &learned);
    points.push(a);
    Path { rule: rule.info().name, points, weights }
}

/// The aggregate, the weights, and the gradient of what is learned.
fn pass(
    problem: &Problem,
    rule: &dyn AttentionRule<f64>,
    learned: &[f64],
) -> (Point, Vec<f64>, Vec<f64>) {
    let values = &problem.values;
    let (n, defaults) = (values.len(), rule.defaults());
    let (q, rest) = learned.split_at(2);
    let (keys, scalars) = rest.split_at(2 * n);
    let key = |j: usize| &keys[2 * j..][..2];
    let epsilon = defaults.epsilon;
    let row = Row { mask: None, gain: scalars[0], bias: scalars[1], epsilon, centre: false };
    let scale = if defaults.scaled { 1.0 / 2f64.sqrt() } else { 1.0 };
    let factor = if defaults.rescale { 1.0 / (n as f64).sqrt() } else { 1.0 };
    let z: Vec<f64> = (0..n).map(|j| scale * (q[0] * key(j)[0] + q[1] * key(j)[1])).collect();
    let mut w = vec![0.0; n];
    rule.weights(&row, &z, &mut w);
    w.iter_mut().for_each(|w| *w *= factor);
    let a = [0, 1].map(|c| (0..n).map(|j| w[j] * values[j][c]).sum::<f64>());

    let da = [0, 1].map(|c| 2.0 * (a[c] - problem.target[c]));
    let dw: Vec<f64> = values.iter().map(|v| factor * (da[0] * v[0] + da[1] * v[1])).collect();
    let mut dz = vec![0.0; n];
    let (dgain, dbias) = rule.backward(&row, &z, &dw, &mut dz);
    let mut gradient = vec![0.0; learned.len()];
    for (j, dz) in dz.iter().enumerate() {
        for c in 0..2 {
            gradient[c] += scale * dz * key(j)[c];
            gradient[2 + 2 * j + c] = scale * dz * q[c];
        }
    }
    // A rule without a gain or bias of its own keeps 1 and 0.
    gradient[2 * n + 2] = if defaults.gain { dgain } else { 0.0 };
    gradient[2 * n + 3] = if defaults.bias { dbias } else { 0.0 };
    (a, w, gradient)
}

/// |a - b|
pub fn distance(a: Point, b: Point) -> f64 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}

/// Twice the area of the triangle, positive if a, b, c turn left.
fn turn(a: Point, b: Point, c: Point) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// The corners of the convex hull, turning left (Andrew's monotone chain).
pub fn hull(points: &[Point]) -> Vec<Point> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    sorted.dedup();
    if sorted.len() < 3 {
        return sorted;
    }
    let half = |points: &mut dyn Iterator<Item = &Point>| {
        let mut chain: Vec<Point> = Vec::new();
        for &point in points {
            while let [.., a, b] = chain[..]
                && turn(a, b, point) <= 0.0
            {
                chain.pop();
            }
            chain.push(point);
        }
        // The other half begins with it.
        chain.pop();
        chain
    };
    let mut corners = half(&mut sorted.iter());
    corners.extend(half(&mut sorted.iter().rev()));
    corners
}

/// The point of the hull with these corners that is nearest to a point.
pub fn nearest(corners: &[Point], point: Point) -> Point {
    let edges = || (0..corners.len()).map(|i| (corners[i], corners[(i + 1) % corners.len()]));
    if corners.len() > 2 && edges().all(|(a, b)| turn(a, b, point) >= 0.0) {
        return point;
    }
    let projections = edges().map(|(a, b)| {
        let (u, p) = ([b[0] - a[0], b[1] - a[1]], [point[0] - a[0], point[1] - a[1]]);
        let length2 = u[0] * u[0] + u[1] * u[1];
        let t = if length2 > 0.0 { (p[0] * u[0] + p[1] * u[1]) / length2 } else { 0.0 };
        let t = t.clamp(0.0, 1.0);
        [a[0] + t * u[0], a[1] + t * u[1]]
    });
    let nearer = |a: &Point, b: &Point| distance(*a, point).total_cmp(&distance(*b, point));
    projections.min_by(nearer).expect("a hull has a corner")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nap_engine::kernels::aggregate::{self, Kind, attention_rules};

    fn rule(name: &str) -> &'static dyn AttentionRule<f64> {
        match aggregate::find(name) {
            Some(Kind::Attention(rule)) => rule,
            _ => panic!("no rule {name}"),
        }
    }

    fn problem(seed: u64) -> Problem {
        let values = random_values(6, seed);
        Problem { values, target: [1.5, 1.0], steps: 4000, learning_rate: 0.1, seed }
    }

    /// The nearest point of any segment between two of the points, which for a point outside the
    /// hull is the nearest of the hull.
    fn nearest_by_pairs(points: &[Point], point: Point) -> Point {
        let pairs = points.iter().flat_map(|&a| points.iter().map(move |&b| [a, b]));
        let candidates = pairs.map(|pair| nearest(&pair, point));
        candidates.min_by(|a, b| distance(*a, point).total_cmp(&distance(*b, point))).unwrap()
    }

    #[test]
    fn hulls_and_projections() {
        let square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.0]];
        let corners = hull(&square);
        assert_eq!(corners, [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]);
        assert_eq!(nearest(&corners, [2.0, 0.25]), [1.0, 0.25]);
        assert_eq!(nearest(&corners, [2.0, 3.0]), [1.0, 1.0]);
        assert_eq!(nearest(&corners, [0.3, 0.6]), [0.3, 0.6], "inside");
        assert_eq!(nearest(&hull(&[[1.0, 2.0]; 3]), [0.0, 0.0]), [1.0, 2.0]);
        assert_eq!(nearest(&hull(&[[0.0, 0.0], [2.0, 0.0]]), [1.0, 1.0]), [1.0, 0.0]);
        let line = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]];
        assert_eq!(nearest(&hull(&line), [2.0, 0.0]), [1.0, 1.0]);
        for seed in 0..50 {
            let points = random_values(3 + seed as usize % 20, seed);
            let (near, by_pairs) =
                (nearest(&hull(&points), [1.2, -1.1]), nearest_by_pairs(&points, [1.2, -1.1]));
            assert!(distance(near, by_pairs) < 1e-12, "{near:?} {by_pairs:?}");
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let problem = problem(3);
        for rule in attention_rules::<f64>() {
            let defaults = rule.defaults();
            let mut learned: Vec<f64> = (0..16).map(|i| (i as f64).sin()).collect();
            (learned[14], learned[15]) = (0.7, 0.2);
            let loss =
                |learned: &[f64]| distance(pass(&problem, rule, learned).0, problem.target).powi(2);
            let gradient = pass(&problem, rule, &learned).2;
            for i in 0..learned.len() {
                if (i == 14 && !defaults.gain) || (i == 15 && !defaults.bias) {
                    assert_eq!(gradient[i], 0.0);
                    continue;
                }
                let at = |x: f64| {
                    let mut moved = learned.clone();
                    moved[i] += x;
                    loss(&moved)
                };
                let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
                let error = (gradient[i] - expected).abs() / expected.abs().max(1.0);
                assert!(error < 1e-6, "{} {i}: {} {expected}", rule.info().name, gradient[i]);
            }
        }
    }

    #[test]
    fn softmax_ends_at_the_nearest_point_of_the_hull_and_nap_at_the_target() {
        for seed in 0..10 {
            let problem = problem(seed);
            let corners = hull(&problem.values);
            let near = nearest(&corners, problem.target);
            assert!(distance(near, problem.target) > 0.1, "outside");
            let softmax = train(&problem, rule("softmax"));
            assert!(softmax.points.iter().all(|&a| distance(nearest(&corners, a), a) < 1e-12));
            assert!(distance(softmax.end(), near) < 1e-4, "{seed}: {:?} {near:?}", softmax.end());
            for name in ["normalized", "no-norm"] {
                let end = train(&problem, rule(name)).end();
                assert!(distance(end, problem.target) < 1e-9, "{seed} {name}: {end:?}");
            }
        }
    }

    #[test]
    fn inside_the_hull_both_arrive() {
        let target = [0.1, 0.05];
        let values = vec![[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]];
        let problem = Problem { values, target, ..problem(0) };
        for name in ["softmax", "normalized"] {
            assert!(distance(train(&problem, rule(name)).end(), target) < 1e-6, "{name}");
        }
    }
}
