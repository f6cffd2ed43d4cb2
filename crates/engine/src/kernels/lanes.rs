//! Sums and maxima down the rows of a panel.

use crate::arch::Vector;
use crate::real::Real;

/// Running results a reduction keeps, so that operations need not wait for each other.
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

/// `max_i f(i)`, lane by lane; NaN is passed over, and of no rows it is minus infinity.
#[inline(always)]
pub fn max_rows<T: Real, V: Vector<T>>(token: V::Token, rows: usize, f: impl Fn(usize) -> V) -> V {
    let mut maxima = [V::splat(token, T::neg_infinity()); SUMS];
    let whole = rows / SUMS * SUMS;
    let mut row = 0;
    while row < whole {
        for (i, max) in maxima.iter_mut().enumerate() {
            *max = f(row + i).max(*max);
        }
        row += SUMS;
    }
    while row < rows {
        maxima[0] = f(row).max(maxima[0]);
        row += 1;
    }
    maxima[0].max(maxima[1]).max(maxima[2].max(maxima[3]))
}
