//! Equalised sets: sequences of which each main case has an equal share.
//!
//! The construction follows what the authors' sets show. Rows are made in order and each main
//! case takes at most ceil(sequences / cases) of them:
//!
//! 1. Tokens are drawn uniformly.
//! 2. If 64 occurs: the row stays as it is while its case has room; else its 64s are redrawn
//!    until none is left, and it goes on as a row without.
//! 3. (cases only) If 50 occurs: the row stays while `first` has room; else its 50s are redrawn
//!    until neither 50 nor 64 is left.
//! 4. A row with neither stays while its case has room; else it gets a 50 at a uniform position
//!    if `first` has room, or else a 64.
//!
//! So rows without special tokens have their natural distribution exactly; rows with 64 (or 50)
//! are natural as long as enough of them occur, and else have one inserted token. How this was
//! inferred is in `docs/tasks.md`.
//!
//! All draws of row i come from the stream of `(seed, purpose, epoch, i)`; other rows influence
//! it only through the room that is left.

use super::{Batch, DECIDING, FIRST, Task, sequence};
use crate::config::TaskName;
use crate::random::{Purpose, Stream};

/// An equalised set, read piece by piece.
#[derive(Debug, Clone)]
pub struct Equalised {
    task: Task,
    seed: u64,
    purpose: Purpose,
    epoch: u64,
    sequences: usize,
    length: usize,
    next: usize,
    room: Room,
}

/// How many more rows each main case takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    deciding: usize,
    first: usize,
    neither: usize,
}

impl Equalised {
    pub(super) fn new(
        task: Task,
        seed: u64,
        purpose: Purpose,
        epoch: u64,
        sequences: usize,
        length: usize,
    ) -> Self {
        assert!(length > 0, "sequences have at least one token");
        let deciding = task.name != TaskName::Mode && task.vocab > DECIDING;
        let first = task.name == TaskName::Cases && task.vocab > FIRST;
        // The cases that the vocabulary allows; mode has none, and its rows stay as drawn.
        let share = sequences.div_ceil(1 + usize::from(deciding) + usize::from(first));
        let room = Room {
            deciding: if deciding { share } else { 0 },
            first: if first { share } else { 0 },
            neither: share,
        };
        Self { task, seed, purpose, epoch, sequences, length, next: 0, room }
    }

    /// Rows not read yet.
    pub fn remaining(&self) -> usize {
        self.sequences - self.next
    }

    /// Fills `batch` with the next `count` rows, or as many as are left.
    ///
    /// Nothing is allocated once `batch` has held as many tokens.
    pub fn fill(&mut self, count: usize, batch: &mut Batch) {
        let count = count.min(self.remaining());
        let per_sequence = self.task.targets_per_sequence(self.length);
        batch.resize(count, self.length, per_sequence);
        let rows = batch.tokens.chunks_exact_mut(self.length);
        for (tokens, targets) in rows.zip(batch.targets.chunks_exact_mut(per_sequence)) {
            self.row(tokens);
            self.task.label(tokens, targets);
        }
    }

    /// The next row.
    fn row(&mut self, tokens: &mut [u32]) {
        let mut stream = Stream::new(self.seed, self.purpose, self.epoch, self.next as u64);
        self.next += 1;
        let vocab = self.task.vocab;
        sequence::draw(tokens, vocab, &mut stream);
        let room = &mut self.room;
        match self.task.name {
            TaskName::Mode | TaskName::Classify | TaskName::Point | TaskName::Tag => {}
            TaskName::Cases => {
                if tokens.contains(&DECIDING) {
                    if take(&mut room.deciding) {
                        return;
                    }
                    sequence::remove(tokens, vocab, |token| token == DECIDING, &mut stream);
                }
                if tokens.contains(&FIRST) {
                    if take(&mut room.first) {
                        return;
                    }
                    let special = |token| token == DECIDING || token == FIRST;
                    sequence::remove(tokens, vocab, special, &mut stream);
                }
                if take(&mut room.neither) {
                } else if take(&mut room.first) {
                    sequence::insert(tokens, FIRST, &mut stream);
                } else if take(&mut room.deciding) {
                    sequence::insert(tokens, DECIDING, &mut stream);
                }
            }
            TaskName::Lg => {
                if tokens.contains(&DECIDING) {
                    if take(&mut room.deciding) {
                        return;
                    }
                    sequence::remove(tokens, vocab, |token| token == DECIDING, &mut stream);
                }
                if !take(&mut room.neither) && take(&mut room.deciding) {
                    sequence::insert(tokens, DECIDING, &mut stream);
                }
            }
        }
    }
}

/// Takes one place, if there is one.
fn take(room: &mut usize) -> bool {
    let some = *room > 0;
    *room -= usize::from(some);
    some
}
