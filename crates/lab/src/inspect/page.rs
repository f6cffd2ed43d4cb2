//! A look at a model as an HTML page that needs nothing else.

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Map, Shown};
use crate::escape::escape;
use crate::output::short;

/// The page without its content.
const TEMPLATE: &str = include_str!("page.html");

/// The most weights a page holds: 5 bytes each.
const MOST_WEIGHTS: usize = 8 << 20;

/// Whether a page can hold the maps.
///
/// # Errors
/// What would be right.
pub fn check_size(maps: &[Map]) -> Result<(), String> {
    let weights: usize = maps.iter().map(|map| map.weights.len()).sum();
    if weights > MOST_WEIGHTS {
        return Err(format!(
            "{} maps have {weights} weights, a page at most {MOST_WEIGHTS}: choose with --layer \
             and --head, or take a shorter sequence",
            maps.len()
        ));
    }
    Ok(())
}

/// A share.
pub fn percent(share: f64) -> String {
    if share.is_nan() { "-".to_owned() } else { format!("{:.1} %", 100.0 * share) }
}

/// The page.
pub fn html(shown: &Shown) -> String {
    let title = format!("{}: {}", shown.path.display(), shown.headline());
    let maps: Vec<_> = shown.seen.maps.iter().map(map).collect();
    let marks = shown.marks.iter().map(|mark| json!([mark.name, mark.positions]));
    let data = json!({
        "tokens": shown.tokens.iter().map(|&id| shown.token(id)).collect::<Vec<_>>(),
        "marks": marks.collect::<Vec<_>>(),
        "maps": maps,
    });
    // Nothing in it may end the script.
    let data = data.to_string().replace('<', "\\u003c");
    let parts = [
        ("title", escape(&title)),
        ("origin", escape(&shown.origin)),
        ("tokens", tokens(shown)),
        ("answer", escape(&shown.answer())),
        ("sample", escape(&shown.sample)),
        ("roles", roles(shown)),
        ("kind", escape(shown.kind.label())),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("data", data),
    ];
    let mut pieces = TEMPLATE.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or_default();
        let part = parts.iter().find(|(place, _)| *place == name);
        page += part.map_or("", |(_, part)| part);
        page += rest;
    }
    page
}

/// Weights as 16-bit integers relative to the largest; -32768 is no number.
fn map(map: &Map) -> Value {
    let largest = map.largest();
    let scale = if largest > 0.0 { 32767.0 / largest } else { 0.0 };
    let quantised = |&w: &f32| if w.is_finite() { (w * scale).round() as i16 } else { i16::MIN };
    let bytes: Vec<u8> = map.weights.iter().flat_map(|w| quantised(w).to_le_bytes()).collect();
    json!({
        "layer": map.layer,
        "head": map.head,
        "rows": map.rows,
        "columns": map.columns,
        "largest": largest,
        "weights": STANDARD.encode(bytes),
    })
}

fn tokens(shown: &Shown) -> String {
    let mut list = String::new();
    for (i, token) in shown.tokens.iter().enumerate() {
        let marks = shown.marks.iter().filter(|mark| mark.positions.contains(&i));
        let names: Vec<_> = marks.map(|mark| mark.name).collect();
        let class = if names.is_empty() { "" } else { " class=\"marked\"" };
        let title =
            [vec![format!("position {i}")], names.iter().map(|n| (*n).to_owned()).collect()]
                .concat()
                .join(", ");
        let token = escape(&shown.token(*token));
        let _ = write!(list, "<li{class} title=\"{title}\">{token}</li>");
    }
    list
}

fn roles(shown: &Shown) -> String {
    let names = shown.roles[0].on.iter().map(|&(name, _)| format!("on {name}"));
    let names = names.chain(["own", "mean", "size", "negative", "entropy"].map(str::to_owned));
    let head: String = names.map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    let mut rows = String::new();
    for role in &shown.roles {
        let on = role.on.iter().map(|&(_, weight)| weight);
        let values = on.chain([role.own, role.mean, role.size]).map(short);
        let values = values.chain([percent(role.negative), short(role.entropy)]);
        let cells: String = values.map(|value| format!("<td>{value}</td>")).collect();
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\">layer {} head {}</th>{cells}</tr>",
            role.layer, role.head
        );
    }
    format!("<thead><tr><th scope=\"col\">head</th>{head}</tr></thead><tbody>{rows}</tbody>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_survive_as_integers() {
        let weights = vec![0.5, -1.5, 0.0, f32::NAN];
        let value = map(&Map { layer: 0, head: 1, rows: 2, columns: 2, weights: weights.clone() });
        let bytes = STANDARD.decode(value["weights"].as_str().unwrap()).unwrap();
        let read: Vec<_> =
            bytes.as_chunks::<2>().0.iter().map(|&bytes| i16::from_le_bytes(bytes)).collect();
        assert_eq!(read, [10922, -32767, 0, i16::MIN]);
        let back = value["largest"].as_f64().unwrap() * f64::from(read[0]) / 32767.0;
        assert!((back - 0.5).abs() < 1.5 / 32767.0);
    }

    #[test]
    fn a_page_has_its_limits() {
        let map = |n| Map { layer: 0, head: 0, rows: n, columns: n, weights: vec![0.0; n * n] };
        assert!(check_size(&[map(64)]).is_ok());
        assert!(check_size(&[map(2048), map(2048), map(1)]).unwrap_err().contains("--layer"));
    }
}
