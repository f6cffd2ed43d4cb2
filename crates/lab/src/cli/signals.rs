//! Signals that ask the program to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that SIGINT and SIGTERM set; a second signal ends the program at once.
///
/// # Errors
/// If the system does not let them be handled.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    // A write beyond the file size limit then fails in place of ending the program.
    #[cfg(unix)]
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(stop)
}

/// "File size limit exceeded" on Linux and the BSDs.
#[cfg(unix)]
const SIGXFSZ: i32 = 25;
