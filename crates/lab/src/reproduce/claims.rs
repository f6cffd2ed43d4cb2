//! The paper's claims, and what runs at hand say of each.
//!
//! A claim about the grid is judged by the share of the cells in which each seed's runs learned,
//! by the exact permutation test over the seeds; one about a pooling's failure in the cells that
//! others solve; a headline figure by the published range, widened by `WIDENED`; agreement with
//! a published grid by `nap compare`. Claims about untrained models and the hull of the values
//! need no runs and are computed here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use nap_engine::config::{CasesReadout, RunConfig, TaskName};
use nap_engine::kernels::aggregate::{self, Kind};
use nap_engine::model::family;
use nap_engine::random::Purpose;
use nap_engine::task::{Batch, Task};
use serde::Serialize;

use crate::analyze::hull::{self, Problem, distance};
use crate::analyze::models;
use crate::analyze::vectors::{self, Random};
use crate::compare::headline;
use crate::compare::{GridComparison, Options, Verdict, with_published};
use crate::grids::{Cell, Grid, Results};
use crate::report::words::label;
use crate::statistics::{multiple, permutation};
use crate::sweep::map::FIGURE;

/// The smallest difference of accuracies that matters to `nap compare`.
const MARGIN: f64 = 0.05;

/// The largest p-value that decides.
const LEVEL: f64 = 0.05;

/// A headline figure may lie this far outside the published seeds' range.
const WIDENED: f64 = 0.03;

/// What the runs say of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// They bear it out.
    Confirmed,
    /// They contradict it.
    Not,
    /// They are too few to say.
    Undecided,
}

impl Finding {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Finding::Confirmed => "confirmed",
            Finding::Not => "NOT",
            Finding::Undecided => "undecided",
        }
    }

    fn of(holds: bool) -> Self {
        if holds { Finding::Confirmed } else { Finding::Not }
    }
}

/// A claim, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// What is claimed.
    pub claim: String,
    /// What the runs say.
    pub finding: Finding,
    /// The numbers it rests on.
    pub numbers: String,
}

/// Every claim that these results bear on.
pub fn of_results(results: &Results) -> Vec<Claim> {
    let grids = || results.grids.iter().filter(|grid| grid.setting.others.is_empty());
    let (mut claims, mut failures) = (Vec::new(), Vec::new());
    for nap in grids().filter(|grid| grid.setting.model == "nap") {
        let panel = nap.setting.panel_label();
        let beside = |model: &str| {
            grids().find(|g| g.setting.model == model && g.setting.panel_label() == panel)
        };
        // Corrected for the claims about one grid: over all grids of the paper five seeds, whose
        // least p is 2/252, could decide nothing.
        let softmax = ["mte", "bert"].into_iter().filter_map(beside);
        let shares: Vec<_> = softmax.filter_map(|other| Shares::of(results, nap, other)).collect();
        let corrected = multiple::holm(&shares.iter().map(|shares| shares.p).collect::<Vec<_>>());
        claims.extend(shares.iter().zip(corrected).map(|(shares, p)| shares.claim(p)));
        let (pooling, solved) = match nap.setting.task {
            TaskName::Mode => ("max", ["nap", "sum"]),
            TaskName::Cases => ("sum", ["nap", "max"]),
            _ => continue,
        };
        let solved: Vec<&Grid> = solved.iter().filter_map(|model| beside(model)).collect();
        failures.extend(beside(pooling).map(|grid| failing(results, grid, &solved)));
    }
    claims.extend(failures);
    claims.extend(headline::all(Some(results)).iter().filter_map(headline_figure));
    claims.extend(as_published(results));
    claims
}

/// What `nap compare` says of each grid that has a published one.
fn as_published(results: &Results) -> Vec<Claim> {
    let options = Options { figure: FIGURE, level: LEVEL, margin: MARGIN };
    let claim = |grid: &GridComparison| {
        let rank = grid.rank_correlation.map_or(String::new(), |r| format!(", rank {r:.2}"));
        Claim {
            claim: format!("{}, {}: as published", grid.setting, label(&grid.model)),
            finding: match grid.verdict {
                Verdict::Agree => Finding::Confirmed,
                Verdict::Disagree => Finding::Not,
                Verdict::Undecided => Finding::Undecided,
            },
            numbers: format!(
                "{} of {} cells, mean |difference| {:.3}{rank}",
                grid.compared, grid.cells_of_each[1], grid.absolute_difference
            ),
        }
    };
    with_published("ours", results, &options).grids.iter().map(claim).collect()
}

/// The cells of two grids that both have runs of.
fn common<'a>(a: &'a Grid, b: &'a Grid) -> Vec<[&'a Cell; 2]> {
    let matching = |(place, cell): (&(usize, usize), &'a Cell)| {
        let (x, rate) = (&a.xs[place.0], &a.rates[place.1]);
        let place = (
            b.xs.iter().position(|other| other == x)?,
            b.rates.iter().position(|other| other == rate)?,
        );
        let other = b.cells.get(&place)?;
        (!cell.runs.is_empty() && !other.runs.is_empty()).then_some([cell, other])
    };
    a.cells.iter().filter_map(matching).collect()
}

/// In which share of the cells two models learned, seed by seed.
struct Shares {
    panel: String,
    other: String,
    cells: usize,
    /// Of NAP and of the other, one per seed that all cells have.
    shares: [Vec<f64>; 2],
    p: f64,
}

impl Shares {
    /// None if the grids have no cell in common.
    fn of(results: &Results, nap: &Grid, other: &Grid) -> Option<Self> {
        let cells = common(nap, other);
        if cells.is_empty() {
            return None;
        }
        let shares = [0, 1].map(|side| {
            // The cells in which each seed has run, and in which its run learned.
            let mut seeds: BTreeMap<u64, [usize; 2]> = BTreeMap::new();
            for cell in cells.iter().map(|pair| pair[side]) {
                let least = learned(&cell.config);
                for &at in &cell.runs {
                    let run = &results.runs[at];
                    let best = run.best(FIGURE).map_or(0.0, |(accuracy, _)| accuracy);
                    let count = seeds.entry(run.config.train.seed).or_default();
                    *count = [count[0] + 1, count[1] + usize::from(best > least)];
                }
            }
            let complete = seeds.into_values().filter(|count| count[0] == cells.len());
            complete.map(|count| count[1] as f64 / cells.len() as f64).collect::<Vec<_>>()
        });
        let [ours, theirs] = &shares;
        let enough = ours.len() > 1 && theirs.len() > 1;
        let p = if enough { permutation::of_means(ours, theirs) } else { 1.0 };
        let (panel, other) = (nap.setting.panel_label(), label(&other.setting.model));
        Some(Self { panel, other, cells: cells.len(), shares, p })
    }

    fn claim(&self, p: f64) -> Claim {
        let [nap, other] = &self.shares;
        let claim = format!("{}: NAP learns in more of the grid than {}", self.panel, self.other);
        if nap.is_empty() || other.is_empty() {
            let numbers = format!("no seed has run in all of the {} cells", self.cells);
            return Claim { claim, finding: Finding::Undecided, numbers };
        }
        let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
        let (ours, theirs) = (mean(nap), mean(other));
        Claim {
            claim,
            finding: if p <= LEVEL { Finding::of(ours > theirs) } else { Finding::Undecided },
            numbers: format!(
                "in {:.0} % of {} cells, {} in {:.0} % ({} and {} seeds, p = {p:.3})",
                100.0 * ours,
                self.cells,
                self.other,
                100.0 * theirs,
                nap.len(),
                other.len(),
            ),
        }
    }
}

/// A pooling that cannot do the task, in cells where others can.
fn failing(results: &Results, pooling: &Grid, others: &[&Grid]) -> Claim {
    let name = &pooling.setting.model;
    let claim = format!("{}: {name} pooling fails", pooling.setting.panel_label());
    let (mut reached, mut solved, mut holds) = (f64::NAN, f64::NAN, true);
    for [other, cell] in others.iter().flat_map(|other| common(other, pooling)) {
        let chance = chance(&cell.config);
        let accuracies = (results.aggregate(other, FIGURE), results.aggregate(cell, FIGURE));
        let (Some(other), Some(pooling)) = accuracies else { continue };
        // With few answers to choose from, a third of the way from chance to 1 is not far.
        if chance < GUESSED && other.mean > learned(&cell.config) {
            solved = solved.max(other.max);
            reached = reached.max(pooling.max);
            holds &= pooling.max < chance + NOT_MUCH;
        }
    }
    if solved.is_nan() {
        let numbers = "no cell at hand in which another model learned".to_owned();
        return Claim { claim, finding: Finding::Undecided, numbers };
    }
    Claim {
        claim,
        finding: Finding::of(holds),
        numbers: format!("at most {reached:.2} where another model reaches up to {solved:.2}"),
    }
}

/// Cells whose chance is at least this say nothing about a pooling's failure.
const GUESSED: f64 = 0.3;

/// A model that fails gets less than this above chance.
const NOT_MUCH: f64 = 0.1;

/// What a run that learned exceeds.
fn learned(config: &RunConfig) -> f64 {
    let chance = chance(config);
    chance + (1.0 - chance) / 3.0
}

/// The share of validation answers that the best guess without a look at the sequence gets right:
/// one answer, or where every token answers one per position.
fn chance(config: &RunConfig) -> f64 {
    type Known = HashMap<(TaskName, usize, usize), f64>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let key = (config.task.name, config.task.vocab, config.validation_length());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.get_or_insert_default().entry(key).or_insert_with(|| {
        let mut batch = Batch::default();
        Task::new(&config.task).fill(0, Purpose::Analysis, 0, SEQUENCES, key.2, &mut batch);
        let each = batch.targets.len() / SEQUENCES;
        let most = |position: usize| {
            let mut counts: HashMap<u32, usize> = HashMap::new();
            let targets = batch.targets.iter().skip(position).step_by(each);
            targets.for_each(|&target| *counts.entry(target).or_default() += 1);
            counts.into_values().max().unwrap_or(0)
        };
        (0..each).map(most).sum::<usize>() as f64 / batch.targets.len() as f64
    })
}

/// Sequences that chance is measured on.
const SEQUENCES: usize = 4096;

fn headline_figure(headline: &headline::Headline) -> Option<Claim> {
    let ours = headline.ours.as_ref()?;
    let stated = headline.stated.map(|percent| percent / 100.0);
    let (low, high, place) = match &headline.published {
        Some(pick) => (pick.min, pick.max, Some((&pick.x, &pick.learning_rate))),
        None => (stated?, stated?, None),
    };
    let inside = ours.value >= low - WIDENED && ours.value <= high + WIDENED;
    let same = place.is_some_and(|place| place == (&ours.x, &ours.learning_rate));
    let enough = ours.runs >= 2 && (same || headline.coverage[0] == headline.coverage[1]);
    let value = stated.or(headline.published.as_ref().map(|pick| pick.value))?;
    Some(Claim {
        claim: format!("{}: {} reaches {value:.3}", headline.figure, label(headline.model)),
        finding: if enough { Finding::of(inside) } else { Finding::Undecided },
        numbers: format!(
            "{:.3} ({} seeds, {} at {}; {} of {} cells); published {low:.3} to {high:.3}",
            ours.value,
            ours.runs,
            ours.x,
            ours.learning_rate,
            headline.coverage[0],
            headline.coverage[1]
        ),
    })
}

/// The claims that need no training runs.
pub fn of_analysis() -> Vec<Claim> {
    let mut claims = vec![cage(), scale()];
    claims.extend(isolation());
    claims
}

/// Six values, a target outside their hull, as `nap analyze hull` has them.
fn cage() -> Claim {
    let problem = Problem {
        values: hull::random_values(6, 0),
        target: [1.5, 1.0],
        steps: 4000,
        learning_rate: 0.1,
        seed: 0,
    };
    let nearest = hull::nearest(&hull::hull(&problem.values), problem.target);
    let end = |name: &str| match aggregate::find(name) {
        Some(Kind::Attention(rule)) => hull::train(&problem, rule).end(),
        _ => [f64::NAN; 2],
    };
    let (softmax, nap) = (end("softmax"), end("normalized"));
    let outside = distance(nearest, problem.target);
    let (held, reached) = (distance(softmax, nearest), distance(nap, problem.target));
    Claim {
        claim: "softmax cannot leave the hull of the values, NAP can".to_owned(),
        finding: Finding::of(held < 0.01 * outside && reached < 0.01 * outside),
        numbers: format!(
            "target {outside:.2} outside; softmax ends {held:.0e} from the nearest point of the \
             hull, NAP {reached:.0e} from the target"
        ),
    }
}

/// How an aggregate of random vectors grows with the length.
fn scale() -> Claim {
    let random = Random { width: 32, draws: 64, seed: 0 };
    let lengths = [16, 1024];
    let norms = vectors::measure(random, &["softmax", "normalized-l2", "normalized"], &lengths);
    let growth = |at: usize| norms[at][1].norm / norms[at][0].norm;
    let (softmax, l2, nap) = (growth(0), growth(1), growth(2));
    Claim {
        claim: "aggregates of softmax shrink with the length, normalised ones do not".to_owned(),
        finding: Finding::of(softmax < 0.25 && l2 > 0.9 && nap > 0.9),
        numbers: format!(
            "from 16 to 1024 random vectors: softmax {softmax:.2} times, NAP-L2 {l2:.2} times, \
             NAP {nap:.1} times (before its LayerNorm)"
        ),
    }
}

/// Whether untrained tokens mostly see themselves, in models of d = 32.
fn isolation() -> Option<Claim> {
    let look = |model: &str, length: usize| {
        let mut config = RunConfig::paper();
        family::find(model)?.apply(&mut config);
        config.task.readout = CasesReadout::PerToken;
        (config.model.dim, config.task.length) = (32, length);
        models::look(&config).ok()?.ratios.first().copied()
    };
    let [nap, bert] = ["nap", "bert"].map(|model| [look(model, 16), look(model, 128)]);
    let ([nap_short, nap_long], [bert_short, bert_long]) =
        ([nap[0]?, nap[1]?], [bert[0]?, bert[1]?]);
    Some(Claim {
        claim: "before training a token of BERT mostly sees itself, one of NAP does not".to_owned(),
        finding: Finding::of(bert_long < bert_short && bert_long < 0.1 && nap_long > 1.0),
        numbers: format!(
            "aggregation against skip, 16 and 128 tokens: BERT {bert_short:.3} and \
             {bert_long:.3}, NAP {nap_short:.1} and {nap_long:.1}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;
    use crate::sweep::identity::RunId;
    use crate::sweep::journal::Journal;
    use crate::sweep::record::{RunRecord, Wall};
    use nap_engine::train::{EpochRecord, Evaluation};

    /// A finished run of this accuracy.
    fn run(mut config: RunConfig, seed: u64, accuracy: f64) -> RunRecord {
        config.train.seed = seed;
        let epoch = EpochRecord {
            epoch: 1,
            train_loss: 1.0,
            train_accuracy: accuracy,
            train_cases: vec![accuracy; Task::new(&config.task).cases().len()],
            validation: Evaluation {
                loss: 1.0,
                accuracy,
                cases: vec![accuracy; Task::new(&config.task).cases().len()],
                macro_f1: None,
            },
            diverged: false,
        };
        let wall =
            Wall { finished: String::new(), host: String::new(), seconds: 1.0, steps_per_s: 1.0 };
        RunRecord::finished(RunId::of(&config), &config, &[epoch], wall)
    }

    fn results(records: Vec<RunRecord>) -> Results {
        let mut journal = Journal::default();
        records.into_iter().for_each(|record| journal.add(record));
        Results::of(journal)
    }

    /// Five seeds of a model on mode by dim, at eight widths.
    fn grid(model: &str, accuracy: f64) -> Vec<RunRecord> {
        let widths = (1..=8).map(|k| 8 * k);
        let config = |dim| {
            let mut config = RunConfig::paper();
            (config.task.name, config.task.vocab) = (TaskName::Mode, 10);
            family::find(model).unwrap().apply(&mut config);
            config.model.dim = dim;
            config
        };
        let runs = |dim| (0..5).map(move |seed| run(config(dim), seed, accuracy));
        widths.flat_map(runs).collect()
    }

    fn finding(claims: &[Claim], part: &str) -> Finding {
        let claim = claims.iter().find(|claim| claim.claim.contains(part));
        claim.unwrap_or_else(|| panic!("{part}: {claims:?}")).finding
    }

    #[test]
    fn claims_about_grids_follow_the_seeds() {
        let all = |nap, mte, max| {
            of_results(&results([grid("nap", nap), grid("mte", mte), grid("max", max)].concat()))
        };
        let claims = all(0.9, 0.3, 0.12);
        assert_eq!(finding(&claims, "than MTE"), Finding::Confirmed);
        assert_eq!(finding(&claims, "max pooling fails"), Finding::Confirmed);
        assert_eq!(finding(&all(0.3, 0.9, 0.12), "than MTE"), Finding::Not);
        assert_eq!(finding(&all(0.9, 0.9, 0.6), "max pooling fails"), Finding::Not);
        assert_eq!(finding(&all(0.9, 0.88, 0.12), "than MTE"), Finding::Undecided);
        assert_eq!(finding(&all(0.3, 0.3, 0.12), "max pooling fails"), Finding::Undecided);
        // However many grids: five seeds can tell.
        let tasks = [
            (TaskName::Mode, CasesReadout::PerToken, 10),
            (TaskName::Cases, CasesReadout::FirstToken, 100),
            (TaskName::Cases, CasesReadout::PerToken, 100),
            (TaskName::Lg, CasesReadout::PerToken, 100),
        ];
        let records = tasks.map(|(name, readout, vocab)| {
            let mut records = [grid("nap", 0.9), grid("mte", 0.2), grid("bert", 0.2)].concat();
            for record in &mut records {
                let task = &mut record.config.task;
                (task.name, task.readout, task.vocab) = (name, readout, vocab);
                record.id = RunId::of(&record.config);
            }
            records
        });
        let claims = of_results(&results(records.concat()));
        let wider: Vec<_> = claims.iter().filter(|c| c.claim.contains("learns in more")).collect();
        assert_eq!(wider.len(), 8);
        assert!(wider.iter().all(|claim| claim.finding == Finding::Confirmed), "{wider:?}");
        // However many cells: of three seeds no test can tell.
        let few = |model, accuracy| {
            let three = |record: &RunRecord| record.config.train.seed < 3;
            grid(model, accuracy).into_iter().filter(three).collect::<Vec<_>>()
        };
        let claims = of_results(&results([few("nap", 0.9), few("bert", 0.2)].concat()));
        assert_eq!(finding(&claims, "than BERT"), Finding::Undecided);
        assert!(claims.iter().any(|claim| claim.numbers.contains("100 % of 8 cells")));
    }

    #[test]
    fn chance_is_the_best_answer_without_a_look() {
        let mut config = RunConfig::paper();
        // Position 0 where 64 is absent and 50 occurs, and a little of the rest.
        assert!((chance(&config) - 0.28).abs() < 0.03, "{}", chance(&config));
        (config.task.name, config.task.vocab) = (TaskName::Mode, 2);
        assert!((0.5..0.6).contains(&chance(&config)), "{}", chance(&config));
        // Each token's own position, right where 64 occurs: 1 - 0.99^64.
        (config.task.name, config.task.vocab) = (TaskName::Lg, 100);
        assert!((chance(&config) - 0.48).abs() < 0.03, "{}", chance(&config));
    }

    /// Three runs per cell: the worst, the mean and the best of the published five.
    #[test]
    fn the_published_grids_contradict_no_claim_about_poolings() {
        let runs = |cell: &published::Cell| {
            let config = cell.config()?;
            let values = [cell.val_min, cell.val_mean, cell.val_max].into_iter().enumerate();
            Some(values.map(|(seed, x)| run(config.clone(), seed as u64, x)).collect::<Vec<_>>())
        };
        let records = published::cells().iter().filter_map(runs).flatten().collect();
        let claims = of_results(&results(records));
        let failing: Vec<_> = claims.iter().filter(|c| c.claim.contains("pooling fails")).collect();
        assert!(failing.len() >= 3, "{claims:?}");
        for claim in failing {
            assert_eq!(claim.finding, Finding::Confirmed, "{claim:?}");
        }
    }

    #[test]
    fn the_papers_arguments_hold() {
        let claims = of_analysis();
        assert_eq!(claims.len(), 3);
        for claim in claims {
            assert_eq!(claim.finding, Finding::Confirmed, "{claim:?}");
        }
    }
}
