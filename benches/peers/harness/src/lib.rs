//! What the Rust peers share: options, tasks, and the turns they take. The Python peers have the
//! same in `common.py`.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::time::Instant;

use serde_json::json;

/// Added to the deviation of a row of attention logits.
pub const NAP_EPSILON: f64 = 1e-3;
/// Inside LayerNorm's square root.
pub const LAYER_EPSILON: f64 = 1e-3;
/// Adam's epsilon.
pub const ADAM_EPSILON: f64 = 1e-7;
/// Deviation of initial weights.
pub const INIT_DEVIATION: f64 = 0.02;

/// Which training step.
#[derive(Debug, Clone)]
pub struct Options {
    /// nap, mte, bert, max or sum.
    pub model: String,
    /// cases or mode.
    pub task: String,
    /// NAP in its linear-time form.
    pub linear: bool,
    pub dim: usize,
    pub seq: usize,
    pub batch: usize,
    pub heads: usize,
    pub layers: usize,
    pub vocab: usize,
    pub rate: f64,
    /// Steps after which the learning rate is 0.
    pub total: usize,
}

impl Options {
    /// Reads `--name value` pairs; what is wrong ends the program.
    pub fn from_arguments() -> Self {
        let mut given = HashMap::new();
        let mut arguments = std::env::args().skip(1);
        while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
            given.insert(name, value);
        }
        let mut text = |name: &str, default: &str| {
            given.remove(&format!("--{name}")).unwrap_or_else(|| default.to_owned())
        };
        fn number<T: std::str::FromStr>(name: &str, text: String) -> T {
            text.parse().unwrap_or_else(|_| stop(&format!("--{name} {text}: expected a number")))
        }
        let task = text("task", "cases");
        let vocab = if task == "mode" { "10" } else { "100" };
        let options = Self {
            model: text("model", "nap"),
            linear: text("form", "quadratic") == "linear",
            dim: number("dim", text("dim", "128")),
            seq: number("seq", text("seq", "128")),
            batch: number("batch", text("batch", "32")),
            heads: number("heads", text("heads", "4")),
            layers: number("layers", text("layers", "2")),
            vocab: number("vocab", text("vocab", vocab)),
            rate: number("lr", text("lr", "0.0002187")),
            total: number("total", text("total", "3200")),
            task,
        };
        if let Some(name) = given.keys().next() {
            stop(&format!("{name}: no such option"));
        }
        options
    }

    /// Whether the model has attention (else it pools).
    pub fn attention(&self) -> bool {
        matches!(self.model.as_str(), "nap" | "mte" | "bert")
    }

    /// Hidden width of the feed-forward block: poolings get about the parameters of attention.
    pub fn feed_forward(&self) -> usize {
        if self.attention() { 4 * self.dim } else { 6 * self.dim + 1 }
    }

    /// Logits per answer: one per token, or one per class.
    pub fn outputs(&self) -> usize {
        if self.task == "mode" { self.vocab } else { 1 }
    }

    /// The learning rate of a step: BERT warms up over the first tenth, all decay to 0.
    pub fn rate_at(&self, step: usize) -> f64 {
        let warm_up = if self.model == "bert" { self.total / 10 } else { 0 };
        if step < warm_up {
            return self.rate * step as f64 / warm_up as f64;
        }
        self.rate * (1.0 - step as f64 / self.total as f64).max(0.0)
    }
}

fn stop(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

/// A batch: `[batch * seq]` tokens, `[batch]` answers.
pub struct Batch {
    pub tokens: Vec<i32>,
    pub targets: Vec<i32>,
}

/// Draws batches (SplitMix64).
pub struct Batches {
    state: u64,
}

impl Default for Batches {
    fn default() -> Self {
        Self { state: 1 }
    }
}

impl Batches {
    fn below(&mut self, n: usize) -> i32 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 32) * n as u64 >> 32) as i32
    }

    /// The next batch.
    pub fn next(&mut self, of: &Options) -> Batch {
        let tokens: Vec<_> = (0..of.batch * of.seq).map(|_| self.below(of.vocab)).collect();
        let target = |row: &[i32]| if of.task == "mode" { mode(row, of.vocab) } else { cases(row) };
        let targets = tokens.chunks_exact(of.seq).map(target).collect();
        Batch { tokens, targets }
    }
}

/// Token 64 present: the place of the smallest token; else 50 present: 0; else of the largest.
fn cases(row: &[i32]) -> i32 {
    // The first of equals: the key of a later place is larger (min) or smaller (max).
    let place = |found: Option<(usize, &i32)>| found.map_or(0, |(place, _)| place as i32);
    if row.contains(&64) {
        place(row.iter().enumerate().min_by_key(|&(_, &token)| token))
    } else if row.contains(&50) {
        0
    } else {
        place(row.iter().enumerate().rev().max_by_key(|&(_, &token)| token))
    }
}

/// The most frequent token, the smallest of equals.
fn mode(row: &[i32], vocab: usize) -> i32 {
    let mut counts = vec![0; vocab];
    row.iter().for_each(|&token| counts[token as usize] += 1);
    (0..vocab).rev().max_by_key(|&token| counts[token]).unwrap_or(0) as i32
}

/// Takes a first step, reports it, and then as many steps as each line of standard input asks
/// for: `seconds 0.5` or `steps 10`. `step` returns its loss.
pub fn serve(started: Instant, parameters: usize, mut step: impl FnMut(usize) -> f64) {
    let mut done = 0;
    let mut turn = |least: usize, seconds: f64| {
        let (mut times, mut losses) = (Vec::new(), Vec::new());
        let began = Instant::now();
        while times.len() < least || began.elapsed().as_secs_f64() < seconds {
            let start = Instant::now();
            losses.push(step(done));
            times.push(start.elapsed().as_secs_f64());
            done += 1;
        }
        (times, losses)
    };
    let say = |line: serde_json::Value| {
        println!("{line}");
        let _ = std::io::stdout().flush();
    };
    let (_, losses) = turn(1, 0.0);
    say(json!({
        "parameters": parameters,
        "models": 1,
        "first_step_s": started.elapsed().as_secs_f64(),
        "losses": losses,
    }));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        let (times, losses) = match line.split_once(' ') {
            Some(("steps", steps)) => turn(number(steps) as usize, 0.0),
            Some(("seconds", seconds)) => turn(1, number(seconds)),
            _ => break,
        };
        // JSON has no NaN: null, which the runner takes for one.
        say(json!({ "times": times, "losses": losses, "peak_rss_mb": peak_rss_mb() }));
    }
}

/// Peak memory of this process in MB, where the system tells.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib * 1.024e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_the_tasks() {
        assert_eq!(cases(&[70, 64, 3, 90, 3]), 2, "64: the smallest");
        assert_eq!(cases(&[70, 50, 3, 90]), 0, "50: the first");
        assert_eq!(cases(&[70, 90, 3, 90]), 1, "else the largest, the first of equals");
        assert_eq!(mode(&[3, 1, 1, 3, 2], 5), 1, "the smallest of equals");
    }

    #[test]
    fn tokens_are_uniform() {
        let mut batches = Batches::default();
        let mut counts = [0; 10];
        (0..100_000).for_each(|_| counts[batches.below(10) as usize] += 1);
        // 10,000 expected, deviation 95.
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
    }
}
