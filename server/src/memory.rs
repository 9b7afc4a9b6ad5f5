//! How much memory the process may use when nobody says.

use std::fs;

/// Share of the machine or cgroup.
const SHARE_PERCENT: usize = 70;
/// Assumed where neither can be read.
const FALLBACK_BYTES: usize = 4 << 30;

/// 70 % of the cgroup's limit or of the machine's memory, whichever is less.
pub fn default_limit() -> usize {
    let limits = [cgroup_limit(), machine_memory()];
    limits.into_iter().flatten().min().unwrap_or(FALLBACK_BYTES) / 100 * SHARE_PERCENT
}

fn cgroup_limit() -> Option<usize> {
    // "max" without a limit, which is no number.
    fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

fn machine_memory() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}
