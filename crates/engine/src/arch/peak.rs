//! The f32 peak of one core: multiply-adds that never leave the registers.

use std::hint::black_box;
use std::time::Instant;

/// Floating-point operations per second (a multiply-add counts as two) of a sample of a fifth of
/// a millisecond, on the machine's fastest instruction set, whichever the kernels use. Whatever
/// else the machine does lowers it: take the best of several.
pub fn peak_sample() -> f64 {
    /// Ten to thirty microseconds.
    const ROUNDS: usize = 4096;
    let path = &paths()[0];
    let started = Instant::now();
    let mut rounds = 0;
    while started.elapsed().as_micros() < 200 {
        black_box((path.run)(ROUNDS));
        rounds += ROUNDS;
    }
    (2 * path.lanes * rounds) as f64 / started.elapsed().as_secs_f64()
}

/// A way to multiply and add: `run` takes every lane from x = 0 to x / 2 + 1 / 2, so many times,
/// and returns one of them.
struct Path {
    lanes: usize,
    run: fn(usize) -> f32,
}

/// What this machine has, the fastest first.
fn paths() -> Vec<Path> {
    let mut paths = Vec::new();
    #[cfg(target_arch = "x86_64")]
    x86::add_paths(&mut paths);
    paths.push(Path { lanes: PORTABLE_LANES, run: portable });
    paths
}

/// Enough independent chains to hide the latency, few enough for the registers.
const PORTABLE_LANES: usize = if cfg!(target_arch = "aarch64") { 64 } else { 32 };

fn portable(rounds: usize) -> f32 {
    let half = black_box(0.5);
    // Opaque, or the compiler would see that all lanes are equal.
    let mut lanes = black_box([0.0f32; PORTABLE_LANES]);
    for _ in 0..rounds {
        for x in &mut lanes {
            // Without the instruction, `mul_add` is a slow function.
            let fused = cfg!(any(target_feature = "fma", target_arch = "aarch64"));
            *x = if fused { x.mul_add(half, half) } else { *x * half + half };
        }
    }
    black_box(lanes)[0]
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::{
        _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_cvtss_f32, _mm512_fmadd_ps,
        _mm512_set1_ps,
    };
    use std::hint::black_box;

    use super::Path;

    /// Vectors in flight: two units of four or five cycles need ten; AVX2 has 16 registers.
    const CHAINS: usize = 12;

    pub fn add_paths(paths: &mut Vec<Path>) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F.
            paths.push(Path { lanes: 16 * CHAINS, run: |rounds| unsafe { avx512(rounds) } });
        }
        if is_x86_feature_detected!("avx") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX and FMA.
            paths.push(Path { lanes: 8 * CHAINS, run: |rounds| unsafe { fma(rounds) } });
        }
    }

    #[target_feature(enable = "avx512f")]
    fn avx512(rounds: usize) -> f32 {
        let half = _mm512_set1_ps(black_box(0.5));
        let mut lanes = black_box([_mm512_set1_ps(0.0); CHAINS]);
        for _ in 0..rounds {
            for x in &mut lanes {
                *x = _mm512_fmadd_ps(*x, half, half);
            }
        }
        _mm512_cvtss_f32(black_box(lanes)[0])
    }

    #[target_feature(enable = "avx,fma")]
    fn fma(rounds: usize) -> f32 {
        let half = _mm256_set1_ps(black_box(0.5));
        let mut lanes = black_box([_mm256_set1_ps(0.0); CHAINS]);
        for _ in 0..rounds {
            for x in &mut lanes {
                *x = _mm256_fmadd_ps(*x, half, half);
            }
        }
        _mm256_cvtss_f32(black_box(lanes)[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_does_the_rounds_it_counts() {
        for (index, path) in paths().iter().enumerate() {
            for rounds in [0, 1, 2, 10] {
                let expected = 1.0 - 0.5f32.powi(rounds as i32);
                assert_eq!((path.run)(rounds), expected, "path {index}, {rounds} rounds");
            }
        }
    }

    #[test]
    fn a_core_does_more_than_a_scalar_chain_and_less_than_the_impossible() {
        let best = (0..5).map(|_| peak_sample()).fold(0.0, f64::max);
        // 512 lanes of multiply-adds at 8 GHz; a loop that was optimised away does more.
        assert!((1e8..8.2e12).contains(&best), "{best:e}");
    }
}
