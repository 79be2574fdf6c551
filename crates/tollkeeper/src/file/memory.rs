//! Checks whether the memory store fits into the machine's memory. Otherwise the process would be killed later, at
//! the worst moment.

use super::settings::StoreSettings;
use crate::store::MemoryStore;

/// Room for a few logs.
const LEAST_LOG_BYTES: usize = 1_024;

/// What is wrong with the size of the memory store, by field.
pub(super) fn problems(store: &StoreSettings, available: Option<u64>) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    if store.max_keys == 0 {
        problems.push(("store.max_keys", "must be at least 1".into()));
    }
    if store.max_log_bytes < LEAST_LOG_BYTES {
        let problem = format!("{} bytes are too few; use at least {LEAST_LOG_BYTES}", store.max_log_bytes);
        problems.push(("store.max_log_bytes", problem));
    }
    let Some(available) = available else { return problems };
    let sizes = [
        ("store.max_keys", format!("{} keys", store.max_keys), MemoryStore::bytes_of_keys(store.max_keys)),
        ("store.max_log_bytes", format!("{} bytes", store.max_log_bytes), store.max_log_bytes),
    ];
    for (field, what, bytes) in sizes {
        if bytes as u64 > available {
            let [bytes, available] = [bytes as u64, available].map(|bytes| bytes >> 20);
            problems.push((field, format!("{what} need {bytes} MiB, and this machine has {available} MiB; use fewer")));
        }
    }
    problems
}

/// The memory of this machine, or of the container; `None` if the system does not report it.
pub(super) fn available() -> Option<u64> {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let container = number("/sys/fs/cgroup/memory.max");
    let machine = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1_024))
    };
    container.into_iter().chain(machine()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `max_keys: 1000000000000` aborted the process at the start ("memory allocation failed").
    #[test]
    fn more_keys_than_memory_are_reported_by_their_field() {
        let store = |max_keys, max_log_bytes| StoreSettings { max_keys, max_log_bytes, ..StoreSettings::default() };
        let shown = |store: &StoreSettings| {
            let problems = problems(store, Some(1 << 30)).into_iter();
            problems.map(|(field, problem)| format!("{field}: {problem}")).collect::<Vec<_>>()
        };
        assert_eq!(shown(&store(1_000_000, 64 << 20)), Vec::<String>::new());
        assert_eq!(
            shown(&store(1_000_000_000, 2 << 30)),
            [
                "store.max_keys: 1000000000 keys need 34332 MiB, and this machine has 1024 MiB; use fewer",
                "store.max_log_bytes: 2147483648 bytes need 2048 MiB, and this machine has 1024 MiB; use fewer",
            ]
        );
        assert_eq!(shown(&store(0, 0)).len(), 2);
        assert_eq!(shown(&store(usize::MAX, 64 << 20)).len(), 1);
    }
}
