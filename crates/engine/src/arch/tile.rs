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
mod x86 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::{BLOCKS_PER_PASS, Begin, Job, LANES};

    /// Results of so many rows of 16 are taken to lie beyond the level-1 cache.
    const FAR: usize = 1024;

    /// # Safety
    /// As [`super::run`], on a processor with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn avx2<const BY_ROW: bool>(job: &Job<f32>) {
        // SAFETY: the caller's promise; each count divides `inner`.
        unsafe {
            match job.inner.trailing_zeros() {
                0 => avx2_unrolled::<BY_ROW, 1>(job),
                1 => avx2_unrolled::<BY_ROW, 2>(job),
                _ => avx2_unrolled::<BY_ROW, 4>(job),
            }
        }
    }

    /// [`avx2`] with UNROLL values of k between two tests for the end: a loop's own instructions
    /// cost time where the core's decoder is shared with another thread.
    ///
    /// # Safety
    /// As [`avx2`]; `UNROLL` must divide `inner`.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_unrolled<const BY_ROW: bool, const UNROLL: usize>(job: &Job<f32>) {
        let whole = job.rows / job.height * job.height;
        for first in (0..job.blocks).step_by(BLOCKS_PER_PASS) {
            let blocks = first..job.blocks.min(first + BLOCKS_PER_PASS);
            // SAFETY: the caller's promise.
            unsafe {
                by_height!(job.height, [1 2 3 4 5 6],
                    M => avx2_strips::<M, BY_ROW, UNROLL>(job, 0..whole, blocks.clone()));
                if whole < job.rows {
                    by_height!(job.rows - whole, [1 2 3 4 5],
                        M => avx2_strips::<M, BY_ROW, UNROLL>(job, whole..job.rows, blocks));
                }
            }
        }
    }

    /// Strips of M rows. Small products come to little more than this loop, so the height is
    /// known to it.
    ///
    /// # Safety
    /// As [`avx2_unrolled`], for these rows, whole strips, and blocks.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_strips<const M: usize, const BY_ROW: bool, const UNROLL: usize>(
        job: &Job<f32>,
        rows: Range<usize>,
        blocks: Range<usize>,
    ) {
        for row in rows.step_by(M) {
            for block in blocks.clone() {
                // SAFETY: the caller's promise.
                unsafe { avx2_tile::<M, BY_ROW, UNROLL>(job, block, row) };
            }
        }
    }

    /// M rows by 16 columns: 2 M registers of sums.
    ///
    /// # Safety
    /// As [`avx2_unrolled`], for this strip and block.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_tile<const M: usize, const BY_ROW: bool, const UNROLL: usize>(
        job: &Job<f32>,
        block: usize,
        row: usize,
    ) {
        // SAFETY: the caller's promise covers every pointer made here.
        unsafe {
            let (mut a, mut b, c) = job.at(block, row);
            let stride = if BY_ROW { LANES } else { 1 };
            let mut sums = [[_mm256_setzero_ps(); 2]; M];
            for (i, sums) in sums.iter_mut().enumerate() {
                if let Begin::Bias(bias) = job.begin {
                    *sums = [_mm256_broadcast_ss(&*bias.add(row + i)); 2];
                }
            }
            if BY_ROW && job.rows * job.blocks >= FAR {
                fetch_ahead::<M>(job, block, row);
            }
            for _ in 0..job.segments {
                let mut at = a;
                for _ in 0..job.inner / UNROLL {
                    for _ in 0..UNROLL {
                        let (b0, b1) = (_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(8)));
                        for (i, sums) in sums.iter_mut().enumerate() {
                            let a = _mm256_broadcast_ss(&*at.add(i * stride));
                            sums[0] = _mm256_fmadd_ps(a, b0, sums[0]);
                            sums[1] = _mm256_fmadd_ps(a, b1, sums[1]);
                        }
                        at = at.wrapping_add(if BY_ROW { 1 } else { job.step });
                        b = b.wrapping_add(LANES);
                    }
                }
                a = a.wrapping_add(job.a_segment);
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let c = c.add(i * job.c_row);
                if matches!(job.begin, Begin::Add) {
                    sums[0] = _mm256_add_ps(sums[0], _mm256_loadu_ps(c));
                    sums[1] = _mm256_add_ps(sums[1], _mm256_loadu_ps(c.add(8)));
                }
                _mm256_storeu_ps(c, sums[0]);
                _mm256_storeu_ps(c.add(8), sums[1]);
            }
        }
    }

    /// Fetches what is added to this tile, and for each block of a pass its share of the next
    /// strip of A: where sums run over tokens, both may lie beyond the level-2 cache.
    ///
    /// # Safety
    /// As [`avx2_unrolled`], for this strip and block.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn fetch_ahead<const M: usize>(job: &Job<f32>, block: usize, row: usize) {
        // SAFETY: the caller's promise; what is only fetched may also lie beyond the end.
        unsafe {
            let fetch = |at: *const f32| _mm_prefetch::<_MM_HINT_T0>(at.cast());
            if matches!(job.begin, Begin::Add) {
                let (_, _, c) = job.at(block, row);
                for i in 0..M {
                    // A row may begin in the middle of a cache line.
                    let c = c.add(i * job.c_row);
                    fetch(c);
                    fetch(c.add(LANES - 1));
                }
            }
            let share = job.segments.div_ceil(BLOCKS_PER_PASS);
            let first = block % BLOCKS_PER_PASS * share;
            for segment in first..job.segments.min(first + share) {
                let next = job.a.wrapping_add(job.a_at(row + M) + segment * job.a_segment);
                for i in 0..M {
                    fetch(next.wrapping_add(i * LANES));
                }
            }
        }
    }

    /// # Safety
    /// As [`super::run`], on a processor with AVX-512.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn avx512<const BY_ROW: bool>(job: &Job<f32>) {
        for first in (0..job.blocks).step_by(BLOCKS_PER_PASS) {
            for row in (0..job.rows).step_by(job.height) {
                let rows = job.height.min(job.rows - row);
                let end = job.blocks.min(first + BLOCKS_PER_PASS);
                for block in (first..end).step_by(2) {
                    // SAFETY: the caller's promise.
                    unsafe {
                        if block + 1 < end {
                            by_height!(rows, [1 2 3 4 5 6 7 8 9 10 11 12],
                                M => avx512_tile::<M, BY_ROW, 2>(job, block, row));
                        } else {
                            by_height!(rows, [1 2 3 4 5 6 7 8 9 10 11 12],
                                M => avx512_tile::<M, BY_ROW, 1>(job, block, row));
                        }
                    }
                }
            }
        }
    }

    /// M rows by BLOCKS times 16 columns: M BLOCKS registers of sums.
    ///
    /// # Safety
    /// As [`avx512`], for this strip and these blocks.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn avx512_tile<const M: usize, const BY_ROW: bool, const BLOCKS: usize>(
        job: &Job<f32>,
        block: usize,
        row: usize,
    ) {
        // SAFETY: the caller's promise covers every pointer made here.
        unsafe {
            let (mut a, mut b, c) = job.at(block, row);
            let stride = if BY_ROW { LANES } else { 1 };
            let mut sums = [[_mm512_setzero_ps(); BLOCKS]; M];
            for (i, sums) in sums.iter_mut().enumerate() {
                if let Begin::Bias(bias) = job.begin {
                    *sums = [_mm512_set1_ps(*bias.add(row + i)); BLOCKS];
                }
            }
            for _ in 0..job.segments {
                let mut at = a;
                for _ in 0..job.inner {
                    let mut columns = [_mm512_setzero_ps(); BLOCKS];
                    for (block, columns) in columns.iter_mut().enumerate() {
                        *columns = _mm512_loadu_ps(b.add(block * job.b_block));
                    }
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let a = _mm512_set1_ps(*at.add(i * stride));
                        for (sum, &columns) in sums.iter_mut().zip(&columns) {
                            *sum = _mm512_fmadd_ps(a, columns, *sum);
                        }
                    }
                    at = at.wrapping_add(if BY_ROW { 1 } else { job.step });
                    b = b.wrapping_add(LANES);
                }
                a = a.wrapping_add(job.a_segment);
            }
            for (i, sums) in sums.iter().enumerate() {
                for (block, &sum) in sums.iter().enumerate() {
                    let c = c.add(i * job.c_row + block * job.c_block);
                    let sum = match job.begin {
                        Begin::Add => _mm512_add_ps(sum, _mm512_loadu_ps(c)),
                        Begin::Zero | Begin::Bias(_) => sum,
                    };
                    _mm512_storeu_ps(c, sum);
                }
            }
        }
    }
}

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
