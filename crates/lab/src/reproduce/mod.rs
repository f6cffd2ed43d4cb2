//! The paper, part by part: which runs make up its figures, and which of its claims they bear out.

pub mod claims;

use std::sync::OnceLock;

use crate::error::{bad, did_you_mean};
use crate::sweep::presets::{MODELS, presets};
use crate::sweep::spec::SweepSpec;

/// The name of what runs in minutes.
pub const QUICK: &str = "quick";

/// The name of everything.
pub const ALL: &str = "all";

/// A part of the paper.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What it is called here.
    pub name: String,
    /// What it shows.
    pub shows: String,
    /// The runs that make it up: sweeps of the paper, or parts of them.
    pub sweeps: Vec<SweepSpec>,
}

/// Cells of a sweep: name, models, values of the axis, learning rates.
type Cells = (&'static str, &'static [&'static str], &'static str, &'static str);

/// One seed each of cells that tell the models apart and take seconds.
const QUICK_CELLS: [Cells; 2] =
    [("mode-dim", &MODELS, "16", "0.3^7"), ("cases-first-dim", &MODELS, "8", "0.3^4")];

/// The cells that the headline figures are picked from in the published grids; for MTE on case
/// distinction, whose grid is not published, the two that are likely.
const HEADLINE_CELLS: [Cells; 10] = [
    ("mode-vocab", &["nap"], "256", "0.3^8"),
    ("mode-vocab", &["bert", "mte", "sum"], "256", "0.3^6"),
    ("mode-vocab", &["max"], "256", "0.3^5"),
    ("cases-first-dim", &["sum"], "64", "0.3^4"),
    ("cases-first-dim", &["max"], "256", "0.3^4"),
    ("cases-first-dim", &["nap"], "512", "0.3^7"),
    ("cases-first-dim", &["bert"], "512", "0.3^7"),
    ("cases-first-dim", &["mte"], "512", "0.3^7"),
    ("cases-first-dim", &["mte"], "512", "0.3^6"),
    ("cases-first-dim", &["max"], "1024", "0.3^1"),
];

/// The part of a sweep of the paper that these cells are, with all or the first seeds.
fn part(&(name, models, x, rates): &Cells, seeds: Option<usize>) -> SweepSpec {
    let fault = |error: String| -> ! { unreachable!("{name}: {error}") };
    let preset = presets().iter().find(|preset| preset.spec.name == name);
    let mut spec = preset.map_or_else(|| fault("no such sweep".to_owned()), |p| p.spec.clone());
    spec.models = models.iter().map(|&model| model.to_owned()).collect();
    for (axis, wanted) in [(spec.x_index(), x), (spec.rate_index(), rates)] {
        let axis = axis.unwrap_or_else(|| fault("no such axis".to_owned()));
        spec.axes[axis].restrict(wanted).unwrap_or_else(|error| fault(error));
    }
    spec.seeds.truncate(seeds.unwrap_or(usize::MAX));
    spec
}

/// Every part of the paper that training reproduces.
pub fn figures() -> &'static [Figure] {
    static FIGURES: OnceLock<Vec<Figure>> = OnceLock::new();
    FIGURES.get_or_init(|| {
        let quick = Figure {
            name: QUICK.to_owned(),
            shows: "six models on a few cells of mode and case distinction, one seed".to_owned(),
            sweeps: QUICK_CELLS.iter().map(|cells| part(cells, Some(1))).collect(),
        };
        let headline = Figure {
            name: "headline".to_owned(),
            shows: "the table of headline figures: the cells they are picked from".to_owned(),
            sweeps: HEADLINE_CELLS.iter().map(|cells| part(cells, None)).collect(),
        };
        let sweeps = presets().iter().map(|preset| Figure {
            name: preset.spec.name.clone(),
            shows: preset.summary.clone(),
            sweeps: vec![preset.spec.clone()],
        });
        [quick, headline].into_iter().chain(sweeps).collect()
    })
}

/// The parts of these names; of [`ALL`] every sweep.
///
/// # Errors
/// If there is none of a name.
pub fn find(names: &[String]) -> anyhow::Result<Vec<&'static Figure>> {
    let mut found = Vec::new();
    for name in names {
        if name == ALL {
            found.extend(figures().iter().filter(|figure| figure.name != QUICK));
            continue;
        }
        let figure = figures().iter().find(|figure| figure.name == *name);
        found.push(figure.ok_or_else(|| {
            let known = figures().iter().map(|figure| figure.name.as_str()).chain([ALL]);
            let hint = did_you_mean(name, known);
            bad(format!("{name}{hint}: expected a name of `nap reproduce --list`"))
        })?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::headline;
    use crate::sweep::grid::Grid;

    #[test]
    fn every_part_is_made_of_runs_of_the_papers_sweeps() {
        for figure in figures() {
            for spec in &figure.sweeps {
                let grid = Grid::new(spec).unwrap();
                assert!(!grid.runs.is_empty() && grid.notes.is_empty(), "{}", figure.name);
            }
        }
        let runs = |name: &str| -> usize {
            let figure = find(&[name.to_owned()]).unwrap()[0];
            figure.sweeps.iter().map(|spec| Grid::new(spec).unwrap().runs.len()).sum()
        };
        assert_eq!((runs("quick"), runs("mode-dim")), (12, 6 * 80 * 5));
        assert!(find(&["mode-dmi".to_owned()]).unwrap_err().to_string().contains("mode-dim?"));
        assert_eq!(find(&[ALL.to_owned()]).unwrap().len(), figures().len() - 1);
    }

    #[test]
    fn the_headline_cells_hold_those_that_the_rules_pick_from_the_published_grids() {
        let figure = &find(&["headline".to_owned()]).unwrap()[0];
        for headline in headline::all(None) {
            let Some(pick) = &headline.published else { continue };
            let sweep =
                if headline.figure.starts_with("mode") { "mode-vocab" } else { "cases-first-dim" };
            let has = figure.sweeps.iter().any(|spec| {
                let labels = |axis: Option<usize>| {
                    spec.axes[axis.unwrap()].values.iter().map(|value| value.label.clone())
                };
                spec.name == sweep
                    && spec.models.iter().any(|model| model == headline.model)
                    && labels(spec.x_index()).any(|x| x == pick.x)
                    && labels(spec.rate_index()).any(|rate| rate == pick.learning_rate)
            });
            assert!(has, "{headline:?}");
        }
    }
}
