//! Instruction sets, matrix products and transposition, behind safe functions.
//!
//! Matrix products have kernels of their own per instruction set. Pointwise kernels are written
//! once, on [`Vector`]s, and compiled per instruction set by [`run`]; plain loops over flat
//! slices by [`vectorize`]. The best set the machine has is picked once per process; the
//! environment variable `NAP_ISA` forces a lesser one (`portable` or `avx2`), for tests and
//! comparisons, and rules out AMX whatever its value.

mod amx;
mod bf16;
mod peak;
mod product;
mod tile;
mod transpose;
mod vector;

use std::sync::OnceLock;

pub(crate) use bf16::round as round_to_bf16;
pub use bf16::{Matrix16, Panels16, Term, has_tiles, matmul_nt16, matmul16};
pub use peak::peak_sample;
pub use product::{Out, Start, Strips, matmul, matmul_nt, matmul_rows, matmul_tn};
pub use transpose::Transposed;
#[cfg(test)]
pub(crate) use vector::run_on_every_path;
#[cfg(target_arch = "x86_64")]
pub use vector::{Avx2, Avx2Token, Avx512, Avx512Token};
pub use vector::{Kernel, Plain, Vector, run, vectorize};

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

/// The path in use.
pub fn isa() -> Isa {
    static SELECTED: OnceLock<Isa> = OnceLock::new();
    *SELECTED.get_or_init(|| {
        let forced = |isa: Isa| std::env::var("NAP_ISA").is_ok_and(|name| name == isa.name());
        let best = detect();
        match best {
            _ if forced(Isa::Portable) => Isa::Portable,
            Isa::Avx512 if forced(Isa::Avx2) => Isa::Avx2,
            _ => best,
        }
    })
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Isa::Avx512,
        (true, false) => Isa::Avx2,
        (false, _) => Isa::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Portable
}
