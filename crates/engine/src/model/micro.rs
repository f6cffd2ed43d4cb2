//! A few sequences of a batch that go through the model together.

use crate::kernels::dropout::{Dropout, Mask, Site};
use crate::panel::{LANES, Lanes, panels};
use crate::real::Real;
use crate::task::Batch;

/// A few sequences of one length.
#[derive(Debug, Clone, Copy)]
pub struct Micro<'a, T> {
    /// Token ids, `[sequences, length]`.
    pub ids: &'a [u32],
    /// Number of sequences.
    pub sequences: usize,
    /// Length n of each.
    pub length: usize,
    /// Tokens that take part, `[sequences, length]`.
    mask: Option<&'a [bool]>,
    /// 1 for the tokens that take part, 0 for masked and padded ones; a row per panel.
    keep: &'a [Lanes<T>],
    /// Dropout, when training with it.
    pub dropout: Option<Dropout>,
    /// Place of the first sequence in the batch.
    pub first: usize,
}

impl<'a, T: Real> Micro<'a, T> {
    /// Sequences `first..first + sequences` of a batch; `keep` has room for a row per panel.
    pub fn new(
        batch: &'a Batch,
        first: usize,
        sequences: usize,
        dropout: Option<Dropout>,
        keep: &'a mut [Lanes<T>],
    ) -> Self {
        let n = batch.length;
        let range = first * n..(first + sequences) * n;
        let mask = batch.mask.as_ref().map(|mask| &mask[range.clone()]);
        let keep = &mut keep[..sequences * panels(n)];
        for (s, keep) in keep.chunks_exact_mut(panels(n)).enumerate() {
            for (t, keep) in keep.as_flattened_mut().iter_mut().enumerate() {
                let kept = t < n && mask.is_none_or(|mask| mask[s * n + t]);
                *keep = if kept { T::one() } else { T::zero() };
            }
        }
        Self { ids: &batch.tokens[range], sequences, length: n, mask, keep, dropout, first }
    }

    /// Panels of one sequence.
    pub fn panels_each(&self) -> usize {
        panels(self.length)
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.sequences * self.panels_each()
    }

    /// The mask of sequence `s`.
    pub fn mask(&self, s: usize) -> Option<&'a [bool]> {
        self.mask.map(|mask| &mask[s * self.length..(s + 1) * self.length])
    }

    /// Which tokens of sequence `s` take part, a row per panel.
    pub fn keep(&self, s: usize) -> &'a [Lanes<T>] {
        &self.keep[s * self.panels_each()..][..self.panels_each()]
    }

    /// The dropout mask of sequence `s` at a site.
    pub fn dropout_mask(&self, s: usize, site: Site) -> Option<Mask> {
        self.dropout.map(|dropout| dropout.mask((self.first + s) as u64, site))
    }

    /// Applies dropout to the panels `x: [panels][d]` of all tokens.
    pub fn drop(&self, site: Site, x: &mut [Lanes<T>], d: usize) {
        for s in 0..self.sequences {
            if let Some(mut mask) = self.dropout_mask(s, site) {
                let x = &mut x[s * self.panels_each() * d..][..self.panels_each() * d];
                mask.apply(x, d, self.length);
            }
        }
    }

    /// Applies dropout to `x: [panels][d]` whose lanes are sequences.
    pub fn drop_sequences(&self, site: Site, x: &mut [Lanes<T>], d: usize) {
        for s in 0..self.sequences {
            if let Some(mut mask) = self.dropout_mask(s, site) {
                mask.apply_lane(&mut x[s / LANES * d..][..d], s % LANES);
            }
        }
    }

    /// Turns each x of the masked tokens of sequence `s`, `x: [panels][d]`, into
    /// `factor x + shift`.
    pub fn alter_masked(&self, s: usize, x: &mut [Lanes<T>], factor: T, shift: T) {
        let Some(mask) = self.mask(s) else { return };
        let d = x.len() / self.panels_each();
        for (t, _) in mask.iter().enumerate().filter(|(_, keep)| !**keep) {
            for row in &mut x[t / LANES * d..][..d] {
                row[t % LANES] = factor * row[t % LANES] + shift;
            }
        }
    }
}
