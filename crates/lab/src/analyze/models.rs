//! Untrained models: how much of a token is other tokens.
//!
//! ```text
//! branch ratio   mean over tokens of  |aggregated_i| / |x_i|                  per layer
//! isolation      share of others = sum_{j != i} |J_ij^T u|^2 / sum_j |J_ij^T u|^2
//! ```
//!
//! `x` enters a layer and `aggregated` is what its aggregation block adds to the skip (after LN1
//! where that comes first). J_ij is the Jacobian of token i after the last layer with respect to
//! token j's embedding, u a random direction, i a random token; numerators and denominators are
//! summed over the sequences. With N tokens that count alike the share is 1 - 1/N; it is 0 for a
//! token that sees only itself.
//!
//! Token i and direction u of sequence s are drawn from the stream (seed, Analysis, 0, s), the
//! tokens by [`Task::fill`] with the same purpose; weights are those a run of this seed starts
//! from.

use nap_engine::config::{ConfigError, RunConfig};
use nap_engine::model::architecture::Architecture;
use nap_engine::random::{Purpose, Stream};
use nap_engine::reference;
use nap_engine::task::{Batch, Task};
use nap_engine::train::initial_parameters;

/// What an untrained model does with its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Untrained {
    /// Aggregation branch against skip, per layer.
    pub ratios: Vec<f64>,
    /// Share of the gradient that reaches the token itself.
    pub own: f64,
    /// Share that reaches the others.
    pub others: f64,
}

/// About how many tokens are looked at; more only if one sequence has more.
const TOKENS: usize = 1024;

/// The most memory a model may take.
const MOST_BYTES: u64 = 4 << 30;

/// Looks at a run's model before its first step, on sequences of the run's training length.
///
/// # Errors
/// If the configuration cannot be used, or its model takes over 4 GiB.
pub fn look(config: &RunConfig) -> Result<Untrained, ConfigError> {
    config.validate()?;
    let architecture = Architecture::new(&config.model, &config.task)?;
    let (seed, length) = (config.train.seed, config.task.length);
    let sequences = (TOKENS / length).clamp(1, 64);
    let bytes = 2 * reference::trace_bytes::<f32>(&architecture, sequences, length)
        + 12 * architecture.parameter_count() as u64;
    if bytes > MOST_BYTES {
        let expected = format!("a shorter one: this model needs {} GiB for it", (bytes >> 30) + 1);
        return Err(ConfigError::new("task.length", length, expected));
    }
    let parameters = initial_parameters(&architecture, seed);
    let mut batch = Batch::default();
    Task::new(&config.task).fill(seed, Purpose::Analysis, 0, sequences, length, &mut batch);
    Ok(measure(&architecture, &parameters, &batch, seed))
}

fn measure(architecture: &Architecture, parameters: &[f32], batch: &Batch, seed: u64) -> Untrained {
    let (d, n) = (architecture.dim, batch.length);
    let trace = reference::forward(architecture, parameters, batch, None);
    let ratio = |layer: &reference::model::LayerTrace<f32>| {
        let tokens = layer.aggregated.chunks_exact(d).zip(layer.x.chunks_exact(d));
        tokens.map(|(added, x)| (square(added) / square(x)).sqrt()).sum::<f64>()
            / batch.tokens.len() as f64
    };
    let ratios = trace.layers.iter().map(ratio).collect();

    let mut asked = Vec::new();
    let mut upstream = vec![0.0; batch.tokens.len() * d];
    for (s, tokens) in upstream.chunks_exact_mut(n * d).enumerate() {
        // Not the site of the sequence's own tokens.
        let mut stream = Stream::new(seed, Purpose::Analysis, 0, s as u64).with_site(1);
        let token = stream.below(n as u32) as usize;
        tokens[token * d..][..d].iter_mut().for_each(|u| *u = stream.normal() as f32);
        asked.push(s * n + token);
    }
    let gradient = reference::token_gradient(architecture, parameters, batch, &trace, upstream);
    let squares: Vec<f64> = gradient.chunks_exact(d).map(square).collect();
    let total: f64 = squares.iter().sum();
    let own: f64 = asked.iter().map(|&token| squares[token]).sum();
    let others = (0..squares.len()).filter(|i| !asked.contains(i)).map(|i| squares[i]);
    // A sum of none is -0.
    let others = 0.0 + others.sum::<f64>();
    Untrained { ratios, own: own / total, others: others / total }
}

fn square(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nap_engine::model::family::{self, FAMILIES};

    fn config(model: &str, length: usize) -> RunConfig {
        let mut config = RunConfig::paper();
        family::find(model).unwrap().apply(&mut config);
        (config.model.dim, config.model.heads, config.task.length) = (16, 2, length);
        config
    }

    #[test]
    fn the_shares_of_a_gradient_sum_to_one_and_a_single_token_has_it_all() {
        for model in FAMILIES.map(|family| family.name) {
            for length in [1, 2, 9] {
                let seen = look(&config(model, length)).unwrap();
                assert!((seen.own + seen.others - 1.0).abs() < 1e-12, "{model}: {seen:?}");
                assert_eq!(seen.ratios.len(), 2);
                assert!(seen.ratios.iter().all(|r| r.is_finite() && *r >= 0.0), "{seen:?}");
                if length == 1 {
                    assert_eq!((seen.own, seen.others), (1.0, 0.0), "{model}");
                }
            }
        }
    }

    /// One layer without norms around the block: the branch is what the block gives, by hand.
    #[test]
    fn the_branch_of_mean_pooling_is_its_normed_mean() {
        let mut config = config("mean", 5);
        config.model.layers = 1;
        let architecture = Architecture::new(&config.model, &config.task).unwrap();
        let parameters = initial_parameters(&architecture, 0);
        let table = &parameters[architecture.parameter("embedding.weight").unwrap().range()];
        let places =
            &parameters[architecture.parameter("position_embedding.weight").unwrap().range()];
        let tokens = vec![3, 1, 4, 1, 5];
        let batch = Batch { tokens, length: 5, targets: vec![0], ..Batch::default() };
        let x: Vec<Vec<f64>> = (0..5)
            .map(|i| {
                let row = |values: &[f32], at: usize| values[at * 16..][..16].to_vec();
                let (a, b) = (row(table, batch.tokens[i] as usize), row(places, i));
                a.iter().zip(b).map(|(&a, b)| f64::from(a) + f64::from(b)).collect()
            })
            .collect();
        let pooled: Vec<f64> = (0..16).map(|c| x.iter().map(|x| x[c]).sum::<f64>() / 5.0).collect();
        let mean = pooled.iter().sum::<f64>() / 16.0;
        let variance = pooled.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / 16.0;
        let added = (variance / (variance + 1e-3) * 16.0).sqrt();
        let norm = |x: &Vec<f64>| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let expected = x.iter().map(|x| added / norm(x)).sum::<f64>() / 5.0;
        let seen = measure(&architecture, &parameters, &batch, 0);
        assert!((seen.ratios[0] / expected - 1.0).abs() < 1e-5, "{seen:?} {expected}");
    }

    #[test]
    fn softmax_isolates_tokens_of_long_sequences_and_sum_pooling_does_not() {
        let others = |model, length| look(&config(model, length)).unwrap().others;
        assert!(others("bert", 256) < 0.5 * others("bert", 16));
        assert!(others("sum", 256) > 0.5 * others("sum", 16));
    }
}
