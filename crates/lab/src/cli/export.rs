//! `nap export`: results for other programs.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::bad;
use crate::export::select::Selection;
use crate::export::{self, csv, parquet, tensorboard};
use crate::grids;
use crate::output::{note, print_line};

/// Write the results of a sweep or a run for other programs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap export sweeps/mode-dim -o out --csv       out/runs.csv and out/epochs.csv
  nap export sweeps/mode-dim -o out --parquet
  nap export sweeps/mode-dim -o out --tensorboard --select model=nap,lr=0.3^6 --select model=mte
  nap export sweeps/mode-dim -o out --records   out/runs.jsonl.gz: all that is known, to pass on")]
pub struct Args {
    /// Directory of a sweep, of a run or of files of records, or a file of records
    results: PathBuf,
    /// Where to write
    #[arg(short, long)]
    out: PathBuf,
    /// runs.csv and epochs.csv
    #[arg(long)]
    csv: bool,
    /// runs.parquet and epochs.parquet
    #[arg(long)]
    parquet: bool,
    /// TensorBoard event files in the folder `tensorboard`
    #[arg(long)]
    tensorboard: bool,
    /// runs.jsonl.gz: the records themselves, which nap reads like a sweep's directory
    #[arg(long)]
    records: bool,
    /// Only these runs, as model=nap,dim=8; repeatable (TensorBoard: a directory each)
    #[arg(long, value_name = "KEY=VALUE,...")]
    select: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If there are no results, or files cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !(args.csv || args.parquet || args.tensorboard || args.records) {
        return Err(bad(
            "expected --csv, --parquet, --tensorboard or --records, or several of them",
        ));
    }
    let selections = args.select.iter().map(|text| Selection::parse(text));
    let selections = selections.collect::<anyhow::Result<Vec<_>>>()?;
    let journal = grids::read(&args.results)?;
    journal.notes.iter().for_each(|text| note(format!("note: {text}\n")));
    let mut all = export::in_order(&journal.runs);
    all.extend(export::in_order(&journal.others));
    if all.is_empty() {
        return Err(bad(format!("no run has ended in {}", args.results.display())));
    }
    for selection in &selections {
        if !all.iter().any(|record| selection.has(record)) {
            return Err(bad(format!("--select {}: no run has that", selection.text)));
        }
    }
    let selected = |record: &&&_| selections.is_empty() || selections.iter().any(|s| s.has(record));
    let records: Vec<_> = all.iter().filter(selected).copied().collect();
    let place = args.out.display();
    std::fs::create_dir_all(&args.out)
        .map_err(|error| bad(format!("cannot write to {place}: {error}: expected a directory")))?;
    let mut written = Vec::new();
    if args.csv {
        csv::write(&args.out, &records)?;
        written.push("runs.csv, epochs.csv");
    }
    if args.parquet {
        parquet::write(&args.out, &records)?;
        written.push("runs.parquet, epochs.parquet");
    }
    if args.records {
        export::write_records(&args.out, &records)?;
        written.push("runs.jsonl.gz");
    }
    if args.tensorboard {
        let folder = args.out.join("tensorboard");
        for selection in &selections {
            let part: Vec<_> = all.iter().filter(|record| selection.has(record)).copied().collect();
            tensorboard::write(&folder, &selection.text, &part)?;
        }
        if selections.is_empty() {
            tensorboard::write(&folder, "all", &records)?;
        }
        written.push("tensorboard");
    }
    print_line(format!("{} runs that ended, in {place}: {}", records.len(), written.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}
