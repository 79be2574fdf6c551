//! Waiting for other processes.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}");
        sleep(Duration::from_millis(20));
    }
}
