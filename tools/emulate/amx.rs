//! Does this machine, or the emulator, run AMX as the manual says? Asks Linux for the tiles and
//! compares `tdpbf16ps` with plain loops. `rustc -O tools/amx.rs -o amx && ./amx`

use std::arch::{asm, x86_64::__cpuid_count};

const ROWS: usize = 16;
const DEPTH: usize = 32;
const COLS: usize = 16;

/// Palette 1: three tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// `ARCH_REQ_XCOMP_PERM` for `XTILEDATA`: 0, or a negative error number.
fn request_tiles() -> i64 {
    let result: i64;
    unsafe {
        asm!("syscall", inlateout("rax") 158i64 => result, in("rdi") 0x1023, in("rsi") 18,
             out("rcx") _, out("r11") _);
    }
    result
}

/// `c += a b`: 16 x 32 times 32 x 16; `b` holds pairs of rows side by side.
fn multiply(a: &[u16; ROWS * DEPTH], b: &[u16; DEPTH * COLS], c: &mut [f32; ROWS * COLS]) {
    let mut config = TileConfig {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    config.row_bytes[..3].fill(64);
    config.rows[..3].fill(16);
    unsafe {
        asm!(
            "ldtilecfg [{config}]",
            "tileloadd tmm0, [{c} + {stride}]",
            "tileloadd tmm1, [{a} + {stride}]",
            "tileloadd tmm2, [{b} + {stride}]",
            "tdpbf16ps tmm0, tmm1, tmm2",
            "tilestored [{c} + {stride}], tmm0",
            "tilerelease",
            config = in(reg) &config, a = in(reg) a, b = in(reg) b, c = in(reg) c,
            stride = in(reg) 64usize,
        );
    }
}

fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

fn f32_of(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

/// The largest difference from plain loops in f64.
fn error(mut next: impl FnMut() -> f32) -> f64 {
    let a: [u16; ROWS * DEPTH] = std::array::from_fn(|_| bf16(next()));
    let b: [u16; DEPTH * COLS] = std::array::from_fn(|_| bf16(next()));
    let mut c: [f32; ROWS * COLS] = std::array::from_fn(|_| next());
    let before = c;
    multiply(&a, &b, &mut c);
    let mut worst = 0.0f64;
    for row in 0..ROWS {
        for col in 0..COLS {
            let mut sum = f64::from(before[row * COLS + col]);
            for k in 0..DEPTH {
                let pair = (k / 2) * 2 * COLS + 2 * col + k % 2;
                sum += f32_of(a[row * DEPTH + k]) * f32_of(b[pair]);
            }
            worst = worst.max((sum - f64::from(c[row * COLS + col])).abs());
        }
    }
    worst
}

fn main() {
    let leaf7 = __cpuid_count(7, 0).edx;
    println!("cpuid: amx-bf16 {}, amx-tile {}", leaf7 >> 22 & 1, leaf7 >> 24 & 1);
    if leaf7 >> 22 & 1 == 0 {
        println!("no AMX");
        std::process::exit(1);
    }
    let permission = request_tiles();
    println!("arch_prctl: {permission}");
    if permission != 0 {
        std::process::exit(1);
    }
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let whole = error(|| (random() * 16.0).round());
    let fractions = error(&mut random);
    println!("largest error: whole numbers {whole}, fractions {fractions:e}");
    assert_eq!(whole, 0.0, "sums of whole numbers are exact");
    assert!(fractions < 1e-5, "f32 sums of 32 products below a quarter");
}
