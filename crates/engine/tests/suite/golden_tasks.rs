//! Tasks against what the authors' generators gave: labels, cases, scores, equalised sets.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::support::{self, Tensor};
use nap_engine::config::{RunConfig, TaskConfig, TaskName};
use nap_engine::random::Purpose;
use nap_engine::task::{Batch, CaseScore, DECIDING, FIRST, Task, argmax_first};

/// `tasks.safetensors`, remembering which arrays were read.
struct Tasks {
    arrays: BTreeMap<String, Tensor>,
    read: RefCell<BTreeSet<String>>,
}

impl Tasks {
    fn load() -> Self {
        Self { arrays: support::golden_file("tasks").tensors, read: RefCell::default() }
    }

    fn get(&self, name: &str) -> Option<&Tensor> {
        let array = self.arrays.get(name)?;
        self.read.borrow_mut().insert(name.to_owned());
        Some(array)
    }

    fn tensor(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| panic!("no array {name}"))
    }

    /// What stands before `/x`, or another ending, of every array that has it.
    fn groups(&self, ending: &str) -> Vec<String> {
        self.arrays.keys().filter_map(|k| k.strip_suffix(ending)).map(str::to_owned).collect()
    }

    fn finish(&self, title: &str) {
        support::say(&format!("{title}: {} arrays compared\n", self.read.borrow().len()));
    }
}

/// The task that a group's name speaks of: `cases/crafted`, `seeded/lg_bias+1`, ...
fn task_of(group: &str) -> Task {
    let part = group.strip_prefix("seeded/").or(group.strip_prefix("equalized/"));
    let part = part.or(group.strip_prefix("eval_cases/")).unwrap_or(group);
    let word = part.split(['/', '_']).next().unwrap_or_default();
    let name = TaskName::PAPER.into_iter().find(|name| name.as_str() == word);
    let name = name.unwrap_or_else(|| panic!("{group}: unknown task {word}"));
    Task::new(&TaskConfig { name, ..RunConfig::paper().task })
}

/// The number after a letter in a name such as `cases_n10_l8`.
fn number_after(group: &str, letter: char) -> usize {
    let mut parts = group.split('_').filter_map(|p| p.strip_prefix(letter)?.parse().ok());
    parts.next().unwrap_or_else(|| panic!("{group}: no number {letter}"))
}

/// Every array is of a kind that one of the tests here compares.
#[test]
fn golden_tasks_are_all_known() {
    let tasks = Tasks::load();
    let known = |name: &str| {
        let (group, leaf) = name.rsplit_once('/').unwrap_or(("", name));
        match leaf {
            "x" | "label" | "onehot" => task_of(group).targets_per_sequence(1) == 1,
            "case" | "label_count_per_row" => task_of(group).cases().len() > 1,
            "labels" | "predictions" | "correct" | "occurrences" => group.starts_with("eval_cases"),
            _ => group == "equalized" && leaf.ends_with("_case_sums"),
        }
    };
    let unknown: Vec<_> = tasks.arrays.keys().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "unknown arrays: {unknown:?}");
}

#[test]
fn golden_labels_and_cases() {
    let tasks = Tasks::load();
    let groups = tasks.groups("/x");
    assert!(groups.len() >= 20, "{groups:?}");
    for group in &groups {
        let task = task_of(group);
        let x = tasks.tensor(&format!("{group}/x"));
        let length = x.width();
        let per_sequence = task.targets_per_sequence(length);
        let expected = tasks.tensor(&format!("{group}/label")).indices();
        let onehot = tasks.get(&format!("{group}/onehot"));
        let case = tasks.get(&format!("{group}/case"));
        let count = tasks.get(&format!("{group}/label_count_per_row"));
        let mut targets = vec![0; per_sequence];
        let mut members = vec![false; task.cases().len()];
        for (row, tokens) in x.indices().chunks_exact(length).enumerate() {
            task.label(tokens, &mut targets);
            assert_eq!(
                targets,
                expected[row * per_sequence..][..per_sequence],
                "{group} row {row}"
            );
            if let Some(onehot) = onehot {
                for (i, &target) in targets.iter().enumerate() {
                    let hot = &onehot.data[(row * per_sequence + i) * length..][..length];
                    assert!(
                        hot.iter().enumerate().all(|(j, &h)| (h == 1.0) == (j == target as usize))
                    );
                }
            }
            if let Some(case) = case {
                task.membership(tokens, &mut members);
                let expected = &case.data[row * members.len()..][..members.len()];
                assert!(
                    members.iter().zip(expected).all(|(&m, &e)| m == (e == 1.0)),
                    "{group} {row}"
                );
            }
            if let Some(count) = count {
                assert_eq!(count.data[row], 1.0, "{group}: one answer in row {row}");
            }
        }
    }
    tasks.finish("labels and cases");
}

#[test]
fn golden_case_scores() {
    let tasks = Tasks::load();
    for group in tasks.groups("/predictions") {
        let task = task_of(&group);
        let cases = task.cases().len();
        let labels = tasks.tensor(&format!("{group}/labels"));
        let predictions = tasks.tensor(&format!("{group}/predictions"));
        let case = tasks.tensor(&format!("{group}/case"));
        let answers = |t: &Tensor| -> Vec<u32> {
            t.data.chunks_exact(t.width()).map(|row| argmax_first(row) as u32).collect()
        };
        let (targets, answers) = (answers(labels), answers(predictions));
        let per_sequence = task.targets_per_sequence(labels.width());
        let mut score = CaseScore::new(cases);
        for (row, members) in case.data.chunks_exact(cases).enumerate() {
            let members: Vec<_> = members.iter().map(|&m| m == 1.0).collect();
            let own = row * per_sequence..(row + 1) * per_sequence;
            score.add(&members, &answers[own.clone()], &targets[own]);
        }
        let correct = tasks.tensor(&format!("{group}/correct"));
        let occurrences = tasks.tensor(&format!("{group}/occurrences"));
        support::assert_close(&group, &score.correct, &correct.data, 1e-14);
        assert_eq!(score.occurrences, occurrences.data, "{group}");
    }
    tasks.finish("scores per case");
}

/// The authors' sums over 3000 rows are samples of our sets' distribution: main cases exactly
/// equal, sub-cases within five deviations of the binomial distribution at our own rate. (Each
/// rate is estimated from `EPOCHS` sets, whose error is added.)
#[test]
fn golden_case_sums() {
    const EPOCHS: u64 = 40;
    let tasks = Tasks::load();
    let mut batch = Batch::default();
    for group in tasks.groups("_case_sums") {
        let task = task_of(&group);
        let expected = tasks.tensor(&format!("{group}_case_sums"));
        let length = number_after(&group, 'l');
        let sequences = group.split('_').find_map(|part| part.parse().ok()).expect("a number");
        let mut sums = vec![0u64; task.cases().len()];
        let mut members = vec![false; sums.len()];
        for epoch in 0..EPOCHS {
            let purpose = Purpose::CasesTraining;
            task.equalised(15, purpose, epoch, sequences, length).fill(sequences, &mut batch);
            for tokens in batch.tokens.chunks_exact(length) {
                task.membership(tokens, &mut members);
                for (sum, &member) in sums.iter_mut().zip(&members) {
                    *sum += u64::from(member);
                }
            }
        }
        let share = sequences as f64 / task.cases().iter().filter(|c| c.main).count() as f64;
        for (i, case) in task.cases().iter().enumerate() {
            let (theirs, ours) = (expected.data[i], sums[i] as f64 / EPOCHS as f64);
            if case.main {
                assert_eq!((theirs, ours), (share, share), "{group} {}", case.name);
            } else {
                let variance = ours * (1.0 - ours / share) * (1.0 + 1.0 / EPOCHS as f64);
                let deviations = (theirs - ours) / variance.sqrt();
                println!("{group} {}: {theirs} / {ours} ({deviations:+.1})", case.name);
                assert!(deviations.abs() < 5.0, "{group} {}", case.name);
            }
        }
    }
    tasks.finish("sums over equalised sets");
}

/// The generator behind the golden sets: the Mersenne Twister with 32-bit words, and uniform
/// numbers by masking and refusing.
struct MersenneTwister {
    state: Vec<u32>,
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u32) -> Self {
        let mut state = vec![seed];
        for i in 1..624 {
            let last = state[i - 1];
            state.push((last ^ last >> 30).wrapping_mul(1_812_433_253).wrapping_add(i as u32));
        }
        Self { state, next: 624 }
    }

    fn word(&mut self) -> u32 {
        if self.next == 624 {
            for i in 0..624 {
                let y = self.state[i] & 1 << 31 | self.state[(i + 1) % 624] & !(1 << 31);
                let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + 397) % 624] ^ y >> 1 ^ twist;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    fn below(&mut self, n: u32) -> u32 {
        let mask = n.next_power_of_two() - 1;
        loop {
            let value = self.word() & mask;
            if value < n {
                return value;
            }
        }
    }
}

/// Rows stay as drawn until the first share is full, so that the sub-cases of that share are known
/// exactly from the generator's first numbers.
#[test]
fn golden_case_sums_of_unchanged_rows() {
    let tasks = Tasks::load();
    for group in tasks.groups("_case_sums") {
        let task = task_of(&group);
        let cases = task.cases();
        let expected = tasks.tensor(&format!("{group}_case_sums"));
        let length = number_after(&group, 'l');
        let mut generator = MersenneTwister::new(15);
        let mut tokens = vec![0; length];
        let mut members = vec![false; cases.len()];
        let mut sums = vec![0.0; cases.len()];
        let full = loop {
            tokens.fill_with(|| generator.below(100));
            task.membership(&tokens, &mut members);
            for (sum, &member) in sums.iter_mut().zip(&members) {
                *sum += f64::from(u8::from(member));
            }
            let full = |&i: &usize| cases[i].main && sums[i] == expected.data[i];
            if let Some(case) = (0..cases.len()).find(full) {
                break case;
            }
        };
        let parts = cases[full + 1..].iter().take_while(|case| !case.main).count();
        let parts = full..full + 1 + parts;
        println!("{group}: {} exactly {:?}", cases[full].name, &sums[parts.clone()]);
        assert_eq!(sums[parts.clone()], expected.data[parts], "{group}");
    }
    tasks.finish("sums over rows as drawn");
}

/// The rows of the golden sets before they were equalised are known (their generator's first
/// numbers). What became of each row, in order, is what `task::equalised` describes.
#[test]
fn golden_equalised_sets_follow_the_rules() {
    let tasks = Tasks::load();
    let mut kinds = BTreeMap::new();
    for group in tasks.groups("/x") {
        if !group.starts_with("equalized/") {
            continue;
        }
        let with_first = task_of(&group).name() == TaskName::Cases;
        let x = tasks.tensor(&format!("{group}/x"));
        let (sequences, length) = (x.shape[0], x.width());
        let share = sequences.div_ceil(2 + usize::from(with_first));
        let (mut deciding, mut first, mut neither) =
            (share, share * usize::from(with_first), share);
        let mut generator = MersenneTwister::new(14);
        let drawn: Vec<_> = (0..sequences * length).map(|_| generator.below(100)).collect();
        for (row, now) in x.indices().chunks_exact(length).enumerate() {
            let place = format!("{group} row {row}");
            let mut was = drawn[row * length..][..length].to_vec();
            // Puts the new tokens in the places of the old ones of one kind.
            let replace = |was: &mut [u32], token: u32| {
                for (old, &new) in was.iter_mut().zip(now).filter(|(old, _)| **old == token) {
                    *old = new;
                }
            };
            let mut insert = |was: &mut [u32], token: u32| {
                let changed: Vec<_> = (0..length).filter(|&i| was[i] != now[i]).collect();
                // An insertion where a token had been redrawn is already in place.
                assert!(changed.len() <= 1 && now.contains(&token), "{place}: {changed:?}");
                changed.iter().for_each(|&i| was[i] = now[i]);
                *kinds.entry(format!("insert {token}")).or_insert(0) += 1;
            };
            let mut removed = 0;
            'done: {
                if was.contains(&DECIDING) {
                    if deciding > 0 {
                        deciding -= 1;
                        break 'done;
                    }
                    removed += 1;
                    replace(&mut was, DECIDING);
                }
                if with_first && was.contains(&FIRST) {
                    if first > 0 {
                        first -= 1;
                        break 'done;
                    }
                    removed += 1;
                    replace(&mut was, FIRST);
                }
                if neither > 0 {
                    neither -= 1;
                } else if first > 0 {
                    first -= 1;
                    insert(&mut was, FIRST);
                } else {
                    deciding -= 1;
                    insert(&mut was, DECIDING);
                }
            }
            assert_eq!(was, now, "{place}");
            *kinds.entry(format!("{removed} kinds removed")).or_insert(0) += 1;
        }
    }
    println!("rows replayed: {kinds:?}");
    tasks.finish("equalised sets row by row");
}
