//! Matrix products of bf16 values with f32 sums.
//!
//! bf16 is an f32 whose fraction has 7 bits: the operands of a product are rounded to it (to
//! nearest, ties to even), so each product has a relative error of up to 2^-8, and the sums are
//! those of f32. With AMX the operands are packed as tiles; elsewhere they stay f32 (or, in
//! tests, f64) values that have been rounded, and the usual products sum them.
//!
//! A value is nearly the sum of two of bf16, its [`Term`]s, so that three products of bf16 come
//! close to one of f32: `w x = high(w) high(x) + high(w) low(x) + low(w) high(x)`, up to 2^-15 of
//! each `|w x|`.
#![allow(unsafe_code)]

use std::ops::Range;

use super::amx::{self, DEPTH, ROWS, TILE};
use super::product::{Out, Start, Strips, matmul, matmul_rows};
use super::vectorize;
use crate::panel::{Buffer, LANES, Lanes, Panels, PanelsMut};
use crate::real::Real;

/// Whether products of bf16 use AMX.
pub fn has_tiles() -> bool {
    amx::available()
}

fn tiles<T: Real>() -> bool {
    std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>() && amx::available()
}

/// The upper half of an f32, rounded; NaN stays NaN.
#[inline(always)]
fn bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // Rounding could carry a NaN's fraction into infinity.
    if x.is_nan() { bits | 0x0040_0000 } else { rounded }
}

/// x rounded to bf16.
#[inline(always)]
pub(crate) fn round(x: f32) -> f32 {
    f32::from_bits(bits(x) & 0xffff_0000)
}

/// Which of two values of bf16 that sum to about an f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// The f32 rounded.
    High,
    /// What that leaves of it, rounded.
    Low,
}

impl Term {
    /// The term of a value.
    #[inline(always)]
    fn of<T: Real>(self, x: T) -> T {
        match self {
            Term::High => x.bf16(),
            Term::Low => (x - x.bf16()).bf16(),
        }
    }
}

/// The upper half of a term's bits; the lower half is 0.
#[inline(always)]
fn upper(term: Term, x: f32) -> u16 {
    (term.of(x).to_bits() >> 16) as u16
}

/// Values of bf16, allocated once, aligned to a cache line.
#[derive(Debug, Default)]
struct Tiles {
    values: Vec<u16>,
    start: usize,
}

impl Tiles {
    fn new(tiles: usize) -> Self {
        const LINE: usize = 64;
        let values = tiles.checked_mul(TILE).expect("tiles in memory");
        let values = vec![0; values + LINE / size_of::<u16>()];
        let start = values.as_ptr().align_offset(LINE).min(LINE / size_of::<u16>());
        Self { values, start }
    }

    fn tiles(&self) -> &[[u16; TILE]] {
        self.values[self.start..].as_chunks().0
    }

    fn tiles_mut(&mut self) -> &mut [[u16; TILE]] {
        self.values[self.start..].as_chunks_mut().0
    }
}

/// A matrix `W: [rows, inner]` of bf16, packed as the left operand.
#[derive(Debug, Default)]
pub struct Matrix16<T> {
    rows: usize,
    inner: usize,
    /// With AMX: `[row blocks][k blocks]` tiles.
    tiles: Tiles,
    /// Elsewhere: rounded.
    strips: Strips<T>,
}

impl<T: Real> Matrix16<T> {
    /// Room for a matrix of this shape, all 0.
    pub fn new(rows: usize, inner: usize) -> Self {
        if tiles::<T>() {
            let count = rows.div_ceil(ROWS).checked_mul(inner.div_ceil(DEPTH));
            let count = count.expect("a matrix in memory");
            return Self { rows, inner, tiles: Tiles::new(count), strips: Strips::default() };
        }
        Self { rows, inner, tiles: Tiles::default(), strips: Strips::new(rows, inner) }
    }

    /// Packs a term of a part of the matrix from `w`, whose element (i, k) is
    /// `w[i * row_stride + k * inner_stride]`.
    ///
    /// # Panics
    /// If there is no room or `w` is too short.
    pub fn pack(
        &mut self,
        term: Term,
        rows: Range<usize>,
        inner: Range<usize>,
        w: &[T],
        row_stride: usize,
        inner_stride: usize,
    ) {
        if !tiles::<T>() {
            self.strips.pack_with(rows, inner, w, row_stride, inner_stride, |w| term.of(w));
            return;
        }
        assert!(rows.end <= self.rows && inner.end <= self.inner, "no room for this part");
        let w: &[f32] = bytemuck::cast_slice(w);
        let depth = self.inner.div_ceil(DEPTH);
        let tiles = self.tiles.tiles_mut();
        for (i, row) in rows.enumerate() {
            for (j, k) in inner.clone().enumerate() {
                let tile = &mut tiles[row / ROWS * depth + k / DEPTH];
                tile[row % ROWS * DEPTH + k % DEPTH] =
                    upper(term, w[i * row_stride + j * inner_stride]);
            }
        }
    }
}

/// Panels of bf16, packed as the right operand: `[panels][rows]`, summed over rows; and, as the
/// left operand, features by tokens.
#[derive(Debug, Default)]
pub struct Panels16<T> {
    rows: usize,
    count: usize,
    tiles: Tiles,
    rounded: Buffer<T>,
}

impl<T: Real> Panels16<T> {
    /// Room for tensors of up to `rows` features of `panels` panels, also transposed, or any
    /// that are not larger.
    pub fn new(rows: usize, panels: usize) -> Self {
        let mut new = Self { rows: 0, count: 0, ..Self::default() };
        // Padded: features to whole tiles (of 16 or 32), tokens to pairs of panels.
        let (rows, panels) = (rows.next_multiple_of(DEPTH), panels.next_multiple_of(2));
        if tiles::<T>() {
            new.tiles = Tiles::new(rows / DEPTH * panels);
        } else {
            new.rounded = Buffer::new(rows * panels);
        }
        new
    }

    /// Takes a term of `x` as the right operand: sums run over its rows.
    ///
    /// # Panics
    /// If there is no room.
    pub fn set(&mut self, term: Term, x: Panels<T>) -> &Self {
        (self.rows, self.count) = (x.height(), x.count());
        if !tiles::<T>() {
            self.round(term, x);
            return self;
        }
        let depth = x.height().div_ceil(DEPTH);
        let tiles = &mut self.tiles.tiles_mut()[..depth * x.count()];
        for (p, tiles) in tiles.chunks_exact_mut(depth).enumerate() {
            let panel: &[Lanes<f32>] = bytemuck::cast_slice(x.panel(p));
            for (tile, rows) in tiles.iter_mut().zip(panel.chunks(DEPTH)) {
                pair_rows(term, rows, tile);
            }
        }
        self
    }

    /// Takes a term of `x` as the left operand: sums run over its tokens.
    ///
    /// # Panics
    /// If there is no room.
    pub fn set_left(&mut self, term: Term, x: Panels<T>) -> &Self {
        (self.rows, self.count) = (x.height(), x.count());
        if !tiles::<T>() {
            self.round(term, x);
            return self;
        }
        let depth = x.count().div_ceil(2);
        let tiles = &mut self.tiles.tiles_mut()[..x.height().div_ceil(ROWS) * depth];
        for (block, tiles) in tiles.chunks_exact_mut(depth).enumerate() {
            for (pair, tile) in tiles.iter_mut().enumerate() {
                tile.fill(0);
                for half in 0..2.min(x.count() - 2 * pair) {
                    let panel: &[Lanes<f32>] = bytemuck::cast_slice(x.panel(2 * pair + half));
                    let rows = panel[block * ROWS..].iter().take(ROWS);
                    for (row, to) in rows.zip(tile.chunks_exact_mut(DEPTH)) {
                        let to = &mut to[half * LANES..][..LANES];
                        to.iter_mut().zip(row).for_each(|(to, &x)| *to = upper(term, x));
                    }
                }
            }
        }
        self
    }

    fn round(&mut self, term: Term, x: Panels<T>) {
        let rounded = self.rounded.chunks_exact_mut(x.height());
        for (p, to) in rounded.take(x.count()).enumerate() {
            let (from, to) = (x.panel(p).as_flattened(), to.as_flattened_mut());
            vectorize(
                #[inline(always)]
                || to.iter_mut().zip(from).for_each(|(to, &x)| *to = term.of(x)),
            );
        }
    }

    /// The rounded panels, without AMX.
    fn panels(&self) -> Panels<'_, T> {
        Panels::new(&self.rounded[..self.rows * self.count], self.rows)
    }
}

/// Two rows of 16 f32 to a row of a tile: pairs of bf16, the first in the lower half.
fn pair_rows(term: Term, rows: &[Lanes<f32>], tile: &mut [u16; TILE]) {
    vectorize(
        #[inline(always)]
        || {
            let pairs: &mut [[u16; 2 * LANES]] = tile.as_chunks_mut().0;
            for (index, to) in pairs.iter_mut().enumerate() {
                let row = |i: usize| rows.get(2 * index + i).copied().unwrap_or([0.0; LANES]);
                let (even, odd) = (row(0), row(1));
                let to: &mut [u32; LANES] = bytemuck::cast_mut(to);
                for lane in 0..LANES {
                    to[lane] = term.of(even[lane]).to_bits() >> 16 | term.of(odd[lane]).to_bits();
                }
            }
        },
    );
}

/// `Y = start + W X` with the first `y.height()` rows of W and as many columns as X has rows:
/// [`matmul`] of bf16.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul16<T: Real>(w: &Matrix16<T>, x: &Panels16<T>, mut y: PanelsMut<T>, start: Start<T>) {
    if !tiles::<T>() {
        return matmul(&w.strips, x.panels(), y, start);
    }
    assert!(y.height() <= w.rows && x.rows <= w.inner, "a matrix of {} x {}", w.rows, w.inner);
    assert_eq!(x.count, y.count(), "panels");
    if let Start::Bias(bias) = start {
        assert!(y.height() <= bias.len(), "one bias per row");
        for p in 0..y.count() {
            y.panel(p).iter_mut().zip(bias).for_each(|(row, &bias)| *row = [bias; LANES]);
        }
    }
    // Fewer columns than the matrix has: its tiles along k are skipped, those of a part are
    // multiplied by the rows of 0 that pad X.
    let depth = [w.inner.div_ceil(DEPTH), x.rows.div_ceil(DEPTH)];
    product(&w.tiles, depth, &x.tiles, Out::panels(y), start != Start::Zero);
}

/// `C (+)= X Y^T` summed over tokens, `x` set as left operand and `y` from a transposed tensor:
/// [`matmul_nt`](super::matmul_nt) of bf16.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul_nt16<T: Real>(x: &Panels16<T>, y: &Panels16<T>, out: Out<T>, add: bool) {
    assert_eq!(x.count * LANES, y.rows, "tokens");
    if !tiles::<T>() {
        let (x, y) = (x.panels(), y.panels());
        return matmul_rows(x, y.data(), out, add);
    }
    assert!(out.rows() <= x.rows && out.columns() <= y.count * LANES, "features");
    let depth = x.count.div_ceil(2);
    product(&x.tiles, [depth; 2], &y.tiles, out, add);
}

/// `C (+)= A B`; `depth`: tiles from a block of A to the next, and how many of them are used.
fn product<T: Real>(a: &Tiles, depth: [usize; 2], b: &Tiles, out: Out<T>, add: bool) {
    let (rows, columns, row_stride, block_stride) = out.shape();
    let data: &mut [f32] = bytemuck::cast_slice_mut(out.into_data());
    let blocks = [rows.div_ceil(ROWS), columns.div_ceil(LANES)];
    assert!(blocks[0] * depth[0] <= a.tiles().len() && blocks[1] * depth[1] <= b.tiles().len());
    let whole = [rows / ROWS, columns / LANES];
    if depth[0] == depth[1] && whole == blocks {
        // SAFETY: AMX is available where there are tiles; A and B have as many tiles as blocks
        // times depth; the constructors of Out checked that all rows and columns lie in its
        // slice, which is borrowed mutably.
        unsafe {
            amx::run(&amx::Job {
                blocks,
                depth: depth[1],
                a: a.tiles().as_flattened().as_ptr(),
                b: b.tiles().as_flattened().as_ptr(),
                c: data.as_mut_ptr(),
                c_row: row_stride,
                c_block: [ROWS * row_stride, block_stride],
                add,
            });
        }
        return;
    }
    // Blocks of rows one at a time, through a buffer where rows or columns are not whole.
    let mut buffer = [[0f32; LANES]; ROWS];
    for block in 0..blocks[0] {
        let direct = if block < whole[0] { whole[1] } else { 0 };
        for column in 0..blocks[1] {
            let at = block * ROWS * row_stride + column * block_stride;
            let through = column >= direct;
            let c = match through {
                true => buffer.as_flattened_mut().as_mut_ptr(),
                false => data[at..].as_mut_ptr(),
            };
            // SAFETY: as above; C is either a whole block of the result or the buffer.
            unsafe {
                amx::run(&amx::Job {
                    blocks: [1, 1],
                    depth: depth[1],
                    a: a.tiles()[block * depth[0]..].as_flattened().as_ptr(),
                    b: b.tiles()[column * depth[1]..].as_flattened().as_ptr(),
                    c,
                    c_row: if through { LANES } else { row_stride },
                    c_block: [0, 0],
                    add: add && !through,
                });
            }
            if through {
                let rows = buffer.iter().take(rows - block * ROWS).enumerate();
                for (i, sums) in rows {
                    let width = LANES.min(columns - column * LANES);
                    let to = &mut data[at + i * row_stride..][..width];
                    for (to, &sum) in to.iter_mut().zip(sums) {
                        *to = if add { *to + sum } else { sum };
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Transposed;
    use proptest::prelude::*;

    fn values(n: usize, seed: u32) -> Vec<f32> {
        let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
        (0..n)
            .map(|i| (hash(i).wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0)
            .collect()
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        // 1 + 2^-8 is halfway between 1 and 1 + 2^-7; the even one is 1.
        assert_eq!(round(1.0 + 2f32.powi(-8)), 1.0);
        assert_eq!(round(1.0 + 3.0 * 2f32.powi(-8)), 1.0 + 2f32.powi(-6));
        assert_eq!(round(1.0 + 2f32.powi(-8) + 2f32.powi(-20)), 1.0 + 2f32.powi(-7));
        assert_eq!(round(-2.5), -2.5);
        assert_eq!(round(f32::MAX), f32::INFINITY);
        assert_eq!(round(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert!(round(f32::NAN).is_nan());
        assert!(round(f32::from_bits(0x7f80_0001)).is_nan(), "no NaN becomes infinite");
        for x in values(10_000, 5) {
            let error = (f64::from(round(x)) - f64::from(x)).abs();
            assert!(error <= f64::from(x.abs()) * 2f64.powi(-8), "{x}");
        }
    }

    #[test]
    fn three_products_of_terms_come_close_to_one_of_values() {
        let (mut worst, [a, b]) = (0f64, [values(10_000, 7), values(10_000, 8)]);
        for (&a, &b) in a.iter().zip(&b) {
            let term = |term: Term, x: f32| f64::from(term.of(x));
            let [high, low] = [Term::High, Term::Low].map(|t| [term(t, a), term(t, b)]);
            let sum = high[0] * high[1] + high[0] * low[1] + low[0] * high[1];
            let exact = f64::from(a) * f64::from(b);
            worst = worst.max((sum - exact).abs() / exact.abs().max(f64::MIN_POSITIVE));
        }
        assert!(worst <= 2f64.powi(-15), "{worst:e}");
        assert!(worst >= 2f64.powi(-19), "as if a term were whole: {worst:e}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Both products against sums of rounded values, on the path this machine has.
        #[test]
        fn products_equal_sums_of_rounded_values(
            rows in 1usize..70, inner in 1usize..70, count in 1usize..6, used in 0.3f64..1.0,
            start in 0usize..3, low: bool,
        ) {
            let term = if low { Term::Low } else { Term::High };
            let rounded = |x: f32| match term {
                Term::High => f64::from(round(x)),
                Term::Low => f64::from(round(x - round(x))),
            };
            let (w, x) = (values(rows * inner, 1), values(inner * count * LANES, 2));
            let y = values(rows * count * LANES, 3);
            let bias = values(rows, 4);
            let used = ((inner as f64 * used) as usize).max(1);
            let of = |x: &[f32]| -> Vec<Lanes<f32>> { x.as_chunks().0.to_vec() };
            let (x, before) = (of(&x[..used * count * LANES]), of(&y));
            let mut w16 = Matrix16::<f32>::new(rows, inner);
            w16.pack(term, 0..rows, 0..inner, &w, inner, 1);
            let mut x16 = Panels16::new(inner, count);
            let mut out = before.clone();
            let start_with = [Start::Zero, Start::Add, Start::Bias(&bias)][start];
            matmul16(
                &w16,
                x16.set(term, Panels::new(&x, used)),
                PanelsMut::new(&mut out, rows),
                start_with,
            );
            for (index, row) in out.iter().enumerate() {
                let (p, i) = (index / rows, index % rows);
                for lane in 0..LANES {
                    let term = |k: usize| {
                        rounded(w[i * inner + k]) * rounded(x[p * used + k][lane])
                    };
                    let begin = [0.0, before[index][lane], bias[i]][start];
                    let expected = f64::from(begin) + (0..used).map(term).sum::<f64>();
                    let error = (f64::from(row[lane]) - expected).abs();
                    prop_assert!(error <= 1e-6 * (used as f64 + 1.0), "{error:e}");
                }
            }
            // Features of x by features of y, over tokens.
            let mut left = Panels16::new(used, count);
            let mut right = Panels16::new(rows.next_multiple_of(LANES), count);
            let (xs, ys) = (Panels::new(&x, used), Panels::new(&before, rows));
            let mut transposed = Transposed::new(rows, count);
            let transposed = transposed.set(ys);
            let right = right.set(term, Panels::new(transposed.data(), transposed.tokens()));
            let add = start == 1;
            let mut c = values(used * rows, 6);
            let c_before = c.clone();
            matmul_nt16(left.set_left(term, xs), right, Out::matrix(&mut c, used, rows, rows), add);
            for i in 0..used {
                for j in 0..rows {
                    let term = |t: usize| {
                        let (p, lane) = (t / LANES, t % LANES);
                        rounded(xs.panel(p)[i][lane]) * rounded(ys.panel(p)[j][lane])
                    };
                    let begin = if add { f64::from(c_before[i * rows + j]) } else { 0.0 };
                    let expected = begin + (0..count * LANES).map(term).sum::<f64>();
                    let error = (f64::from(c[i * rows + j]) - expected).abs();
                    prop_assert!(error <= 1e-6 * (count * LANES) as f64, "{error:e}");
                }
            }
        }
    }
}
