//! `nap compare`: results beside the published ones, or beside others.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::compare::{self, Comparison, Options, Verdict, table, text};
use crate::error::bad;
use crate::grids::{self, Results};
use crate::output::{note, print, print_line};

/// Compare results with the published ones, or with other results.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Columns: diff is the mean over the cells of ours minus theirs, with a 95 % bootstrap interval over
the seeds; |diff| the mean absolute difference; rank Spearman's correlation of the cells; outside
the runs whose last epoch lies outside the published range, of which 2/6 are expected; differ the
cells that differ; p that of the grid's test, corrected for the number of grids.

Exit code: 0 if they agree or it is undecided, 1 if they disagree, 2 on bad input.

Examples:
  nap compare sweeps/mode-dim                        with the published grid
  nap compare sweeps/mode-dim other/mode-dim         two results with each other
  nap compare --published runs/*                     several together, with the published grids
  nap compare sweeps/a sweeps/b --with old.jsonl     several together, with others
  nap compare sweeps/mode-dim --json | jq .verdict")]
pub struct Args {
    /// Directories of sweeps, runs or journals, or files of journal lines; two are compared with
    /// each other
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The other results; repeatable, all are taken together
    #[arg(long, value_name = "PATH")]
    with: Vec<PathBuf>,
    /// Compare with the published grids, however many results there are
    #[arg(long, conflicts_with = "with")]
    published: bool,
    /// Training accuracy in place of validation accuracy
    #[arg(long)]
    training: bool,
    /// The largest p-value that is a difference, corrected for the number of grids
    #[arg(long, default_value_t = 0.05)]
    level: f64,
    /// The smallest difference of accuracies that matters
    #[arg(long, default_value_t = 0.05)]
    margin: f64,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a CSV row per cell
    #[arg(long)]
    csv: bool,
}

/// Runs the command.
///
/// # Errors
/// If there are no results, or nothing to compare them with.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = Options {
        figure: if args.training { "train_accuracy" } else { "val_accuracy" },
        level: between("--level", args.level, 1.0)?,
        margin: between("--margin", args.margin, 1.0)?,
    };
    let (ours, theirs) = match (args.results.as_slice(), args.with.as_slice()) {
        ([ours, theirs], []) if !args.published => {
            (std::slice::from_ref(ours), std::slice::from_ref(theirs))
        }
        (results, []) if results.len() > 2 && !args.published => {
            return Err(bad(format!(
                "{} results: expected one or two, --published to compare all with the published \
                 grids, or --with PATH for the other side",
                results.len()
            )));
        }
        sides => sides,
    };
    let name = grids::name_of(ours);
    let results = Results::read(ours)?;
    let comparison = if theirs.is_empty() {
        compare::with_published(&name, &results, &options)
    } else {
        let (other_name, other) = (grids::name_of(theirs), Results::read(theirs)?);
        compare::with_results((&name, &results), (&other_name, &other), &options)
    };
    comparison.notes.iter().for_each(|text| note(format!("note: {text}\n")));
    if comparison.grids.is_empty() {
        return Err(bad(nothing(&comparison)));
    }
    if args.json {
        print_line(serde_json::to_string(&comparison)?)?;
    } else if args.csv {
        print(table::csv(&comparison)?)?;
    } else {
        print(text::text(&comparison))?;
    }
    Ok(match comparison.verdict {
        Verdict::Agree | Verdict::Undecided => ExitCode::SUCCESS,
        Verdict::Disagree => ExitCode::from(1),
    })
}

fn between(option: &str, value: f64, most: f64) -> anyhow::Result<f64> {
    if value > 0.0 && value < most {
        return Ok(value);
    }
    Err(bad(format!("{option} {value}: expected a number between 0 and {most}")))
}

/// Why nothing was compared.
fn nothing(comparison: &Comparison) -> String {
    let why: Vec<_> = comparison.not_compared.iter().collect();
    let first = why.first().map_or(String::new(), |left| format!("{}: {}", left.grid, left.reason));
    let more = match why.len() {
        0 | 1 => String::new(),
        n => format!("; {} more grids likewise", n - 1),
    };
    format!(
        "{} and {}: nothing in common ({first}{more})",
        comparison.ours.name, comparison.theirs.name
    )
}
