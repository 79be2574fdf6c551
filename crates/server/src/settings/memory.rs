//! Whether the memory store fits into the memory of this machine.

use std::fs;

/// What a key takes: an entry of 24 bytes in a table that is at most 70 % full.
const BYTES_PER_KEY: u64 = 35;

/// Why a store of this many keys cannot be created. Without this check the process would be aborted, without a message,
/// when it allocates its table, or be killed later when the table fills.
pub(super) fn check_keys(max_keys: usize) -> Result<(), String> {
    let needed = (max_keys as u64).saturating_mul(BYTES_PER_KEY);
    match available() {
        Some(available) if needed > available => {
            let most = available / 2 / BYTES_PER_KEY;
            Err(format!(
                "{max_keys} keys take {}, and this machine or container has {}; use {most} or fewer",
                shown(needed),
                shown(available)
            ))
        }
        // No machine has a pebibyte.
        None if needed > 1 << 50 => Err(format!("{max_keys} keys take {}; use fewer", shown(needed))),
        _ => Ok(()),
    }
}

/// The memory that this process may use in all: the container's limit, or the machine's memory.
fn available() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?.to_string();
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    });
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let container = group.iter().find_map(|path| read(path)?.trim().parse::<u64>().ok());
    machine.into_iter().chain(container).min()
}

fn shown(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib >= 1.0 { format!("{gib:.1} GiB") } else { format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `max_keys: 1000000000000` aborted the process: "memory allocation of 34285714285728 bytes failed".
    #[test]
    fn more_keys_than_fit_are_refused_with_a_number_that_fits() {
        assert_eq!(check_keys(1_000_000), Ok(()));
        for too_many in [1_000_000_000_000, usize::MAX] {
            let problem = check_keys(too_many).expect_err("too many");
            assert!(problem.contains("keys take") && problem.contains("use "), "{problem}");
        }
    }
}
