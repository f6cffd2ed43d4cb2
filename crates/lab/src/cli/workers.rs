//! How many workers there are, and how much memory they may take together.

/// Number of workers: as asked for, as Slurm allots, or one per core.
pub fn number(jobs: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let allotted = || variable("SLURM_CPUS_PER_TASK").and_then(|n| usize::try_from(n).ok());
    jobs.map(usize::from).or_else(allotted).filter(|&n| n > 0).unwrap_or_else(cores)
}

/// 80 % of the memory that is free in the machine, in its control group, and in what Slurm
/// allots.
pub fn free_memory() -> u64 {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    // What a group's files occupy in the cache is free all the same.
    let group = system.cgroup_limits();
    let group = group.map_or(u64::MAX, |limits| limits.total_memory.saturating_sub(limits.rss));
    // Slurm counts in MiB.
    let node = variable("SLURM_MEM_PER_NODE");
    let per_cpu = variable("SLURM_MEM_PER_CPU").map(|m| m.saturating_mul(number(None) as u64));
    let allotted = node.or(per_cpu).filter(|&mib| mib > 0).map_or(u64::MAX, |mib| mib << 20);
    match system.available_memory().min(group).min(allotted) {
        // Unknown.
        0 => u64::MAX,
        bytes => bytes / 5 * 4,
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
