//! What a sweep shows while it runs: on a terminal the map as it fills in, else a line per run.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use console::Term;

use super::grid::{Grid, PlannedRun};
use super::journal::Journal;
use super::map::{FIGURE, Map};
use super::record::{RunRecord, Status};
use super::runner::Event;
use crate::output::{note, print_line};

/// How a sweep is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A picture that is drawn again and again.
    Live,
    /// A line per run.
    Lines,
    /// Notes only.
    Quiet,
}

/// A picture is drawn at most this often.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// Shows a sweep.
pub struct View<'a> {
    mode: Mode,
    grid: &'a Grid,
    runs: &'a [&'a PlannedRun],
    map: Map<'a>,
    running: Vec<Option<Running>>,
    ended: usize,
    /// Nominal seconds of this process: of the runs that ended, and of all.
    done: f64,
    total: f64,
    started: Instant,
    drawn: Option<Instant>,
    lines: usize,
    term: Term,
}

#[derive(Clone, Copy)]
struct Running {
    run: usize,
    epochs_done: usize,
    /// When this process began.
    begun_at: usize,
}

impl<'a> View<'a> {
    /// Of a grid, some `runs` of which are to be computed by `jobs` workers.
    pub fn new(
        mode: Mode,
        grid: &'a Grid,
        runs: &'a [&'a PlannedRun],
        journal: &Journal,
        jobs: usize,
    ) -> Self {
        let mut map = Map::new(grid);
        if mode == Mode::Live {
            // What failed before may be among the runs to do.
            let to_do: HashSet<_> = runs.iter().map(|run| run.id).collect();
            for run in grid.runs.iter().filter(|run| !to_do.contains(&run.id)) {
                journal.runs.get(&run.id).into_iter().for_each(|record| map.add(run, record));
            }
        }
        Self {
            mode,
            grid,
            runs,
            map,
            running: vec![None; jobs],
            ended: 0,
            done: 0.0,
            total: runs.iter().map(|run| run.nominal_seconds()).sum(),
            started: Instant::now(),
            drawn: None,
            lines: 0,
            term: Term::buffered_stderr(),
        }
    }

    /// Shows an event.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn event(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Started { worker, run, epochs_done } => {
                // What an earlier process did is no work of this one.
                self.total -= self.nominal_seconds(run, epochs_done);
                self.running[worker] = Some(Running { run, epochs_done, begun_at: epochs_done });
            }
            Event::Epoch { worker, epochs_done } => {
                if let Some(running) = &mut self.running[worker] {
                    running.epochs_done = epochs_done;
                }
            }
            Event::Ended { worker, run, record } => {
                let before = self.running[worker].take().map_or(0, |running| running.begun_at);
                self.ended += 1;
                let epochs = self.runs[run].config.train.epochs - before;
                self.done += self.nominal_seconds(run, epochs);
                match self.mode {
                    Mode::Live => self.map.add(self.runs[run], &record),
                    Mode::Lines => print_line(self.line(self.runs[run], &record))?,
                    Mode::Quiet => {}
                }
            }
            Event::Stopped { worker } => self.running[worker] = None,
            Event::Note(text) => {
                self.clear();
                note(format!("note: {text}\n"));
            }
            Event::Tick => {}
        }
        if self.mode == Mode::Live && self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY) {
            self.draw();
        }
        Ok(())
    }

    /// Leaves the last picture standing.
    pub fn finish(&mut self) {
        if self.mode == Mode::Live {
            self.draw();
            self.lines = 0;
        }
    }

    fn line(&self, run: &PlannedRun, record: &RunRecord) -> String {
        let total = self.runs.len();
        let width = total.to_string().len();
        let label = run.label(&self.grid.spec);
        format!("[{:>width$}/{total}] {label}: {}", self.ended, outcome(record))
    }

    fn draw(&mut self) {
        let (height, width) = self.term.size();
        let mut lines = self.map.lines(usize::from(width), console::colors_enabled_stderr());
        lines.push(self.progress());
        for running in self.running.iter().flatten() {
            let run = self.runs[running.run];
            let label = run.label(&self.grid.spec);
            let epochs = run.config.train.epochs;
            lines.push(format!("  {label}: epoch {}/{epochs}", running.epochs_done));
        }
        // What does not fit would scroll away and be drawn again and again.
        let most = usize::from(height).saturating_sub(1).max(1);
        if lines.len() > most {
            lines.drain(..lines.len() - most);
        }
        self.clear();
        for line in &lines {
            // A line that wraps would be two to take away again.
            let _ = self.term.write_line(&console::truncate_str(line, usize::from(width), ""));
        }
        let _ = self.term.flush();
        self.lines = lines.len();
        self.drawn = Some(Instant::now());
    }

    fn clear(&mut self) {
        if self.lines > 0 {
            let _ = self.term.clear_last_lines(self.lines);
            let _ = self.term.flush();
            self.lines = 0;
        }
    }

    fn progress(&self) -> String {
        let elapsed = self.started.elapsed();
        let text = format!("{} of {} runs in {}", self.ended, self.runs.len(), duration(elapsed));
        match self.time_left(elapsed) {
            Some((left, per_hour)) => {
                format!("{text}, {per_hour:.0} runs/h, about {} left", duration(left))
            }
            None => text,
        }
    }

    /// Nominal seconds of so many epochs of a run.
    fn nominal_seconds(&self, run: usize, epochs: usize) -> f64 {
        let run = self.runs[run];
        run.nominal_seconds() * epochs as f64 / run.config.train.epochs as f64
    }

    /// From the nominal costs and the speed so far.
    fn time_left(&self, elapsed: Duration) -> Option<(Duration, f64)> {
        let running = self.running.iter().flatten();
        let under_way = running.map(|r| self.nominal_seconds(r.run, r.epochs_done - r.begun_at));
        let done = self.done + under_way.sum::<f64>();
        let speed = done / elapsed.as_secs_f64();
        if speed <= 0.0 {
            return None;
        }
        let left = (self.total - done).max(0.0) / speed;
        let per_hour = self.ended as f64 / elapsed.as_secs_f64() * 3600.0;
        Duration::try_from_secs_f64(left).ok().map(|left| (left, per_hour))
    }
}

/// How a run ended, in a few words.
pub fn outcome(record: &RunRecord) -> String {
    if record.status == Status::Failed {
        return format!("failed: {}", record.reason.as_deref().unwrap_or("unknown"));
    }
    let mut text = match (record.best(FIGURE), record.best("train_accuracy")) {
        (Some((validation, epoch)), Some((training, _))) => {
            format!("validation {validation:.4} (epoch {epoch}), training {training:.4}")
        }
        _ => "no epochs".to_owned(),
    };
    if let Some(epoch) = record.diverged_at {
        text += &format!(", diverged by epoch {epoch}");
    }
    text + &format!(", {:.1} s", record.wall.seconds)
}

/// A duration in its two largest units.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A size in the unit that suits it.
pub fn bytes(count: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB")];
    let count = count as f64;
    let (size, unit) = units.into_iter().find(|(size, _)| count >= *size).unwrap_or((1e3, "kB"));
    format!("{:.1} {unit}", count / size)
}
