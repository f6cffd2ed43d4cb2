//! How long runs will take on this machine, from a short measurement of its speed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nap_engine::config::{Auto, RunConfig, TaskName};
use nap_engine::train::{Cost, Trainer};

use super::grid::{PlannedRun, nominal_seconds};

/// What a calibration found.
#[derive(Debug)]
pub struct Estimate {
    /// Core seconds of each run, in their order.
    pub seconds: Vec<f64>,
    /// Number of different models and tasks, learning rates and seeds aside.
    pub shapes: usize,
    /// How many of them were measured; the others are extrapolated.
    pub measured: usize,
    /// How long the measurement took.
    pub took: Duration,
}

/// How much longer than nominally a shape takes.
#[derive(Debug, Clone, Copy)]
struct Factors {
    training: f64,
    evaluation: f64,
}

/// A measurement lasts at least this long, if the shape's steps allow it.
const LEAST_SECONDS: f64 = 0.03;

/// Estimates the core time of each run with `jobs` workers side by side. Steps of every shape are
/// timed, cheapest first, on all workers at once, as far as the `budget` of time goes (the
/// cheapest in any case) and the `memory` in bytes; dearer shapes are extrapolated from the
/// dearest measured one of their model.
pub fn estimate(runs: &[&PlannedRun], jobs: usize, memory: u64, budget: Duration) -> Estimate {
    let started = Instant::now();
    let mut shapes: Vec<Shape> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut shape_of = Vec::with_capacity(runs.len());
    for run in runs {
        let config = shape(&run.config);
        let key = serde_json::to_string(&config).unwrap_or_default();
        let at = *index.entry(key).or_insert_with(|| {
            shapes.push(Shape::new(config));
            shapes.len() - 1
        });
        shape_of.push(at);
    }
    let mut cheapest_first: Vec<_> = (0..shapes.len()).collect();
    cheapest_first.sort_by(|&a, &b| shapes[a].nominal.total_cmp(&shapes[b].nominal));
    let mut measured = 0;
    // What the nominal costs turned out to be times, so far.
    let mut slowness = 1.0;
    for &at in &cheapest_first {
        let left = budget.saturating_sub(started.elapsed()).as_secs_f64();
        if measured > 0 && shapes[at].nominal * slowness > left {
            break;
        }
        shapes[at].factors = measure_on_all(&shapes[at], jobs, memory);
        if let Some(factors) = shapes[at].factors {
            slowness = factors.training.max(factors.evaluation);
            measured += 1;
        }
    }
    let extrapolated = |of: &Shape| {
        let known = cheapest_first.iter().rev().filter_map(|&at| {
            let shape = &shapes[at];
            Some((shape.model == of.model, shape.factors?))
        });
        let known: Vec<_> = known.collect();
        let same_model = known.iter().find(|(same, _)| *same).or(known.first());
        same_model.map_or(Factors { training: 1.0, evaluation: 1.0 }, |(_, factors)| *factors)
    };
    let factors: Vec<_> =
        shapes.iter().map(|s| s.factors.unwrap_or_else(|| extrapolated(s))).collect();
    let seconds = runs.iter().zip(&shape_of).map(|(run, &at)| {
        let (training, evaluation) = nominal_seconds(&run.config, &run.cost);
        training * factors[at].training + evaluation * factors[at].evaluation
    });
    Estimate { seconds: seconds.collect(), shapes: shapes.len(), measured, took: started.elapsed() }
}

/// A small run of the same model and task.
struct Shape {
    config: RunConfig,
    model: String,
    /// Nominal seconds of the measurement.
    nominal: f64,
    factors: Option<Factors>,
}

impl Shape {
    fn new(mut config: RunConfig) -> Self {
        let nominal = |config: &RunConfig| {
            Cost::of(config).map_or(0.0, |cost| nominal_seconds(config, &cost).0)
        };
        let per_step = nominal(&config) / config.train.steps_per_epoch as f64;
        let steps = (LEAST_SECONDS / per_step.max(1e-9)).clamp(3.0, 30.0);
        config.train.steps_per_epoch = steps as usize;
        let model = config.model.name.clone();
        let nominal = Cost::of(&config).map_or(0.0, |cost| {
            let (training, evaluation) = nominal_seconds(&config, &cost);
            // Drawing the initial weights.
            training + evaluation + 5e-8 * cost.parameters as f64
        });
        Self { config, model, nominal, factors: None }
    }
}

/// What runs that take the same time per step and evaluation have in common, with few sequences.
fn shape(config: &RunConfig) -> RunConfig {
    let mut config = config.clone();
    let train = &mut config.train;
    (train.seed, train.learning_rate) = (0, 1e-4);
    (train.epochs, train.steps_per_epoch) = (1, 1);
    train.batch = train.batch.min(8);
    train.validation_batches = 1;
    train.case_sequences = 12;
    // Data of one's own need not be read for this: as much work on sequences of their mean length.
    if let Some(data) = config.task.data.take() {
        config.train.class_weights = None;
        let task = &mut config.task;
        let mean = usize::try_from(data.tokens).unwrap_or(usize::MAX) / data.sequences.max(1);
        task.length = mean.max(1);
        task.validation_length = Auto::Value(task.length);
        task.vocab = task.vocab.max(65);
        task.name = match task.name {
            TaskName::Point => TaskName::Cases,
            TaskName::Tag => TaskName::Lg,
            _ => TaskName::Mode,
        };
    }
    config
}

/// Measures a shape on every worker at once, and takes the mean; on as many as the memory allows.
fn measure_on_all(shape: &Shape, jobs: usize, memory: u64) -> Option<Factors> {
    let bytes = Cost::of(&shape.config).ok()?.memory_bytes.max(1);
    let jobs = jobs.min(usize::try_from(memory / bytes).unwrap_or(usize::MAX));
    let all: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..jobs).map(|_| scope.spawn(|| measure(&shape.config))).collect();
        running.into_iter().filter_map(|worker| worker.join().ok().flatten()).collect()
    });
    let mean = |of: fn(&Factors) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    (!all.is_empty())
        .then(|| Factors { training: mean(|f| f.training), evaluation: mean(|f| f.evaluation) })
}

fn measure(config: &RunConfig) -> Option<Factors> {
    let (training, evaluation) = nominal_seconds(config, &Cost::of(config).ok()?);
    let mut trainer = Trainer::new(config.clone()).ok()?;
    let steps = config.train.steps_per_epoch;
    // The first step touches memory for the first time.
    trainer.step();
    let started = Instant::now();
    (1..steps).for_each(|_| {
        trainer.step();
    });
    let per_step = started.elapsed().as_secs_f64() / (steps - 1) as f64;
    let started = Instant::now();
    trainer.finish_epoch();
    let evaluated = started.elapsed().as_secs_f64();
    Some(Factors {
        training: per_step * steps as f64 / training,
        evaluation: evaluated / evaluation,
    })
}
