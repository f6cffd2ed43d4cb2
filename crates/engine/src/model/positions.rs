//! Fixed sinusoid positions, in the authors' form.
//!
//! ```text
//! angle(p, c) = p / 10000^(2c/d)
//! table[p][c] = sin(angle)  for even c,    cos(angle)  for odd c,    0  for p = 0
//! ```
//!
//! Differs from Vaswani et al. 2017: `c` is the column itself (there, columns 2i and 2i + 1
//! share the angle of i), and the first position's row is all zeros. The paper's program uses
//! this table in place of learned positions where a batch has an attention mask. Angles and values
//! are rounded to f32, as there; its f32 sine can differ from the rounded sine by one unit in the
//! last place.

/// The table `[rows, d]`.
pub fn sinusoids(rows: usize, d: usize) -> Vec<f32> {
    let mut table = vec![0.0; rows * d];
    for p in 1..rows {
        for c in 0..d {
            let angle = p as f64 / libm::pow(10_000.0, 2.0 * c as f64 / d as f64);
            let angle = f64::from(angle as f32);
            let value = if c % 2 == 0 { libm::sin(angle) } else { libm::cos(angle) };
            table[p * d + c] = value as f32;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_is_zero_and_columns_alternate() {
        let table = sinusoids(3, 2);
        assert_eq!(table[..2], [0.0, 0.0]);
        assert_eq!(table[2], 1f32.sin());
        assert_eq!(table[3], (1.0f64 / 10_000.0).cos() as f32);
        assert_eq!(table.len(), 6);
        assert!(sinusoids(0, 4).is_empty());
    }
}
