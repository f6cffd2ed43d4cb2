//! Learning curves of every cell of a model: mean and band over the seeds, the published ones
//! behind ours.

use super::svg::{self, Anchor, INK, RULE, SOFT, Svg};
use super::{Split, colour};
use crate::published::Band;
use crate::report::panel::{Panel, Source};

const CHART: (f64, f64) = (82.0, 44.0);
const GAP: (f64, f64) = (8.0, 8.0);
const TOP: f64 = 78.0;

/// The curves of a model of a panel.
pub fn draw(panel: &Panel, model: usize, split: Split) -> Svg {
    let left = 64.0;
    let place = |x: usize, rate: usize| {
        (left + x as f64 * (CHART.0 + GAP.0), TOP + rate as f64 * (CHART.1 + GAP.1))
    };
    let (right, bottom) = place(panel.xs.len(), panel.rates.len());
    let ours = panel.grid(model, Source::Ours);
    let published = panel.grid(model, Source::Published);
    let lines = match (ours, published) {
        (Some(_), Some(_)) => "line: our mean, band: worst to best seed; grey, dashed: published",
        (Some(_), None) => "line: mean, band: worst to best seed",
        _ => "published; line: mean, band: worst to best of five seeds",
    };
    let theirs = match ours {
        Some(_) => "stroke-width=\"1\" stroke-dasharray=\"3 2\"",
        None => "stroke-width=\"1.4\"",
    };
    let what = format!("{} accuracy from 0 to 1 over the epochs; {lines}", split.title());
    let title = format!("{}. {}", panel.models[model].label, panel.title);
    let texts = svg::width(&what, 12.0).max(svg::width(&title, 15.5)) + 32.0;
    let mut svg = Svg::new((right + 12.0).max(texts).ceil(), bottom + 32.0);
    svg.strong((16.0, 24.0), &title, 15.0, INK);
    svg.text((16.0, 42.0), &what, 12.0, SOFT, Anchor::Start);
    for (x, level) in panel.xs.iter().enumerate() {
        let at = (place(x, 0).0 + CHART.0 / 2.0, TOP - 8.0);
        svg.text(at, &level.label, 10.5, SOFT, Anchor::Middle);
    }
    let paint = colour::of_model(&panel.models[model].name, model);
    for (rate, level) in panel.rates.iter().enumerate() {
        let at = (left - 10.0, place(0, rate).1 + CHART.1 / 2.0 + 4.0);
        svg.text(at, &level.label, 10.5, SOFT, Anchor::End);
        for x in 0..panel.xs.len() {
            let (left, top) = place(x, rate);
            for share in [0.0, 0.5, 1.0] {
                let y = top + CHART.1 * share;
                svg.line((left, y), (left + CHART.0, y), RULE, 0.7);
            }
            let band = |source: Source| {
                let cell = panel.grid(model, source)?.cells[panel.index(x, rate)].as_ref()?;
                Some(&cell.splits[split as usize].band).filter(|band| !band.mean.is_empty())
            };
            let grey = if ours.is_some() { "#6e6e6e" } else { paint };
            if let Some(band) = band(Source::Published) {
                curve(&mut svg, band, (left, top), grey, theirs);
            }
            if let Some(band) = band(Source::Ours) {
                curve(&mut svg, band, (left, top), paint, "stroke-width=\"1.6\"");
            }
        }
    }
    svg.text((left, bottom + 14.0), &format!("{} →", panel.axis.1), 10.5, SOFT, Anchor::Start);
    svg.text((16.0, TOP - 8.0), "rate ↓", 10.5, SOFT, Anchor::Start);
    svg
}

fn curve(svg: &mut Svg, band: &Band, (left, top): (f64, f64), paint: &str, style: &str) {
    let last = band.mean.len().saturating_sub(1).max(1) as f64;
    let points = |values: &[f64]| {
        let values = values.iter().enumerate().filter(|(_, value)| !value.is_nan());
        let at = |(epoch, value): (usize, &f64)| {
            (left + CHART.0 * epoch as f64 / last, top + CHART.1 * (1.0 - value))
        };
        values.map(at).collect::<Vec<_>>()
    };
    let mut area = points(&band.max);
    area.extend(points(&band.min).into_iter().rev());
    svg.path(&area, true, &format!("fill=\"{paint}\" fill-opacity=\"0.18\""));
    svg.path(&points(&band.mean), false, &format!("fill=\"none\" stroke=\"{paint}\" {style}"));
}
