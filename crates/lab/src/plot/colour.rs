//! Colours of cells and models.

/// Differences of this size and larger have the strongest colour.
pub const FULL: f64 = 0.3;

const NEUTRAL: [u8; 3] = [247, 247, 247];
const LESS: [[u8; 3]; 3] = [NEUTRAL, [108, 168, 214], [33, 102, 172]];
const MORE: [[u8; 3]; 3] = [NEUTRAL, [240, 150, 60], [179, 78, 6]];

/// Red, green and blue of three accuracies; none if none is known.
pub fn of_accuracies(values: [f64; 3]) -> Option<[u8; 3]> {
    let byte = |x: f64| if x.is_nan() { 0 } else { (x.clamp(0.0, 1.0) * 255.0).round() as u8 };
    (!values.iter().all(|x| x.is_nan())).then(|| values.map(byte))
}

/// The colour of a difference.
pub fn of_difference(x: f64) -> Option<[u8; 3]> {
    of_signed(x / FULL)
}

/// The colour of a number between -1 and 1: blue below zero, orange above; none of NaN.
pub fn of_signed(x: f64) -> Option<[u8; 3]> {
    (!x.is_nan()).then(|| along(if x < 0.0 { LESS } else { MORE }, x.abs()))
}

fn along(stops: [[u8; 3]; 3], t: f64) -> [u8; 3] {
    let place = t.clamp(0.0, 1.0) * 2.0;
    let low = (place as usize).min(1);
    let mix = |i: usize| {
        let (a, b) = (f64::from(stops[low][i]), f64::from(stops[low + 1][i]));
        (a + (b - a) * (place - low as f64)).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// Black or white, whichever can be seen on a colour.
pub fn on([r, g, b]: [u8; 3]) -> &'static str {
    let light = 0.3 * f64::from(r) + 0.59 * f64::from(g) + 0.11 * f64::from(b);
    if light > 130.0 { "#000000" } else { "#ffffff" }
}

/// The colour of a model's lines; `place` is its column, for models that the paper does not have.
pub fn of_model(name: &str, place: usize) -> &'static str {
    match name {
        "nap" => "#c8500a",
        "mte" => "#0072b2",
        "bert" => "#3a93c9",
        "non" => "#b8608f",
        "sum" => "#008562",
        "max" => "#6e6e6e",
        _ => ["#a67400", "#8c564b", "#7a55b0", "#17667a"][place % 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_is_not_zero() {
        assert_eq!(of_accuracies([f64::NAN; 3]), None);
        assert_eq!(of_accuracies([0.0, 0.5, 1.0]), Some([0, 128, 255]));
        assert_eq!(of_difference(f64::NAN), None);
        assert_eq!(of_difference(0.0), Some(NEUTRAL));
        assert_eq!((of_difference(-1.0), of_difference(0.3)), (Some(LESS[2]), Some(MORE[2])));
        assert_eq!((of_signed(-9.0), of_signed(0.5)), (Some(LESS[2]), Some(MORE[1])));
    }
}
