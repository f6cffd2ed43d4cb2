//! Pictures of grids for print: SVG, PNG and animations.
//!
//! Every picture is drawn once, as SVG; PNG and GIF files are that SVG, rasterised.

pub mod colour;
pub mod curves;
pub mod fonts;
pub mod maps;
pub mod raster;
pub mod robustness;
pub mod svg;

use clap::ValueEnum;

use crate::report::panel::{Panel, Source};
use maps::Show;

/// Which accuracies; the value is the index in [`CellValues::splits`].
///
/// [`CellValues::splits`]: crate::report::panel::CellValues::splits
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Split {
    /// On the training batches
    Training = 0,
    /// On fresh sequences of the validation length
    Validation = 1,
}

impl Split {
    /// As titles have it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Training => "Training",
            Self::Validation => "Validation",
        }
    }
}

/// A kind of picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// A block per cell: worst, mean and best seed as red, green and blue
    Maps,
    /// A block per cell: accuracy in the argmin, first and argmax case
    Cases,
    /// Learning curves of every cell, a picture per model
    Curves,
    /// All cells' mean accuracies, sorted
    Robustness,
    /// Our means less the published ones
    Difference,
}

/// A picture and the frames of its animation.
#[derive(Debug)]
pub struct Picture {
    /// Its file's name without the ending.
    pub name: String,
    /// The SVG file.
    pub svg: String,
    /// The same at every epoch; empty for pictures that do not change.
    pub frames: Vec<String>,
}

/// The pictures of a kind; none where a panel does not have what they show.
pub fn pictures(panel: &Panel, what: What, split: Split, animate: bool) -> Vec<Picture> {
    let one = |suffix: String, svg: &svg::Svg, frames| {
        let label = format!("{}: {suffix}", panel.title);
        Picture { name: format!("{}-{suffix}", panel.slug), svg: svg.finish(&label), frames }
    };
    let maps = |suffix: &str, show| {
        let epochs = 1..=if animate { panel.epochs() } else { 0 };
        let frame = |epoch| maps::draw(panel, show, split, Some(epoch)).finish(suffix);
        let still = maps::draw(panel, show, split, None);
        vec![one(suffix.to_owned(), &still, epochs.map(frame).collect())]
    };
    let both = (0..panel.models.len()).any(|model| {
        panel.grid(model, Source::Ours).is_some() && panel.grid(model, Source::Published).is_some()
    });
    match what {
        What::Maps => maps("maps", Show::Seeds),
        What::Cases if panel.has_cases() => maps("cases", Show::Cases),
        What::Difference if both => maps("difference", Show::Difference),
        What::Cases | What::Difference => Vec::new(),
        What::Curves => {
            let draw = |model: usize| {
                let name = format!("curves-{}", panel.models[model].name);
                one(name, &curves::draw(panel, model, split), Vec::new())
            };
            (0..panel.models.len()).map(draw).collect()
        }
        What::Robustness => {
            let drawn = robustness::draw(panel, split);
            drawn.iter().map(|svg| one("robustness".to_owned(), svg, Vec::new())).collect()
        }
    }
}
