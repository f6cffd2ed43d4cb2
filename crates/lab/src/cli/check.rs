//! `nap check`: recorded runs, computed again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nap_engine::random::{Purpose, Stream};
use nap_engine::train::isa;

use super::signals;
use crate::data;
use crate::error::bad;
use crate::output::{note, print_line};
use crate::parallel;
use crate::sweep::record::{RunRecord, Status, Wall};
use crate::{export, grids};

/// Compute recorded runs again and compare them with their records, to the bit.
///
/// Runs that finished are picked at random. Bits are promised for one instruction set and one
/// numerics version: records of others are left out. Exit code: 0 if all are the same, 1 if one
/// is not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap check results                             three runs of all that is there
  nap check sweeps/mode-dim --runs 10 --seed 1  ten others")]
pub struct Args {
    /// Directories of sweeps, runs or records, or files of records
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// How many runs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Names the pick
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Runs the command.
///
/// # Errors
/// If there are no records, or none of this machine's kind.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut journal = crate::sweep::journal::Journal::default();
    for path in &args.results {
        let part = grids::read(path)?;
        part.notes.iter().for_each(|text| note(format!("note: {text}\n")));
        journal.merge(part);
    }
    let finished: Vec<_> = export::in_order(&journal.runs)
        .into_iter()
        .filter(|record| record.status == Status::Finished)
        .collect();
    let mut ours: Vec<_> =
        finished.iter().copied().filter(|record| record.isa == isa(&record.config)).collect();
    if ours.is_empty() {
        return Err(bad(format!(
            "no run to compute again: {} of this numerics version finished, none on this \
             machine's instruction set",
            finished.len()
        )));
    }
    let picked = pick(&mut ours, usize::from(args.runs), args.seed);
    let stop = signals::stop_flag()?;
    let outcomes = parallel::map(picked.len(), |at| {
        let outcome = compare(picked[at], &stop);
        if let Ok(Some(outcome)) = &outcome {
            // A reader who has left does not stop the others.
            let _ = print_line(outcome.text());
        }
        outcome
    });
    let (mut same, mut differing) = (0, 0);
    for outcome in outcomes {
        match outcome? {
            Some(Outcome { difference: None, .. }) => same += 1,
            Some(_) => differing += 1,
            None => {}
        }
    }
    print_line(format!("{same} of {} runs are the same to the bit", same + differing))?;
    let all = differing == 0 && same == picked.len();
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Some of the records, each as likely.
fn pick<'a>(records: &mut Vec<&'a RunRecord>, count: usize, seed: u64) -> Vec<&'a RunRecord> {
    let mut stream = Stream::new(seed, Purpose::Resampling, 0, records.len() as u64);
    let count = count.min(records.len());
    (0..count).map(|_| records.swap_remove(stream.below(records.len() as u32) as usize)).collect()
}

struct Outcome {
    run: String,
    seconds: f64,
    /// Where the record and the run part, if they do.
    difference: Option<String>,
}

impl Outcome {
    fn text(&self) -> String {
        let Self { run, seconds, difference } = self;
        match difference {
            None => format!("same     {run}, {seconds:.1} s"),
            Some(where_) => format!("DIFFERS  {run}: {where_}"),
        }
    }
}

/// Computes a run again; none if stopped.
fn compare(record: &RunRecord, stop: &AtomicBool) -> anyhow::Result<Option<Outcome>> {
    let (started, config) = (Instant::now(), &record.config);
    let mut trainer = data::trainer(config)?;
    let stopped = || stop.load(Ordering::Relaxed);
    while !trainer.finished() {
        while trainer.steps_done() < config.train.steps_per_epoch {
            trainer.step();
            if stopped() {
                return Ok(None);
            }
        }
        if trainer.finish_epoch_unless(&stopped).is_none() {
            return Ok(None);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let wall = Wall { finished: String::new(), host: String::new(), seconds, steps_per_s: 0.0 };
    let again = RunRecord::finished(record.id, config, trainer.history(), wall);
    Ok(Some(Outcome {
        run: format!(
            "{} {} {} d = {} lr {} seed {}",
            record.id,
            config.task.name.as_str(),
            config.model.name,
            config.model.dim,
            config.train.learning_rate,
            config.train.seed
        ),
        seconds,
        difference: difference(record, &again),
    }))
}

/// The first figure and epoch in which two records of a run differ.
fn difference(record: &RunRecord, again: &RunRecord) -> Option<String> {
    if record.agrees_with(again) {
        return None;
    }
    let epochs = record.epochs.len().max(again.epochs.len());
    for epoch in 0..epochs {
        for (name, theirs) in &record.epochs.0 {
            let ours = again.epochs.0.get(name).and_then(|values| values.get(epoch));
            let (theirs, ours) = (theirs.get(epoch).copied(), ours.copied());
            let both_nan = |a: f64, b: f64| !a.is_finite() && !b.is_finite();
            let same = theirs == ours || theirs.zip(ours).is_some_and(|(a, b)| both_nan(a, b));
            if !same {
                let number = |x: Option<f64>| x.map_or("nothing".to_owned(), |x| x.to_string());
                return Some(format!(
                    "epoch {}, {name}: recorded {}, computed {}",
                    epoch + 1,
                    number(theirs),
                    number(ours)
                ));
            }
        }
    }
    Some("when it diverged".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::identity::RunId;
    use nap_engine::config::RunConfig;
    use nap_engine::train::Trainer;

    fn record(seed: u64) -> RunRecord {
        let mut config = RunConfig::quickstart();
        (config.model.dim, config.task.length, config.train.seed) = (8, 16, seed);
        (config.train.epochs, config.train.steps_per_epoch) = (2, 3);
        (config.train.validation_batches, config.train.batch) = (1, 4);
        let mut trainer = Trainer::new(config.clone()).unwrap();
        for _ in 0..2 {
            for _ in 0..3 {
                trainer.step();
            }
            trainer.finish_epoch();
        }
        let wall =
            Wall { finished: String::new(), host: String::new(), seconds: 1.0, steps_per_s: 1.0 };
        RunRecord::finished(RunId::of(&config), &config, trainer.history(), wall)
    }

    #[test]
    fn a_record_is_the_run_computed_again_and_a_changed_one_is_not() {
        let mut record = record(0);
        let compare = |record: &RunRecord| {
            compare(record, &AtomicBool::new(false)).unwrap().unwrap().difference
        };
        assert_eq!(compare(&record), None);
        record.epochs.0["val_accuracy"][1] += 1e-15;
        let said = compare(&record).unwrap();
        assert!(said.starts_with("epoch 2, val_accuracy: recorded "), "{said}");
        let stopped = super::compare(&record, &AtomicBool::new(true)).unwrap();
        assert!(stopped.is_none());
    }

    #[test]
    fn picks_are_pinned_distinct_and_no_more_than_there_are() {
        let records: Vec<_> = (0..5).map(record).collect();
        let pick = |count, seed| {
            let picked = pick(&mut records.iter().collect(), count, seed);
            picked.iter().map(|record| record.config.train.seed).collect::<Vec<_>>()
        };
        assert_eq!(pick(3, 0), pick(3, 0));
        assert_ne!(pick(3, 0), pick(3, 1));
        let mut all = pick(9, 0);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }
}
