//! The tiles of AVX2 and AVX-512, in f32.

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
