//! Which examples are batched together: shuffled, with similar lengths side by side.

use super::Examples;
use crate::random::{Purpose, Stream};

/// Batches whose examples are sorted by length together: enough for little padding, few enough
/// that an epoch's order stays random.
const WINDOW: usize = 64;

/// The batches of an epoch, every example once; the last ones made may be smaller.
///
/// The examples are shuffled (Fisher and Yates, from the last place down) with the stream of
/// `(seed, Order, epoch, 0)`; each window of 64 batches is sorted by length, of equal lengths in
/// the shuffled order, and cut; its batches are shuffled with the same stream.
pub fn epoch(examples: &dyn Examples, seed: u64, epoch: u64, size: usize) -> Vec<Vec<u32>> {
    let mut stream = Stream::new(seed, Purpose::Order, epoch, 0);
    let mut order: Vec<u32> = (0..examples.len() as u32).collect();
    shuffle(&mut order, &mut stream);
    let mut batches = Vec::with_capacity(order.len().div_ceil(size));
    for window in order.chunks_mut(size * WINDOW) {
        window.sort_by_key(|&index| examples.length(index as usize));
        let first = batches.len();
        batches.extend(window.chunks(size).map(<[u32]>::to_vec));
        shuffle(&mut batches[first..], &mut stream);
    }
    batches
}

/// All examples by length, of equal lengths in their order.
pub fn by_length(examples: &dyn Examples) -> Vec<u32> {
    let mut order: Vec<u32> = (0..examples.len() as u32).collect();
    order.sort_by_key(|&index| examples.length(index as usize));
    order
}

fn shuffle<T>(items: &mut [T], stream: &mut Stream) {
    for last in (1..items.len()).rev() {
        items.swap(last, stream.below(last as u32 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples(n: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
        (0..n).map(|i| (vec![1; 1 + i * 7 % 50], vec![0])).collect()
    }

    #[test]
    fn every_epoch_has_every_example_once_in_an_order_of_its_own() {
        for (n, size) in [(1, 4), (7, 3), (500, 4), (1000, 1)] {
            let examples = examples(n);
            let first = epoch(&examples, 3, 0, size);
            assert_eq!(first.len(), n.div_ceil(size));
            assert_eq!(first.iter().filter(|batch| batch.len() != size).count(), {
                usize::from(n % size > 0)
            });
            let mut all = first.concat();
            all.sort_unstable();
            assert_eq!(all, (0..n as u32).collect::<Vec<_>>());
            assert_eq!(epoch(&examples, 3, 0, size), first);
            if n > 100 {
                assert_ne!(epoch(&examples, 3, 1, size), first);
                assert_ne!(epoch(&examples, 4, 0, size), first);
            }
        }
    }

    #[test]
    fn batches_hold_similar_lengths_in_no_order() {
        let examples = examples(2000);
        let batches = epoch(&examples, 0, 0, 16);
        let length = |&index: &u32| examples[index as usize].0.len();
        let padding: usize = (batches.iter())
            .map(|batch| {
                let longest = batch.iter().map(length).max().unwrap();
                batch.iter().map(|index| longest - length(index)).sum::<usize>()
            })
            .sum();
        let tokens: usize = examples.iter().map(|(tokens, _)| tokens.len()).sum();
        assert!(padding * 20 < tokens, "{padding} of {tokens}");
        let longest: Vec<_> = batches.iter().map(|b| b.iter().map(length).max()).collect();
        assert!(!longest.is_sorted() && !longest.iter().rev().is_sorted());
    }
}
