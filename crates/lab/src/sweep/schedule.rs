//! In which order runs are computed, and who computes which.

use std::collections::BinaryHeap;
use std::fmt::Display;

use super::grid::PlannedRun;

/// The order of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Order {
    /// Cheapest first
    #[default]
    Cheapest,
    /// One seed of every cell, then the next: the whole picture early
    RoundRobin,
}

/// The runs in the order in which `jobs` workers should take them. The last ones are sorted
/// largest first, so that the workers finish together.
pub fn arrange(mut runs: Vec<&PlannedRun>, order: Order, jobs: usize) -> Vec<&PlannedRun> {
    let seconds = PlannedRun::nominal_seconds;
    let seed = |run: &PlannedRun| run.config.train.seed;
    // Stable: what is equal stays in the order of the grid.
    runs.sort_by(|a, b| {
        let (cost, seed) = (seconds(a).total_cmp(&seconds(b)), seed(a).cmp(&seed(b)));
        match order {
            Order::Cheapest => cost.then(seed),
            Order::RoundRobin => seed.then(cost),
        }
    });
    let largest = runs.iter().map(|run| seconds(run)).fold(0.0, f64::max);
    let mut tail = runs.len();
    let mut sum = 0.0;
    while tail > 0 && sum < 2.0 * largest * jobs as f64 {
        tail -= 1;
        sum += seconds(runs[tail]);
    }
    runs[tail..].sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    runs
}

/// No sweep is cut into more.
const MOST_SHARES: usize = 1_000_000;

/// One of several shares of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which one, from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl Shard {
    /// The share that a Slurm array task is to take, from its environment; none outside one.
    ///
    /// # Errors
    /// If the environment contradicts itself.
    pub fn from_slurm(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let Some(task) = variable("SLURM_ARRAY_TASK_ID") else { return Ok(None) };
        let number = |name: &str, text: Option<String>| {
            let text = text.ok_or(format!("{name} is not in the environment: expected --shard"))?;
            let wrong = |_| format!("{name}={text} in the environment: expected a whole number");
            text.parse::<usize>().map_err(wrong)
        };
        let read = |name: &str| number(name, variable(name));
        let task = number("SLURM_ARRAY_TASK_ID", Some(task))?;
        let [first, last] = [read("SLURM_ARRAY_TASK_MIN")?, read("SLURM_ARRAY_TASK_MAX")?];
        let step = match variable("SLURM_ARRAY_TASK_STEP") {
            None => 1,
            step => number("SLURM_ARRAY_TASK_STEP", step)?.max(1),
        };
        if !(first..=last).contains(&task) || (last - first) / step >= MOST_SHARES {
            return Err(format!(
                "SLURM_ARRAY_TASK_ID={task} in the environment, of {first} to {last}: expected one \
                 of at most {MOST_SHARES} array tasks"
            ));
        }
        let count = (last - first) / step + 1;
        if let Some(tasks) = variable("SLURM_ARRAY_TASK_COUNT").filter(|n| *n != count.to_string())
        {
            return Err(format!(
                "this Slurm array has {tasks} tasks from {first} to {last}: expected one of evenly \
                 spaced tasks, or --shard"
            ));
        }
        Ok(Some(Self { index: (task - first) / step, count }))
    }

    /// This share of the runs of a grid, in their order. The shares have about the same cost
    /// (each run, largest first, goes to the share that has least) and depend on the grid
    /// alone, not on what is done already, so that tasks that start at different times agree.
    pub fn of<'a>(self, runs: &[&'a PlannedRun]) -> Vec<&'a PlannedRun> {
        let seconds: Vec<_> = runs.iter().map(|run| run.nominal_seconds()).collect();
        let mut largest_first: Vec<_> = (0..runs.len()).collect();
        largest_first.sort_by(|&a, &b| seconds[b].total_cmp(&seconds[a]));
        let mut shares: BinaryHeap<_> =
            (0..self.count).map(|index| Share { seconds: 0.0, index }).collect();
        let mut mine = vec![false; runs.len()];
        for run in largest_first {
            if let Some(mut least) = shares.peek_mut() {
                mine[run] = least.index == self.index;
                least.seconds += seconds[run];
            }
        }
        runs.iter().zip(mine).filter(|(_, mine)| *mine).map(|(run, _)| *run).collect()
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    /// `3/64`: the third of 64.
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(index, count)| {
            let (index, count) = (index.parse::<usize>().ok()?, count.parse::<usize>().ok()?);
            let some = (1..=count).contains(&index) && count <= MOST_SHARES;
            some.then(|| Self { index: index - 1, count })
        });
        parsed.ok_or_else(|| {
            format!("expected i/n with i from 1 to n, such as 3/64, and n at most {MOST_SHARES}")
        })
    }
}

impl Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

/// The share with the least work is the greatest.
#[derive(PartialEq)]
struct Share {
    seconds: f64,
    index: usize,
}

impl Eq for Share {}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.seconds.total_cmp(&self.seconds).then(other.index.cmp(&self.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::grid::Grid;
    use crate::sweep::spec::Restrictions;
    use std::collections::HashSet;

    fn grid() -> Grid {
        Grid::new(&Restrictions::default().resolve("mode-dim").unwrap()).unwrap()
    }

    #[test]
    fn cheap_runs_come_first_and_the_last_ones_are_sorted_the_other_way() {
        let grid = grid();
        let runs = arrange(grid.runs.iter().collect(), Order::Cheapest, 2);
        assert_eq!(runs.len(), grid.runs.len());
        assert_eq!(runs[0].config.model.dim, 8);
        let seconds: Vec<_> = runs.iter().map(|run| run.nominal_seconds()).collect();
        let turn = (1..runs.len()).find(|&i| seconds[i] < seconds[i - 1]);
        // The last runs, of d = 1024, take about twice what two workers take for one.
        assert!(turn.is_none_or(|turn| runs.len() - turn <= 5), "{turn:?}");
        let small = &runs[..20];
        let tail = arrange(small.to_vec(), Order::Cheapest, 10);
        assert!(tail.windows(2).all(|w| w[0].nominal_seconds() >= w[1].nominal_seconds()));
    }

    #[test]
    fn round_robin_sees_every_cell_before_the_second_seed() {
        let grid = grid();
        let runs = arrange(grid.runs.iter().collect(), Order::RoundRobin, 1);
        assert!(runs[..480].iter().all(|run| run.config.train.seed == 0));
    }

    #[test]
    fn shards_are_a_partition_of_about_equal_cost() {
        let grid = grid();
        let runs: Vec<_> = grid.runs.iter().collect();
        let mut seen = HashSet::new();
        let mut costs = Vec::new();
        for index in 0..7 {
            let share = Shard { index, count: 7 }.of(&runs);
            costs.push(share.iter().map(|run| run.nominal_seconds()).sum::<f64>());
            share.iter().for_each(|run| assert!(seen.insert(run.id)));
        }
        assert_eq!(seen.len(), runs.len());
        let (least, most) =
            costs.iter().fold((f64::MAX, 0.0f64), |(l, m), &c| (l.min(c), m.max(c)));
        assert!(most / least < 1.02, "{costs:?}");
        // More shares than runs: some have nothing to do.
        let few = &runs[..2];
        let sizes: usize = (0..5).map(|index| Shard { index, count: 5 }.of(few).len()).sum();
        assert_eq!(sizes, 2);
    }

    #[test]
    fn shards_from_options_and_from_slurm() {
        assert_eq!("3/64".parse(), Ok(Shard { index: 2, count: 64 }));
        for wrong in ["0/4", "5/4", "1", "1/0", "a/b", "-1/2", "", "1/9223372036854775807"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
        let slurm = |variables: &[(&str, &str)]| {
            Shard::from_slurm(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned())
            })
        };
        assert_eq!(slurm(&[]), Ok(None));
        let task = ("SLURM_ARRAY_TASK_ID", "5");
        let (min, max) = (("SLURM_ARRAY_TASK_MIN", "1"), ("SLURM_ARRAY_TASK_MAX", "9"));
        assert_eq!(slurm(&[task, min, max]), Ok(Some(Shard { index: 4, count: 9 })));
        let step = ("SLURM_ARRAY_TASK_STEP", "2");
        assert_eq!(slurm(&[task, min, max, step]), Ok(Some(Shard { index: 2, count: 5 })));
        let two = ("SLURM_ARRAY_TASK_COUNT", "2");
        assert!(slurm(&[task, min, max, two]).unwrap_err().contains("evenly spaced"));
        assert!(slurm(&[("SLURM_ARRAY_TASK_ID", "x")]).is_err());
        assert!(slurm(&[task]).unwrap_err().contains("MIN is not in the environment"));
        let endless = ("SLURM_ARRAY_TASK_MAX", "999999999999");
        assert!(slurm(&[task, min, endless]).unwrap_err().contains("at most 1000000"));
        assert!(slurm(&[task, min, ("SLURM_ARRAY_TASK_MAX", "4")]).is_err());
    }
}
