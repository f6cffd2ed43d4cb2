//! Inverted dropout with keyed masks.
//!
//! ```text
//! y_i = x_i / (1 - rate)  with probability 1 - rate,  else 0
//! ```
//!
//! The mask of a place in the model is the stream (seed, Dropout, step, sequence, site), one
//! `u32` per element in order, so the backward pass draws it again instead of storing it.

use crate::panel::{LANES, Lanes};
use crate::random::{Purpose, Stream};
use crate::real::Real;

/// A place in the model where dropout acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// Embeddings plus positions, `[n, d]`.
    Embedding,
    /// The attention weights of a head, `[n, n]`.
    Attention {
        /// Layer.
        layer: usize,
        /// Head.
        head: usize,
    },
    /// What the aggregation block adds to the stream, `[n, d]` or `[d]` for poolings.
    Aggregation {
        /// Layer.
        layer: usize,
    },
    /// What the feed-forward block adds to the stream, `[n, d]`.
    FeedForward {
        /// Layer.
        layer: usize,
    },
}

impl Site {
    /// The site's number in the stream's key.
    pub fn number(self) -> u64 {
        let at = |layer: usize, place: usize| 1 + ((layer as u64) << 32) + place as u64;
        match self {
            Site::Embedding => 0,
            Site::Aggregation { layer } => at(layer, 0),
            Site::FeedForward { layer } => at(layer, 1),
            Site::Attention { layer, head } => at(layer, 2 + head),
        }
    }
}

/// The dropout of one training step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Share of elements that become 0.
    pub rate: f64,
    /// The run's seed.
    pub seed: u64,
    /// The step.
    pub step: u64,
}

impl Dropout {
    /// The mask of one sequence at one site.
    pub fn mask(&self, sequence: u64, site: Site) -> Mask {
        Mask {
            stream: Stream::new(self.seed, Purpose::Dropout, self.step, sequence)
                .with_site(site.number()),
            // A u32 below this is dropped.
            threshold: (self.rate * 4_294_967_296.0) as u64,
            scale: 1.0 / (1.0 - self.rate),
        }
    }
}

/// A mask, drawn element by element.
pub struct Mask {
    stream: Stream,
    threshold: u64,
    scale: f64,
}

impl Mask {
    /// What the next element is multiplied by: 0 or 1 / (1 - rate).
    fn next<T: Real>(&mut self) -> T {
        let keep = u64::from(self.stream.next_u32()) >= self.threshold;
        if keep { T::of(self.scale) } else { T::zero() }
    }

    /// Multiplies the panels `x: [panels][d]` of the next `tokens` tokens by the mask; the same
    /// for values and gradients.
    pub fn apply<T: Real>(&mut self, x: &mut [Lanes<T>], d: usize, tokens: usize) {
        for t in 0..tokens {
            self.apply_lane(&mut x[t / LANES * d..][..d], t % LANES);
        }
    }

    /// [`Mask::apply`] for one token, `x: [d]`.
    pub fn apply_lane<T: Real>(&mut self, x: &mut [Lanes<T>], lane: usize) {
        for row in x {
            let factor: T = self.next();
            // Not a product: a dropped NaN or infinity is 0.
            row[lane] = if factor == T::zero() { factor } else { row[lane] * factor };
        }
    }

    /// Writes the factors of the next `lanes <= 16` tokens of `factors.len()` features; those of
    /// the other lanes are 0.
    pub fn draw<T: Real>(&mut self, factors: &mut [Lanes<T>], lanes: usize) {
        factors.fill([T::zero(); LANES]);
        for lane in 0..lanes {
            factors.iter_mut().for_each(|row| row[lane] = self.next());
        }
    }
}
