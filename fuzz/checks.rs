//! What must hold of the readers of foreign files, whatever the bytes are. Shared by the fuzz
//! targets and the test `readers`.

use nap::sweep::grid::Grid;
use nap::sweep::identity::RunId;
use nap::sweep::journal::Journal;
use nap::sweep::record::{RunRecord, Wall};
use nap::sweep::spec::SweepSpec;
use nap_engine::train::{Cost, Trained, Trainer};

/// The most runs of a grid that is expanded.
const MOST_RUNS: usize = 64;

/// The most memory of a run that is resumed: a file may rightly ask for more, up to the engine's
/// limit, and would only make the check slow.
const MOST_MEMORY: u64 = 1 << 26;

/// A sweep file reads back from what it is stored as, and its grid can be made or is refused.
/// Whether it was accepted.
pub fn sweep_file(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(spec) = SweepSpec::parse(text, "fuzz", "fuzz.toml") else { return false };
    let stored = spec.to_toml();
    let again = SweepSpec::parse(&stored, "other", "stored")
        .unwrap_or_else(|error| panic!("{error}; stored as\n{stored}"));
    // NaN, which only the grid refuses, does not equal itself.
    let same = again == spec || (stored.contains("nan") && again.to_toml() == stored);
    assert!(same, "{spec:?}\nreads back as {again:?}\nfrom\n{stored}");
    let axes = spec.axes.iter().map(|axis| axis.values.len());
    let runs = axes.fold(spec.models.len() * spec.seeds.len(), usize::saturating_mul);
    if runs <= MOST_RUNS
        && let Ok(grid) = Grid::new(&spec)
    {
        assert!((1..=runs).contains(&grid.runs.len()), "{} of {runs} runs", grid.runs.len());
        for run in &grid.runs {
            assert!(!run.label(&grid.spec).is_empty());
            assert!(run.nominal_seconds() > 0.0, "{run:?}");
        }
    }
    true
}

/// Every record that is kept reads back from its line. Their number.
pub fn journal(bytes: &[u8]) -> usize {
    let journal = Journal::parse("fuzz.jsonl", bytes);
    for (id, record) in &journal.runs {
        assert_eq!(*id, record.id);
        reads_back(record);
    }
    journal.runs.len()
}

fn reads_back(record: &RunRecord) {
    let line = record.to_line();
    let journal = Journal::parse("x", line.as_bytes());
    assert!(journal.notes.is_empty(), "{:?} of {line}", journal.notes);
    assert_eq!(journal.runs.len(), 1, "{line}");
    assert_eq!(&journal.runs[&record.id], record, "{line}");
}

/// A checkpoint is refused, or what is read from it can be stored again. Whether it can be
/// resumed.
pub fn checkpoint(bytes: &[u8]) -> bool {
    let Ok(trained) = Trained::read(bytes) else {
        assert!(Trainer::resume(bytes).is_err(), "no model to read, but a run to resume");
        return false;
    };
    let cost = Cost::of(&trained.config).expect("the configuration was checked");
    if cost.memory_bytes > MOST_MEMORY {
        return false;
    }
    let Ok(trainer) = Trainer::resume(bytes) else { return false };
    for stored in [trainer.checkpoint(), trainer.weights()] {
        let again = Trained::read(&stored).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.config, trained.config);
        assert_eq!(again.epoch, trained.epoch);
    }
    let again = Trainer::resume(&trainer.checkpoint()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.checkpoint(), trainer.checkpoint());
    let wall = Wall {
        finished: "2026-01-01T00:00:00Z".to_owned(),
        host: "here".to_owned(),
        seconds: 1.0,
        steps_per_s: 1.0,
    };
    reads_back(&RunRecord::finished(
        RunId::of(trainer.config()),
        trainer.config(),
        trainer.history(),
        wall,
    ));
    true
}
