//! Properties of the task generators.

use nap_engine::config::{RunConfig, TaskConfig, TaskName};
use nap_engine::random::Purpose;
use nap_engine::task::{Batch, CaseScore, DECIDING, FIRST, Task, argmax_first};
use proptest::prelude::*;

fn task(name: TaskName, vocab: usize, case_bias: i32) -> Task {
    Task::new(&TaskConfig { name, vocab, case_bias, ..RunConfig::paper().task })
}

fn paper(name: TaskName) -> Task {
    task(name, if name == TaskName::Mode { 10 } else { 100 }, 0)
}

/// The answers, from sorting and counting rather than scanning.
fn naive(name: TaskName, tokens: &[u32]) -> Vec<u32> {
    let mut sorted: Vec<(u32, usize)> = tokens.iter().copied().zip(0..).collect();
    sorted.sort();
    let argmin = sorted[0].1 as u32;
    let largest = sorted[sorted.len() - 1].0;
    let argmax = sorted.iter().find(|&&(token, _)| token == largest).unwrap().1 as u32;
    let has = |token| sorted.iter().any(|&(t, _)| t == token);
    match name {
        TaskName::Cases if has(64) => vec![argmin],
        TaskName::Cases if has(50) => vec![0],
        TaskName::Cases => vec![argmax],
        TaskName::Lg if has(64) => (0..tokens.len() as u32).collect(),
        TaskName::Lg => vec![argmin; tokens.len()],
        TaskName::Mode => {
            let count = |token| tokens.iter().filter(|&&t| t == token).count();
            let best = sorted.iter().map(|&(t, _)| count(t)).max().unwrap();
            vec![sorted.iter().find(|&&(t, _)| count(t) == best).unwrap().0]
        }
        _ => unreachable!("{name:?} has the answers of its data"),
    }
}

/// Short sequences with many ties and special tokens, or wide ones.
fn sequences() -> impl Strategy<Value = Vec<u32>> {
    let few = prop::sample::select(vec![0, 1, 49, 50, 51, 63, 64, 65, 99]);
    let plain = prop::sample::select(vec![3, 7, 49, 51, 63, 65]);
    prop_oneof![
        prop::collection::vec(few, 1..12),
        prop::collection::vec(plain, 1..12),
        prop::collection::vec(0u32..100, 1..140),
        prop::collection::vec(0u32..5000, 1..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn labels_equal_the_naive_ones(tokens in sequences()) {
        for name in TaskName::PAPER {
            let task = paper(name);
            let mut targets = vec![u32::MAX; task.targets_per_sequence(tokens.len())];
            task.label(&tokens, &mut targets);
            prop_assert_eq!(&targets, &naive(name, &tokens));
        }
    }

    #[test]
    fn main_cases_divide_the_sequences(tokens in sequences()) {
        for name in [TaskName::Cases, TaskName::Lg] {
            let task = paper(name);
            let mut members = vec![false; task.cases().len()];
            task.membership(&tokens, &mut members);
            let mut main = false;
            let mut mains = 0;
            for (case, &member) in task.cases().iter().zip(&members) {
                if case.main {
                    main = member;
                    mains += usize::from(member);
                }
                // A sub-case is part of the main case before it.
                prop_assert!(main || !member);
            }
            prop_assert_eq!(mains, 1);
        }
    }

    #[test]
    fn argmax_takes_the_first_largest(mut logits in prop::collection::vec(-3i8..3, 1..20), nan in 0usize..40) {
        let mut values: Vec<f32> = logits.iter().map(|&x| f32::from(x)).collect();
        if nan < values.len() {
            values[nan] = f32::NAN;
            logits[nan] = i8::MIN;
        }
        let largest = logits.iter().copied().max().unwrap();
        let first = logits.iter().position(|&x| x == largest).unwrap();
        prop_assert_eq!(argmax_first(&values), first);
    }

    /// Any piece of an equalised set equals the same rows of the whole.
    #[test]
    fn pieces_of_an_equalised_set_are_the_whole(
        n in 1usize..60, length in 1usize..40, cut in 0usize..60, count in 0usize..60, seed: u64,
    ) {
        let (cut, count) = (cut.min(n), count.min(n - cut.min(n)));
        for name in TaskName::PAPER {
            let task = paper(name);
            let purpose = Purpose::CasesValidation;
            let (mut whole, mut piece) = <(Batch, Batch)>::default();
            task.equalised(seed, purpose, 3, n, length).fill(n, &mut whole);
            prop_assert_eq!(whole.sequences(), n);
            let targets = task.targets_per_sequence(length);
            let mut set = task.equalised(seed, purpose, 3, n, length);
            for rows in [0..cut, cut..cut + count, cut + count..n] {
                // The last piece asks for more rows than are left.
                set.fill(if rows.end == n { n } else { rows.len() }, &mut piece);
                let rows_of = |each| rows.start * each..rows.end * each;
                prop_assert_eq!(&piece.tokens, &whole.tokens[rows_of(length)]);
                prop_assert_eq!(&piece.targets, &whole.targets[rows_of(targets)]);
            }
            prop_assert_eq!(set.remaining(), 0);
        }
    }
}

#[test]
fn argmax_of_unusual_logits() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for (logits, index) in [
        (&[nan, nan, nan][..], 0),
        (&[nan, 1.0, 2.0], 2),
        (&[1.0, nan, 1.0], 0),
        (&[-inf, -inf], 0),
        (&[-inf, -1e300, inf], 2),
        (&[0.0, -0.0], 0),
        (&[-0.0, 0.0], 0),
    ] {
        assert_eq!(argmax_first(logits), index, "{logits:?}");
    }
}

#[test]
fn names_are_those_of_the_configuration() {
    for name in TaskName::PAPER {
        assert_eq!(paper(name).info().name, name.as_str());
    }
    let names = |name| paper(name).cases().iter().map(|case| case.name).collect::<Vec<_>>();
    assert_eq!(
        names(TaskName::Cases),
        [
            "argmin",
            "argmin_at_first",
            "first",
            "first_argmin_at_first",
            "first_argmax_at_first",
            "argmax",
            "argmax_at_first"
        ]
    );
    assert_eq!(names(TaskName::Lg), ["local", "global"]);
    assert!(names(TaskName::Mode).is_empty());
}

/// Sum over (count - expected)^2 / expected, which has mean f and deviation sqrt(2f).
fn assert_uniform(what: &str, counts: &[u64]) {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let chi2: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    let deviations = (chi2 - freedom) / (2.0 * freedom).sqrt();
    assert!(deviations.abs() < 5.0, "{what}: chi-square is {deviations} deviations off");
}

#[test]
fn tokens_are_uniform_at_every_position() {
    for (name, vocab) in [(TaskName::Cases, 100), (TaskName::Lg, 67), (TaskName::Mode, 10)] {
        let task = task(name, vocab, 0);
        let mut batch = Batch::default();
        let mut tokens = vec![0; vocab];
        let mut pairs = vec![0; 16 * vocab];
        for step in 0..200 {
            task.fill(1, Purpose::Training, step, 64, 16, &mut batch);
            for row in batch.tokens.chunks_exact(16) {
                for (position, &token) in row.iter().enumerate() {
                    tokens[token as usize] += 1;
                    pairs[position * vocab + token as usize] += 1;
                }
            }
        }
        assert_uniform("tokens", &tokens);
        assert_uniform("tokens by position", &pairs);
    }
}

/// P(64) = 1 - (1 - p) / 2^b for b >= 0 and p / 2^|b| for b < 0, p = 1 - (1 - 1/V)^N.
#[test]
fn case_bias_gives_its_probabilities() {
    let (vocab, batches) = (100, 300);
    for name in [TaskName::Cases, TaskName::Lg] {
        for length in [8, 64, 128] {
            let p = 1.0 - (1.0 - 1.0 / vocab as f64).powi(length as i32);
            for case_bias in -3..=4 {
                let task = task(name, vocab, case_bias);
                let mut batch = Batch::default();
                let mut with = 0;
                for step in 0..batches {
                    task.fill(2, Purpose::Training, step, 32, length, &mut batch);
                    let rows = batch.tokens.chunks_exact(length);
                    with += rows.filter(|row| row.contains(&DECIDING)).count();
                }
                let expected = if case_bias >= 0 {
                    1.0 - (1.0 - p) / 2f64.powi(case_bias)
                } else {
                    p / 2f64.powi(-case_bias)
                };
                let n = (batches * 32) as f64;
                let deviation = (expected * (1.0 - expected) / n).sqrt();
                let error = (with as f64 / n - expected) / deviation;
                assert!(error.abs() < 5.0, "b = {case_bias}, N = {length}: {error} deviations");
            }
        }
    }
}

#[test]
fn inserted_tokens_are_uniform_over_positions() {
    let task = task(TaskName::Cases, 1000, 64);
    let mut batch = Batch::default();
    let mut positions = vec![0; 16];
    for step in 0..200 {
        task.fill(3, Purpose::Training, step, 32, 16, &mut batch);
        for row in batch.tokens.chunks_exact(16) {
            for (count, &token) in positions.iter_mut().zip(row) {
                *count += u64::from(token == DECIDING);
            }
        }
    }
    assert_uniform("positions of 64", &positions);
}

#[test]
fn case_bias_is_for_training_only() {
    let (mut plain, mut biased) = <(Batch, Batch)>::default();
    for purpose in Purpose::ALL {
        for name in [TaskName::Cases, TaskName::Lg] {
            task(name, 100, 0).fill(4, purpose, 5, 64, 32, &mut plain);
            task(name, 100, 4).fill(4, purpose, 5, 64, 32, &mut biased);
            assert_eq!(plain == biased, purpose != Purpose::Training, "{purpose:?}");
            task(name, 100, 0).equalised(4, purpose, 5, 60, 32).fill(60, &mut plain);
            task(name, 100, 4).equalised(4, purpose, 5, 60, 32).fill(60, &mut biased);
            assert_eq!(plain, biased, "{purpose:?}");
        }
    }
}

#[test]
fn equalised_sets_have_equal_shares() {
    for (name, parts) in [(TaskName::Cases, 3), (TaskName::Lg, 2)] {
        let task = paper(name);
        let mut members = vec![false; task.cases().len()];
        let mut batch = Batch::default();
        for n in [6, 30, 600, 3000] {
            for length in [1, 2, 4, 16, 64, 128, 512] {
                let mut score = CaseScore::new(members.len());
                task.equalised(6, Purpose::CasesTraining, 0, n, length).fill(n, &mut batch);
                let targets = batch.targets.chunks_exact(task.targets_per_sequence(length));
                for (tokens, targets) in batch.tokens.chunks_exact(length).zip(targets) {
                    assert_eq!(targets, naive(name, tokens));
                    assert!(tokens.iter().all(|&t| t < 100));
                    task.membership(tokens, &mut members);
                    score.add(&members, targets, targets);
                }
                for (case, &count) in task.cases().iter().zip(&score.occurrences) {
                    let share = (n / parts) as f64;
                    assert!(
                        if case.main { count == share } else { count <= share },
                        "{name:?} {n}"
                    );
                }
                assert!(score.accuracy().iter().all(|a| *a == 1.0 || a.is_nan()));
            }
        }
    }
}

/// Rows with neither 64 nor 50 are uniform over what is left, however they came about.
#[test]
fn equalised_rows_without_special_tokens_are_uniform() {
    let task = paper(TaskName::Cases);
    for length in [4, 32, 256] {
        let mut counts = vec![0; 98];
        let mut batch = Batch::default();
        for epoch in 0..8 {
            task.equalised(7, Purpose::CasesTraining, epoch, 600, length).fill(600, &mut batch);
            for row in batch.tokens.chunks_exact(length) {
                if !row.contains(&DECIDING) && !row.contains(&FIRST) {
                    for &token in row {
                        let gaps = usize::from(token > FIRST) + usize::from(token > DECIDING);
                        counts[token as usize - gaps] += 1;
                    }
                }
            }
        }
        assert_uniform("tokens without 50 and 64", &counts);
    }
}

/// Vocabularies that lack special tokens have fewer cases and stay within themselves.
#[test]
fn small_vocabularies_are_safe() {
    let mut batch = Batch::default();
    for name in TaskName::PAPER {
        for vocab in [1, 2, 40, 50, 51, 64, 65, 66] {
            for case_bias in [-3, 0, 4] {
                let task = task(name, vocab, case_bias);
                task.fill(8, Purpose::Training, 0, 100, 9, &mut batch);
                assert!(batch.tokens.iter().all(|&t| (t as usize) < vocab));
                task.equalised(8, Purpose::CasesTraining, 0, 60, 9).fill(60, &mut batch);
                assert!(batch.tokens.iter().all(|&t| (t as usize) < vocab));
                let rows = |token: u32| {
                    batch.tokens.chunks_exact(9).filter(|row| row.contains(&token)).count()
                };
                if name == TaskName::Cases && vocab == 64 {
                    assert_eq!((rows(DECIDING), rows(FIRST)), (0, 30));
                }
            }
        }
    }
}

#[test]
fn batches_depend_on_their_address_alone() {
    for name in TaskName::PAPER {
        let task = task(name, 100, if name == TaskName::Mode { 0 } else { 2 });
        let (mut small, mut large) = <(Batch, Batch)>::default();
        // What was in the batch before does not matter.
        large.mask = Some(vec![false; 3]);
        task.fill(9, Purpose::Validation, 1, 50, 77, &mut large);
        task.fill(9, Purpose::Training, 1, 5, 20, &mut small);
        task.fill(9, Purpose::Training, 1, 64, 20, &mut large);
        assert_eq!((large.sequences(), large.length, &large.mask), (64, 20, &None));
        assert_eq!(small.tokens, large.tokens[..5 * 20]);
        assert_eq!(small.targets, large.targets[..5 * task.targets_per_sequence(20)]);
        for (seed, purpose, step) in
            [(8, Purpose::Training, 1), (9, Purpose::Evaluation, 1), (9, Purpose::Training, 2)]
        {
            task.fill(seed, purpose, step, 64, 20, &mut small);
            assert_ne!(small.tokens, large.tokens);
        }
    }
}

#[test]
fn filling_again_does_not_allocate() {
    let task = paper(TaskName::Lg);
    let mut batch = Batch::default();
    task.fill(1, Purpose::Training, 0, 32, 128, &mut batch);
    let places = (batch.tokens.as_ptr(), batch.targets.as_ptr());
    for step in 1..4 {
        task.fill(1, Purpose::Training, step, 32, 128, &mut batch);
        task.fill(1, Purpose::Validation, step, 32, 64, &mut batch);
        task.equalised(1, Purpose::CasesTraining, step, 300, 128).fill(20, &mut batch);
        assert_eq!(places, (batch.tokens.as_ptr(), batch.targets.as_ptr()));
    }
}

/// Accuracy where every token answers: the share of right tokens, averaged over sequences.
#[test]
fn scores_average_over_positions() {
    let task = paper(TaskName::Lg);
    let mut members = vec![false; task.cases().len()];
    let mut score = CaseScore::new(members.len());
    assert!(score.accuracy().iter().all(|a| a.is_nan()));
    task.membership(&[64, 3, 5, 7], &mut members);
    score.add(&members, &[0, 1, 0, 0], &[0, 1, 2, 3]);
    task.membership(&[9, 64, 5, 7], &mut members);
    score.add(&members, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    assert_eq!((score.correct[0], score.occurrences[0]), (1.5, 2.0));
    assert_eq!(score.accuracy()[0], 0.75);
    assert!(score.accuracy()[1].is_nan());
}

/// FNV-1a over the tokens' little-endian bytes.
fn checksum(tokens: &[u32]) -> u64 {
    let bytes = tokens.iter().flat_map(|token| token.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The data never changes: these numbers come from a second implementation of the rules in
/// `docs/tasks.md`, in Python with its own ChaCha.
#[test]
fn data_is_pinned() {
    let mut batch = Batch::default();
    paper(TaskName::Cases).fill(0, Purpose::Training, 0, 2, 8, &mut batch);
    let rows = [[20, 72, 28, 41, 85, 40, 62, 38], [42, 84, 65, 40, 52, 82, 7, 20]];
    assert_eq!(batch.tokens, rows.concat());
    for (case_bias, expected) in
        [(0, 0x7009_c1ff_6276_07a0), (4, 0x85c0_290d_7531_c7a5), (-3, 0x7610_d5b1_b21f_91f3)]
    {
        for name in [TaskName::Cases, TaskName::Lg] {
            task(name, 100, case_bias).fill(7, Purpose::Training, 5, 32, 128, &mut batch);
            assert_eq!(checksum(&batch.tokens), expected, "bias {case_bias}");
        }
    }
    for (name, length, expected) in [
        (TaskName::Cases, 4, 0x08fe_027a_2c1e_cca7),
        (TaskName::Cases, 128, 0x0e45_797d_093c_397d),
        (TaskName::Lg, 4, 0xb652_4da2_31d2_aa0f),
        (TaskName::Lg, 128, 0x90ef_6840_7075_fdaa),
    ] {
        paper(name).equalised(7, Purpose::CasesTraining, 2, 600, length).fill(600, &mut batch);
        assert_eq!(checksum(&batch.tokens), expected, "{name:?} {length}");
    }
}
