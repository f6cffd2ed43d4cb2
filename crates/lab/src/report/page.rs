//! The interactive page: one file of HTML with everything in it.
//!
//! Numbers go into one block of 16-bit values in base64 (accuracies in ten-thousandths), described
//! by a JSON block; `assets/report/data.js` reads both and says where what is.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::panel::{CellValues, ModelGrid, Panel, Source};
use super::summary;
use crate::escape::escape;
use crate::plot::fonts;

const PAGE: &str = include_str!("../../assets/report/page.html");
const STYLE: &str = include_str!("../../assets/report/style.css");
const SCRIPTS: [&str; 7] = [
    include_str!("../../assets/report/data.js"),
    include_str!("../../assets/report/colour.js"),
    include_str!("../../assets/report/maps.js"),
    include_str!("../../assets/report/curves.js"),
    include_str!("../../assets/report/robustness.js"),
    include_str!("../../assets/report/table.js"),
    include_str!("../../assets/report/app.js"),
];

/// Where a number is missing.
const MISSING: u16 = u16::MAX;

/// Accuracies are stored in units of one over this.
const UNIT: f64 = 10_000.0;

/// Curves of single seeds are part of the page up to this many numbers: 12 MB of base64.
const MOST_RUN_NUMBERS: usize = 4_500_000;

/// A page under construction.
#[derive(Debug)]
pub struct Page<'a> {
    /// What it shows.
    pub panels: &'a [Panel],
    /// What a reader should know first.
    pub notes: &'a [String],
    /// Where it comes from: names and texts.
    pub provenance: &'a [(&'static str, String)],
}

impl Page<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let (data, values) = self.data();
        let first = self.panels.first();
        let title = first.map_or("No results", |panel| &panel.title);
        let lead = first.map_or("", |panel| &panel.lead);
        let notices = self.notes.iter().fold(String::new(), |mut text, note| {
            let _ = writeln!(text, "<p class=\"notice\">{}</p>", escape(note));
            text
        });
        let provenance =
            self.provenance.iter().fold("<dl>\n".to_owned(), |mut text, (name, of)| {
                let _ = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(of));
                text
            });
        let tables = self.panels.iter().enumerate().fold(String::new(), |mut text, (i, panel)| {
            text += &summary::html(panel, i);
            text
        });
        // No text inside a script element may end it.
        let data = data.to_string().replace('<', "\\u003c");
        let parts = [
            ("{{title}}", escape(title)),
            ("{{lead}}", escape(lead)),
            ("{{fonts}}", fonts::css()),
            ("{{style}}", STYLE.to_owned()),
            ("{{notices}}", notices),
            ("{{tables}}", tables),
            ("{{provenance}}", provenance + "</dl>"),
            ("{{data}}", data),
            ("{{values}}", values),
            ("{{script}}", SCRIPTS.map(|script| script.replace("</", "<\\/")).join("\n")),
        ];
        fill(PAGE, &parts)
    }

    fn data(&self) -> (Value, String) {
        let own = |grid: &&ModelGrid| grid.source == Source::Ours;
        let grids = || self.panels.iter().flat_map(|panel| &panel.grids).filter(own);
        let runs: usize = grids().map(|grid| grid.cells.len() * 2 * grid.seeds * grid.epochs).sum();
        let mut numbers = Numbers { values: Vec::new(), runs: runs <= MOST_RUN_NUMBERS };
        let sweeps: Vec<_> = self.panels.iter().map(|panel| sweep(panel, &mut numbers)).collect();
        let bytes: Vec<u8> = numbers.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        (json!({ "sweeps": sweeps }), STANDARD.encode(bytes))
    }
}

/// Fills a template's places, none of which is looked for in what was filled in.
fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        let part = parts.iter().find(|(name, _)| rest[start..].starts_with(name));
        let (name, text) = part.unwrap_or_else(|| unreachable!("{}", &rest[start..start + 12]));
        page += &rest[..start];
        page += text;
        rest = &rest[start + name.len()..];
    }
    page + rest
}

/// The block of numbers.
struct Numbers {
    values: Vec<u16>,
    /// Whether single runs are part of it.
    runs: bool,
}

impl Numbers {
    fn push(&mut self, x: f64) {
        let stored = if x.is_nan() { MISSING } else { (x * UNIT).round() as u16 };
        self.values.push(stored);
    }

    fn push_all(&mut self, values: &[f64]) {
        values.iter().for_each(|&x| self.push(x));
    }
}

fn sweep(panel: &Panel, numbers: &mut Numbers) -> Value {
    let known = ["nap", "mte", "bert", "non", "sum", "max"];
    let colour = |i: usize, name: &str| match known.contains(&name) {
        true => name.to_owned(),
        false => format!("other-{}", i % 4),
    };
    let models = panel.models.iter().enumerate().map(|(i, model)| {
        json!({ "name": model.name, "label": model.label, "colour": colour(i, &model.name) })
    });
    let models: Vec<_> = models.collect();
    let labels = |levels: &[crate::grids::Level]| {
        levels.iter().map(|level| level.label.clone()).collect::<Vec<_>>()
    };
    let rates: Vec<_> = panel.rates.iter().map(|level| level.number).collect();
    let grids: Vec<_> = panel.grids.iter().map(|grid| model_grid(grid, numbers)).collect();
    json!({
        "name": panel.name,
        "title": panel.title,
        "lead": panel.lead,
        "x": { "name": panel.axis.0, "title": panel.axis.1, "labels": labels(&panel.xs) },
        "y": { "labels": labels(&panel.rates), "values": rates },
        "models": models,
        "cases": panel.has_cases(),
        "grids": grids,
    })
}

fn model_grid(grid: &ModelGrid, numbers: &mut Numbers) -> Value {
    let none = CellValues::default();
    let cells: Vec<&CellValues> =
        grid.cells.iter().map(|cell| cell.as_ref().unwrap_or(&none)).collect();
    let splits = || cells.iter().flat_map(|cell| &cell.splits);
    let mut described = json!({
        "model": grid.model,
        "side": grid.source.name(),
        "seeds": grid.seeds,
        "length": grid.epochs,
        "about": grid.about,
        "cells": grid.cells.iter().map(cell).collect::<Vec<_>>(),
    });
    described["best"] = numbers.values.len().into();
    for split in splits() {
        numbers.push_all(&split.best);
        numbers.push_all(&split.best_cases);
    }
    described["epochs"] = numbers.values.len().into();
    for split in splits() {
        (1..=grid.epochs).for_each(|epoch| numbers.push_all(&split.seeds_at(Some(epoch))));
    }
    if splits().any(|split| !split.cases.is_empty()) {
        described["cases"] = numbers.values.len().into();
        for split in splits() {
            (1..=grid.epochs).for_each(|epoch| numbers.push_all(&split.cases_at(Some(epoch))));
        }
    }
    if grid.source == Source::Ours && numbers.runs {
        described["runs"] = numbers.values.len().into();
        for split in splits() {
            for seed in 0..grid.seeds {
                let run = split.runs.get(seed).map_or(&[][..], Vec::as_slice);
                let value = |epoch| run.get(epoch).copied().unwrap_or(f64::NAN);
                (0..grid.epochs).for_each(|epoch| numbers.push(value(epoch)));
            }
        }
    }
    described
}

fn cell(cell: &Option<CellValues>) -> Value {
    let Some(cell) = cell else { return Value::Null };
    let mut described = json!({ "seeds": cell.seeds });
    let counts = [("diverged", cell.diverged), ("failed", cell.failed), ("missing", cell.missing)];
    for (name, count) in counts {
        if count > 0 {
            described[name] = count.into();
        }
    }
    if let Some(command) = &cell.command {
        described["command"] = command.as_str().into();
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_break_out() {
        let page = Page {
            panels: &[],
            notes: &["</script><b>{{data}}".to_owned()],
            provenance: &[("Command", "nap report '<i>'".to_owned())],
        };
        let html = page.html();
        assert!(html.contains("&lt;/script&gt;&lt;b&gt;{{data}}"));
        assert!(html.contains("<dd>nap report '&lt;i&gt;'</dd>"));
        assert_eq!(html.matches("</script>").count(), 3);
    }

    #[test]
    fn four_decimals_are_kept() {
        let mut numbers = Numbers { values: Vec::new(), runs: true };
        numbers.push_all(&[0.0, 0.9389, 1.0, f64::NAN]);
        assert_eq!(numbers.values, [0, 9389, 10_000, MISSING]);
    }
}
