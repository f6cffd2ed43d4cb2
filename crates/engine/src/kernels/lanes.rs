//! Sums down the rows of a panel.

use crate::arch::Vector;
use crate::real::Real;

/// Running sums a reduction keeps, so that additions need not wait for each other.
const SUMS: usize = 4;

/// `sum_i f(i)`, lane by lane, in a fixed order: four running sums, then their sum.
#[inline(always)]
pub fn sum_rows<T: Real, V: Vector<T>>(token: V::Token, rows: usize, f: impl Fn(usize) -> V) -> V {
    let mut sums = [V::splat(token, T::zero()); SUMS];
    let whole = rows / SUMS * SUMS;
    let mut row = 0;
    while row < whole {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = *sum + f(row + i);
        }
        row += SUMS;
    }
    while row < rows {
        sums[0] = sums[0] + f(row);
        row += 1;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}
