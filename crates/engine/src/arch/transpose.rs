//! Panels with tokens down and features across: what products that sum over tokens need.
#![allow(unsafe_code)]

use super::{Isa, isa};
use crate::panel::{Buffer, LANES, Lanes, Panels};
use crate::real::Real;

/// A transposed tensor: blocks of 16 features, `[blocks][tokens][16]`, tokens padded to panels
/// and features to blocks (with 0).
#[derive(Debug, Default)]
pub struct Transposed<T> {
    data: Buffer<T>,
    blocks: usize,
    tokens: usize,
}

impl<T: Real> Transposed<T> {
    /// Room for tensors of up to `rows` features of `panels` panels, or any of the same size.
    pub fn new(rows: usize, panels: usize) -> Self {
        Self { data: Buffer::new(rows.div_ceil(LANES) * panels * LANES), blocks: 0, tokens: 0 }
    }

    /// Transposes `x`.
    ///
    /// # Panics
    /// If there is no room.
    pub fn set(&mut self, x: Panels<T>) -> &Self {
        (self.blocks, self.tokens) = (x.height().div_ceil(LANES), x.count() * LANES);
        let data = &mut self.data[..self.blocks * self.tokens];
        for p in 0..x.count() {
            let panel = x.panel(p);
            for (block, rows) in panel.chunks(LANES).enumerate() {
                let out = &mut data[block * self.tokens + p * LANES..][..LANES];
                let Ok(out) = out.try_into() else { unreachable!("16 rows") };
                transpose(rows, out);
            }
        }
        self
    }

    /// The blocks.
    pub fn data(&self) -> &[Lanes<T>] {
        &self.data[..self.blocks * self.tokens]
    }

    /// Tokens, padded.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

/// Transposes up to 16 rows; those that are missing are 0.
fn transpose<T: Real>(rows: &[Lanes<T>], out: &mut [Lanes<T>; LANES]) {
    #[cfg(target_arch = "x86_64")]
    if std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>() && isa() != Isa::Portable {
        let rows: &[Lanes<f32>] = bytemuck::cast_slice(rows);
        let out: &mut [Lanes<f32>; LANES] = bytemuck::cast_mut(out);
        // SAFETY: both paths but the portable one have AVX.
        return unsafe { x86::transpose(rows, out) };
    }
    for (lane, out) in out.iter_mut().enumerate() {
        *out = std::array::from_fn(|i| rows.get(i).map_or(T::zero(), |row| row[lane]));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use crate::panel::{LANES, Lanes};

    /// Up to four blocks of 8 x 8.
    #[target_feature(enable = "avx")]
    pub fn transpose(rows: &[Lanes<f32>], out: &mut [Lanes<f32>; LANES]) {
        if rows.len() <= 8 {
            for out in &mut *out {
                out[8..].fill(0.0);
            }
        }
        for (i, j) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
            if i >= rows.len() {
                break;
            }
            let mut r = [_mm256_setzero_ps(); 8];
            for (r, row) in r.iter_mut().zip(&rows[i..]) {
                // SAFETY: columns j..j + 8 lie within a row of 16.
                *r = unsafe { _mm256_loadu_ps(row.as_ptr().add(j)) };
            }
            let mut pairs = [_mm256_setzero_ps(); 8];
            for k in 0..4 {
                pairs[2 * k] = _mm256_unpacklo_ps(r[2 * k], r[2 * k + 1]);
                pairs[2 * k + 1] = _mm256_unpackhi_ps(r[2 * k], r[2 * k + 1]);
            }
            let mut fours = [_mm256_setzero_ps(); 8];
            for k in 0..2 {
                for l in 0..2 {
                    let (low, high) = (pairs[4 * k + l], pairs[4 * k + 2 + l]);
                    fours[4 * k + 2 * l] = _mm256_shuffle_ps::<0x44>(low, high);
                    fours[4 * k + 2 * l + 1] = _mm256_shuffle_ps::<0xee>(low, high);
                }
            }
            for k in 0..4 {
                let (low, high) = (fours[k], fours[4 + k]);
                let halves = [
                    _mm256_permute2f128_ps::<0x20>(low, high),
                    _mm256_permute2f128_ps::<0x31>(low, high),
                ];
                for (half, value) in halves.into_iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { _mm256_storeu_ps(out[j + k + 4 * half].as_mut_ptr().add(i), value) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Real>() {
        for (rows, count) in [(1, 1), (2, 3), (7, 1), (8, 2), (9, 1), (16, 2), (17, 3), (40, 2)] {
            let row = |i: usize| std::array::from_fn(|lane| T::of((i * LANES + lane) as f64 + 1.0));
            let x: Vec<Lanes<T>> = (0..rows * count).map(row).collect();
            let mut transposed = Transposed::new(40, 3);
            // What was there before must not show.
            transposed.set(Panels::new(&[[T::one(); LANES]; 40 * 3], 40));
            let transposed = transposed.set(Panels::new(&x, rows));
            assert_eq!(transposed.data().len(), rows.div_ceil(16) * count * 16);
            for (index, out) in transposed.data().iter().enumerate() {
                let (block, token) = (index / transposed.tokens(), index % transposed.tokens());
                for (lane, &value) in out.iter().enumerate() {
                    let feature = block * LANES + lane;
                    let expected = if feature < rows {
                        x[token / LANES * rows + feature][token % LANES]
                    } else {
                        T::zero()
                    };
                    assert_eq!(value, expected, "{rows} x {count}: {token}, {feature}");
                }
            }
        }
    }

    #[test]
    fn every_value_is_at_its_place() {
        check::<f32>();
        check::<f64>();
    }
}
