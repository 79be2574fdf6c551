//! A uniform sample of keys in bounded memory: a bottom-k sample (Cohen and Kaplan 2007), the keys with the smallest
//! hashes.
//!
//! Whether a key is in it does not depend on how busy the key is, and no client can choose a hash. The threshold only
//! ever falls, so a key in the sample has been in it since it first occurred: its note is complete. The threshold
//! also gives an estimate of the number of keys (the k minimum values estimator). With room for `k`, that estimate
//! has a standard error of `1 / sqrt(k - 2)`, and a share of the keys one of at most `1 / (2 sqrt(k))`; up to `k`
//! keys everything is exact.

use std::collections::BTreeMap;

/// Up to a fixed number of keys, each with a note of type `T`.
#[derive(Clone, Debug)]
pub struct Sample<T> {
    room: usize,
    notes: BTreeMap<u64, T>,
    /// The threshold: keys with this hash or above are not in the sample.
    bar: Option<u64>,
}

impl<T: Default> Sample<T> {
    /// With room for this many keys.
    pub fn new(room: usize) -> Sample<T> {
        Sample { room, notes: BTreeMap::new(), bar: None }
    }

    /// The note of a key that occurred, if it belongs to the sample.
    pub fn note(&mut self, hash: u64) -> Option<&mut T> {
        if self.bar.is_some_and(|bar| hash >= bar) {
            return None;
        }
        if self.notes.len() == self.room && !self.notes.contains_key(&hash) {
            let largest = *self.notes.last_key_value()?.0;
            self.bar = Some(hash.max(largest));
            if hash > largest {
                return None;
            }
            self.notes.pop_last();
        }
        Some(self.notes.entry(hash).or_default())
    }

    /// The note of a key that is present; adds nothing.
    pub fn known(&mut self, hash: u64) -> Option<&mut T> {
        self.notes.get_mut(&hash)
    }

    /// Removes a key.
    pub fn forget(&mut self, hash: u64) {
        self.notes.remove(&hash);
    }

    /// The sample of two periods together, below the lower of both thresholds.
    pub fn join<'s>(&'s self, other: &'s Sample<T>, merge: impl Fn(&T, &T) -> T) -> Joined<T>
    where
        T: Clone,
    {
        let bar = self.bar.into_iter().chain(other.bar).min();
        let below = |hash: &u64| bar.is_none_or(|bar| *hash < bar);
        let mine = self.notes.iter().map(|(hash, note)| match other.notes.get(hash) {
            Some(theirs) => (hash, merge(note, theirs)),
            None => (hash, note.clone()),
        });
        let theirs = other.notes.iter().filter(|(hash, _)| !self.notes.contains_key(hash));
        let all = mine.chain(theirs.map(|(hash, note)| (hash, note.clone())));
        let notes: Vec<T> = all.filter(|(hash, _)| below(hash)).map(|(_, note)| note).collect();
        let each_stands_for = bar.map_or(1.0, |bar| 2f64.powi(64) / (bar as f64).max(1.0));
        Joined { notes, each_stands_for }
    }
}

/// Notes of uniformly sampled keys.
#[derive(Clone, Debug)]
pub struct Joined<T> {
    /// Of each sampled key.
    pub notes: Vec<T>,
    /// 1 when every key is included.
    each_stands_for: f64,
}

impl<T> Joined<T> {
    /// How many keys there are: an estimate unless [`Joined::is_exact`].
    pub fn keys(&self) -> u64 {
        (self.notes.len() as f64 * self.each_stands_for).round() as u64
    }

    /// Whether every key is included, so that nothing is estimated.
    pub fn is_exact(&self) -> bool {
        self.each_stands_for == 1.0
    }

    /// The share of keys for which a condition holds.
    pub fn share(&self, holds: impl Fn(&T) -> bool) -> f64 {
        let holding = self.notes.iter().filter(|note| holds(note)).count();
        if self.notes.is_empty() { 0.0 } else { holding as f64 / self.notes.len() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher as _, RandomState};

    use proptest::prelude::*;

    use super::*;

    const ROOM: usize = 16;

    fn sampled(hashes: &[u64]) -> Sample<u32> {
        let mut sample = Sample::new(ROOM);
        for hash in hashes {
            if let Some(count) = sample.note(*hash) {
                *count += 1;
            }
        }
        sample
    }

    proptest! {
        #[test]
        fn the_smallest_hashes_are_there_and_their_notes_are_complete(hashes in prop::collection::vec(0u64..60, 0..300)) {
            let sample = sampled(&hashes);
            let distinct: BTreeSet<u64> = hashes.iter().copied().collect();
            let smallest: Vec<u64> = distinct.iter().copied().take(ROOM).collect();
            prop_assert_eq!(sample.notes.keys().copied().collect::<Vec<_>>(), smallest);
            for (hash, count) in &sample.notes {
                prop_assert_eq!(*count as usize, hashes.iter().filter(|one| *one == hash).count());
            }
            prop_assert_eq!(sample.bar, distinct.iter().copied().nth(ROOM));
        }

        #[test]
        fn of_two_samples_every_key_below_both_bars_is_there(
            first in prop::collection::vec(0u64..60, 0..200),
            second in prop::collection::vec(0u64..60, 0..200),
        ) {
            let (one, other) = (sampled(&first), sampled(&second));
            let bar = one.bar.into_iter().chain(other.bar).min().unwrap_or(u64::MAX);
            let all = [first, second].concat();
            let below: BTreeSet<u64> = all.iter().copied().filter(|hash| *hash < bar).collect();
            let exact = |hash: &u64| all.iter().filter(|one| *one == hash).count() as u32;
            let mut expected: Vec<u32> = below.iter().map(exact).collect();
            let joined = one.join(&other, |a, b| a + b);
            let mut notes = joined.notes;
            notes.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(notes, expected);
        }
    }

    /// Four standard errors, so that it fails by chance once in ten thousand runs; the seed is random.
    #[test]
    fn how_many_keys_there_are_is_known_within_its_error() {
        let state = RandomState::new();
        for keys in [10, 300, 100_000u32] {
            let mut sample: Sample<()> = Sample::new(512);
            for _ in 0..2 {
                for key in 0..keys {
                    sample.note(state.hash_one(key));
                }
            }
            let joined = sample.join(&Sample::new(512), |_, _| ());
            let estimate = joined.keys() as f64;
            let error = if joined.is_exact() { 0.0 } else { 4.0 / 510f64.sqrt() };
            assert!((estimate - f64::from(keys)).abs() <= error * f64::from(keys), "{estimate} for {keys}");
            assert_eq!(joined.is_exact(), keys <= 512);
        }
    }
}
