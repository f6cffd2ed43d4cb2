//! `nap report`: results as one interactive page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nap_engine::train::NUMERICS_VERSION;

use crate::error::unwritable;
use crate::files::write_atomically;
use crate::grids::Results;
use crate::output::{note, print_line};
use crate::report::page::Page;
use crate::report::panel;

/// Make one interactive page of results: maps, curves, robustness, beside the published ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap report sweeps/mode-dim                    report.html: opens from disk, needs no network
  nap report sweeps/* runs/l2 -o all.html       several sweeps and runs in one page
  nap report --published-only -o paper.html     the published results alone")]
pub struct Args {
    /// Directories of sweeps or of finished runs, or files of journal lines
    #[arg(required_unless_present = "published_only")]
    pub results: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, default_value = "report.html")]
    pub out: PathBuf,
    /// Show the published results alone
    #[arg(long, conflicts_with = "results")]
    pub published_only: bool,
}

/// Runs the command.
///
/// # Errors
/// If there are no results, or the file cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    write(&args.results, args.published_only, &args.out, false)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page, and says so unless it is to be quiet; returns the results.
///
/// # Errors
/// If there are no results, or the file cannot be written.
pub fn write(
    paths: &[PathBuf],
    published_only: bool,
    out: &Path,
    quiet: bool,
) -> anyhow::Result<Results> {
    let (panels, results) = panels(paths, published_only)?;
    let html =
        Page { panels: &panels, notes: &results.notes, provenance: &provenance(paths, &results) }
            .html();
    write_atomically(out, html.as_bytes()).map_err(|error| unwritable(out, &error))?;
    let place = out.display();
    let size = html.len() as f64 / 1e6;
    let runs = match results.runs.len() {
        0 => "published results".to_owned(),
        n => count(n),
    };
    if !quiet {
        print_line(format!("{place}: {runs}, {} sweeps, {size:.1} MB", panels.len()))?;
    }
    Ok(results)
}

/// What the arguments ask for; notes are printed.
///
/// # Errors
/// If there are no results.
pub fn panels(
    paths: &[PathBuf],
    published_only: bool,
) -> anyhow::Result<(Vec<panel::Panel>, Results)> {
    if published_only {
        return Ok((panel::of_published(), Results::default()));
    }
    let results = Results::read(paths)?;
    results.notes.iter().for_each(|text| note(format!("note: {text}\n")));
    Ok((panel::of_results(&results), results))
}

fn count(runs: usize) -> String {
    format!("{runs} run{}", if runs == 1 { "" } else { "s" })
}

/// Where a page comes from.
fn provenance(paths: &[PathBuf], results: &Results) -> Vec<(&'static str, String)> {
    let distinct = |of: &dyn Fn(&crate::sweep::record::RunRecord) -> String| {
        let mut all: Vec<String> = results.runs.iter().map(of).filter(|x| !x.is_empty()).collect();
        all.sort();
        all.dedup();
        all.join(", ")
    };
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("NAP_COMMIT"));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now());
    let mut facts = vec![
        (
            "Page",
            format!("made by nap {version}, commit {commit}, numerics {NUMERICS_VERSION}, {now}"),
        ),
        ("Command", format!("nap {}", arguments.join(" "))),
    ];
    if !results.runs.is_empty() {
        let places: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        let programs = distinct(&|run| {
            format!(
                "nap {}, commit {}, numerics {}, {}",
                run.version, run.commit, run.numerics, run.precision
            )
        });
        facts.push(("Results", format!("{} in {}", count(results.runs.len()), places.join(", "))));
        facts.push(("Computed by", programs));
        let machines = distinct(&|run| run.wall.host.clone());
        let isa = distinct(&|run| run.isa.clone());
        let hosts = if machines.is_empty() { String::new() } else { format!("{machines}; ") };
        facts.push(("Machines", format!("{hosts}instruction set {isa}")));
    }
    let published = "O. Richter and R. Wattenhofer, “Normalized Attention Without Probability \
                     Cage”, arXiv 2005.09561: measurements by its authors";
    facts.push(("Published", published.to_owned()));
    let aggregate = "worst, mean and best are each the largest over the epochs of that epoch’s \
                     minimum, mean and maximum over the seeds, on both sides";
    facts.push(("Best epoch", aggregate.to_owned()));
    facts
}
