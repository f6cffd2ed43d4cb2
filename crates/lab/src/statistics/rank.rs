//! Rank correlation.

/// Ranks from 1; equal values share the mean of their ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let value = values[order[from]];
        let to = from + order[from..].iter().take_while(|&&i| values[i] == value).count().max(1);
        // Ranks from + 1 to `to`.
        order[from..to].iter().for_each(|&i| ranks[i] = (from + to + 1) as f64 / 2.0);
        from = to;
    }
    ranks
}

/// Spearman's rank correlation: Pearson's correlation of the [`ranks`]. None where one side has
/// fewer than two different values.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() + 1) as f64 / 2.0;
    let product =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let (aa, bb) = (product(&a, &a), product(&b, &b));
    (aa > 0.0 && bb > 0.0).then(|| product(&a, &b) / (aa * bb).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_order_has_no_correlation() {
        assert_eq!(spearman(&[], &[]), None);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[5.0, 3.0]), Some(-1.0));
    }
}
