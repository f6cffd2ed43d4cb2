//! Tiles of Intel's AMX: products of bf16 with f32 sums.
//!
//! A tile holds 16 rows of 64 bytes. `tdpbf16ps` adds to a tile C of 16 x 16 f32 the product of
//! a tile A, 16 rows of 32 bf16, and a tile B, 16 rows that each hold two of B's 32 rows, pair
//! by pair: `C[i, j] += sum_k A[i, k] B[k, j]`.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// Rows of a tile, and columns of C.
pub(super) const ROWS: usize = 16;
/// Columns of A and rows of B that a tile holds.
pub(super) const DEPTH: usize = 32;
/// Values of bf16 in a tile.
pub(super) const TILE: usize = ROWS * DEPTH;

/// Whether this process may use the tiles of this processor. `NAP_ISA` (see [`super::isa`])
/// rules them out unless it is unset.
pub(super) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| std::env::var_os("NAP_ISA").is_none() && detect())
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn detect() -> bool {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;

    if super::isa() != super::Isa::Avx512 {
        return false;
    }
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    let features = __cpuid_count(7, 0).edx;
    if features & (BF16 | TILES) != BF16 | TILES {
        return false;
    }
    // Linux hands out the tiles' state, 8 KiB per thread, on request: arch_prctl, system call
    // 158, with ARCH_REQ_XCOMP_PERM for XTILEDATA. It holds for every thread of the process.
    let result: i64;
    // SAFETY: the system call reads no memory; it overwrites rax, rcx and r11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") 158i64 => result,
            in("rdi") 0x1023u64,
            in("rsi") 18u64,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn detect() -> bool {
    false
}

/// `C[i, j] (+)= sum_k A[i, k] B[k, j]` for blocks of 16 rows and 16 columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// Blocks of 16 rows, and of 16 columns.
    pub blocks: [usize; 2],
    /// Tiles along k.
    pub depth: usize,
    /// `[blocks][depth]` tiles of A.
    pub a: *const u16,
    /// `[blocks][depth]` tiles of B.
    pub b: *const u16,
    pub c: *mut f32,
    /// From row to row of C.
    pub c_row: usize,
    /// From a block of 16 rows of C to the next, and of 16 columns.
    pub c_block: [usize; 2],
    /// Whether the sums start from what is there.
    pub add: bool,
}

/// Runs a job.
///
/// # Safety
/// [`available`] must be true; every element the job names must lie within its allocation; no
/// element of C may be shared with A or B.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) unsafe fn run(job: &Job) {
    use std::arch::asm;

    #[repr(C, align(64))]
    struct Config {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }
    let mut config =
        Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    config.row_bytes[..8].fill(64);
    config.rows[..8].fill(ROWS as u8);
    let bytes = job.c_row * size_of::<f32>();
    let [row_blocks, column_blocks] = job.blocks;
    // SAFETY: the caller's promise covers every pointer made here; a tile of A or B is 1 KiB
    // whose rows lie 64 bytes apart. The tile registers are declared as changed where they are
    // loaded and summed; that they keep their values from one block of assembly to the next rests
    // on nothing else in this function using them, as compilers have no operations on tiles.
    unsafe {
        asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly));
        for row in (0..row_blocks).step_by(2) {
            for column in (0..column_blocks).step_by(2) {
                // Two by two tiles where there are as many.
                let (tall, wide) = (row + 1 < row_blocks, column + 1 < column_blocks);
                let a = [row, row + usize::from(tall)].map(|row| job.a.add(row * job.depth * TILE));
                let b = [column, column + usize::from(wide)]
                    .map(|column| job.b.add(column * job.depth * TILE));
                let c = |row: usize, column: usize| {
                    job.c.add(row * job.c_block[0] + column * job.c_block[1])
                };
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    options(nostack, nomem)
                );
                if job.add {
                    asm!("tileloadd tmm0, [{} + {}]", in(reg) c(row, column), in(reg) bytes, out("tmm0") _,
                        options(nostack, readonly));
                    if wide {
                        asm!("tileloadd tmm1, [{} + {}]", in(reg) c(row, column + 1),
                            in(reg) bytes, out("tmm1") _, options(nostack, readonly));
                    }
                    if tall {
                        asm!("tileloadd tmm2, [{} + {}]", in(reg) c(row + 1, column),
                            in(reg) bytes, out("tmm2") _, options(nostack, readonly));
                    }
                    if tall && wide {
                        asm!("tileloadd tmm3, [{} + {}]", in(reg) c(row + 1, column + 1),
                            in(reg) bytes, out("tmm3") _, options(nostack, readonly));
                    }
                }
                for k in 0..job.depth {
                    let [a0, a1] = a.map(|a| a.add(k * TILE));
                    let [b0, b1] = b.map(|b| b.add(k * TILE));
                    asm!(
                        "tileloadd tmm4, [{a0} + {stride}]",
                        "tileloadd tmm6, [{b0} + {stride}]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tileloadd tmm7, [{b1} + {stride}]",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tileloadd tmm5, [{a1} + {stride}]",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                        a0 = in(reg) a0,
                        a1 = in(reg) a1,
                        b0 = in(reg) b0,
                        b1 = in(reg) b1,
                        stride = in(reg) 64usize,
                        out("tmm0") _,
                        out("tmm1") _,
                        out("tmm2") _,
                        out("tmm3") _,
                        out("tmm4") _,
                        out("tmm5") _,
                        out("tmm6") _,
                        out("tmm7") _,
                        options(nostack, readonly),
                    );
                }
                asm!("tilestored [{} + {}], tmm0", in(reg) c(row, column), in(reg) bytes,
                    options(nostack));
                if wide {
                    asm!("tilestored [{} + {}], tmm1", in(reg) c(row, column + 1),
                        in(reg) bytes, options(nostack));
                }
                if tall {
                    asm!("tilestored [{} + {}], tmm2", in(reg) c(row + 1, column),
                        in(reg) bytes, options(nostack));
                }
                if tall && wide {
                    asm!("tilestored [{} + {}], tmm3", in(reg) c(row + 1, column + 1),
                        in(reg) bytes, options(nostack));
                }
            }
        }
        asm!("tilerelease", options(nostack, nomem));
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) unsafe fn run(_: &Job) {
    unreachable!("there are no tiles here")
}
