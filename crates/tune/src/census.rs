//! A uniform sample of keys for large counts: a bottom-k sample (Cohen and Kaplan 2007), as [`Sample`](crate::Sample) is, that is cut back to
//! `k` keys whenever it has grown to twice as many, so that a request costs one look-up.
//!
//! Up to `2 k` keys everything is exact. Beyond that a share of keys has a standard error of at most `1 / (2 sqrt(k))`, and of a share
//! `p` one of `sqrt(p (1 - p) / k)`; the number of keys one of `1 / sqrt(k - 2)`.

use crate::hash::ByHash;

/// Notes of uniformly sampled keys.
#[derive(Clone, Debug)]
pub(crate) struct Census<T> {
    room: usize,
    notes: ByHash<T>,
    /// Keys with this hash or above are left out.
    bar: Option<u64>,
}

impl<T: Default> Census<T> {
    /// With room for twice this many keys.
    pub(crate) fn new(room: usize) -> Census<T> {
        Census { room, notes: ByHash::default(), bar: None }
    }

    /// The note of a key that occurred, if it belongs to the sample.
    pub(crate) fn note(&mut self, hash: u64) -> Option<&mut T> {
        if self.bar.is_some_and(|bar| hash >= bar) {
            return None;
        }
        if self.notes.len() >= 2 * self.room && !self.notes.contains_key(&hash) {
            let mut hashes: Vec<u64> = self.notes.keys().copied().collect();
            let bar = *hashes.select_nth_unstable(self.room).1;
            self.notes.retain(|hash, _| *hash < bar);
            self.bar = Some(bar);
            if hash >= bar {
                return None;
            }
        }
        Some(self.notes.entry(hash).or_default())
    }

    /// What is noted of a key, if it belongs to the sample.
    pub(crate) fn get(&self, hash: u64) -> Option<&T> {
        self.notes.get(&hash)
    }

    /// The sampled keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.notes.iter().map(|(hash, note)| (*hash, note))
    }

    /// How many keys are in the sample.
    pub(crate) fn sampled(&self) -> usize {
        self.notes.len()
    }

    /// How many keys there are: an estimate unless [`Census::is_exact`].
    pub(crate) fn keys(&self) -> u64 {
        let each_stands_for = self.bar.map_or(1.0, |bar| 2f64.powi(64) / (bar as f64).max(1.0));
        (self.notes.len() as f64 * each_stands_for).round() as u64
    }

    /// Whether every key is in the sample.
    pub(crate) fn is_exact(&self) -> bool {
        self.bar.is_none()
    }

    /// One standard error of a share of keys, 0 to 1.
    pub(crate) fn error_of_share(&self) -> f64 {
        if self.is_exact() { 0.0 } else { 0.5 / (self.notes.len().max(1) as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use super::*;

    /// Four standard errors, so that it fails by chance once in ten thousand runs; the seed is random.
    #[test]
    fn counts_and_shares_are_known_within_their_error() {
        let state = RandomState::new();
        for keys in [100u32, 2_000, 100_000] {
            let mut census: Census<u32> = Census::new(1_000);
            for turn in 0..2 {
                for key in 0..keys {
                    // Every fourth key comes twice as often.
                    if let Some(count) = census.note(state.hash_one(key)).filter(|_| turn == 0 || key % 4 == 0) {
                        *count += 1;
                    }
                }
            }
            assert_eq!(census.is_exact(), keys <= 2_000);
            let room = census.sampled() as f64;
            let error = if census.is_exact() { 0.0 } else { 4.0 / (room - 2.0).sqrt() };
            assert!(
                (census.keys() as f64 - f64::from(keys)).abs() <= error * f64::from(keys),
                "{} of {keys}",
                census.keys()
            );
            let twice = census.iter().filter(|(_, count)| **count == 2).count() as f64 / room;
            assert!((twice - 0.25).abs() <= 4.0 * census.error_of_share(), "{twice}");
        }
    }

    #[test]
    fn a_note_is_complete() {
        let state = RandomState::new();
        let mut census: Census<u32> = Census::new(50);
        for _ in 0..3 {
            for key in 0..10_000u32 {
                if let Some(count) = census.note(state.hash_one(key)) {
                    *count += 1;
                }
            }
        }
        assert!(census.sampled() <= 100 && census.iter().all(|(_, count)| *count == 3));
    }
}
