//! Answers of the RESP front, by command and outcome.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::catalog;
use super::family::Family;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// There was nothing to decide.
    Ok,
    Allowed,
    Denied,
    /// The client's mistake, or an unreachable store.
    Error,
    /// Neither allowed nor denied: too many were waiting for a decision.
    Shed,
}

impl CommandOutcome {
    pub(crate) fn by(is_allowed: bool) -> CommandOutcome {
        if is_allowed { CommandOutcome::Allowed } else { CommandOutcome::Denied }
    }
}

const OUTCOMES: [&str; 5] = ["ok", "allowed", "denied", "error", "shed"];

/// One row per command, and one for unknown commands.
#[derive(Debug)]
pub(super) struct Commands {
    names: &'static [&'static str],
    counts: Box<[[AtomicU64; OUTCOMES.len()]]>,
}

impl Commands {
    pub(super) fn new(names: &'static [&'static str]) -> Commands {
        Commands { names, counts: (0..=names.len()).map(|_| Default::default()).collect() }
    }

    pub(super) fn count(&self, command: usize, outcome: CommandOutcome, times: u64) {
        self.counts[command.min(self.names.len())][outcome as usize].fetch_add(times, Relaxed);
    }

    pub(super) fn family(&self) -> Family {
        let mut family = Family::new(&catalog::RESP_REQUESTS);
        let commands = self.names.iter().copied().chain(["unknown"]);
        for (command, counts) in commands.zip(&self.counts) {
            for (outcome, count) in OUTCOMES.iter().zip(counts) {
                let count = count.load(Relaxed);
                if count > 0 {
                    family.add([command, outcome], count);
                }
            }
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_as_listed() {
        use CommandOutcome::{Allowed, Denied, Error, Ok, Shed};
        let names = [Ok, Allowed, Denied, Error, Shed].map(|outcome| OUTCOMES[outcome as usize]);
        assert_eq!(names, ["ok", "allowed", "denied", "error", "shed"]);
    }
}
