//! Pictures as SVG: a few shapes, and text that stays text.

use std::fmt::Write as _;

use super::fonts;
use crate::escape::escape;

/// Ink of headings.
pub const INK: &str = "#1b1c1e";
/// Ink of labels.
pub const SOFT: &str = "#5c6066";
/// Lines of a chart's grid.
pub const RULE: &str = "#e6e6e3";
/// Marks of cells without a result.
pub const HATCH: &str = "#c4c4be";

/// A picture under construction; lengths are CSS pixels.
#[derive(Debug, Clone)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text is anchored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// At its start.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

impl Svg {
    /// A white picture.
    pub fn new(width: f64, height: f64) -> Self {
        let body = format!("<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n");
        Self { width, height, body }
    }

    /// A text in a size and colour; `^` raises what follows it.
    pub fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, fill: &str, anchor: Anchor) {
        self.any_text((x, y), text, size, fill, anchor, "");
    }

    /// A text in semi-bold.
    pub fn strong(&mut self, at: (f64, f64), text: &str, size: f64, fill: &str) {
        self.any_text(at, text, size, fill, Anchor::Start, " font-weight=\"600\"");
    }

    fn any_text(
        &mut self,
        (x, y): (f64, f64),
        text: &str,
        size: f64,
        fill: &str,
        anchor: Anchor,
        more: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let text = escape(&raised(text));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\"{anchor}{more}>{text}</text>"
        );
    }

    /// A filled rectangle with whole corners.
    pub fn block(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), rgb: [u8; 3]) {
        let fill = hex(rgb);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }

    /// A path along points, in an SVG style.
    pub fn path(&mut self, points: &[(f64, f64)], close: bool, style: &str) {
        if points.is_empty() {
            return;
        }
        let mut steps = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(steps, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        let end = if close { "Z" } else { "" };
        let _ = writeln!(self.body, "<path d=\"{steps}{end}\" {style}/>");
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        self.path(&[from, to], false, &format!("stroke=\"{stroke}\" stroke-width=\"{width}\""));
    }

    /// Begins a group in which edges are sharp.
    pub fn begin_crisp(&mut self) {
        self.body += "<g shape-rendering=\"crispEdges\">\n";
    }

    /// Ends the group.
    pub fn end_crisp(&mut self) {
        self.body += "</g>\n";
    }

    /// A bar of colours from left to right.
    pub fn ramp(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), stops: &[[u8; 3]]) {
        let step = width / stops.len() as f64;
        self.begin_crisp();
        for (i, &rgb) in stops.iter().enumerate() {
            let (from, to) = ((i as f64 * step).round(), ((i + 1) as f64 * step).round());
            self.block((x + from, y), (to - from, height), rgb);
        }
        self.end_crisp();
    }

    /// The whole file, typeface included.
    pub fn finish(&self, label: &str) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{}\" role=\"img\" \
             aria-label=\"{}\">\n<style>\n{}</style>\n{body}</svg>\n",
            fonts::FAMILY,
            escape(label),
            fonts::css()
        )
    }
}

/// 0.3^10 with a raised exponent.
pub fn raised(text: &str) -> String {
    let Some((base, exponent)) = text.split_once('^') else { return text.to_owned() };
    let digits = exponent.chars().take_while(|c| c.is_ascii_digit() || *c == '-').count();
    let up = exponent[..digits].chars().map(|c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32(0x2070 + digit as u32 - '0' as u32).unwrap_or(digit),
    });
    format!("{base}{}{}", up.collect::<String>(), raised(&exponent[digits..]))
}

/// About how wide a text is.
pub fn width(text: &str, size: f64) -> f64 {
    0.54 * size * text.chars().count() as f64
}

/// #rrggbb.
pub fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_raised() {
        assert_eq!(raised("0.3^10 to 4^-3"), "0.3¹⁰ to 4⁻³");
        assert_eq!(raised("dim"), "dim");
    }
}
