//! What came back.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// The answers, and how long they took.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Neither: the service was overloaded.
    pub(crate) shed: u64,
    /// How often each problem was met. At most [`Tally::PROBLEMS`] different ones are named.
    pub(crate) problems: BTreeMap<String, u64>,
    /// In microseconds.
    times: Histogram<u64>,
    pub(crate) took: Duration,
}

impl Tally {
    const PROBLEMS: usize = 5;
    const SHORTEST: u64 = 1;
    const LONGEST: u64 = 3_600_000_000;

    pub(crate) fn new() -> Tally {
        Tally {
            allowed: 0,
            denied: 0,
            shed: 0,
            problems: BTreeMap::new(),
            times: Histogram::new_with_bounds(Tally::SHORTEST, Tally::LONGEST, 3).unwrap_or_else(|_| unbounded()),
            took: Duration::ZERO,
        }
    }

    pub(crate) fn answered(&self) -> u64 {
        self.allowed + self.denied + self.shed
    }

    pub(crate) fn took(&mut self, time: Duration) {
        self.times.saturating_record(u64::try_from(time.as_micros()).unwrap_or(Tally::LONGEST).max(Tally::SHORTEST));
    }

    pub(crate) fn fail(&mut self, count: u64, problem: String) {
        let is_known = self.problems.contains_key(&problem) || self.problems.len() < Tally::PROBLEMS;
        let name = if is_known { problem } else { "other problems".into() };
        *self.problems.entry(name).or_default() += count;
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.shed += other.shed;
        for (problem, count) in other.problems {
            self.fail(count, problem);
        }
        // Both have the same bounds.
        let _ = self.times.add(&other.times);
    }

    /// How long this share of the answers took at most.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        Duration::from_micros(self.times.value_at_quantile(share))
    }

    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.times.max())
    }

    pub(crate) fn mean(&self) -> Duration {
        Duration::from_micros(self.times.mean() as u64)
    }
}

/// With bounds that grow: never needed, as the constants above are valid bounds.
fn unbounded() -> Histogram<u64> {
    Histogram::new(3).unwrap_or_else(|_| unreachable!("3 digits are valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_different_problems_take_little_room() {
        let mut tally = Tally::new();
        for number in 0..100 {
            tally.fail(1, format!("problem {number}"));
        }
        assert_eq!((tally.problems.values().sum::<u64>(), tally.problems.len()), (100, Tally::PROBLEMS + 1));
    }

    #[test]
    fn tallies_of_connections_add_up() {
        let (mut one, mut other) = (Tally::new(), Tally::new());
        (1..=50).for_each(|ms| one.took(Duration::from_millis(ms)));
        (51..=100).for_each(|ms| other.took(Duration::from_millis(ms)));
        (one.allowed, other.allowed, other.denied) = (50, 20, 30);
        one.add(other);
        assert_eq!((one.answered(), one.allowed, one.denied), (100, 70, 30));
        let p99 = one.quantile(0.99).as_secs_f64();
        assert!((0.0985..0.0995).contains(&p99), "{p99}");
    }
}
