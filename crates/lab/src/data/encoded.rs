//! Encoded sequences: small whole numbers in a temporary file, read by position.
//!
//! Of each example the file has the numbers of its tokens, then of its classes or its position,
//! each in groups of seven bits from the lowest on (LEB128). Memory has 12 bytes per example and
//! the names. The file has no name any more: it goes when the program goes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::sync::Arc;

use anyhow::Context;
use nap_engine::data::Examples;
use sha2::{Digest, Sha256};

use crate::output::note;

/// A file under construction.
pub struct Writer {
    file: BufWriter<File>,
    /// Where each example begins.
    starts: Vec<u64>,
    lengths: Vec<u32>,
    end: u64,
    hash: Sha256,
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty file in the directory for temporary files.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> anyhow::Result<Self> {
        let file = tempfile::tempfile().with_context(unwritable)?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 16, file),
            starts: Vec::new(),
            lengths: Vec::new(),
            end: 0,
            hash: Sha256::new(),
            bytes: Vec::new(),
        })
    }

    /// Number of examples so far.
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Adds an example.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn push(&mut self, tokens: &[u32], targets: &[u32]) -> anyhow::Result<()> {
        self.bytes.clear();
        for &number in tokens.iter().chain(targets) {
            let mut rest = number;
            while rest >= 1 << 7 {
                self.bytes.push(rest as u8 | 1 << 7);
                rest >>= 7;
            }
            self.bytes.push(rest as u8);
        }
        // With its length, so that no other examples have the same bytes.
        self.hash.update((tokens.len() as u32).to_le_bytes());
        self.hash.update(&self.bytes);
        self.file.write_all(&self.bytes).with_context(unwritable)?;
        self.starts.push(self.end);
        self.lengths.push(tokens.len() as u32);
        self.end += self.bytes.len() as u64;
        Ok(())
    }

    /// The file, with the final numbers of tokens and classes by those it was written with, and
    /// a hash of what was written and of these.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(
        mut self,
        tokens: Vec<u32>,
        classes: Option<Vec<u32>>,
    ) -> anyhow::Result<(Encoded, Sha256)> {
        self.starts.push(self.end);
        for numbers in std::iter::once(&tokens).chain(&classes) {
            self.hash.update((numbers.len() as u64).to_le_bytes());
            numbers.iter().for_each(|number| self.hash.update(number.to_le_bytes()));
        }
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        let file = file.with_context(unwritable)?;
        let Self { starts, lengths, .. } = self;
        Ok((Encoded { file, starts, lengths, tokens, classes }, self.hash))
    }
}

fn unwritable() -> String {
    let place = std::env::temp_dir();
    format!("cannot write encoded data to {}; TMPDIR names another place", place.display())
}

/// A file of examples.
#[derive(Debug)]
pub struct Encoded {
    file: File,
    starts: Vec<u64>,
    lengths: Vec<u32>,
    tokens: Vec<u32>,
    /// None where the answers are positions.
    classes: Option<Vec<u32>>,
}

impl Encoded {
    /// Lengths of the examples.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    fn bytes(&self, index: usize) -> std::io::Result<Vec<u8>> {
        let (start, end) = (self.starts[index], self.starts[index + 1]);
        let mut bytes = vec![0; (end - start) as usize];
        read_at(&self.file, &mut bytes, start)?;
        Ok(bytes)
    }

    fn read(&self, index: usize, tokens: &mut Vec<u32>, targets: &mut Vec<u32>) {
        let bytes = self.bytes(index).unwrap_or_else(|error| {
            // What is finished is on the disk; without its data a run cannot go on.
            note(format!("error: cannot read the encoded data again: {error}\n"));
            std::process::exit(1)
        });
        let length = self.lengths[index] as usize;
        let (mut number, mut shift, mut count) = (0, 0, 0);
        for byte in bytes {
            number |= u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 1 << 7 {
                match (&self.classes, count < length) {
                    (_, true) => tokens.push(self.tokens[number as usize]),
                    (Some(classes), false) => targets.push(classes[number as usize]),
                    (None, false) => targets.push(number),
                }
                (number, shift, count) = (0, 0, count + 1);
            }
        }
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    // The position belongs to the file.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock();
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes)
}

/// Some examples of a file.
#[derive(Debug, Clone)]
pub struct Part {
    /// The file.
    pub file: Arc<Encoded>,
    /// Which ones.
    pub which: Which,
}

/// Examples of a file.
#[derive(Debug, Clone)]
pub enum Which {
    /// Side by side.
    Range(Range<usize>),
    /// These.
    These(Vec<u32>),
}

impl Part {
    fn index(&self, index: usize) -> usize {
        match &self.which {
            Which::Range(range) => range.start + index,
            Which::These(these) => these[index] as usize,
        }
    }

    /// Tokens of all examples.
    pub fn tokens(&self) -> u64 {
        (0..self.len()).map(|index| self.length(index) as u64).sum()
    }
}

impl Examples for Part {
    fn len(&self) -> usize {
        match &self.which {
            Which::Range(range) => range.len(),
            Which::These(these) => these.len(),
        }
    }

    fn length(&self, index: usize) -> usize {
        self.file.lengths[self.index(index)] as usize
    }

    fn read(&self, index: usize, tokens: &mut Vec<u32>, targets: &mut Vec<u32>) {
        self.file.read(self.index(index), tokens, targets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_come_back_as_they_went_in_under_their_final_numbers() {
        let numbers = [0, 1, 127, 128, 300, 16_383, 16_384, 2_000_000];
        let examples: Vec<(Vec<u32>, Vec<u32>)> =
            (0..numbers.len()).map(|i| (numbers[..=i].to_vec(), vec![(i % 3) as u32])).collect();
        let mut writer = Writer::new().unwrap();
        for (tokens, targets) in &examples {
            writer.push(tokens, targets).unwrap();
        }
        assert_eq!(writer.count(), examples.len());
        // Final numbers: one more, and classes backwards.
        let (file, _) = writer.finish((1..=2_000_001).collect(), Some(vec![2, 1, 0])).unwrap();
        let file = Arc::new(file);
        let these = vec![5, 0, 7];
        let part = Part { file: Arc::clone(&file), which: Which::These(these.clone()) };
        assert_eq!((part.len(), part.tokens()), (3, 6 + 1 + 8));
        for (i, &index) in these.iter().enumerate() {
            let (mut tokens, mut targets) = (Vec::new(), Vec::new());
            part.read(i, &mut tokens, &mut targets);
            let (expected, class) = &examples[index as usize];
            assert_eq!(tokens, expected.iter().map(|token| token + 1).collect::<Vec<_>>());
            assert_eq!(targets, [2 - class[0]]);
            assert_eq!(part.length(i), expected.len());
        }
        let range = Part { file, which: Which::Range(3..5) };
        assert_eq!((range.len(), range.length(1)), (2, 5));
    }
}
