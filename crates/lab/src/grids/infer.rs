//! Which grids runs belong to that no sweep planned.
//!
//! Among the runs of one task, model, numerics version and precision, a key can be an axis if
//! runs that agree in everything else (learning rate and seed aside) have several values of it.
//! The key that does so for most runs is taken first; runs that it does not explain are tried
//! with the next, together with those already placed, so that the crossing of a sweep over
//! widths and one over layers is part of both. A run without such companions, or with many that
//! are placed already, goes where its published cell is.

use std::collections::{BTreeMap, BTreeSet};

use super::{DEFAULT_AXIS, Membership, Setting};
use crate::published;
use crate::resolve::flatten;
use crate::sweep::axis::{LEARNING_RATE, SHORT_NAMES};
use crate::sweep::record::RunRecord;

/// Of the runs at these indices; a run may be in several grids.
pub fn memberships(runs: &[RunRecord], free: &[usize]) -> Vec<(usize, Membership)> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for &at in free {
        let run = &runs[at];
        let (task, model) = (&run.config.task, &run.config.model.name);
        let version = (run.numerics, &run.precision);
        let key = format!("{version:?} {:?} {:?} {model}", task.name, task.readout);
        groups.entry(key).or_default().push(at);
    }
    groups.values().flat_map(|group| group_memberships(runs, group)).collect()
}

fn group_memberships(runs: &[RunRecord], group: &[usize]) -> Vec<(usize, Membership)> {
    let keys: Vec<_> = group.iter().map(|&at| flatten(&runs[at].config)).collect();
    let first = &keys[0];
    let varies = |key: &String| keys.iter().any(|other| other.get(key) != first.get(key));
    let mut candidates: Vec<String> = first.keys().filter(|key| varies(key)).cloned().collect();
    candidates.retain(|key| {
        !["model.name", "train.seed", LEARNING_RATE, "task.name", "task.readout"]
            .contains(&key.as_str())
    });
    let rank = |key: &String| SHORT_NAMES.iter().position(|(_, known)| known == key);
    candidates.sort_by_key(|key| rank(key).unwrap_or(SHORT_NAMES.len()));
    let mut members = Vec::new();
    let mut left: BTreeSet<usize> = (0..group.len()).collect();
    while !candidates.is_empty() && !left.is_empty() {
        let explained = |axis: &String| {
            let mut rows: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for (i, &at) in group.iter().enumerate() {
                let run = &runs[at];
                let version = (run.numerics, run.precision.as_str());
                let (_, key) = Setting::new(&run.config, &keys[i], version, axis, &[]);
                rows.entry(key).or_default().push(i);
            }
            let several = |row: &&Vec<usize>| {
                row.iter().any(|&i| keys[i].get(axis) != keys[row[0]].get(axis))
            };
            let rows = rows.values().filter(several);
            // A stray run does not make an axis of what others have in common.
            let new = |row: &&Vec<usize>| {
                2 * row.iter().filter(|i| left.contains(i)).count() >= row.len()
            };
            let rows = rows.filter(new);
            rows.flatten().copied().collect::<Vec<_>>()
        };
        let all: Vec<_> = candidates.iter().map(explained).collect();
        let gain = |list: &Vec<usize>| list.iter().filter(|i| left.contains(i)).count();
        // The first of equals.
        let best = (0..all.len()).rev().max_by_key(|&c| gain(&all[c])).unwrap_or(0);
        if gain(&all[best]) == 0 {
            break;
        }
        let axis = candidates.remove(best);
        for &i in &all[best] {
            left.remove(&i);
            members.push((group[i], Membership { axis: axis.clone(), along: Vec::new() }));
        }
    }
    for i in left {
        let sweep = published::cell(&runs[group[i]].config).map(|cell| cell.sweep.as_str());
        let known = SHORT_NAMES.iter().find(|(short, _)| Some(*short) == sweep);
        let axis = known.map_or(DEFAULT_AXIS, |(_, key)| key).to_owned();
        members.push((group[i], Membership { axis, along: Vec::new() }));
    }
    members
}
