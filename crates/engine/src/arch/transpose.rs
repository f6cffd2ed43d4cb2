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
                match rows.try_into() {
                    Ok(rows) => transpose(rows, out),
                    Err(_) => {
                        let mut padded = [[T::zero(); LANES]; LANES];
                        padded[..rows.len()].copy_from_slice(rows);
                        transpose(&padded, out);
                    }
                }
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

    /// Blocks of 16 features.
    pub fn blocks(&self) -> usize {
        self.blocks
    }
}

fn transpose<T: Real>(rows: &[Lanes<T>; LANES], out: &mut [Lanes<T>; LANES]) {
    #[cfg(target_arch = "x86_64")]
    if std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>() && isa() != Isa::Portable {
        let rows: &[Lanes<f32>; LANES] = bytemuck::cast_ref(rows);
        let out: &mut [Lanes<f32>; LANES] = bytemuck::cast_mut(out);
        // SAFETY: both paths but the portable one have AVX.
        return unsafe { x86::transpose(rows, out) };
    }
    for (lane, out) in out.iter_mut().enumerate() {
        *out = std::array::from_fn(|i| rows[i][lane]);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use crate::panel::{LANES, Lanes};

    /// Four blocks of 8 x 8.
    #[target_feature(enable = "avx")]
    pub fn transpose(rows: &[Lanes<f32>; LANES], out: &mut [Lanes<f32>; LANES]) {
        for (i, j) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
            let mut r = [_mm256_setzero_ps(); 8];
            for (r, row) in r.iter_mut().zip(&rows[i..i + 8]) {
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
