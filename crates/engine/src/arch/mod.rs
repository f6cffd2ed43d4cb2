//! Instruction sets, matrix products and transposition, behind safe functions.
//!
//! Pointwise kernels are plain loops that the compiler vectorises; [`vectorize`] compiles them
//! once per instruction set and picks the best one the machine has, once per process. Matrix
//! products have kernels of their own per instruction set. The environment variable `NAP_ISA`
//! forces a lesser path (`portable` or `avx2`), for tests and comparisons.

mod amx;
mod bf16;
mod product;
mod tile;
mod transpose;
mod vector;

use std::sync::OnceLock;

pub(crate) use bf16::round as round_to_bf16;
pub use bf16::{Matrix16, Panels16, has_tiles, matmul_nt16, matmul16};
pub use product::{Out, Start, Strips, matmul, matmul_nt, matmul_rows, matmul_tn};
pub use transpose::Transposed;
#[cfg(test)]
pub(crate) use vector::run_on_every_path;
#[cfg(target_arch = "x86_64")]
pub use vector::{Avx2, Avx2Token, Avx512, Avx512Token};
pub use vector::{Kernel, Plain, Vector, run};

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
        #[cfg(target_arch = "x86_64")]
        {
            let forced = |isa: Isa| std::env::var("NAP_ISA").is_ok_and(|name| name == isa.name());
            if !forced(Isa::Portable) {
                let v4 = pulp::x86::V4::try_new().filter(|_| !forced(Isa::Avx2));
                if let Some(v4) = v4 {
                    return (Isa::Avx512, pulp::Arch::V4(v4));
                }
                if let Some(v3) = pulp::x86::V3::try_new() {
                    return (Isa::Avx2, pulp::Arch::V3(v3));
                }
            }
        }
        (Isa::Portable, pulp::Arch::Scalar)
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
