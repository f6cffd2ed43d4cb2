//! The journal: append-only JSON lines, a file per worker, merged when read.
//!
//! A record is one line, written at once and flushed to disk when a run ends; lines are never
//! changed. There are no locks: workers that computed the same run agree to the bit, and readers
//! take one of them. What cannot be read is reported and left out. Files compressed by gzip
//! (`.jsonl.gz`, as `nap export --records` writes them) are read like others.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use nap_engine::train::NUMERICS_VERSION;
use serde::Deserialize;

use super::identity::RunId;
use super::record::{RunRecord, Status};
use crate::error::bad;

/// No record is longer, in bytes.
const LONGEST_LINE: u64 = 256 << 20;

/// How files begin that gzip compressed.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Errors of decompression.
const DAMAGED: [ErrorKind; 3] =
    [ErrorKind::UnexpectedEof, ErrorKind::InvalidInput, ErrorKind::InvalidData];

/// Whether a file is a journal's, by its name.
pub fn is_journal(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")
}

/// Notes on one file.
const MOST_NOTES: usize = 5;

/// Appends records to a file of its own.
pub struct Writer {
    directory: PathBuf,
    name: String,
    file: Option<File>,
    length: u64,
}

impl Writer {
    /// A writer whose file is made with its first record and named after `name`.
    pub fn new(directory: &Path, name: &str) -> Self {
        let name = name.to_owned();
        Self { directory: directory.to_owned(), name, file: None, length: 0 }
    }

    /// Stores a record: it is on disk when this returns.
    ///
    /// # Errors
    /// What the system says; what was stored before stays whole.
    pub fn append(&mut self, record: &RunRecord) -> std::io::Result<()> {
        let line = record.to_line();
        if line.len() as u64 >= LONGEST_LINE {
            let limit = LONGEST_LINE >> 20;
            return Err(std::io::Error::other(format!("a record of more than {limit} MiB")));
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = self.create()?;
                File::open(&self.directory)?.sync_all()?;
                self.file.insert(file)
            }
        };
        let result = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        match result {
            Ok(()) => self.length += line.len() as u64,
            // Part of a line may be there: readers would report it, and the next would join it.
            Err(_) => {
                let _ = file.set_len(self.length);
            }
        }
        result
    }

    /// Makes a file that no other process has.
    fn create(&self) -> std::io::Result<File> {
        let mut number = 0;
        loop {
            // Process numbers repeat; so may names, where journals are copied together.
            let unique = RandomState::new().hash_one(number) as u32;
            let path = self.directory.join(format!("{}-{unique:08x}.jsonl", self.name));
            match OpenOptions::new().append(true).create_new(true).open(path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                result => return result,
            }
        }
    }
}

/// Every run that ended, as far as the journal can be read.
#[derive(Debug, Default)]
pub struct Journal {
    /// The records of this program's numerics version, one per run.
    pub runs: HashMap<RunId, RunRecord>,
    /// The records of other numerics versions that can be read, one per run.
    pub others: HashMap<RunId, RunRecord>,
    /// Number of records of other numerics versions, read or not.
    other_numerics: BTreeMap<u32, usize>,
    /// What could not be read, and what else a user should know.
    pub notes: Vec<String>,
    /// Runs of which records differ.
    differing: HashSet<RunId>,
}

impl Journal {
    /// Reads and merges the journal files of a directory; none if there is no such directory.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(bad(format!("cannot read {}: {error}", directory.display()))),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if is_journal(&path) {
                paths.push(path);
            }
        }
        paths.sort();
        // Each thread takes every n-th file; merging does not depend on the order.
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        let paths = &paths;
        let parts: Vec<anyhow::Result<Self>> = std::thread::scope(|scope| {
            let start = |first: usize| {
                scope.spawn(move || {
                    let mut part = Self::default();
                    for path in paths.iter().skip(first).step_by(threads) {
                        part.read_file(path)?;
                    }
                    Ok(part)
                })
            };
            let running: Vec<_> = (0..threads).map(start).collect();
            let joined = running.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined
                .map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut journal = Self::default();
        for part in parts {
            journal.merge(part?);
        }
        // By file; a file's notes are in order.
        let file = |note: &String| note.split([',', ':']).next().map(str::to_owned);
        journal.notes.sort_by_cached_key(file);
        journal.conclude();
        Ok(journal)
    }

    /// Reads a file of records, compressed by gzip or not.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_one(path: &Path) -> anyhow::Result<Self> {
        let mut journal = Self::default();
        journal.read_file(path)?;
        journal.conclude();
        Ok(journal)
    }

    /// Reads a text as if it were a journal's file.
    pub fn parse(name: &str, bytes: &[u8]) -> Self {
        let mut journal = Self::default();
        // Reading from memory does not fail.
        let _ = journal.read_lines(name, bytes);
        journal.conclude();
        journal
    }

    fn read_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let unreadable = |error| bad(format!("cannot read {}: {error}", path.display()));
        // A pipe would be waited for, for ever.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            self.notes.push(format!("{}: not a file: ignored", path.display()));
            return Ok(());
        }
        let file = File::open(path).map_err(unreadable)?;
        let name = path.display().to_string();
        let mut reader = BufReader::with_capacity(1 << 18, file);
        if !reader.fill_buf().map_err(unreadable)?.starts_with(&GZIP) {
            return self.read_lines(&name, reader).map_err(unreadable);
        }
        match self.read_lines(&name, BufReader::new(MultiGzDecoder::new(reader))) {
            // What the decoder finds, rather than the file system.
            Err(error) if DAMAGED.contains(&error.kind()) => {
                self.notes.push(format!("{name}: {error}: only what comes before is read"));
                Ok(())
            }
            read => read.map_err(unreadable),
        }
    }

    fn read_lines(&mut self, name: &str, mut reader: impl BufRead) -> std::io::Result<()> {
        let (mut number, mut notes) = (0, Vec::new());
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            number += 1;
            if line.len() as u64 == LONGEST_LINE {
                notes.push(format!("{name}, line {number}: too long for a record: ignored"));
                reader.skip_until(b'\n')?;
                continue;
            }
            let whole = line.last() == Some(&b'\n');
            match record(&line) {
                // A record is stored once its line end is.
                _ if !whole => notes.push(format!(
                    "{name}, line {number}: cut short, as when its worker was killed: ignored"
                )),
                Ok(Line::Record(record)) => self.add(*record),
                Ok(Line::OtherNumerics(numerics, record)) => {
                    *self.other_numerics.entry(numerics).or_default() += 1;
                    record.into_iter().for_each(|record| self.add(*record));
                }
                Err(reason) => {
                    notes.push(format!("{name}, line {number}: not a record ({reason}): ignored"));
                }
            }
        }
        if number == 0 {
            notes.push(format!("{name}: empty, as when its worker was killed"));
        }
        let more = notes.len().saturating_sub(MOST_NOTES);
        notes.truncate(MOST_NOTES);
        if more > 0 {
            notes.push(format!("{name}: and {more} more lines that are no records"));
        }
        self.notes.append(&mut notes);
        Ok(())
    }

    /// Adds what another journal holds; as if they were read together, but for notes that both
    /// have.
    pub fn merge(&mut self, other: Self) {
        for (numerics, count) in other.other_numerics {
            *self.other_numerics.entry(numerics).or_default() += count;
        }
        self.notes.extend(other.notes);
        self.differing.extend(other.differing);
        for record in other.runs.into_values().chain(other.others.into_values()) {
            self.add(record);
        }
    }

    /// The runs of which several records differ.
    pub fn differing(&self) -> &HashSet<RunId> {
        &self.differing
    }

    /// Of several records of a run: one that finished, then the first by instruction set and
    /// content, so that every reader takes the same.
    pub fn add(&mut self, record: RunRecord) {
        let current = record.numerics == NUMERICS_VERSION;
        let runs = if current { &mut self.runs } else { &mut self.others };
        match runs.entry(record.id) {
            Entry::Vacant(place) => {
                place.insert(record);
            }
            Entry::Occupied(mut place) => {
                let known = place.get();
                if known.status == Status::Finished
                    && record.status == Status::Finished
                    && !known.agrees_with(&record)
                {
                    self.differing.insert(record.id);
                }
                if precedence(&record, known).is_lt() {
                    place.insert(record);
                }
            }
        }
    }

    fn conclude(&mut self) {
        if !self.differing.is_empty() {
            self.notes.push(format!(
                "{} runs have records that differ (computed with several instruction sets?): the \
                 first by instruction set and content is taken",
                self.differing.len()
            ));
        }
        for (numerics, count) in &self.other_numerics {
            self.notes.push(format!(
                "{count} records of numerics version {numerics} are kept apart: this program has \
                 version {NUMERICS_VERSION}"
            ));
        }
    }
}

/// Which of two records of a run comes first: a finished one, then by instruction set and
/// content, whatever the file; of failures the latest.
fn precedence(a: &RunRecord, b: &RunRecord) -> Ordering {
    let content = |r: &RunRecord| serde_json::to_string(&r.epochs).unwrap_or_default();
    let when = a.wall.finished.cmp(&b.wall.finished);
    let order = match (a.status, b.status) {
        (Status::Failed, Status::Failed) => when.reverse(),
        _ => a.status.cmp(&b.status).then_with(|| a.isa.cmp(&b.isa)),
    };
    let order = order.then_with(|| content(a).cmp(&content(b))).then(when);
    order.then_with(|| a.to_line().cmp(&b.to_line()))
}

enum Line {
    Record(Box<RunRecord>),
    OtherNumerics(u32, Option<Box<RunRecord>>),
}

fn record(line: &[u8]) -> Result<Line, String> {
    // All that is read where the rest has another version's form.
    #[derive(Deserialize)]
    struct Version {
        numerics: u32,
    }
    match serde_json::from_slice::<RunRecord>(line) {
        Ok(record) if record.numerics != NUMERICS_VERSION => {
            let numerics = record.numerics;
            let genuine = record.id == RunId::of_version(&record.config, numerics);
            Ok(Line::OtherNumerics(numerics, genuine.then(|| Box::new(record))))
        }
        Ok(record) if record.id != RunId::of(&record.config) => {
            Err("its id is not that of its configuration".to_owned())
        }
        Ok(record) => Ok(Line::Record(Box::new(record))),
        Err(error) => match serde_json::from_slice::<Version>(line) {
            Ok(Version { numerics }) if numerics != NUMERICS_VERSION => {
                Ok(Line::OtherNumerics(numerics, None))
            }
            _ => {
                // Its place counts from the start of the line.
                let reason = error.to_string();
                Err(reason.split(" at line ").next().unwrap_or_default().to_owned())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::record::Wall;
    use nap_engine::config::RunConfig;

    fn record(seed: u64, accuracy: f64) -> RunRecord {
        let mut config = RunConfig::quickstart();
        config.train.seed = seed;
        let wall = Wall {
            finished: "2026-01-01T00:00:00Z".to_owned(),
            host: "here".to_owned(),
            seconds: 1.0,
            steps_per_s: 2.0,
        };
        let mut record = RunRecord::failed(RunId::of(&config), &config, "why".to_owned(), wall);
        (record.status, record.reason) = (Status::Finished, None);
        record.epochs.0.insert("val_accuracy".to_owned(), vec![accuracy, f64::NAN]);
        record
    }

    fn parse(text: &str) -> Journal {
        Journal::parse("x.jsonl", text.as_bytes())
    }

    #[test]
    fn a_line_reads_back_the_same() {
        let record = record(1, 0.1 + 0.2);
        let journal = parse(&record.to_line());
        assert!(journal.notes.is_empty(), "{:?}", journal.notes);
        assert_eq!(journal.runs[&record.id], record);
        assert_eq!(record.best("val_accuracy"), Some((0.1 + 0.2, 1)));
    }

    #[test]
    fn what_cannot_be_read_is_reported_and_the_rest_is_kept() {
        let lines = [record(1, 0.5), record(2, 0.6), record(3, 0.7)].map(|r| r.to_line());
        let garbage = format!("{}garbage \u{0}\n\n{}", lines[0], lines[1]);
        let journal = parse(&garbage);
        assert_eq!((journal.runs.len(), journal.notes.len()), (2, 2), "{:?}", journal.notes);
        assert!(journal.notes[0].contains("x.jsonl, line 2"), "{:?}", journal.notes);
        // Cut anywhere, the record before stays; the whole line counts once its end is there.
        for cut in 1..lines[1].len() {
            let journal = parse(&format!("{}{}", lines[0], &lines[1][..cut]));
            assert_eq!(journal.runs.len(), 1);
            assert!(journal.notes[0].contains("cut short"), "{:?}", journal.notes);
        }
        assert!(parse("").notes[0].contains("empty"));
        let foreign = lines[2].replace("\"seed\":3", "\"seed\":4");
        assert!(parse(&foreign).notes[0].contains("its id is not"));
        let uneven = lines[2].replace("[0.7,null]", "[0.7,null],\"val_loss\":[1]");
        assert!(parse(&uneven).notes[0].contains("different numbers of epochs"));
        let many = parse(&"x\n".repeat(100));
        assert_eq!(many.notes.len(), MOST_NOTES + 1);
    }

    #[test]
    fn other_numerics_are_counted_and_never_mixed_in() {
        let line = record(1, 0.5).to_line();
        let older = line.replace("\"numerics\":2", "\"numerics\":0");
        assert_ne!(line, older);
        let foreign = "{\"numerics\":0,\"other\":\"form\"}\n";
        let journal = parse(&format!("{older}{foreign}{line}"));
        assert_eq!((journal.runs.len(), journal.other_numerics[&0]), (1, 2));
        assert!(journal.notes[0].contains("2 records of numerics version 0"));
        // One whose id is that of its version can be read, and stays apart.
        assert!(journal.others.is_empty());
        let mut genuine = record(1, 0.5);
        (genuine.numerics, genuine.id) = (0, RunId::of_version(&genuine.config, 0));
        let journal = parse(&format!("{}{line}", genuine.to_line()));
        assert_eq!((journal.runs.len(), &journal.others[&genuine.id]), (1, &genuine));
    }

    #[test]
    fn of_several_records_every_reader_takes_the_same() {
        let (a, b) = (record(1, 0.5), record(1, 0.6));
        let mut failed = a.clone();
        (failed.status, failed.reason) = (Status::Failed, Some("why".to_owned()));
        failed.epochs.0.clear();
        let lines = [&a, &b, &failed, &a].map(RunRecord::to_line);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 1, 3, 0], [1, 0, 3, 2]] {
            let text: String = order.iter().map(|&i| lines[i].as_str()).collect();
            let journal = parse(&text);
            assert_eq!(journal.runs[&a.id], a);
            assert_eq!(journal.notes.len(), 1, "{:?}", journal.notes);
            assert!(journal.notes[0].contains("records that differ"));
        }
        assert!(parse(&format!("{}{}", lines[0], lines[3])).notes.is_empty());
    }

    #[test]
    fn of_failures_the_latest_counts() {
        let mut failures = ["2026-01-01", "2026-01-02"].map(|day| {
            let mut record = record(1, 0.5);
            (record.status, record.reason) = (Status::Failed, Some(day.to_owned()));
            record.wall.finished = day.to_owned();
            record
        });
        for _ in 0..2 {
            let journal = parse(&failures.iter().map(RunRecord::to_line).collect::<String>());
            let kept = journal.runs.values().next().unwrap();
            assert_eq!(kept.reason.as_deref(), Some("2026-01-02"));
            failures.reverse();
        }
    }

    #[test]
    fn a_writer_makes_its_file_with_the_first_record_and_never_shares_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), "a");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        writer.append(&record(1, 0.5)).unwrap();
        writer.append(&record(2, 0.5)).unwrap();
        Writer::new(dir.path(), "a").append(&record(3, 0.5)).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let journal = Journal::read(dir.path()).unwrap();
        assert_eq!((journal.runs.len(), journal.notes.len()), (3, 0));
        assert!(Journal::read(&dir.path().join("none")).unwrap().runs.is_empty());
    }
}
