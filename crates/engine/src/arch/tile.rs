//! The inner loops of matrix products: tiles of a few rows by 16 or 32 columns, whose sums stay
//! in registers, once per instruction set.
#![allow(unsafe_code)]

use super::{Isa, isa};
use crate::panel::LANES;
use crate::real::Real;

/// What the products are added to. What is there is added last: it may come from far away.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begin<T> {
    /// 0
    Zero,
    /// What is there.
    Add,
    /// One value per row.
    Bias(*const T),
}

/// `C[i, j] = begin + sum_k A[i, k] B[k, j]` for all rows i and all blocks of 16 columns j.
///
/// Rows come in strips of `height`. Within a strip, A's element (i, k) is at `i * 1 + k * step`
/// (or `i * 16 + k` with `BY_ROW`, see [`run`]); k runs over `segments` of `inner` elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<T> {
    pub rows: usize,
    pub height: usize,
    pub blocks: usize,
    pub segments: usize,
    pub inner: usize,
    pub a: *const T,
    /// From row to row of A, where a strip starts, and from 16 rows to the next 16.
    pub a_row: usize,
    pub a_panel: usize,
    pub a_segment: usize,
    /// From k to k + 1 of A.
    pub step: usize,
    /// `[blocks][segments * inner][16]`, blocks `b_block` apart.
    pub b: *const T,
    pub b_block: usize,
    pub c: *mut T,
    pub c_block: usize,
    pub c_row: usize,
    pub begin: Begin<T>,
}

/// The tallest tile of any path.
pub(super) const MAX_HEIGHT: usize = 12;

/// Blocks of columns a strip of A is used for before the next one is read: four panels are
/// streamed from the level-2 cache, and large weights a quarter as often from beyond it.
const BLOCKS_PER_PASS: usize = 4;

/// The tallest tile of the path in use.
pub(super) fn max_height<T: Real>() -> usize {
    match path::<T>() {
        Isa::Portable => 4,
        Isa::Avx2 => 6,
        Isa::Avx512 => MAX_HEIGHT,
    }
}

/// A strip height for this many rows: as few strips as possible, equally high.
pub(super) fn strip_height<T: Real>(rows: usize) -> usize {
    let strips = rows.div_ceil(max_height::<T>()).max(1);
    rows.div_ceil(strips).max(1)
}

/// Strip height that divides a panel's 16 lanes.
pub(super) fn lane_strip_height<T: Real>() -> usize {
    match path::<T>() {
        Isa::Portable | Isa::Avx2 => 4,
        Isa::Avx512 => 8,
    }
}

/// f64 serves tests only and has no kernels of its own.
fn path<T: Real>() -> Isa {
    if is_f32::<T>() { isa() } else { Isa::Portable }
}

fn is_f32<T: 'static>() -> bool {
    std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>()
}

/// Runs a job; with `BY_ROW` A's rows lie 16 apart, else 1.
///
/// # Safety
/// Every element the job names must lie within its allocation, no element of C may be shared
/// with A, B or another element of C, and `height` must not exceed [`max_height`].
pub(super) unsafe fn run<T: Real, const BY_ROW: bool>(job: &Job<T>) {
    // SAFETY: the caller's promise.
    unsafe { run_on::<T, BY_ROW>(path::<T>(), job) }
}

/// [`run`] on this path.
///
/// # Safety
/// As [`run`]; the processor must have the path's instructions.
unsafe fn run_on<T: Real, const BY_ROW: bool>(isa: Isa, job: &Job<T>) {
    #[cfg(target_arch = "x86_64")]
    if is_f32::<T>() && isa != Isa::Portable {
        // SAFETY: T is f32, so the two types are the same.
        let job = unsafe { &*std::ptr::from_ref(job).cast::<Job<f32>>() };
        // SAFETY: the caller's promise.
        return unsafe {
            if isa == Isa::Avx512 {
                x86::avx512::<BY_ROW>(job);
            } else {
                x86::avx2::<BY_ROW>(job);
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { portable::<T, BY_ROW>(job) }
}

impl<T> Job<T> {
    /// Where the strip that starts with this row does.
    #[inline(always)]
    pub fn a_at(&self, row: usize) -> usize {
        row / LANES * self.a_panel + row % LANES * self.a_row
    }

    /// Where A's strip, B's block and C's tile of this row and block start.
    ///
    /// # Safety
    /// They must be part of the job.
    #[inline(always)]
    unsafe fn at(&self, block: usize, row: usize) -> (*const T, *const T, *mut T) {
        // SAFETY: the caller's promise.
        unsafe {
            let c = self.c.add(block * self.c_block + row * self.c_row);
            (self.a.add(self.a_at(row)), self.b.add(block * self.b_block), c)
        }
    }
}

/// Evaluates `$call` with `$m` the constant that equals `$rows`, one of those listed.
macro_rules! by_height {
    ($rows:expr, [$($height:literal)*], $m:ident => $call:expr) => {
        match $rows {
            $($height => { const $m: usize = $height; $call })*
            _ => unreachable!("a strip is too high"),
        }
    };
}

/// # Safety
/// As [`run`].
unsafe fn portable<T: Real, const BY_ROW: bool>(job: &Job<T>) {
    for first in (0..job.blocks).step_by(BLOCKS_PER_PASS) {
        for row in (0..job.rows).step_by(job.height) {
            let rows = job.height.min(job.rows - row);
            for block in first..job.blocks.min(first + BLOCKS_PER_PASS) {
                // SAFETY: the caller's promise.
                unsafe {
                    by_height!(rows, [1 2 3 4 5 6 7 8 9 10 11 12],
                        M => portable_tile::<M, BY_ROW, T>(job, block, row));
                }
            }
        }
    }
}

/// # Safety
/// As [`run`], for this strip and block.
unsafe fn portable_tile<const M: usize, const BY_ROW: bool, T: Real>(
    job: &Job<T>,
    block: usize,
    row: usize,
) {
    // SAFETY: the caller's promise covers every pointer made here.
    unsafe {
        let (mut a, mut b, c) = job.at(block, row);
        let stride = if BY_ROW { LANES } else { 1 };
        let mut sums = [[num_traits::zero(); LANES]; M];
        for (i, sums) in sums.iter_mut().enumerate() {
            if let Begin::Bias(bias) = job.begin {
                *sums = [*bias.add(row + i); LANES];
            }
        }
        for _ in 0..job.segments {
            for k in 0..job.inner {
                let b = &*b.add(k * LANES).cast::<[_; LANES]>();
                for (i, sums) in sums.iter_mut().enumerate() {
                    let a = *a.add(i * stride + k * job.step);
                    for lane in 0..LANES {
                        sums[lane] += a * b[lane];
                    }
                }
            }
            // Beyond the end after the last segment.
            a = a.wrapping_add(job.a_segment);
            b = b.wrapping_add(job.inner * LANES);
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let c = &mut *c.add(i * job.c_row).cast::<[_; LANES]>();
            if matches!(job.begin, Begin::Add) {
                sums.iter_mut().zip(&*c).for_each(|(sum, &c)| *sum += c);
            }
            *c = *sums;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests {
    use super::*;

    fn values<T: Real>(n: usize, seed: u32) -> Vec<T> {
        let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
        let value = |i| f64::from(hash(i).wrapping_mul(0x9E37_79B9) >> 8) / 8_388_608.0 - 1.0;
        (0..n).map(|i| T::of(value(i))).collect()
    }

    /// Every path's tiles, of all heights, with both ways of reading A, against plain sums.
    fn check<T: Real, const BY_ROW: bool>(isa: Isa, height: usize) {
        let (rows, blocks, segments, inner) = (2 * height - 1, 5, 3, LANES);
        let total = segments * inner;
        // A's rows lie 16 apart in segments of 16, or strips are packed.
        let a_rows = 2 * height;
        let (a, b) = (values::<T>(a_rows * total, 1), values::<T>(blocks * total * LANES, 2));
        let start = values::<T>(rows * blocks * LANES, 3);
        let bias = values::<T>(a_rows, 4);
        for begin in 0..3 {
            let mut c = start.clone();
            let job = Job {
                rows,
                height,
                blocks,
                segments: if BY_ROW { segments } else { 1 },
                inner: if BY_ROW { inner } else { total },
                a: a.as_ptr(),
                a_row: if BY_ROW { LANES } else { total },
                a_panel: LANES * if BY_ROW { LANES } else { total },
                a_segment: a_rows * LANES,
                step: if BY_ROW { 1 } else { height },
                b: b.as_ptr(),
                b_block: total * LANES,
                c: c.as_mut_ptr(),
                c_block: LANES,
                c_row: blocks * LANES,
                begin: [Begin::Zero, Begin::Add, Begin::Bias(bias.as_ptr())][begin],
            };
            // SAFETY: the buffers above have exactly these shapes, and this path's
            // instructions were detected.
            unsafe { run_on::<T, BY_ROW>(isa, &job) };
            for i in 0..rows {
                for j in 0..blocks * LANES {
                    let at = |k: usize| {
                        let (segment, lane) = (k / inner, k % inner);
                        let (strip, row) = (i / height, i % height);
                        let x = match BY_ROW {
                            true => a[(segment * a_rows + i) * LANES + lane],
                            false => a[strip * height * total + k * height + row],
                        };
                        x.f64() * b[(j / LANES * total + k) * LANES + j % LANES].f64()
                    };
                    let place = i * blocks * LANES + j;
                    let begin = [0.0, start[place].f64(), bias[i].f64()][begin];
                    let expected = begin + (0..total).map(at).sum::<f64>();
                    let error = (c[place].f64() - expected).abs();
                    let most = T::epsilon().f64() * (total as f64 + 1.0);
                    assert!(error <= most, "{isa:?} {height} ({i}, {j}): {error:e}");
                }
            }
        }
    }

    #[test]
    fn tiles_equal_plain_sums_on_every_path() {
        for height in 1..=MAX_HEIGHT {
            check::<f64, true>(Isa::Portable, height);
            check::<f64, false>(Isa::Portable, height);
            let mut paths = vec![Isa::Portable];
            if isa() != Isa::Portable && height <= 6 {
                paths.push(Isa::Avx2);
            }
            if isa() == Isa::Avx512 {
                paths.push(Isa::Avx512);
            }
            for isa in paths {
                check::<f32, true>(isa, height);
                check::<f32, false>(isa, height);
            }
        }
    }
}
