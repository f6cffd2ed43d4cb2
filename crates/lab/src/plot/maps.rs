//! Maps: a block per cell, the axis across, learning rates down, models side by side.

use super::svg::{self, Anchor, HATCH, INK, SOFT, Svg};
use super::{Split, colour};
use crate::report::panel::{CellValues, Panel, Source};

/// What the blocks show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Worst, mean and best seed.
    Seeds,
    /// Mean accuracy in the argmin, first and argmax case.
    Cases,
    /// Our mean less the published one.
    Difference,
}

/// Width and height of a block.
const BLOCK: (f64, f64) = (15.0, 13.0);
const GAP: f64 = 16.0;
const TOP: f64 = 100.0;
const BETWEEN: f64 = 32.0;

/// Where things are in a picture of maps.
#[derive(Debug)]
pub struct Layout {
    left: f64,
    block: (f64, f64),
    columns: usize,
    rows: usize,
}

impl Layout {
    /// For a panel.
    pub fn of(panel: &Panel) -> Self {
        let (columns, rows) = (panel.xs.len(), panel.rates.len());
        // A model's name needs some width.
        let width = BLOCK.0.max((48.0 / columns as f64).ceil());
        let longest = panel.rates.iter().map(|rate| rate.label.len()).max().unwrap_or(0);
        Self { left: 16.0 + 6.5 * longest as f64, block: (width, BLOCK.1), columns, rows }
    }

    fn map_size(&self) -> (f64, f64) {
        (self.columns as f64 * self.block.0, self.rows as f64 * self.block.1)
    }

    /// The upper left corner of a cell in a model's column and a source's row.
    pub fn corner(&self, (model, row): (usize, usize), (x, rate): (usize, usize)) -> (f64, f64) {
        let (width, height) = self.map_size();
        (
            self.left.ceil() + model as f64 * (width + GAP) + x as f64 * self.block.0,
            TOP + row as f64 * (height + BETWEEN) + rate as f64 * self.block.1,
        )
    }

    /// Width and height of a block.
    pub fn block(&self) -> (f64, f64) {
        self.block
    }
}

/// The rows of a picture.
pub fn rows(panel: &Panel, show: Show) -> Vec<Source> {
    let sources = match show {
        Show::Difference => vec![Source::Ours],
        _ => vec![Source::Ours, Source::Published],
    };
    let has = |source: &Source| panel.grids.iter().any(|grid| grid.source == *source);
    sources.into_iter().filter(has).collect()
}

/// The maps of a panel at an epoch from 1, or each cell at its best.
pub fn draw(panel: &Panel, show: Show, split: Split, epoch: Option<usize>) -> Svg {
    let layout = Layout::of(panel);
    let rows = rows(panel, show);
    let (map_width, map_height) = layout.map_size();
    let models = panel.models.len();
    let last = layout.corner((models - 1, rows.len() - 1), (0, 0));
    let (width, bottom) = (last.0 + map_width + 16.0, last.1 + map_height);
    let height = bottom + 62.0;
    let still = "each at its best epoch".to_owned();
    let what = match show {
        Show::Seeds => "red worst, green mean, blue best seed",
        Show::Cases => "red “argmin”, green “first”, blue “argmax” case",
        Show::Difference => "our mean less the published mean",
    };
    let about = |when: &str| format!("{} accuracy: {what}; {when}", split.title());
    // The frames of an animation are as wide as the still picture, whose text is longer.
    let texts = svg::width(&about(&still), 12.0).max(svg::width(&panel.title, 15.5)) + 32.0;
    let mut svg = Svg::new(width.max(texts).ceil(), height.ceil());
    svg.strong((16.0, 24.0), &panel.title, 15.0, INK);
    let when = epoch.map_or(still, |epoch| format!("epoch {epoch} of {}", panel.epochs()));
    svg.text((16.0, 42.0), &about(&when), 12.0, SOFT, Anchor::Start);
    for (row, &source) in rows.iter().enumerate() {
        heading(&mut svg, panel, &layout, row, source, show);
        for (model, of) in panel.models.iter().enumerate() {
            let corner = layout.corner((model, row), (0, 0));
            if row == 0 {
                svg.strong((corner.0, TOP - 26.0), &of.label, 12.0, INK);
            }
            map(&mut svg, panel, &layout, (model, row), source, show, split, epoch);
        }
    }
    for model in 0..models {
        ticks(&mut svg, panel, &layout, (model, rows.len() - 1));
    }
    let (left, _) = layout.corner((0, 0), (0, 0));
    svg.text((left, bottom + 30.0), &format!("{} →", panel.axis.1), 10.5, SOFT, Anchor::Start);
    key(&mut svg, show, (16.0, bottom + 44.0));
    svg
}

fn heading(svg: &mut Svg, panel: &Panel, layout: &Layout, row: usize, source: Source, show: Show) {
    let (left, top) = layout.corner((0, row), (0, 0));
    let counts = || panel.grids.iter().filter(|grid| grid.source == source).map(|grid| grid.seeds);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let seeds = match (least, most) {
        (1, 1) => "1 seed".to_owned(),
        _ if least == most => format!("{most} seeds"),
        _ => format!("{least} to {most} seeds"),
    };
    let text = match (show, source) {
        (Show::Difference, _) => "ours − published".to_owned(),
        (_, Source::Ours) => format!("ours, {seeds}"),
        (_, Source::Published) => format!("published (Richter & Wattenhofer 2020), {seeds}"),
    };
    svg.text((left, top - 7.0), &text, 10.5, SOFT, Anchor::Start);
    for (rate, level) in panel.rates.iter().enumerate() {
        let (_, y) = layout.corner((0, row), (0, rate));
        let at = (left - 6.0, y + layout.block.1 / 2.0 + 3.5);
        svg.text(at, &level.label, 10.0, SOFT, Anchor::End);
    }
}

fn ticks(svg: &mut Svg, panel: &Panel, layout: &Layout, place: (usize, usize)) {
    let longest = panel.xs.iter().map(|level| level.label.len()).max().unwrap_or(0);
    let step = ((6.5 * longest as f64 + 4.0) / layout.block.0).ceil().max(1.0) as usize;
    for (x, level) in panel.xs.iter().enumerate().step_by(step) {
        let (left, top) = layout.corner(place, (x, layout.rows));
        let at = (left + layout.block.0 / 2.0, top + 13.0);
        svg.text(at, &level.label, 10.0, SOFT, Anchor::Middle);
    }
}

/// What a cell shows.
fn rgb(panel: &Panel, model: usize, source: Source, index: usize, of: &Reading) -> Option<[u8; 3]> {
    let values = |source: Source| {
        let cell = panel.grid(model, source)?.cells[index].as_ref()?;
        let values = &cell.splits[of.split as usize];
        Some(if of.show == Show::Cases {
            values.cases_at(of.epoch)
        } else {
            values.seeds_at(of.epoch)
        })
    };
    if of.show == Show::Difference {
        let (ours, published) = (values(Source::Ours)?, values(Source::Published)?);
        return colour::of_difference(ours[1] - published[1]);
    }
    colour::of_accuracies(values(source)?)
}

struct Reading {
    show: Show,
    split: Split,
    epoch: Option<usize>,
}

fn map(
    svg: &mut Svg,
    panel: &Panel,
    layout: &Layout,
    place: (usize, usize),
    source: Source,
    show: Show,
    split: Split,
    epoch: Option<usize>,
) {
    let Some(grid) = panel.grid(place.0, source) else {
        let (x, y) = layout.corner(place, (0, 0));
        let why = if source == Source::Ours { "no runs" } else { "not published" };
        svg.text((x, y + 12.0), why, 10.5, SOFT, Anchor::Start);
        return;
    };
    let reading = Reading { show, split, epoch };
    let mut marks = Vec::new();
    svg.begin_crisp();
    for rate in 0..layout.rows {
        for x in 0..layout.columns {
            let corner = layout.corner(place, (x, rate));
            let index = panel.index(x, rate);
            let rgb = rgb(panel, place.0, source, index, &reading);
            svg.block(corner, layout.block, rgb.unwrap_or([255; 3]));
            let cell = grid.cells[index].as_ref().filter(|_| show != Show::Difference);
            marks.push((corner, rgb, cell));
        }
    }
    svg.end_crisp();
    let ((left, top), (width, height)) = (layout.corner(place, (0, 0)), layout.map_size());
    let (right, bottom) = (left + width, top + height);
    let outline = [(left, top), (right, top), (right, bottom), (left, bottom)];
    svg.path(&outline, true, "fill=\"none\" stroke=\"#d0d0ca\" stroke-width=\"0.7\"");
    for (corner, rgb, cell) in marks {
        mark(svg, corner, layout.block, rgb, cell);
    }
}

/// A slash where there is nothing, a cross where every seed diverged, a dot where some did.
fn mark(
    svg: &mut Svg,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    rgb: Option<[u8; 3]>,
    cell: Option<&CellValues>,
) {
    let Some(rgb) = rgb else {
        return svg.line((x + 1.0, y + height - 1.0), (x + width - 1.0, y + 1.0), HATCH, 1.0);
    };
    let Some(cell) = cell.filter(|cell| cell.diverged > 0) else { return };
    let (middle, ink) = ((x + width / 2.0, y + height / 2.0), colour::on(rgb));
    if cell.diverged < cell.seeds.len() {
        let style = format!("stroke=\"{ink}\" stroke-width=\"2.4\" stroke-linecap=\"round\"");
        return svg.path(&[middle, middle], false, &style);
    }
    for way in [-1.0, 1.0] {
        let end = |sign: f64| (middle.0 + sign * 2.5, middle.1 + sign * way * 2.5);
        svg.line(end(-1.0), end(1.0), ink, 1.0);
    }
}

fn key(svg: &mut Svg, show: Show, (x, y): (f64, f64)) {
    if show == Show::Difference {
        let stops: Vec<_> = (-30..=30)
            .filter_map(|i| colour::of_difference(colour::FULL * f64::from(i) / 30.0))
            .collect();
        svg.text((x, y + 9.0), "lower by 30 points", 10.5, SOFT, Anchor::Start);
        svg.ramp((x + 106.0, y), (122.0, 10.0), &stops);
        svg.text((x + 236.0, y + 9.0), "higher by 30 or more", 10.5, SOFT, Anchor::Start);
        return;
    }
    let entries: [([u8; 3], &str); 4] = match show {
        Show::Cases => [
            ([250, 250, 250], "all cases"),
            ([245, 250, 10], "“first” and “argmin”"),
            ([10, 250, 10], "only “first”"),
            ([10, 10, 10], "none"),
        ],
        _ => [
            ([245, 250, 255], "every seed learns"),
            ([40, 150, 250], "some do"),
            ([20, 60, 230], "one does"),
            ([25, 30, 40], "none does"),
        ],
    };
    let mut at = x;
    for (rgb, text) in entries {
        svg.begin_crisp();
        svg.block((at, y), (10.0, 10.0), [196, 196, 190]);
        svg.block((at + 1.0, y + 1.0), (8.0, 8.0), rgb);
        svg.end_crisp();
        svg.text((at + 15.0, y + 9.0), text, 10.5, SOFT, Anchor::Start);
        at += 34.0 + svg::width(text, 10.5);
    }
}
