//! New keys from a thousand to ten million: what each costs, and the longest single call. Prints a line of JSON a step.
//!
//!     growth MOST_KEYS

use std::time::Instant;

use tollkeeper::Quota;

fn main() {
    let most: usize = std::env::args().nth(1).and_then(|most| most.parse().ok()).unwrap_or(10_000_000);
    let limiter = tollkeeper::keyed(Quota::per_hour(1)).expect("valid").with_max_keys(12_000_000);
    let before = resident_bytes();
    let (mut added, mut step) = (0, 1_000);
    while step <= most {
        let mut nanos: Vec<u32> = Vec::with_capacity(step - added);
        // Touched before, so that pages of this list are not taken inside a measured call.
        nanos.resize(step - added, 1);
        let own = nanos.capacity() * size_of::<u32>();
        let begun = Instant::now();
        for (nth, taken) in nanos.iter_mut().enumerate() {
            let start = Instant::now();
            assert!(limiter.check(&(added + nth)).is_allowed());
            *taken = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
        }
        let each = begun.elapsed().as_nanos() as f64 / nanos.len() as f64;
        nanos.sort_unstable();
        let bytes = resident_bytes().saturating_sub(before + own) as f64 / step as f64;
        let most_of_all = nanos[(nanos.len() as f64 * 0.9999) as usize];
        println!(
            "{}",
            serde_json::json!({
                "keys": step, "ns": each, "p9999_us": f64::from(most_of_all) / 1e3,
                "longest_us": f64::from(nanos[nanos.len() - 1]) / 1e3, "bytes": bytes,
            })
        );
        (added, step) = (step, step * 10);
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("known");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}
