//! The graph layer equals the authors' in f64, forward and backward.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{self, GoldenFile, Report, golden_file};
use nap_engine::reference::graph::{Edges, Layer, Parameters, Rule};

/// A configuration's parameters and the gradients that come in.
struct Named {
    values: BTreeMap<String, Vec<f64>>,
    gradients: BTreeMap<String, Vec<f64>>,
}

impl Named {
    fn new(file: &GoldenFile, configuration: &str) -> Self {
        let prefix = format!("{configuration}/weight/");
        let named = file.tensors.iter().filter_map(|(name, tensor)| {
            Some((name.strip_prefix(&prefix)?.to_owned(), tensor.data.clone()))
        });
        Self { values: named.collect(), gradients: BTreeMap::new() }
    }
}

impl Parameters<f64> for Named {
    fn get(&self, name: &str) -> &[f64] {
        self.values.get(name).unwrap_or_else(|| panic!("no parameter {name}"))
    }

    fn add(&mut self, name: &str, gradient: &[f64]) {
        assert_eq!(self.get(name).len(), gradient.len(), "{name}");
        let zeros = || vec![0.0; gradient.len()];
        let sum = self.gradients.entry(name.to_owned()).or_insert_with(zeros);
        sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
    }
}

fn pairs(file: &GoldenFile, name: &str) -> Vec<(usize, usize)> {
    let ids = file.tensor(name).indices();
    let (sources, targets) = ids.split_at(ids.len() / 2);
    sources.iter().zip(targets).map(|(&s, &t)| (s as usize, t as usize)).collect()
}

#[test]
fn golden_graph_layer() {
    let file = golden_file("graph");
    let (x, upstream) = (file.tensor("x"), file.tensor("upstream"));
    let edges = Edges::new(x.shape[0], &pairs(&file, "edge_index"));
    assert_eq!(edges.pairs, pairs(&file, "edge_index_used"));
    let inputs = ["x", "upstream", "edge_index", "edge_index_used"];
    let configurations: BTreeSet<&str> = file
        .tensors
        .keys()
        .filter(|name| !inputs.contains(&name.as_str()))
        .map(|name| name.split('/').next().expect("a name"))
        .collect();
    let mut report = Report::default();
    for configuration in configurations {
        let (model, heads) = configuration.split_once("_h").expect("MODEL_hHEADS");
        let rule = match model {
            "NAP" => Rule::Nap,
            "NON" => Rule::Non,
            "MTE" => Rule::Mte,
            "BERT" => Rule::Bert,
            "sum" => Rule::Sum,
            "max" => Rule::Max,
            _ => panic!("unknown configuration {configuration}"),
        };
        let layer = Layer { rule, heads: heads.parse().expect("a number"), edges: &edges };
        let mut parameters = Named::new(&file, configuration);
        let pass = layer.pass(&mut parameters, &x.data, &upstream.data);
        let prefix = format!("{configuration}/f64/");
        for (name, expected) in &file.tensors {
            let Some(name) = name.strip_prefix(&prefix) else { continue };
            let actual = match name {
                "y" => &pass.y,
                "aggregated" => &pass.aggregated,
                "edge_weights" => &pass.weights,
                "dx" => &pass.dx,
                _ => {
                    let name = name.strip_prefix("grad/").expect("a gradient");
                    parameters.gradients.get(name).unwrap_or_else(|| panic!("no gradient {name}"))
                }
            };
            let place = format!("{configuration} {name}");
            // A gradient that is 0 in theory holds rounding noise in the file.
            let noise = expected.data.iter().all(|x| x.abs() < 1e-14);
            let error = match noise {
                true => support::error_at_scale(actual, &expected.data, 1.0),
                false => support::scaled_error(actual, &expected.data),
            };
            report.note("graph", &place, error, 1e-9);
        }
        // Every gradient we have is in the file.
        let listed = file.tensors.keys().filter(|n| n.starts_with(&format!("{prefix}grad/")));
        assert_eq!(parameters.gradients.len(), listed.count(), "{configuration}");
    }
    report.finish("graph layer in f64");
}
