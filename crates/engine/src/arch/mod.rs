//! Instruction sets and the matrix product, behind safe functions.
//!
//! Kernels are plain loops that the compiler vectorises; [`vectorize`] compiles them once per
//! instruction set and picks the best one the machine has, once per process. The environment
//! variable `NAP_ISA=portable` forces the portable path, for tests and comparisons.

mod matmul;
mod peak;

use std::sync::OnceLock;

pub use matmul::{Mat, MatMut, Write, matmul};
pub use peak::peak_sample;

/// The instruction-set path in use. Bits are promised per path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// Whatever the compiler's target has.
    Portable,
    /// AVX2 and FMA (x86-64-v3).
    Avx2,
    /// AVX-512 (x86-64-v4).
    Avx512,
}

impl Isa {
    /// The name stored in records and checkpoints.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }
}

fn selected() -> (Isa, pulp::Arch) {
    static SELECTED: OnceLock<(Isa, pulp::Arch)> = OnceLock::new();
    *SELECTED.get_or_init(|| {
        if std::env::var("NAP_ISA").is_ok_and(|isa| isa == Isa::Portable.name()) {
            return (Isa::Portable, pulp::Arch::Scalar);
        }
        let arch = pulp::Arch::new();
        let isa = match arch {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            pulp::Arch::V3(_) => Isa::Avx2,
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            pulp::Arch::V4(_) => Isa::Avx512,
            _ => Isa::Portable,
        };
        (isa, arch)
    })
}

/// The path in use.
pub fn isa() -> Isa {
    selected().0
}

/// Runs `kernel` compiled for the path in use. The kernel and what it calls in its loops must
/// be inlined into it to profit.
#[inline(always)]
pub fn vectorize<R>(kernel: impl FnOnce() -> R) -> R {
    selected().1.dispatch(kernel)
}
