//! What `nap inspect` prints.

use crate::inspect::page::percent;
use crate::inspect::roles::Role;
use crate::inspect::{Map, Shown};
use crate::output::short;
use crate::plot::colour::of_signed;

/// Columns of a line that is broken.
const WIDTH: usize = 96;

/// More maps than these are not printed unless some are chosen.
const MOST_MAPS: usize = 16;

/// Cells of a printed map, each way.
const CELLS: usize = 24;

/// The whole output.
pub fn text(shown: &Shown) -> String {
    let mut text = format!("{}: {}\n", shown.path.display(), shown.headline());
    text += &format!("\nSequence of {} tokens, {}:\n", shown.tokens.len(), shown.origin);
    text += &wrapped(shown.tokens.iter().map(|&id| shown.token(id)));
    for mark in shown.marks.iter().filter(|mark| !mark.positions.is_empty()) {
        let places = mark.positions.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        text += &format!("  {:7} at {places}\n", mark.name);
    }
    text += &format!("\n{}\n", shown.answer());
    text += &format!("\nWhat each head does, over {}:\n\n", shown.sample);
    text += &roles(&shown.roles);
    text += &format!("\n{}\n", shown.kind.label());
    let maps = &shown.seen.maps;
    if maps.len() > MOST_MAPS {
        let count = maps.len();
        return text
            + &format!("{count} maps: choose with --layer and --head, or write a page with -o\n");
    }
    let colours = console::colors_enabled();
    let width = usize::from(console::Term::stdout().size().1).max(80);
    text += &scale(colours);
    for group in maps.chunks((width / (CELLS + 4)).max(1)) {
        text.push('\n');
        text += &side_by_side(group, colours);
    }
    text
}

fn wrapped(words: impl Iterator<Item = String>) -> String {
    let (mut text, mut line) = (String::new(), String::new());
    for word in words {
        if line.len() + word.len() + 1 > WIDTH {
            text += &format!(" {line}\n");
            line.clear();
        }
        line += &format!(" {word}");
    }
    text + &format!(" {line}\n")
}

fn roles(roles: &[Role]) -> String {
    let mut text = format!("{:>5} {:>4}", "layer", "head");
    let names: Vec<_> = roles[0].on.iter().map(|&(name, _)| name).collect();
    for name in names.iter().chain(&["own", "mean", "size", "negative", "entropy"]) {
        text += &format!(" {name:>9}");
    }
    text.push('\n');
    for role in roles {
        text += &format!("{:>5} {:>4}", role.layer, role.head);
        let on = role.on.iter().map(|&(_, weight)| weight);
        for value in on.chain([role.own, role.mean, role.size]) {
            text += &format!(" {:>9}", short(value));
        }
        text += &format!(" {:>9} {:>9}\n", percent(role.negative), short(role.entropy));
    }
    text + "mean weight on each place, on the token itself (own) and on any; size: root mean square;\n\
            entropy in nats, where weights are a distribution (uniform: ln n)\n"
}

fn scale(colours: bool) -> String {
    if !colours {
        return "each map's largest weight is 1: `#` above 0.75, `+` 0.35, `.` 0.1; \
                `@` below -0.75, `=` -0.35, `-` -0.1; `?` is no number\n"
            .to_owned();
    }
    let bar: String = (0..=16).map(|i| cell([f64::from(i) / 8.0 - 1.0; 2])).collect();
    format!("each map's largest weight is 1: -1 {bar} 1\n")
}

/// A map made small: of each block the weight of the largest magnitude, relative to the map's.
fn small(map: &Map, rows: usize, columns: usize) -> Vec<Vec<f64>> {
    let largest = f64::from(map.largest()).max(f64::MIN_POSITIVE);
    let span = |i: usize, of: usize, all: usize| i * all / of..((i + 1) * all).div_ceil(of);
    let block = |r: usize, c: usize| {
        let mut most = 0.0f64;
        for i in span(r, rows, map.rows) {
            for &w in &map.row(i)[span(c, columns, map.columns)] {
                let w = f64::from(w) / largest;
                if w.is_nan() || w.abs() > most.abs() {
                    most = w;
                }
                if most.is_nan() {
                    return most;
                }
            }
        }
        most
    };
    (0..rows).map(|r| (0..columns).map(|c| block(r, c)).collect()).collect()
}

fn side_by_side(maps: &[Map], colours: bool) -> String {
    let columns = maps[0].columns.min(CELLS);
    // Letters are twice as high as wide; two half blocks fit into one.
    let rows = maps[0].rows.min(if colours { CELLS } else { CELLS / 2 });
    let small: Vec<_> = maps.iter().map(|map| small(map, rows, columns)).collect();
    let width = columns.max(22);
    let title = |map: &Map| {
        format!("layer {} head {}, {}", map.layer, map.head, short(f64::from(map.largest())))
    };
    let mut text = " ".to_owned();
    maps.iter().for_each(|map| text += &format!(" {:width$} ", title(map)));
    text = text.trim_end().to_owned() + "\n";
    for pair in (0..rows).step_by(if colours { 2 } else { 1 }) {
        let mut line = " ".to_owned();
        for map in &small {
            line.push(' ');
            for c in 0..columns {
                if colours {
                    let below = map.get(pair + 1).map_or(0.0, |row| row[c]);
                    line += &cell([map[pair][c], below]);
                } else {
                    line.push(letter(map[pair][c]));
                }
            }
            line += &" ".repeat(width - columns + 1);
        }
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// Two weights, one above the other.
fn cell([above, below]: [f64; 2]) -> String {
    // Grey of no number.
    let [[r, g, b], [x, y, z]] = [above, below].map(|w| of_signed(w).unwrap_or([128; 3]));
    format!("\x1b[38;2;{r};{g};{b}m\x1b[48;2;{x};{y};{z}m\u{2580}\x1b[0m")
}

fn letter(w: f64) -> char {
    match w {
        w if w.is_nan() => '?',
        w if w > 0.75 => '#',
        w if w > 0.35 => '+',
        w if w > 0.1 => '.',
        w if w < -0.75 => '@',
        w if w < -0.35 => '=',
        w if w < -0.1 => '-',
        _ => ' ',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_maps_keep_the_largest_weight_of_a_block_and_its_sign() {
        let mut weights = vec![0.0; 64 * 64];
        (weights[0], weights[64 * 64 - 1]) = (-2.0, 1.0);
        let mut map = Map { layer: 0, head: 0, rows: 64, columns: 64, weights };
        let cells = small(&map, 12, 24);
        assert_eq!((cells[0][0], cells[11][23]), (-1.0, 0.5));
        assert_eq!(cells.iter().flatten().filter(|&&w| w != 0.0).count(), 2);
        map.weights[70] = f32::NAN;
        assert!(small(&map, 12, 24)[0][2].is_nan());
        assert_eq!(side_by_side(&[map], false).lines().nth(1).unwrap().trim(), "@ ?");
    }

    #[test]
    fn letters_are_signed() {
        assert_eq!(
            [1.0, 0.5, 0.2, 0.0, -0.2, -0.5, -1.0].map(letter),
            ['#', '+', '.', ' ', '-', '=', '@']
        );
    }
}
