//! `nap bench`: how fast this machine takes a training step.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use nap_engine::config::RunConfig;
use nap_engine::train::Trainer;
use serde_json::{Map, Value, json};

use super::RunOptions;
use crate::bench::{Figures, measure};
use crate::error::bad;
use crate::output::{print, print_line};
use crate::record::number;
use crate::statistics::bootstrap::quantile;

/// Measure how fast this machine takes a training step, beside its peak.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap bench                               the paper's default step: cases, NAP, d = 128
  nap bench --task mode --model mte --dim 32
  nap bench --seq 512 --batch 8 --set model.form=quadratic
  nap bench --dim 512 --precision bf16 --threads 2
  nap bench my.toml --seconds 20 --json   a file's step, as one JSON object")]
pub struct Args {
    #[command(flatten)]
    options: RunOptions,
    /// Threads that share each step, up to 4
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=Trainer::most_threads() as u64))]
    threads: u64,
    /// How long to measure
    #[arg(long, default_value = "5", allow_hyphen_values = true, value_parser = seconds)]
    seconds: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0 to 86400".to_owned())
}

/// Runs the command.
///
/// # Errors
/// On input that cannot be used.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let config = args.options.resolve_from("paper")?;
    let threads = args.threads as usize;
    let figures = measure(config.clone(), threads, args.seconds, started)
        .map_err(|error| bad(error.to_string()))?;
    if args.json {
        print_line(Value::Object(object(&config, threads, &figures)?).to_string())?;
    } else {
        print(text(&config, threads, &figures))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Operations per second of the median sample.
fn flops_per_s(figures: &Figures) -> f64 {
    quantile(&figures.steps_per_s, 0.5) * figures.flops_per_step
}

fn object(
    config: &RunConfig,
    threads: usize,
    figures: &Figures,
) -> anyhow::Result<Map<String, Value>> {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    put("task", json!(config.task.name));
    put("model", json!(config.model.name));
    put("form", serde_json::to_value(config.model.form)?);
    for (key, size) in [
        ("dim", config.model.dim),
        ("layers", config.model.layers),
        ("heads", config.model.heads),
        ("seq", config.task.length),
        ("batch", config.train.batch),
        ("threads", threads),
        ("parameters", figures.parameters),
    ] {
        put(key, json!(size));
    }
    put("precision", json!(config.train.precision));
    put("isa", json!(figures.isa));
    put("steps_per_s", number(quantile(&figures.steps_per_s, 0.5)));
    put("steps_per_s_best_quartile", number(quantile(&figures.steps_per_s, 0.75)));
    put("samples", json!(figures.steps_per_s.len()));
    put("gflops", number(flops_per_s(figures) / 1e9));
    put("peak_gflops", number(figures.peak_flops_per_s / 1e9));
    put("peak_share", number(peak_share(threads, figures)));
    put("validation_sequences_per_s", number(quantile(&figures.validated_per_s, 0.5)));
    put("peak_rss_mb", json!(figures.peak_rss_mb));
    put("first_step_s", number(figures.first_step_s));
    put("diverged", json!(figures.diverged));
    let profile = figures.profile.iter().map(|(part, seconds)| (part.clone(), number(*seconds)));
    put("profile", Value::Object(profile.collect()));
    Ok(map)
}

/// Of the peak of as many cores as there are threads.
fn peak_share(threads: usize, figures: &Figures) -> f64 {
    flops_per_s(figures) / (threads as f64 * figures.peak_flops_per_s)
}

fn text(config: &RunConfig, threads: usize, figures: &Figures) -> String {
    let mut text = format!(
        "{}, {}: d = {}, {} layers, {} heads, {} sequences of {}; {} parameters; {}, {threads} thread{}, {}\n",
        config.task.name.as_str(),
        config.model.name,
        config.model.dim,
        config.model.layers,
        config.model.heads,
        config.train.batch,
        config.task.length,
        figures.parameters,
        config.train.precision.name(),
        if threads == 1 { "" } else { "s" },
        figures.isa,
    );
    let mut line = |name: &str, value: String| text += &format!("  {name:12} {value}\n");
    let count = figures.steps_per_s.len();
    if count > 0 {
        let [median, best] = [0.5, 0.75].map(|share| quantile(&figures.steps_per_s, share));
        let samples = format!("median of {count} samples; best quartile {best:.2}");
        line("training", format!("{median:.2} steps/s ({samples})"));
        line(
            "products",
            format!(
                "{:.1} GFLOP/s, {:.3} GFLOP a step: {:.0} % of the peak of {:.1} GFLOP/s per core",
                flops_per_s(figures) / 1e9,
                figures.flops_per_step / 1e9,
                100.0 * peak_share(threads, figures),
                figures.peak_flops_per_s / 1e9,
            ),
        );
        let rate = quantile(&figures.validated_per_s, 0.5);
        let length = config.validation_length();
        line("validation", format!("{rate:.0} sequences/s of length {length}"));
    }
    line("first step", format!("{:.3} s after the start", figures.first_step_s));
    if let Some(megabytes) = figures.peak_rss_mb {
        line("memory", format!("{megabytes:.0} MB at the peak"));
    }
    if !figures.profile.is_empty() {
        text += "  profile\n";
    }
    let whole: f64 = figures.profile.iter().map(|(_, seconds)| seconds).sum();
    for (part, seconds) in &figures.profile {
        let share = 100.0 * seconds / whole;
        text += &format!("    {part:20} {:9.3} ms a step {share:5.1} %\n", seconds * 1e3);
    }
    if figures.diverged {
        text += "  diverged: the parameters have become NaN; measured up to there\n";
    }
    text
}
