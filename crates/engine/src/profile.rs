//! Where a step's time goes, kernel by kernel.
//!
//! Measuring is off unless [`measure`] runs, and then costs two clock readings per kernel call.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// What a kernel belongs to in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Sequences and their answers.
    Data,
    /// Packing weights for products.
    Packing,
    /// Token and position tables.
    Embedding,
    /// Dense layers' products with weights, forward and back.
    DenseProducts,
    /// Dense layers' weight gradients.
    WeightGradients,
    /// Products of queries, keys and values.
    AttentionProducts,
    /// What attention rules do with logits, queries and keys.
    AttentionPointwise,
    /// Poolings.
    Pooling,
    /// LayerNorm and GELU.
    NormGelu,
    /// Transposition of panels.
    Transposition,
    /// Loss, its gradient, answers.
    Loss,
    /// The update of the parameters.
    Optimiser,
}

impl Part {
    /// The name in profiles.
    pub fn name(self) -> &'static str {
        match self {
            Part::Data => "data",
            Part::Packing => "packing",
            Part::Embedding => "embedding",
            Part::DenseProducts => "dense products",
            Part::WeightGradients => "weight gradients",
            Part::AttentionProducts => "attention products",
            Part::AttentionPointwise => "attention pointwise",
            Part::Pooling => "pooling",
            Part::NormGelu => "norm and gelu",
            Part::Transposition => "transposition",
            Part::Loss => "loss",
            Part::Optimiser => "optimiser",
        }
    }
}

/// The time spent in each part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// Parts in the order they first ran.
    pub parts: Vec<(Part, Duration)>,
    /// The whole time measured.
    pub total: Duration,
}

thread_local! {
    static CURRENT: RefCell<Option<Profile>> = const { RefCell::new(None) };
}

/// Runs `work` and tells where its time went, on this thread.
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, Profile) {
    CURRENT.set(Some(Profile::default()));
    let start = Instant::now();
    let result = work();
    let total = start.elapsed();
    let mut profile = CURRENT.take().unwrap_or_default();
    profile.total = total;
    (result, profile)
}

/// Counts the time of `kernel` as that of a part. Parts do not contain each other.
#[inline]
pub(crate) fn time<R>(part: Part, kernel: impl FnOnce() -> R) -> R {
    let measuring = CURRENT.with_borrow(Option::is_some);
    if !measuring {
        return kernel();
    }
    let start = Instant::now();
    let result = kernel();
    let spent = start.elapsed();
    CURRENT.with_borrow_mut(|profile| {
        let Some(profile) = profile else { return };
        match profile.parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, total)) => *total += spent,
            None => profile.parts.push((part, spent)),
        }
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_only_while_measuring() {
        time(Part::Data, || ());
        let ((), profile) = measure(|| {
            for _ in 0..3 {
                time(Part::Loss, || std::thread::sleep(Duration::from_millis(2)));
            }
            time(Part::Data, || ());
        });
        let names: Vec<_> = profile.parts.iter().map(|(part, _)| part.name()).collect();
        assert_eq!(names, ["loss", "data"]);
        let sum: Duration = profile.parts.iter().map(|(_, spent)| *spent).sum();
        assert!(profile.parts[0].1 >= Duration::from_millis(6));
        assert!(sum <= profile.total);
        let ((), empty) = measure(|| ());
        assert!(empty.parts.is_empty());
    }
}
