//! Names and sentences of pages and pictures.

use nap_engine::config::RunConfig;
use nap_engine::kernels::aggregate::{self, Kind};
use nap_engine::model::family;

/// What all cells of a grid share, in words.
pub fn about(config: &RunConfig, axis: &str) -> String {
    let (model, train) = (&config.model, &config.train);
    let facts = [
        ("model.dim", format!("width {}", model.dim)),
        ("model.layers", format!("{} layers", model.layers)),
        ("model.heads", format!("{} heads", model.heads)),
        ("task.vocab", format!("vocabulary {}", config.task.vocab)),
        ("train.batch", format!("batch {}", train.batch)),
    ];
    let mut parts: Vec<String> =
        facts.into_iter().filter(|(key, _)| *key != axis).map(|(_, fact)| fact).collect();
    let steps = if ["task.vocab", "train.batch"].contains(&axis) {
        String::new()
    } else {
        format!(" of {} steps", train.steps_per_epoch)
    };
    parts.push(format!("{} epochs{steps}", train.epochs));
    parts.join(", ")
}

/// A model's name as the paper writes it: attention models, and those that this version does not
/// know, in capitals.
pub fn label(name: &str) -> String {
    let attention = family::find(name).is_none_or(|family| {
        matches!(aggregate::find::<f64>(family.aggregator), Some(Kind::Attention(_)))
    });
    if attention { name.to_uppercase() } else { name.to_owned() }
}

/// A task in words: a heading, and what it asks for.
pub fn task_words(task: &str) -> (&str, String) {
    let (heading, asks) = match task {
        "mode" => ("Mode", "Name the most frequent token of a sequence"),
        "cases" => (
            "Case distinction",
            "Point at the smallest, the first or the largest token, depending on which tokens occur",
        ),
        "lg" => ("Local or global", "Each token points at itself or at the smallest token"),
        "ppi" => ("Protein graphs", "Classify the nodes of protein interaction graphs"),
        "rl" => ("Reinforcement learning", "Go to the red ball; accuracy is the success rate"),
        other => (other, other),
    };
    (heading, asks.to_owned())
}

/// A task with its read-out, from [`Setting::task_label`].
///
/// [`Setting::task_label`]: crate::grids::Setting::task_label
pub fn heading(task: &str, label: &str) -> String {
    match label.split_once(' ') {
        Some((_, readout)) => format!("{task}, {readout}"),
        None => task.to_owned(),
    }
}

/// The axis in words.
pub fn axis_title(name: &str) -> String {
    let words = match name {
        "dim" => "width d",
        "seq" => "training length",
        "batch" => "batch size",
        "vocab" => "vocabulary",
        "init" => "initial deviation",
        "bias" => "case bias",
        "l2" => "L2 penalty",
        other => other,
    };
    words.to_owned()
}

/// For file names.
pub fn slug(task: &str, axis: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("{task}-{axis}").chars().map(plain).collect()
}
