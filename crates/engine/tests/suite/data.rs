//! Data of one's own: padding changes nothing, runs resume to the bit, models learn.

use std::sync::Arc;

use crate::support::setup::{Setup, stream};
use crate::support::{Report, error_at_scale};
use nap_engine::config::{
    ClassWeights, DataConfig, Masking, NormPlacement, Positions, Precision, Readout, RunConfig,
    TaskName,
};
use nap_engine::data::{self, Data, Label, Names, Place};
use nap_engine::model::Model;
use nap_engine::model::architecture::Block;
use nap_engine::model::family::{FAMILIES, find};
use nap_engine::random::Stream;
use nap_engine::task::{Batch, argmax_first};
use nap_engine::train::{Predictor, Trained, Trainer};

type Rows = Vec<(Vec<u32>, Vec<u32>)>;

/// Sequences of 1 to 40 tokens. The class of a token is whether it is above 5; a sequence's class
/// is that of its largest token, its position that of its (only) largest token.
fn rows(task: TaskName, count: usize, s: &mut Stream) -> Rows {
    let row = |_| {
        let n = 1 + s.below(40) as usize;
        let mut tokens: Vec<u32> = (0..n).map(|_| 1 + s.below(5)).collect();
        let place = s.below(n as u32) as usize;
        let class = |token: u32| u32::from(token > 5);
        match task {
            TaskName::Point => tokens[place] = 9,
            _ if s.below(3) > 0 => tokens[place] = 6 + s.below(4),
            _ => {}
        }
        let targets = match task {
            TaskName::Point => vec![place as u32],
            TaskName::Tag => tokens.iter().map(|&token| class(token)).collect(),
            _ => vec![class(tokens.iter().copied().max().unwrap_or(0))],
        };
        (tokens, targets)
    };
    (0..count).map(row).collect()
}

fn run(task: TaskName, train: &Rows, validation: &Rows) -> (RunConfig, Data) {
    let mut config = RunConfig::own_data();
    config.task.name = task;
    let classes = if task == TaskName::Point { 0 } else { 2 };
    let lengths = || train.iter().chain(validation).map(|(tokens, _)| tokens.len());
    config.task.data = Some(DataConfig {
        digest: "test".to_owned(),
        vocab: 10,
        classes,
        sequences: train.len(),
        validation: validation.len(),
        tokens: train.iter().map(|(tokens, _)| tokens.len() as u64).sum(),
        shortest: lengths().min().unwrap(),
        longest: lengths().max().unwrap(),
        train: Place("test.jsonl".to_owned()),
        valid: None,
        fraction: None,
        tokenize: None,
    });
    (config.model.dim, config.model.layers) = (16, 1);
    (config.train.epochs, config.train.batch) = (3, 7);
    config.train.learning_rate = 0.005;
    config.follow_data();
    let names = Names {
        tokens: (0..10).map(|token| format!("t{token}")).collect(),
        labels: (0..classes as i64).map(Label::Whole).collect(),
    };
    let data = Data {
        train: Arc::new(train.clone()),
        validation: Arc::new(validation.clone()),
        names: Arc::new(names),
    };
    (config, data)
}

fn small(task: TaskName) -> (RunConfig, Data) {
    let s = &mut stream(1);
    run(task, &rows(task, 60, s), &rows(task, 25, s))
}

fn train_to_end(mut trainer: Trainer) -> Trainer {
    while !trainer.finished() {
        while trainer.steps_done() < trainer.config().train.steps_per_epoch {
            trainer.step();
        }
        trainer.finish_epoch();
    }
    trainer
}

/// Of each sequence, what a model of any kind gives with as much padding as there may be.
#[test]
fn padding_changes_nothing() {
    let mut report = Report::default();
    let mut tried = 0;
    for seed in 0..600 {
        let Setup { mut architecture, parameters, batch, .. } = Setup::random(seed, true);
        let positional = architecture.readout.is_position();
        if positional || matches!(architecture.block, Block::Weighted) || batch.mask.is_some() {
            continue;
        }
        tried += 1;
        architecture.masking = Masking::Clean;
        architecture.dropout = 0.0;
        let n = batch.length;
        let more = match architecture.positions {
            Positions::Learned => architecture.max_length - n,
            _ => 1 + seed as usize % 40,
        };
        let each = batch.targets.len() / batch.sequences();
        let each_padded = if architecture.readout.is_each_token() { each + more } else { each };
        let pad = |values: &[u32], each: usize, to: usize| {
            let padded = values
                .chunks_exact(each)
                .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0, to - each)));
            padded.collect::<Vec<_>>()
        };
        let answers = |i: usize| i % each_padded < each;
        let given = batch.weights.clone().unwrap_or(vec![1.0; batch.targets.len()]);
        let weight = |i: usize| match answers(i) {
            true => given[i / each_padded * each + i % each_padded],
            false => 0.0,
        };
        let padded = Batch {
            tokens: pad(&batch.tokens, n, n + more),
            length: n + more,
            targets: pad(&batch.targets, each, each_padded),
            weights: Some((0..batch.sequences() * each_padded).map(weight).collect()),
            mask: Some((0..batch.sequences() * (n + more)).map(|i| i % (n + more) < n).collect()),
        };
        let of = |batch: &Batch| {
            let mut model = Model::<f64>::new(architecture.clone(), batch.length, Precision::F32);
            let mut gradient = vec![0.0; parameters.len()];
            let pass = model.loss_and_gradient(&parameters, batch, None, &mut gradient);
            let mut logits = Vec::new();
            model.logits(&parameters, batch, &mut logits);
            (pass, gradient, logits)
        };
        let (pass, gradient, logits) = of(&batch);
        let (padded_pass, padded_gradient, padded_logits) = of(&padded);
        let kept: Vec<f64> = if architecture.readout == Readout::PerToken {
            padded_logits.into_iter().filter(|z| z.is_finite()).collect()
        } else {
            let width = logits.len() / batch.targets.len();
            let rows = padded_logits.chunks_exact(width).enumerate();
            rows.filter(|(i, _)| answers(*i)).flat_map(|(_, row)| row.to_vec()).collect()
        };
        let name = format!(
            "{:?} {:?} {:?} {more} more than {n}",
            architecture.block, architecture.readout, architecture.norm_placement
        );
        assert_eq!(
            (pass.score.rows, pass.score.correct),
            (padded_pass.score.rows, padded_pass.score.correct),
            "{name}"
        );
        report.compare("loss", &name, &[padded_pass.score.loss], &[pass.score.loss], 1e-9);
        report.compare("logits", &name, &kept, &logits, 1e-9);
        let scale = gradient.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
        let error = error_at_scale(&padded_gradient, &gradient, scale);
        report.note("gradient", &name, error, 1e-9);
    }
    assert!(tried > 100, "{tried}");
    report.finish("padded and not");
}

/// A batch of several lengths gives each sequence what it gets alone, for every model.
#[test]
fn what_a_sequence_gives_does_not_depend_on_its_batch() {
    for task in TaskName::OWN {
        for family in FAMILIES.iter().filter(|family| family.name != "weighted") {
            let (mut config, data) = small(task);
            find(family.name).unwrap().apply(&mut config);
            config.model.norm_placement = NormPlacement::BeforeSkip;
            let trainer = Trainer::with_data(config, Some(data.clone())).unwrap();
            let parameters = trainer.parameters().to_vec();
            let mut model = Model::<f32>::new(trainer.architecture().clone(), 40, Precision::F32);
            let mut losses = |batches: Vec<Vec<u32>>| {
                let (mut loss, mut rows) = (0.0, 0);
                for indices in batches {
                    let mut batch = Batch::default();
                    data::fill(task, &*data.validation, &indices, None, &mut batch);
                    let score = model.answers(&parameters, &batch, &mut Vec::new());
                    loss += score.loss;
                    rows += score.rows;
                }
                (loss, rows)
            };
            let alone = losses((0..25).map(|i| vec![i]).collect());
            let together = losses(vec![(0..25).collect()]);
            let sorted = losses(vec![data::by_length(&*data.validation)]);
            assert_eq!((alone.1, alone.1), (together.1, sorted.1));
            for other in [together.0, sorted.0] {
                let error = (other / alone.0 - 1.0).abs();
                assert!(error < 1e-5, "{} {task:?}: {error:e}", family.name);
            }
        }
    }
}

#[test]
fn batches_are_filled_as_they_should_be() {
    let examples: Rows = vec![(vec![3, 4], vec![1, 0]), (vec![5, 6, 7], vec![0, 1, 1])];
    let mut batch = Batch::default();
    data::fill(TaskName::Tag, &examples, &[0, 1], Some(&[2.0, 0.5]), &mut batch);
    assert_eq!((batch.length, batch.answers()), (3, 5));
    assert_eq!(batch.tokens, [3, 4, 0, 5, 6, 7]);
    assert_eq!(batch.targets, [1, 0, 0, 0, 1, 1]);
    assert_eq!(batch.weights, Some(vec![0.5, 2.0, 0.0, 2.0, 0.5, 0.5]));
    assert_eq!(batch.mask, Some(vec![true, true, false, true, true, true]));
    // Used again, with nothing to pad and nothing to weigh.
    data::fill(TaskName::Tag, &examples, &[1], None, &mut batch);
    assert_eq!((batch.length, &batch.weights, &batch.mask), (3, &None, &None));
    let points: Rows = vec![(vec![3, 4], vec![1]), (vec![5], vec![0])];
    data::fill(TaskName::Point, &points, &[0, 1], None, &mut batch);
    assert_eq!((batch.answers(), &batch.weights), (2, &None));
    assert_eq!(batch.targets, [1, 0]);
    assert_eq!(batch.mask, Some(vec![true, true, true, false]));
}

#[test]
fn models_learn_each_task() {
    for task in TaskName::OWN {
        let s = &mut stream(2);
        let (mut config, data) = run(task, &rows(task, 400, s), &rows(task, 200, s));
        config.train.epochs = 12;
        let trainer = train_to_end(Trainer::with_data(config, Some(data.clone())).unwrap());
        let last = &trainer.history().last().unwrap().validation;
        assert!(last.accuracy > 0.9, "{task:?}: {last:?}");
        match task {
            TaskName::Point => assert_eq!(last.macro_f1, None),
            _ => assert!(last.macro_f1.unwrap() > 0.85, "{task:?}: {last:?}"),
        }
        // The checkpoint answers as the trainer does, with the names it was given.
        let trained = Trained::read(&trainer.weights()).unwrap();
        assert_eq!(trained.names.as_ref(), Some(&*data.names));
        let scores = trained.evaluate_on(&*data.validation).unwrap();
        assert_eq!((scores.accuracy, scores.macro_f1), (last.accuracy, last.macro_f1));
        assert!(trained.evaluate(8, 1, 0).is_err());
        // And so do its probabilities.
        let validation = &*data.validation;
        let (mut sequences, mut right) = (Vec::new(), Vec::new());
        for index in 0..validation.len() {
            let (mut tokens, mut targets) = (Vec::new(), Vec::new());
            validation.read(index, &mut tokens, &mut targets);
            sequences.push(tokens);
            right.push(targets);
        }
        let mut predictor = Predictor::new(&trained);
        let answers = predictor.answer(&sequences, true).unwrap();
        let (mut correct, mut total) = (0, 0);
        for ((answers, right), tokens) in answers.iter().zip(&right).zip(&sequences) {
            assert_eq!(answers.given.len(), right.len());
            let width = if task == TaskName::Point { tokens.len() } else { 2 };
            assert_eq!(answers.probabilities.len(), width * right.len());
            let rows = answers.probabilities.chunks_exact(width);
            for ((probabilities, &given), &right) in rows.zip(&answers.given).zip(right) {
                assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                assert_eq!(argmax_first(probabilities), given as usize);
                correct += usize::from(given == right);
                total += 1;
            }
        }
        for (alone, all) in predictor.answer(&sequences, false).unwrap().iter().zip(&answers) {
            assert_eq!((&alone.given, alone.probabilities.len()), (&all.given, 0));
        }
        assert_eq!(correct as f64 / total as f64, last.accuracy);
        // To the bit, whatever a sequence comes with.
        for (sequence, answers) in sequences.iter().zip(&answers) {
            let alone = predictor.answer(std::slice::from_ref(sequence), true).unwrap();
            assert_eq!(&alone[0], answers, "{task:?}");
        }
    }
}

#[test]
fn stopped_anywhere_a_run_ends_with_the_same_bits() {
    for task in TaskName::OWN {
        let (mut config, data) = small(task);
        config.model.dropout = 0.1;
        if task == TaskName::Tag {
            config.train.class_weights = Some(ClassWeights::Balanced);
        }
        let new = || Trainer::with_data(config.clone(), Some(data.clone())).unwrap();
        let whole = train_to_end(new()).checkpoint();
        assert_eq!(config.train.steps_per_epoch, 9, "60 examples in batches of 7");
        for stop in [0, 1, 8, 9, 13, 26] {
            let mut trainer = new();
            for _ in 0..stop {
                trainer.step();
                if trainer.steps_done() == 9 {
                    trainer.finish_epoch();
                }
            }
            let stored = trainer.checkpoint();
            let resumed = Trainer::resume_with_data(&stored, Some(data.clone())).unwrap();
            assert!(train_to_end(resumed).checkpoint() == whole, "{task:?} stopped at {stop}");
            assert!(Trainer::resume(&stored).is_err(), "without its data");
        }
        let threads = train_to_end(new().with_threads(3)).checkpoint();
        assert!(threads == whole, "threads change bits");
    }
}

#[test]
fn patience_ends_a_run() {
    let (mut config, data) = small(TaskName::Classify);
    config.train.epochs = 40;
    // It learns nothing, so that the first epoch stays the best.
    config.train.learning_rate = 1e-30;
    config.train.patience = Some(3);
    let trainer = train_to_end(Trainer::with_data(config.clone(), Some(data.clone())).unwrap());
    assert_eq!(trainer.epochs_done(), 4);
    assert!(Trained::read(&trainer.weights()).unwrap().finished());
    config.train.patience = None;
    config.train.epochs = 5;
    let trainer = train_to_end(Trainer::with_data(config, Some(data)).unwrap());
    assert_eq!(trainer.epochs_done(), 5);
}

#[test]
fn balanced_weights_make_classes_weigh_the_same() {
    let tokens = || vec![1];
    let mut examples: Rows = vec![(tokens(), vec![0]); 6];
    examples.extend(vec![(tokens(), vec![2]); 3]);
    // Of 9 answers in two classes; the class between them does not occur.
    assert_eq!(data::balanced(&examples, 3), [0.75, 0.0, 1.5]);
    let mut batch = Batch::default();
    let all: Vec<u32> = (0..9).collect();
    let weights = data::balanced(&examples, 3);
    data::fill(TaskName::Classify, &examples, &all, Some(&weights), &mut batch);
    assert_eq!(batch.weights.unwrap().iter().sum::<f32>(), 9.0);
}

#[test]
fn configurations_that_do_not_fit_their_data_are_refused() {
    type Change = fn(&mut RunConfig);
    let cases: [(Change, &str); 12] = [
        (|c| c.task.data = None, "task.name"),
        (|c| c.train.steps_per_epoch = 100, "train.steps_per_epoch"),
        (|c| c.task.vocab = 100, "task.vocab"),
        (|c| c.task.length = 3, "task.length"),
        (|c| c.task.case_bias = 1, "task.case_bias"),
        (|c| c.task.data.as_mut().unwrap().classes = 1, "task.data"),
        (|c| c.task.data.as_mut().unwrap().digest.clear(), "task.data"),
        (|c| c.task.data.as_mut().unwrap().validation = 0, "task.data"),
        (|c| c.task.name = TaskName::Cases, "task.name"),
        (|c| c.model.masking = Masking::Reference, "model.masking"),
        (|c| c.model.aggregator = "weighted".to_owned(), "model.aggregator"),
        (|c| c.train.patience = Some(0), "train.patience"),
    ];
    for (change, key) in cases {
        let (mut config, data) = small(TaskName::Classify);
        assert!(Trainer::with_data(config.clone(), Some(data.clone())).is_ok());
        change(&mut config);
        let error = Trainer::with_data(config, Some(data)).err().expect(key);
        assert_eq!(error.key, key, "{error}");
    }
    let (mut config, data) = small(TaskName::Point);
    config.train.class_weights = Some(ClassWeights::Balanced);
    assert!(Trainer::with_data(config.clone(), Some(data.clone())).is_err());
    config.train.class_weights = None;
    assert!(Trainer::new(config.clone()).is_err(), "no data");
    let mut other = data;
    other.train = Arc::new(rows(TaskName::Point, 61, &mut stream(3)));
    assert!(Trainer::with_data(config, Some(other)).is_err(), "other data");
    assert!(Trainer::with_data(RunConfig::quickstart(), Some(small(TaskName::Tag).1)).is_err());
}
