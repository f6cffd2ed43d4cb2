//! How fast this machine takes training steps, beside what its core could do.

use std::time::{Duration, Instant};

use nap_engine::arch::peak_sample;
use nap_engine::config::{ConfigError, RunConfig};
use nap_engine::profile::{Part, measure as measure_parts};
use nap_engine::train::{Cost, Trainer};

/// What a measurement found. Steps, validation and the peak are sampled in turns, because other
/// work on the machine comes and goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Number of parameters.
    pub parameters: usize,
    /// The instruction set.
    pub isa: &'static str,
    /// From `started` to the end of the first step, in seconds.
    pub first_step_s: f64,
    /// Steps per second of each sample, ascending; empty if the run diverged at once.
    pub steps_per_s: Vec<f64>,
    /// Operations of a step, as [`Cost`] counts them.
    pub flops_per_step: f64,
    /// The best sample of the peak of f32 multiply-adds, in operations per second.
    pub peak_flops_per_s: f64,
    /// Sequences validated per second, of each sample, ascending.
    pub validated_per_s: Vec<f64>,
    /// Peak memory of the process in MB, where the system tells.
    pub peak_rss_mb: Option<f64>,
    /// Seconds per step of each part of the step.
    pub profile: Vec<(String, f64)>,
    /// Whether the parameters became NaN, which ended the measurement.
    pub diverged: bool,
}

/// A sample of steps lasts at least this long.
const SAMPLE: Duration = Duration::from_millis(20);
/// So many samples of the peak are taken at a time that one of them fits into a time slice.
const PEAK_SAMPLE: Duration = Duration::from_millis(2);
/// The profile is that of steps of this time.
const PROFILE: Duration = Duration::from_millis(500);
/// At least so many samples, however long they take.
const LEAST_SAMPLES: usize = 3;
/// Time spent on validation and on the peak, per time spent on steps.
const VALIDATION_SHARE: f64 = 0.2;
const PEAK_SHARE: f64 = 0.1;

/// Trains as configured, on this many threads, for about as long as `budget`; epochs are not
/// closed.
///
/// # Errors
/// If the configuration cannot be used.
pub fn measure(
    config: RunConfig,
    threads: usize,
    budget: Duration,
    started: Instant,
) -> Result<Figures, ConfigError> {
    let cost = Cost::of(&config)?;
    let steps = config.train.total_steps() as f64;
    let batch = config.train.batch as f64;
    let mut trainer = Trainer::new(config)?.with_threads(threads);
    trainer.step();
    let first_step_s = started.elapsed().as_secs_f64();

    let began = Instant::now();
    let (mut stepped, mut validated, mut peaked) = (0.0, 0.0, 0.0);
    let (mut steps_per_s, mut validated_per_s) = (Vec::new(), Vec::new());
    let mut peak = 0.0f64;
    while began.elapsed() < budget || steps_per_s.len() < LEAST_SAMPLES {
        let (count, seconds) = sample(SAMPLE, || {
            trainer.step();
        });
        // From then on steps are not computed.
        if trainer.diverged() {
            break;
        }
        steps_per_s.push(count / seconds);
        stepped += seconds;
        if validated < VALIDATION_SHARE * stepped {
            let (count, seconds) = sample(Duration::ZERO, || {
                trainer.validate(1);
            });
            validated_per_s.push(count * batch / seconds);
            validated += seconds;
        }
        if peaked < PEAK_SHARE * stepped {
            let (_, seconds) = sample(PEAK_SAMPLE, || peak = peak.max(peak_sample()));
            peaked += seconds;
        }
    }
    let profile = profile(&mut trainer);
    steps_per_s.sort_by(f64::total_cmp);
    validated_per_s.sort_by(f64::total_cmp);
    Ok(Figures {
        parameters: cost.parameters,
        isa: trainer.isa(),
        first_step_s,
        steps_per_s,
        flops_per_step: cost.training_flops / steps,
        peak_flops_per_s: peak,
        validated_per_s,
        peak_rss_mb: peak_rss_mb(),
        profile,
        diverged: trainer.diverged(),
    })
}

/// Seconds per step of each part of the step, the largest first; the rest is *other*. On one
/// thread of several.
fn profile(trainer: &mut Trainer) -> Vec<(String, f64)> {
    if trainer.diverged() {
        return Vec::new();
    }
    let ((count, _), profile) = measure_parts(|| {
        sample(PROFILE, || {
            trainer.step();
        })
    });
    let part = |(part, spent): &(Part, Duration)| (part.name().to_owned(), spent.as_secs_f64());
    let mut parts: Vec<_> = profile.parts.iter().map(part).collect();
    let known: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    parts.push(("other".to_owned(), (profile.total.as_secs_f64() - known).max(0.0)));
    parts.iter_mut().for_each(|(_, seconds)| *seconds /= count);
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts
}

/// How often `work` was done, and the seconds it took: at least once and `least` long.
fn sample(least: Duration, mut work: impl FnMut()) -> (f64, f64) {
    let began = Instant::now();
    let mut count = 0.0;
    loop {
        work();
        count += 1.0;
        let took = began.elapsed();
        if took >= least {
            return (count, took.as_secs_f64());
        }
    }
}

/// Peak memory of this process in MB, on Linux.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib * 1.024e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_what_it_did() {
        let mut done = 0;
        let (count, seconds) = sample(Duration::from_millis(5), || {
            done += 1;
            std::thread::sleep(Duration::from_millis(1));
        });
        assert_eq!(count, f64::from(done));
        assert!(seconds >= 0.005 && count <= 5.0);
        assert_eq!(sample(Duration::ZERO, || {}).0, 1.0);
    }
}
