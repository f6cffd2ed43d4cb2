//! The published learning curves.

use std::collections::HashMap;
use std::io::Read;
use std::sync::OnceLock;

use super::Cell;

const CURVES: &[u8] = include_bytes!("../../data/curves.csv.gz");

/// Minimum, mean and maximum over the seeds, epoch by epoch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Band {
    /// The least seed of each epoch.
    pub min: Vec<f64>,
    /// The mean over the seeds.
    pub mean: Vec<f64>,
    /// The largest seed of each epoch.
    pub max: Vec<f64>,
}

/// A cell's figures epoch by epoch; NaN for a loss that was not finite.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves([Band; 4]);

/// In the order of the columns.
const FIGURES: [&str; 4] = ["train_accuracy", "val_accuracy", "train_loss", "val_loss"];

impl Curves {
    /// `train_accuracy`, `val_accuracy`, `train_loss` or `val_loss`.
    pub fn figure(&self, name: &str) -> Option<&Band> {
        Some(&self.0[FIGURES.iter().position(|figure| *figure == name)?])
    }
}

/// Task, read-out, sweep, model, x and the learning rate's exponent.
type Key = (String, String, String, String, usize, i32);

/// The curves of a cell.
pub fn of(cell: &Cell) -> Option<&'static Curves> {
    static ALL: OnceLock<HashMap<Key, Curves>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        read().unwrap_or_else(|error| unreachable!("the program's own data: {error}"))
    });
    let (task, readout, sweep) = (cell.task.clone(), cell.readout.clone(), cell.sweep.clone());
    all.get(&(task, readout, sweep, cell.model.clone(), cell.x, cell.lr_exponent))
}

fn read() -> Result<HashMap<Key, Curves>, Box<dyn std::error::Error>> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(CURVES).read_to_end(&mut text)?;
    let mut reader = csv::Reader::from_reader(text.as_slice());
    let mut all: HashMap<Key, Curves> = HashMap::new();
    let mut row = csv::StringRecord::new();
    while reader.read_record(&mut row)? {
        let name = |column: usize| row[column].to_owned();
        let key = (name(0), name(1), name(2), name(3), row[4].parse()?, row[5].parse()?);
        let curves = all.entry(key).or_default();
        for (figure, band) in curves.0.iter_mut().enumerate() {
            // Column 6 is the epoch; the epochs of a cell are in order.
            let value = |of: usize| row[7 + 3 * figure + of].parse::<f64>();
            band.min.push(value(0)?);
            band.mean.push(value(1)?);
            band.max.push(value(2)?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::cells;

    #[test]
    fn the_best_epochs_are_the_cells() {
        let best = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for cell in cells() {
            let curves = cell.curves().unwrap_or_else(|| panic!("{cell:?}"));
            for figure in ["train_accuracy", "val_accuracy"] {
                let band = curves.figure(figure).unwrap();
                assert_eq!(band.min.len(), 32);
                let of = cell.aggregate(figure).unwrap();
                let pairs = [(&band.min, of.min), (&band.mean, of.mean), (&band.max, of.max)];
                for (values, expected) in pairs {
                    // The cells are rounded to four decimals, the curves to four digits.
                    assert!((best(values) - expected).abs() < 5.1e-5, "{cell:?}");
                }
            }
            assert!(curves.figure("val_loss").is_some() && curves.figure("loss").is_none());
        }
    }
}
