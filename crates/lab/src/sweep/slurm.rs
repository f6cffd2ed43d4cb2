//! Slurm: a job array whose tasks each take a share of a sweep.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::error::bad;
use crate::escape;

/// What a job array is to be.
#[derive(Debug, Clone)]
pub struct Job {
    /// The sweep's name.
    pub name: String,
    /// The stored sweep file.
    pub sweep: PathBuf,
    /// The directory of the results, on a file system that every node sees.
    pub out: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// Number of array tasks.
    pub tasks: usize,
    /// Time limit of a task, in Slurm's notation.
    pub time: String,
    /// Cores of a task.
    pub cpus: u16,
    /// Further options of `sbatch`.
    pub options: Vec<String>,
}

/// A task stores the runs under way this long before its time is over, in seconds.
const MARGIN: u64 = 120;

impl Job {
    /// The script. `exec` lets the program take the shell's place, so that Slurm's signals reach
    /// it.
    pub fn script(&self) -> anyhow::Result<String> {
        let Self { name, tasks, time, cpus, .. } = self;
        // A short limit must not be all margin.
        let margin = MARGIN.min(seconds(time)? / 4);
        let logs = self.out.join("slurm").join("%A_%a.log");
        let mut text = format!(
            "#!/bin/bash\n\
             # Sweep {name} in {tasks} shares, written by nap {}. Submit it again to continue:\n\
             # what is finished is not computed again.\n\
             #SBATCH --job-name=nap-{name}\n\
             #SBATCH --array=1-{tasks}\n\
             #SBATCH --time={time}\n\
             #SBATCH --cpus-per-task={cpus}\n\
             #SBATCH --output={}\n\
             #SBATCH --signal=B:TERM@{margin}\n",
            env!("CARGO_PKG_VERSION"),
            directive(&logs)?,
        );
        for option in &self.options {
            if !option.starts_with('-') || option.contains('\n') {
                let expected = "expected an option of sbatch, such as --partition=long";
                return Err(bad(format!("--sbatch-arg {option}: {expected}")));
            }
            text += &format!("#SBATCH {option}\n");
        }
        text += &format!(
            "# The share is read from SLURM_ARRAY_TASK_ID. A signal makes nap store the runs under\n\
             # way and end; exec, so that it reaches nap.\n\
             exec {} sweep {} --out {}\n",
            quoted(&self.program)?,
            quoted(&self.sweep)?,
            quoted(&self.out)?
        );
        Ok(text)
    }
}

/// Submits a script and gives the job's id.
///
/// # Errors
/// If there is no Slurm, or it refuses.
pub fn submit(script: &Path) -> anyhow::Result<String> {
    let output = Command::new("sbatch").arg("--parsable").arg(script).output();
    let output = output.map_err(|error| {
        bad(format!(
            "cannot run sbatch: {error}: expected a machine that submits to Slurm (--dry-run only \
             writes {})",
            script.display()
        ))
    })?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(bad(format!("sbatch refused {}: {}", script.display(), reason.trim())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // JOB or JOB;CLUSTER.
    let id = text.trim().split(';').next().unwrap_or_default();
    Some(id.to_owned()).filter(|id| !id.is_empty()).context("sbatch named no job")
}

/// The largest number of array tasks numbered from 1 that this cluster takes, if it says so.
pub fn most_tasks() -> Option<usize> {
    let mut command = Command::new("scontrol");
    let output = command.args(["show", "config"]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.trim_start().starts_with("MaxArraySize"))?;
    // One more than the largest index.
    line.split('=').nth(1)?.trim().parse::<usize>().ok()?.checked_sub(1)
}

/// A task in the queue: id, state, time used, node or reason.
pub type Task = [String; 4];

/// The tasks of these jobs that are queued or running.
///
/// # Errors
/// If there is no Slurm.
pub fn queue(jobs: &[String]) -> anyhow::Result<Vec<Task>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let list = format!("--jobs={}", jobs.join(","));
    let output = Command::new("squeue")
        .args(["--noheader", "--array", "--format=%i|%T|%M|%R", &list])
        .output()
        .map_err(|error| bad(format!("cannot run squeue: {error}")))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    // Of jobs that ended long ago; it lists the others.
    if !output.status.success() && !complaint.contains("Invalid job id") {
        return Err(bad(format!("squeue: {}", complaint.trim())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let task = |line: &str| {
        let mut fields = line.splitn(4, '|').map(|field| field.trim().to_owned());
        Some([fields.next()?, fields.next()?, fields.next()?, fields.next()?])
    };
    Ok(text.lines().filter_map(task).collect())
}

/// A time limit as Slurm writes it, in seconds: minutes, minutes:seconds,
/// hours:minutes:seconds, days-hours, days-hours:minutes or days-hours:minutes:seconds.
///
/// # Errors
/// If it is none.
pub fn seconds(text: &str) -> anyhow::Result<u64> {
    let number = |part: &str| {
        let digits = (1..=6).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        if digits { part.parse::<u64>().ok() } else { None }
    };
    let parse = || {
        let (days, clock) = match text.split_once('-') {
            Some((days, clock)) => (Some(number(days)?), clock),
            None => (None, text),
        };
        let parts = clock.split(':').map(number).collect::<Option<Vec<_>>>()?;
        let [hours, minutes, seconds] = match (days.is_some(), parts.as_slice()) {
            (true, [h]) => [*h, 0, 0],
            (true, [h, m]) => [*h, *m, 0],
            (false, [m]) => [0, *m, 0],
            (false, [m, s]) => [0, *m, *s],
            (_, [h, m, s]) => [*h, *m, *s],
            _ => return None,
        };
        let total = ((days.unwrap_or(0) * 24 + hours) * 60 + minutes) * 60 + seconds;
        Some(total).filter(|&total| total > 0)
    };
    parse().ok_or_else(|| {
        bad(format!("--time {text}: expected Slurm's notation, such as 04:00:00 or 1-12:00"))
    })
}

/// For the shell.
fn quoted(path: &Path) -> anyhow::Result<String> {
    Ok(escape::quoted(utf8(path)?))
}

/// For a line of `#SBATCH`, which has no quoting to rely on.
fn directive(path: &Path) -> anyhow::Result<&str> {
    let text = utf8(path)?;
    if text.contains(char::is_whitespace) || text.contains(['"', '\'', '\\']) {
        return Err(bad(format!(
            "{text}: Slurm takes no path with spaces or quotes: expected another --out"
        )));
    }
    Ok(text)
}

fn utf8(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .filter(|text| !text.contains('\n'))
        .ok_or_else(|| bad(format!("{}: expected a path in UTF-8, in one line", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits() {
        for (text, expected) in [
            ("04:00:00", 14_400),
            ("90", 5400),
            ("2:30", 150),
            ("1-12", 129_600),
            ("1-12:30", 131_400),
            ("1-00:00:01", 86_401),
        ] {
            assert_eq!(seconds(text).unwrap(), expected, "{text}");
        }
        for wrong in ["", "4h", "-1", "1:2:3:4", "0", "1-", "::", "1-2-3", "99999999"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    fn job() -> Job {
        Job {
            name: "mode-dim".to_owned(),
            sweep: "/results/sweep-mode-dim-00000000.toml".into(),
            out: "/results".into(),
            program: "/opt/it's/nap".into(),
            tasks: 64,
            time: "04:00:00".to_owned(),
            cpus: 2,
            options: vec!["--partition=long".to_owned()],
        }
    }

    #[test]
    fn the_script_says_what_it_does() {
        let script = job().script().unwrap();
        for line in [
            "#SBATCH --array=1-64",
            "#SBATCH --time=04:00:00",
            "#SBATCH --cpus-per-task=2",
            "#SBATCH --output=/results/slurm/%A_%a.log",
            "#SBATCH --signal=B:TERM@120",
            "#SBATCH --partition=long",
            r"exec '/opt/it'\''s/nap' sweep /results/sweep-mode-dim-00000000.toml --out /results",
        ] {
            assert!(script.lines().any(|known| known == line), "{line}\n{script}");
        }
        assert!(script.starts_with("#!/bin/bash\n"));
        let short = Job { time: "2".to_owned(), ..job() };
        assert!(short.script().unwrap().contains("TERM@30"));
    }

    #[test]
    fn what_a_script_cannot_hold_is_refused() {
        let spaces = Job { out: "/my results".into(), ..job() };
        assert!(spaces.script().unwrap_err().to_string().contains("spaces"));
        let option = Job { options: vec!["long".to_owned()], ..job() };
        assert!(option.script().unwrap_err().to_string().contains("--partition=long"));
        let time = Job { time: "4h".to_owned(), ..job() };
        assert!(time.script().unwrap_err().to_string().contains("04:00:00"));
    }
}
