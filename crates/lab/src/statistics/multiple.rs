//! Many tests at once.

/// Holm's adjusted p-values: rejecting those at most `level` keeps the chance of any false
/// rejection at most `level`, however the tests depend on each other. In increasing order,
/// `max over j <= i of min(1, (m - j + 1) p_j)`.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut adjusted = vec![0.0; m];
    let mut least = 0.0f64;
    for (j, at) in increasing(p).into_iter().enumerate() {
        least = least.max(((m - j) as f64 * p[at]).min(1.0));
        adjusted[at] = least;
    }
    adjusted
}

/// Benjamini and Hochberg's adjusted p-values: of those at most `level`, a share of at most
/// `level` is expected to be false. In increasing order, `min over j >= i of min(1, m p_j / j)`.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut adjusted = vec![0.0; m];
    let mut most = 1.0f64;
    for (j, at) in increasing(p).into_iter().enumerate().rev() {
        most = most.min(m as f64 * p[at] / (j + 1) as f64);
        adjusted[at] = most;
    }
    adjusted
}

fn increasing(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    order
}
