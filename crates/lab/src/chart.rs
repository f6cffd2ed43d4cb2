//! Line charts as SVG: text stays text, colours are told apart without colour vision (and lines by
//! their dashes), and both light and dark pages are served by the same file.

use std::fmt::Write;

use crate::escape::escape;

/// A direction of a chart.
#[derive(Debug, Clone, Copy)]
pub struct Axis<'a> {
    /// What is measured.
    pub label: &'a str,
    /// `Some(base)`: logarithmic, with ticks at powers of the base.
    pub log: Option<f64>,
}

/// A line.
#[derive(Debug, Clone)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Its points; those that are not finite, or not positive on a logarithmic axis, are left out.
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines.
#[derive(Debug, Clone)]
pub struct Chart<'a> {
    /// What it shows.
    pub title: &'a str,
    /// To the right.
    pub x: Axis<'a>,
    /// Upwards.
    pub y: Axis<'a>,
    /// The lines.
    pub series: Vec<Series>,
}

/// Okabe and Ito's colours without black and yellow, which vanish on dark or light paper.
pub const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
/// A line that lies under another shows through its gaps.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];

const SIZE: (f64, f64) = (720.0, 400.0);
/// Left, top, right, bottom; the names of the lines stand on the right.
const MARGIN: (f64, f64, f64, f64) = (64.0, 40.0, 150.0, 48.0);

/// The beginning of an SVG of this size, with the classes `ink`, `muted`, `grid` and `paper`.
pub fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="system-ui, sans-serif" font-size="12">
<title>{title}</title>
<style>
.ink {{ fill: #1b1b1b }} .muted {{ fill: #5a5a5a }} .paper {{ fill: #fff }}
.grid {{ stroke: #d8d8d8; fill: none }} .frame {{ stroke: #5a5a5a; fill: none }}
@media (prefers-color-scheme: dark) {{
.ink {{ fill: #eee }} .muted {{ fill: #b0b0b0 }} .paper {{ fill: #16181c }}
.grid {{ stroke: #3a3d44 }} .frame {{ stroke: #b0b0b0 }}
}}
</style>
<rect class="paper" width="{width}" height="{height}"/>
"##,
        title = escape(title)
    )
}

/// An axis with its range, in its own (perhaps logarithmic) units.
struct Scale {
    log: Option<f64>,
    low: f64,
    high: f64,
}

impl Scale {
    fn new(axis: Axis, values: impl Iterator<Item = f64>) -> Self {
        let mut scale = Self { log: axis.log, low: f64::INFINITY, high: f64::NEG_INFINITY };
        for value in values.filter_map(|value| scale.unit(value)).collect::<Vec<_>>() {
            (scale.low, scale.high) = (scale.low.min(value), scale.high.max(value));
        }
        if scale.low > scale.high {
            (scale.low, scale.high) = (0.0, 1.0);
        }
        if scale.high - scale.low < 1e-9 {
            (scale.low, scale.high) = (scale.low - 0.5, scale.high + 0.5);
        }
        scale
    }

    /// A value in the axis's units, if it has a place there.
    fn unit(&self, value: f64) -> Option<f64> {
        let unit = self.log.map_or(value, |base| value.ln() / base.ln());
        unit.is_finite().then_some(unit)
    }

    /// Where it stands, from 0 to 1.
    fn place(&self, unit: f64) -> f64 {
        (unit - self.low) / (self.high - self.low)
    }

    /// Ticks: where, and their text.
    fn ticks(&self) -> Vec<(f64, String)> {
        let span = self.high - self.low;
        let step = if self.log.is_some() { (span / 8.0).ceil() } else { nice(span / 6.0) };
        let first = (self.low / step - 1e-6).ceil() as i64;
        let last = (self.high / step + 1e-6).floor() as i64;
        let ticks = (first..=last).map(|i| i as f64 * step);
        ticks.map(|unit| (unit, self.text(unit, step))).collect()
    }

    fn text(&self, unit: f64, step: f64) -> String {
        match self.log {
            Some(base) => {
                let value = base.powf(unit);
                if (1e-3..1e5).contains(&value) {
                    format!("{}", short(value))
                } else {
                    format!("{value:.0e}")
                }
            }
            None => format!("{unit:.*}", (-step.log10().floor()).max(0.0) as usize),
        }
    }
}

/// Without the rounding of powers.
fn short(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// 1, 2 or 5 times a power of ten, not below the step asked for.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&s| s >= step).unwrap_or(step)
}

impl Chart<'_> {
    /// The chart as an SVG file.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let x = Scale::new(self.x, points().map(|p| p.0));
        let y = Scale::new(self.y, points().map(|p| p.1));
        let ((width, height), (left, top, right, bottom)) = (SIZE, MARGIN);
        let across = |unit: f64| left + x.place(unit) * (width - left - right);
        let down = |unit: f64| height - bottom - y.place(unit) * (height - top - bottom);

        let mut svg = open(width, height, self.title);
        let title = escape(self.title);
        let _ = writeln!(
            svg,
            r#"<text class="ink" x="{left}" y="22" font-size="15" font-weight="600">{title}</text>"#
        );
        for (unit, text) in x.ticks() {
            let (at, end) = (across(unit), height - bottom);
            let _ = writeln!(
                svg,
                r#"<path class="grid" d="M{at:.1} {top}V{end}"/><text class="muted" x="{at:.1}" y="{}" text-anchor="middle">{text}</text>"#,
                end + 17.0
            );
        }
        for (unit, text) in y.ticks() {
            let (at, end) = (down(unit), width - right);
            let _ = writeln!(
                svg,
                r#"<path class="grid" d="M{left} {at:.1}H{end}"/><text class="muted" x="{}" y="{:.1}" text-anchor="end">{text}</text>"#,
                left - 7.0,
                at + 4.0
            );
        }
        let centre = (left + width - right) / 2.0;
        let _ = writeln!(
            svg,
            r#"<text class="ink" x="{centre}" y="{}" text-anchor="middle">{}</text>"#,
            height - 10.0,
            escape(self.x.label)
        );
        let middle = (top + height - bottom) / 2.0;
        let _ = writeln!(
            svg,
            r#"<text class="ink" transform="translate(15 {middle}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escape(self.y.label)
        );

        let mut names = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let dash = DASHES[index % DASHES.len()];
            let placed = series
                .points
                .iter()
                .filter_map(|&(a, b)| Some((across(x.unit(a)?), down(y.unit(b)?))));
            let placed: Vec<_> = placed.collect();
            let line: Vec<_> = placed.iter().map(|(a, b)| format!("{a:.1},{b:.1}")).collect();
            let _ = writeln!(
                svg,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>"#,
                line.join(" ")
            );
            for (a, b) in &placed {
                let _ =
                    writeln!(svg, r#"<circle cx="{a:.1}" cy="{b:.1}" r="2.5" fill="{colour}"/>"#);
            }
            names.push((placed.last().map_or(middle, |p| p.1), &series.name, colour, dash));
        }
        // The names in the order in which the lines end, apart from each other.
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (row, mut free) = (16.0, top);
        for (i, (end, name, colour, dash)) in names.iter().enumerate() {
            let below = (names.len() - 1 - i) as f64 * row;
            let at = end.min(height - bottom - below).max(free);
            free = at + row;
            let (from, to) = (width - right + 8.0, width - right + 30.0);
            let _ = writeln!(
                svg,
                r#"<path d="M{from} {at:.1}H{to}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/><text class="ink" x="{}" y="{:.1}">{}</text>"#,
                to + 6.0,
                at + 4.0,
                escape(name)
            );
        }
        svg + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(log: Option<f64>, values: &[f64]) -> Scale {
        Scale::new(Axis { label: "", log }, values.iter().copied())
    }

    fn texts(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_within_the_range() {
        assert_eq!(texts(&scale(None, &[0.0, 1.0])), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(&scale(Some(10.0), &[0.01, 100.0])), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(texts(&scale(Some(2.0), &[1.0, 4.0])), ["1", "2", "4"]);
        assert_eq!(texts(&scale(None, &[])).first().unwrap(), "0.0");
        assert!(texts(&scale(None, &[3.0, 3.0])).contains(&"3.0".to_owned()));
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let points = vec![(1.0, 0.0), (2.0, 1.0), (4.0, f64::NAN), (8.0, 10.0)];
        let series = vec![Series { name: "a<b".to_owned(), points }];
        let axis = Axis { label: "n", log: Some(10.0) };
        let svg = Chart { title: "t & u", x: axis, y: axis, series }.svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a&lt;b") && svg.contains("t &amp; u") && !svg.contains("NaN"));
    }
}
