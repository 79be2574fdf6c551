//! Which key each request has.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollkeeper_tune::Chance;

/// How often each key is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Distribution {
    /// Each key equally often
    Uniform,
    /// The second key half as often as the first, the third a third as often, as with popular items
    Zipf,
    /// A key that no other request has
    New,
}

/// Draws keys by their number.
#[derive(Debug)]
pub(crate) struct Keys {
    count: u64,
    distribution: Distribution,
    /// For Zipf: the share of all keys up to each one.
    cumulated: Vec<f64>,
    next: AtomicU64,
}

impl Keys {
    /// The most keys.
    pub(crate) const MOST: u64 = 10_000_000;

    pub(crate) fn new(count: u64, distribution: Distribution) -> Keys {
        let cumulated = match distribution {
            Distribution::Zipf => {
                let mut sum = 0.0;
                let mut sums: Vec<f64> = (1..=count)
                    .map(|rank| {
                        sum += 1.0 / rank as f64;
                        sum
                    })
                    .collect();
                sums.iter_mut().for_each(|each| *each /= sum);
                sums
            }
            Distribution::Uniform | Distribution::New => Vec::new(),
        };
        Keys { count, distribution, cumulated, next: AtomicU64::new(0) }
    }

    /// How many keys have a count of their own.
    pub(crate) fn tallied(&self) -> u64 {
        if self.distribution == Distribution::New { 0 } else { self.count }
    }

    pub(crate) fn draw(&self, chance: &mut Chance) -> u64 {
        match self.distribution {
            Distribution::Uniform => chance.below(self.count),
            Distribution::Zipf => {
                let drawn = chance.share();
                self.cumulated.partition_point(|share| *share < drawn) as u64 % self.count
            }
            Distribution::New => self.next.fetch_add(1, Relaxed),
        }
    }
}

/// The random numbers of one of several streams of a seed.
pub(crate) fn stream(seed: u64, stream: u64) -> Chance {
    let start = Chance::new(seed).next() ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
    Chance::new(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution) -> Vec<u32> {
        let (keys, mut chance) = (Keys::new(10, distribution), stream(7, 0));
        let mut counts = vec![0; 10];
        for _ in 0..100_000 {
            counts[keys.draw(&mut chance) as usize] += 1;
        }
        counts
    }

    #[test]
    fn keys_are_drawn_as_often_as_their_distribution_says() {
        for count in counts(Distribution::Uniform) {
            assert!((9_500..10_500).contains(&count), "{count}");
        }
        let zipf = counts(Distribution::Zipf);
        // 1 + 1/2 + ... + 1/10 = 2.929
        for (rank, count) in zipf.iter().enumerate() {
            let expected = 100_000.0 / 2.929 / (rank + 1) as f64;
            assert!((f64::from(*count) - expected).abs() < expected * 0.1, "{zipf:?}");
        }
    }

    #[test]
    fn new_keys_never_repeat() {
        let (keys, mut chance) = (Keys::new(10, Distribution::New), stream(7, 0));
        assert_eq!((0..20).map(|_| keys.draw(&mut chance)).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        assert_eq!(keys.tallied(), 0);
    }
}
