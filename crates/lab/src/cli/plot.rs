//! `nap plot`: pictures of results for print.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::bad;
use crate::files::write_atomically;
use crate::output::print_line;
use crate::plot::{Split, What, pictures, raster};

/// Write pictures of results as SVG and PNG files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nap plot sweeps/mode-dim -o pictures                  every picture, SVG and PNG
  nap plot sweeps/mode-dim --what maps --animate        also pictures' GIF over the epochs
  nap plot --published-only --what robustness,cases --split training")]
pub struct Args {
    /// Directories of sweeps or of finished runs, or files of journal lines
    #[arg(required_unless_present = "published_only")]
    results: Vec<PathBuf>,
    /// Where to write
    #[arg(short, long, default_value = "pictures")]
    out: PathBuf,
    /// Which pictures; all unless given
    #[arg(long, value_delimiter = ',')]
    what: Vec<What>,
    /// Which accuracies
    #[arg(long, default_value = "validation")]
    split: Split,
    /// Maps also as GIF animations over the epochs
    #[arg(long)]
    animate: bool,
    /// Pixels of PNG and GIF files per unit of SVG files
    #[arg(long, default_value = "2")]
    scale: f64,
    /// Show the published results alone
    #[arg(long, conflicts_with = "results")]
    published_only: bool,
}

/// Runs the command.
///
/// # Errors
/// If there are no results or nothing to draw, or files cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !(0.1..=10.0).contains(&args.scale) {
        return Err(bad(format!("--scale {}: expected a number from 0.1 to 10", args.scale)));
    }
    let all = [What::Maps, What::Cases, What::Curves, What::Robustness, What::Difference];
    let what = if args.what.is_empty() { &all[..] } else { &args.what };
    let (panels, _) = super::report::panels(&args.results, args.published_only)?;
    let drawn: Vec<_> = panels
        .iter()
        .flat_map(|panel| what.iter().map(move |&what| (panel, what)))
        .flat_map(|(panel, what)| pictures(panel, what, args.split, args.animate))
        .collect();
    if drawn.is_empty() {
        return Err(bad("there is nothing to draw: cases need a task with cases, differences a \
                        published grid, robustness two cells"));
    }
    let place = args.out.display();
    let unwritable = |error| bad(format!("cannot write to {place}: {error}: expected a directory"));
    std::fs::create_dir_all(&args.out).map_err(unwritable)?;
    for picture in &drawn {
        let write = |ending: &str, bytes: &[u8]| {
            let path = args.out.join(format!("{}.{ending}", picture.name));
            write_atomically(&path, bytes).map_err(unwritable)
        };
        write("svg", picture.svg.as_bytes())?;
        write("png", &raster::png(&picture.svg, args.scale)?)?;
        if !picture.frames.is_empty() {
            write("gif", &raster::gif(&picture.frames, args.scale)?)?;
        }
        print_line(args.out.join(&picture.name).display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
