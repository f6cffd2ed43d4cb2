//! A sweep's directory, which many processes may share.
//!
//! | file | what |
//! |---|---|
//! | `sweep-NAME-DIGEST.toml` | a sweep that was asked for; the directory's grid is all of them |
//! | `journal/*.jsonl` | the records of runs that ended, a file per worker |
//! | `checkpoints/ID.safetensors` | a run that is under way |
//! | `models/ID.best.safetensors`, `models/ID.last.safetensors` | with `--keep-checkpoints` |

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::grid::Grid;
use super::identity::RunId;
use super::journal::Journal;
use super::record::{RunRecord, Status};
use super::spec::SweepSpec;
use crate::error::{bad, unwritable};
use crate::files::{TEMPORARY, remove_beginning_with, write_atomically};

/// A sweep's directory.
#[derive(Debug, Clone)]
pub struct SweepDir {
    path: PathBuf,
}

impl SweepDir {
    /// The directory at a path, whatever is there.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// An existing directory with a sweep in it.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let dir = Self::at(path);
        if dir.spec_files()?.is_empty() {
            let place = path.display();
            return Err(bad(format!(
                "{place} holds no sweep: expected a directory of `nap sweep`"
            )));
        }
        Ok(dir)
    }

    /// Makes the directory, if need be, and stores the sweep there.
    ///
    /// # Errors
    /// If it cannot be written, or holds something else.
    pub fn create(path: &Path, spec: &SweepSpec) -> anyhow::Result<Self> {
        let dir = Self::at(path);
        let place = path.display();
        if dir.spec_files()?.is_empty() {
            let others = match fs::read_dir(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(error) => return Err(bad(format!("output directory {place}: {error}"))),
                Ok(entries) => entries.filter_map(Result::ok).filter(|e| !ours(e)).count(),
            };
            if others > 0 {
                return Err(bad(format!(
                    "output directory {place} holds {others} files and no sweep: expected an \
                     empty or new one"
                )));
            }
        }
        let unwritable = |error: std::io::Error, part: &Path| {
            let part = part.strip_prefix(path).unwrap_or(part).display();
            bad(format!("cannot write to output directory {place}, {part}: {error}"))
        };
        for folder in [dir.journal_path(), dir.checkpoints_path()] {
            fs::create_dir_all(&folder).map_err(|error| unwritable(error, &folder))?;
        }
        let (file, text) = (dir.spec_path(spec), spec.to_toml());
        if fs::read_to_string(&file).ok().as_ref() != Some(&text) {
            write_atomically(&file, text.as_bytes()).map_err(|error| unwritable(error, &file))?;
        }
        // A directory that only lets itself be read would waste the first run.
        let probe = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(dir.journal_path());
        probe.map_err(|error| unwritable(error, &dir.journal_path()))?;
        Ok(dir)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the records are.
    pub fn journal_path(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Where runs under way are.
    pub fn checkpoints_path(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Where checkpoints are that were asked to be kept.
    pub fn models_path(&self) -> PathBuf {
        self.path.join("models")
    }

    /// The `best` or `last` of a run among them.
    pub fn model_path(&self, id: RunId, kind: &str) -> PathBuf {
        self.models_path().join(format!("{id}.{kind}.safetensors"))
    }

    /// The resumable state of a run under way.
    pub fn checkpoint_path(&self, id: RunId) -> PathBuf {
        self.checkpoints_path().join(format!("{id}.safetensors"))
    }

    /// Where a sweep is stored.
    pub fn spec_path(&self, spec: &SweepSpec) -> PathBuf {
        self.path.join(format!("sweep-{}.toml", spec.file_stem()))
    }

    /// Reads the journal.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn journal(&self) -> anyhow::Result<Journal> {
        Journal::read(&self.journal_path())
    }

    /// Takes over the records of runs that finished elsewhere; returns how many. They go into a
    /// journal file of their own, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn take_over(&self, records: &[&RunRecord]) -> anyhow::Result<usize> {
        if records.is_empty() {
            return Ok(0);
        }
        let lines: String = records.iter().map(|record| record.to_line()).collect();
        let digest: String =
            Sha256::digest(&lines)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.journal_path().join(format!("taken-over-{digest}.jsonl"));
        write_atomically(&path, lines.as_bytes()).map_err(|error| unwritable(&path, &error))?;
        Ok(records.len())
    }

    /// The sweeps stored here.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn specs(&self) -> anyhow::Result<Vec<SweepSpec>> {
        let read = |path: PathBuf| {
            let place = path.display();
            let text = fs::read_to_string(&path)
                .map_err(|error| bad(format!("cannot read {place}: {error}")))?;
            SweepSpec::parse(&text, "sweep", &place.to_string()).map_err(|error| {
                bad(format!("{error}; remove that file, and name the sweep to nap sweep again"))
            })
        };
        self.spec_files()?.into_iter().map(read).collect()
    }

    /// The grids of the sweeps stored here; one that is part of another is left out.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn grids(&self) -> anyhow::Result<Vec<Grid>> {
        let mut grids = self.specs()?.iter().map(Grid::new).collect::<anyhow::Result<Vec<_>>>()?;
        grids.sort_by_key(|grid| std::cmp::Reverse(grid.runs.len()));
        let mut kept: Vec<(Grid, HashSet<RunId>)> = Vec::new();
        for grid in grids {
            let ids: HashSet<_> = grid.runs.iter().map(|run| run.id).collect();
            if !kept.iter().any(|(_, larger)| ids.is_subset(larger)) {
                kept.push((grid, ids));
            }
        }
        Ok(kept.into_iter().map(|(grid, _)| grid).collect())
    }

    /// The runs with a checkpoint: those under way, and those that were interrupted.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn checkpoints(&self) -> anyhow::Result<Vec<RunId>> {
        let mut ids = Vec::new();
        let place = self.checkpoints_path();
        let entries = match fs::read_dir(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ids),
            entries => entries.with_context(|| format!("cannot read {}", place.display()))?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".safetensors"));
            ids.extend(id.and_then(|id| id.parse::<RunId>().ok()));
        }
        ids.sort();
        Ok(ids)
    }

    /// Removes the checkpoint of a run that ended, and what killed writes of it left behind.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove_checkpoint(&self, id: RunId) -> std::io::Result<()> {
        let folder = self.checkpoints_path();
        remove_beginning_with(&folder, &id.to_string())?;
        remove_beginning_with(&folder, &format!("{TEMPORARY}{id}"))
    }

    /// Removes the checkpoints of runs that finished: a process was killed between a record and
    /// its checkpoint's removal. One of a run that failed belongs to a retry under way.
    ///
    /// # Errors
    /// What the system says.
    pub fn tidy(&self, journal: &Journal) -> std::io::Result<()> {
        for entry in fs::read_dir(self.checkpoints_path())? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let id = name.strip_prefix(TEMPORARY).unwrap_or(name).get(..16);
            let id = id.and_then(|id| id.parse::<RunId>().ok());
            let finished = |id: &RunId| {
                journal.runs.get(id).is_some_and(|record| record.status == Status::Finished)
            };
            if let Some(id) = id.filter(finished) {
                self.remove_checkpoint(id)?;
            }
        }
        Ok(())
    }

    fn spec_files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let place = self.path.display();
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(bad(format!("directory {place}: {error}"))),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("sweep-") && name.ends_with(".toml") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

/// What another process that is just starting here may have made, or a killed one left.
fn ours(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_str().unwrap_or_default();
    name.starts_with(TEMPORARY) || ["journal", "checkpoints", "models", "slurm"].contains(&name)
}
