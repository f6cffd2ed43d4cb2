//! The vectors of AVX2 and AVX-512.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Kernel, Vector};
use crate::kernels::elementary::exp;
use crate::panel::Lanes;
use crate::real::Real;

/// Proof of AVX2 and FMA.
#[derive(Clone, Copy)]
pub struct Avx2Token(());

/// Proof of AVX-512.
#[derive(Clone, Copy)]
pub struct Avx512Token(());

/// # Safety
/// The processor must have AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub unsafe fn avx2<T: Real, K: Kernel<T>>(kernel: K) -> K::Output {
    kernel.run::<T::Avx2>(T::avx2_token(Avx2Token(())))
}

/// # Safety
/// The processor must have AVX-512 (x86-64-v4).
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
pub unsafe fn avx512<T: Real, K: Kernel<T>>(kernel: K) -> K::Output {
    kernel.run::<T::Avx512>(T::avx512_token(Avx512Token(())))
}

/// # Safety
/// The processor must have AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub unsafe fn vectorize_avx2<R>(loops: impl FnOnce() -> R) -> R {
    loops()
}

/// # Safety
/// The processor must have AVX-512 (x86-64-v4).
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
pub unsafe fn vectorize_avx512<R>(loops: impl FnOnce() -> R) -> R {
    loops()
}

/// Two registers of 8.
#[derive(Debug, Clone, Copy)]
pub struct Avx2([__m256; 2]);

/// One register of 16.
#[derive(Debug, Clone, Copy)]
pub struct Avx512(__m512);

/// Implements operators by one instruction per register.
macro_rules! operators {
    ($($operator:ident $method:ident $narrow:ident $wide:ident),*) => {
        $(impl $operator for Avx2 {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                let ([a, b], [c, d]) = (self.0, other.0);
                // SAFETY: a value exists only where its token did, which proves AVX2.
                unsafe { Self([$narrow(a, c), $narrow(b, d)]) }
            }
        }

        impl $operator for Avx512 {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: a value exists only where its token did, which proves AVX-512.
                unsafe { Self($wide(self.0, other.0)) }
            }
        })*
    };
}

operators!(
    Add add _mm256_add_ps _mm512_add_ps,
    Sub sub _mm256_sub_ps _mm512_sub_ps,
    Mul mul _mm256_mul_ps _mm512_mul_ps,
    Div div _mm256_div_ps _mm512_div_ps
);

impl Neg for Avx2 {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        Self::splat(Avx2Token(()), -0.0).xor(self)
    }
}

impl Neg for Avx512 {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe { Self(_mm512_xor_ps(_mm512_set1_ps(-0.0), self.0)) }
    }
}

impl Avx512 {
    /// 2^k, where the lanes are [`ROUND`](crate::kernels::elementary::ROUND) + k.
    #[inline(always)]
    fn power(self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe {
            let one = _mm512_castps_si512(_mm512_set1_ps(1.0));
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(self.0));
            Self(_mm512_castsi512_ps(_mm512_add_epi32(exponent, one)))
        }
    }
}

impl Avx2 {
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: a value exists only where its token did, which proves AVX2.
        unsafe { Self([_mm256_xor_ps(a, c), _mm256_xor_ps(b, d)]) }
    }

    /// `then` where the mask's sign bits are set.
    #[inline(always)]
    fn blend(mask: [__m256; 2], then: Self, otherwise: Self) -> Self {
        let ([a, b], [c, d]) = (otherwise.0, then.0);
        // SAFETY: a value exists only where its token did, which proves AVX2.
        unsafe { Self([_mm256_blendv_ps(a, c, mask[0]), _mm256_blendv_ps(b, d, mask[1])]) }
    }

    /// 2^k, where the lanes are [`ROUND`](crate::kernels::elementary::ROUND) + k.
    #[inline(always)]
    fn power(self) -> Self {
        let [a, b] = self.0;
        // SAFETY: a value exists only where its token did, which proves AVX2.
        unsafe {
            let one = _mm256_castps_si256(_mm256_set1_ps(1.0));
            let a = _mm256_slli_epi32::<23>(_mm256_castps_si256(a));
            let b = _mm256_slli_epi32::<23>(_mm256_castps_si256(b));
            Self([
                _mm256_castsi256_ps(_mm256_add_epi32(a, one)),
                _mm256_castsi256_ps(_mm256_add_epi32(b, one)),
            ])
        }
    }
}

impl Vector<f32> for Avx2 {
    type Token = Avx2Token;

    #[inline(always)]
    fn splat(_: Avx2Token, x: f32) -> Self {
        // SAFETY: the token proves AVX2.
        unsafe { Self([_mm256_set1_ps(x); 2]) }
    }

    #[inline(always)]
    fn load(_: Avx2Token, row: &Lanes<f32>) -> Self {
        // SAFETY: the token proves AVX2; a row has 16 values.
        unsafe { Self([_mm256_loadu_ps(row.as_ptr()), _mm256_loadu_ps(row.as_ptr().add(8))]) }
    }

    #[inline(always)]
    fn store(self, row: &mut Lanes<f32>) {
        // SAFETY: a value exists only where its token did; a row has 16 values.
        unsafe {
            _mm256_storeu_ps(row.as_mut_ptr(), self.0[0]);
            _mm256_storeu_ps(row.as_mut_ptr().add(8), self.0[1]);
        }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        let ([a, b], [c, d], [e, f]) = (self.0, factor.0, addend.0);
        // SAFETY: a value exists only where its token did, which proves FMA.
        unsafe { Self([_mm256_fmadd_ps(a, c, e), _mm256_fmadd_ps(b, d, f)]) }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX2.
        unsafe { Self([_mm256_sqrt_ps(self.0[0]), _mm256_sqrt_ps(self.0[1])]) }
    }

    #[inline(always)]
    fn exp(self) -> Self {
        exp(
            Avx2Token(()),
            self,
            #[inline(always)]
            |x| x.power(),
        )
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: a value exists only where its token did, which proves AVX2.
        unsafe { Self([_mm256_max_ps(a, c), _mm256_max_ps(b, d)]) }
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: a value exists only where its token did, which proves AVX2.
        unsafe { Self([_mm256_min_ps(a, c), _mm256_min_ps(b, d)]) }
    }

    #[inline(always)]
    fn if_greater(self, other: Self, then: Self, otherwise: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: a value exists only where its token did, which proves AVX2.
        let mask =
            unsafe { [_mm256_cmp_ps::<_CMP_GT_OQ>(a, c), _mm256_cmp_ps::<_CMP_GT_OQ>(b, d)] };
        Self::blend(mask, then, otherwise)
    }

    #[inline(always)]
    fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: a value exists only where its token did, which proves AVX2.
        let mask =
            unsafe { [_mm256_cmp_ps::<_CMP_EQ_OQ>(a, c), _mm256_cmp_ps::<_CMP_EQ_OQ>(b, d)] };
        Self::blend(mask, then, otherwise)
    }

    #[inline(always)]
    fn total(self) -> f32 {
        // SAFETY: a value exists only where its token did, which proves AVX2.
        unsafe { total(_mm256_add_ps(self.0[0], self.0[1])) }
    }
}

/// The sum of 8 lanes, halves added to halves.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
unsafe fn total(x: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}

impl Vector<f32> for Avx512 {
    type Token = Avx512Token;

    #[inline(always)]
    fn splat(_: Avx512Token, x: f32) -> Self {
        // SAFETY: the token proves AVX-512.
        unsafe { Self(_mm512_set1_ps(x)) }
    }

    #[inline(always)]
    fn load(_: Avx512Token, row: &Lanes<f32>) -> Self {
        // SAFETY: the token proves AVX-512; a row has 16 values.
        unsafe { Self(_mm512_loadu_ps(row.as_ptr())) }
    }

    #[inline(always)]
    fn store(self, row: &mut Lanes<f32>) {
        // SAFETY: a value exists only where its token did; a row has 16 values.
        unsafe { _mm512_storeu_ps(row.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe { Self(_mm512_fmadd_ps(self.0, factor.0, addend.0)) }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe { Self(_mm512_sqrt_ps(self.0)) }
    }

    #[inline(always)]
    fn exp(self) -> Self {
        exp(
            Avx512Token(()),
            self,
            #[inline(always)]
            |x| x.power(),
        )
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe { Self(_mm512_max_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe { Self(_mm512_min_ps(self.0, other.0)) }
    }

    #[inline(always)]
    fn if_greater(self, other: Self, then: Self, otherwise: Self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe {
            let mask = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, other.0);
            Self(_mm512_mask_blend_ps(mask, otherwise.0, then.0))
        }
    }

    #[inline(always)]
    fn if_equal(self, other: Self, then: Self, otherwise: Self) -> Self {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe {
            let mask = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.0);
            Self(_mm512_mask_blend_ps(mask, otherwise.0, then.0))
        }
    }

    #[inline(always)]
    fn total(self) -> f32 {
        // SAFETY: a value exists only where its token did, which proves AVX-512.
        unsafe {
            let low = _mm512_castps512_ps256(self.0);
            total(_mm256_add_ps(low, _mm512_extractf32x8_ps::<1>(self.0)))
        }
    }
}
