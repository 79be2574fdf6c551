//! What the benchmarks share: timing contestants in turns, so that a noisy machine is noisy for all of them.

use std::time::{Duration, Instant};

/// One contestant and what its rounds took, in nanoseconds an operation.
pub struct Contestant<'c> {
    /// How it appears in the report.
    pub name: String,
    round: Box<dyn FnMut() -> usize + 'c>,
    times: Samples,
}

impl<'c> Contestant<'c> {
    /// A contestant whose rounds do some operations and say how many.
    pub fn new(name: impl Into<String>, round: impl FnMut() -> usize + 'c) -> Contestant<'c> {
        Contestant { name: name.into(), round: Box::new(round), times: Samples::default() }
    }

    /// The middle of all rounds.
    pub fn median(&self) -> f64 {
        self.times.median()
    }

    /// The fastest and the slowest round.
    pub fn spread(&self) -> (f64, f64) {
        self.times.spread()
    }
}

/// Lets the contestants take turns, after a round that does not count.
pub fn race(rounds: usize, contestants: &mut [Contestant<'_>]) {
    for counts in std::iter::once(false).chain(std::iter::repeat_n(true, rounds)) {
        for contestant in &mut *contestants {
            let start = Instant::now();
            let operations = (contestant.round)();
            if counts {
                contestant.times.push(nanos_each(start.elapsed(), operations));
            }
        }
    }
}

fn nanos_each(elapsed: Duration, operations: usize) -> f64 {
    elapsed.as_nanos() as f64 / operations as f64
}

/// What was measured, round by round.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one, in its place.
    pub fn push(&mut self, sample: f64) {
        self.0.insert(self.0.partition_point(|other| *other <= sample), sample);
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The least one that is not below this share of all.
    pub fn quantile(&self, share: f64) -> f64 {
        self.0[((self.0.len() as f64 * share) as usize).min(self.0.len() - 1)]
    }

    /// The least and the greatest.
    pub fn spread(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Samples {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Samples(sorted)
    }
}

/// A small generator of pseudo-random numbers: the same ones in every run.
pub struct Numbers(u64);

impl Numbers {
    /// Different seeds, different numbers.
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The numbers below `count` in an order of their own.
    pub fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            all.swap(at, (self.draw() % (at as u64 + 1)) as usize);
        }
        all
    }
}
