//! What a training run shows while it runs: a bar on a terminal, else a line per epoch.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nap_engine::train::{EpochRecord, Step, Trainer};

use crate::output::print_line;

/// Where a run's progress goes.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    epochs: usize,
}

impl Progress {
    /// For a run that may have been resumed. `lines`: a line per epoch on standard output.
    pub fn new(trainer: &Trainer, bar: bool, lines: bool) -> Self {
        let train = &trainer.config().train;
        let bar = if bar && std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(train.total_steps()), ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        let template = "{msg}\n{wide_bar} {pos}/{len} steps, {per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let done = trainer.epochs_done() * train.steps_per_epoch + trainer.steps_done();
        bar.set_position(done as u64);
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, lines, epochs: train.epochs }
    }

    /// A step is done.
    pub fn step(&self, epoch: usize, step: Step) {
        self.bar.inc(1);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!(
                "epoch {}/{}  loss {:.4}  accuracy {:.3}",
                epoch + 1,
                self.epochs,
                step.loss,
                step.accuracy
            ));
        }
    }

    /// An epoch is done and stored.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn epoch(&self, record: &EpochRecord, steps_per_s: f64) -> anyhow::Result<()> {
        if !self.lines {
            return Ok(());
        }
        let f1 = record.validation.macro_f1;
        let f1 = f1.map_or(String::new(), |f1| format!(" macro-F1 {f1:.4}"));
        let line = format!(
            "epoch {:>3}/{}  train loss {:.4} accuracy {:.4}  validation loss {:.4} accuracy \
             {:.4}{f1}  {steps_per_s:.1} steps/s{}",
            record.epoch,
            self.epochs,
            record.train_loss,
            record.train_accuracy,
            record.validation.loss,
            record.validation.accuracy,
            if record.diverged { "  diverged" } else { "" }
        );
        self.bar.suspend(|| print_line(line))
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
