//! The most frequent keys, in bounded memory: the Space-Saving algorithm (Metwally, Agrawal, El Abbadi 2005).
//!
//! With `n` events and room for `k` keys, no count is too high by more than `n / k`, none is too low, and every key
//! with more than `n / k` events is present. Each count knows its own possible error.
//!
//! Where most keys are rare, nearly every event would replace a key. A filter before the table (Homem, Carvalho 2010) keeps them out: absent
//! keys are counted together by their hash, and one enters when its cell has reached the smallest count. The promises are the same,
//! errors are smaller, and a key is noted a little later.

use crate::hash::ByHash;

/// Counts for up to a fixed number of keys, each with a note of type `T`.
#[derive(Clone, Debug)]
pub struct HotKeys<T> {
    room: usize,
    places: ByHash<usize>,
    /// Separate from the rest, because finding the smallest scans them all.
    counts: Vec<u64>,
    entries: Vec<Entry<T>>,
    total: u64,
    /// The most events that a key can have had which was not counted before there was room again.
    floor: u64,
    /// Where the search for the smallest goes on, and what it last was: counts only grow, so a scan finds many of them.
    cursor: usize,
    smallest: u64,
    /// Events of absent keys by hash, none above the smallest count; empty if every key enters at once.
    cells: Box<[u64]>,
}

/// Cells of a filter for each key of the table.
const CELLS: usize = 8;

#[derive(Clone, Debug)]
struct Entry<T> {
    hash: u64,
    variant: u16,
    key: String,
    error: u64,
    note: T,
}

/// A key, and how often it occurred: at most `count` times and at least `count - error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot<T> {
    /// Of the key.
    pub hash: u64,
    /// Which alternatives of the key template it has.
    pub variant: u16,
    /// The key itself.
    pub key: String,
    /// How often it occurred at most.
    pub count: u64,
    /// By how much that may be too high.
    pub error: u64,
    /// What was noted of it.
    pub note: T,
}

impl<T> Hot<T> {
    /// How often it certainly occurred.
    pub fn certain(&self) -> u64 {
        self.count - self.error
    }
}

impl<T: Default + Clone> HotKeys<T> {
    /// With room for this many keys.
    pub fn new(room: usize) -> HotKeys<T> {
        HotKeys {
            room,
            places: ByHash::default(),
            counts: Vec::new(),
            entries: Vec::new(),
            total: 0,
            floor: 0,
            cursor: 0,
            smallest: 0,
            cells: Box::default(),
        }
    }

    /// The same with a filter, for events of which most are of rare keys.
    pub fn filtered(room: usize) -> HotKeys<T> {
        HotKeys { cells: vec![0; room * CELLS].into(), ..HotKeys::new(room) }
    }

    /// Counts an event and returns the key's note, a new one if the key has replaced another. `None` if a filter keeps the key out.
    pub fn count(&mut self, hash: u64, variant: u16, key: &str) -> Option<&mut T> {
        self.total += 1;
        let place = match self.places.get(&hash) {
            Some(place) => *place,
            None if self.entries.len() < self.room => {
                let error = self.floor;
                self.entries.push(Entry { hash, variant, key: key.to_string(), error, note: T::default() });
                self.counts.push(error);
                self.places.insert(hash, self.entries.len() - 1);
                self.entries.len() - 1
            }
            None => self.replace_smallest(hash, variant, key)?,
        };
        self.counts[place] += 1;
        Some(&mut self.entries[place].note)
    }

    /// The new key inherits the smallest count as its possible error, so that no count is too low.
    fn replace_smallest(&mut self, hash: u64, variant: u16, key: &str) -> Option<usize> {
        // The smallest count never falls, so a cell below what it last was is below it now.
        if self.is_kept_out(hash, self.smallest) {
            return None;
        }
        let place = self.next_smallest();
        let smallest = self.counts[place];
        if self.is_kept_out(hash, smallest) {
            return None;
        }
        let replaced = self.entries[place].hash;
        if let Some(cell) = self.cell(replaced) {
            *cell = smallest;
        }
        let entry = &mut self.entries[place];
        self.places.remove(&entry.hash);
        self.places.insert(hash, place);
        entry.key.clear();
        entry.key.push_str(key);
        (entry.hash, entry.variant, entry.error, entry.note) = (hash, variant, smallest, T::default());
        Some(place)
    }

    /// Whether the filter keeps a key out as long as its cell is below this; then the event is counted there.
    fn is_kept_out(&mut self, hash: u64, smallest: u64) -> bool {
        let Some(cell) = self.cell(hash).filter(|cell| **cell < smallest) else { return false };
        *cell += 1;
        true
    }

    fn cell(&mut self, hash: u64) -> Option<&mut u64> {
        let place = hash.checked_rem(self.cells.len() as u64)?;
        self.cells.get_mut(place as usize)
    }

    /// A place with the smallest count.
    fn next_smallest(&mut self) -> usize {
        let from = self.cursor.min(self.counts.len());
        let place = match self.counts[from..].iter().position(|count| *count == self.smallest) {
            Some(place) => from + place,
            None => {
                self.smallest = self.smallest();
                self.counts.iter().position(|count| *count == self.smallest).unwrap_or(0)
            }
        };
        self.cursor = place;
        place
    }

    fn smallest(&self) -> u64 {
        self.counts.iter().copied().min().unwrap_or(0)
    }

    /// The note of a key, if it is present.
    pub fn note(&mut self, hash: u64) -> Option<&mut T> {
        self.places.get(&hash).map(|place| &mut self.entries[*place].note)
    }

    /// The note of a key, to read.
    pub fn get(&self, hash: u64) -> Option<&T> {
        self.places.get(&hash).map(|place| &self.entries[*place].note)
    }

    /// How many events were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The most events that an absent key can have had.
    fn missed(&self) -> u64 {
        if self.entries.len() < self.room { self.floor } else { self.smallest() }
    }

    /// Removes a key and its certain events.
    pub fn forget(&mut self, hash: u64) {
        let Some(place) = self.places.get(&hash).copied() else { return };
        self.floor = self.missed();
        self.places.remove(&hash);
        // Another entry moves to this place, maybe the smallest.
        self.cursor = 0;
        let (count, entry) = (self.counts.swap_remove(place), self.entries.swap_remove(place));
        self.total = self.total.saturating_sub(count - entry.error);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.hash, place);
        }
    }

    /// The hottest keys of two counts together, by certain count. What one of them may have missed is added to both
    /// count and error, so the guarantees hold for the sum.
    pub fn top(&self, other: &HotKeys<T>, most: usize, merge: impl Fn(&T, &T) -> T) -> Vec<Hot<T>> {
        let mut all: Vec<Hot<T>> = self.iter().map(|hot| other.with(hot, |mine, theirs| merge(theirs, mine))).collect();
        all.extend(other.iter().filter(|hot| !self.places.contains_key(&hot.hash)).map(|hot| self.with(hot, &merge)));
        all.sort_by(|a, b| (b.certain(), b.count).cmp(&(a.certain(), a.count)).then_with(|| a.key.cmp(&b.key)));
        all.truncate(most);
        all
    }

    fn iter(&self) -> impl Iterator<Item = Hot<T>> {
        self.entries.iter().zip(&self.counts).map(|(Entry { hash, variant, key, error, note }, count)| Hot {
            hash: *hash,
            variant: *variant,
            key: key.clone(),
            count: *count,
            error: *error,
            note: note.clone(),
        })
    }

    /// A key of the other count, with what was counted here added.
    fn with(&self, hot: Hot<T>, merge: impl Fn(&T, &T) -> T) -> Hot<T> {
        let Some(place) = self.places.get(&hot.hash) else {
            let missed = self.missed();
            return Hot { count: hot.count + missed, error: hot.error + missed, ..hot };
        };
        let (count, entry) = (self.counts[*place], &self.entries[*place]);
        let note = merge(&entry.note, &hot.note);
        Hot { count: hot.count + count, error: hot.error + entry.error, note, ..hot }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::collections::HashMap;

    use super::*;

    const ROOM: usize = 8;

    fn counted(mut hot: HotKeys<()>, stream: &[u64]) -> HotKeys<()> {
        for key in stream {
            hot.count(*key, 0, &key.to_string());
        }
        hot
    }

    fn both() -> [HotKeys<()>; 2] {
        [HotKeys::new(ROOM), HotKeys::filtered(ROOM)]
    }

    fn exact(stream: &[u64]) -> HashMap<u64, u64> {
        let mut counts = HashMap::new();
        stream.iter().for_each(|key| *counts.entry(*key).or_insert(0) += 1);
        counts
    }

    /// A few frequent keys among many rare ones.
    fn streams() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![0u64..4, 0u64..12, 0u64..200], 0..600)
    }

    fn none(_: &(), _: &()) {}

    proptest! {
        #[test]
        fn no_count_is_off_by_more_than_its_share_and_no_hot_key_is_missed(stream in streams()) {
            let exact = exact(&stream);
            let bound = stream.len() as u64 / ROOM as u64;
            for hot in both().map(|hot| counted(hot, &stream)) {
                kept(&hot.top(&HotKeys::new(ROOM), usize::MAX, none), &exact, bound)?;
            }
        }

        #[test]
        fn two_counts_keep_their_promises_together(first in streams(), second in streams()) {
            let exact = exact(&[first.clone(), second.clone()].concat());
            let bound = first.len() as u64 / ROOM as u64 + second.len() as u64 / ROOM as u64;
            for (one, other) in both().into_iter().zip(both()) {
                kept(&counted(one, &first).top(&counted(other, &second), usize::MAX, none), &exact, bound)?;
            }
        }

        #[test]
        fn promises_hold_when_keys_are_forgotten(first in streams(), second in streams(), gone in 0u64..12) {
            for mut hot in both() {
                hot = counted(hot, &first);
                hot.forget(gone);
                let hot = counted(hot, &second);
                let without: Vec<u64> = first.iter().copied().filter(|key| *key != gone).collect();
                let (exact, events) = (exact(&[without, second.clone()].concat()), first.len() + second.len());
                for one in hot.top(&HotKeys::new(ROOM), usize::MAX, none).iter().filter(|one| one.hash != gone) {
                    let truth = exact.get(&one.hash).copied().unwrap_or(0);
                    prop_assert!(one.certain() <= truth && truth <= one.count, "{one:?} {truth}");
                    prop_assert!(one.error <= events as u64 / ROOM as u64, "{one:?} {events}");
                }
            }
        }
    }

    /// Every count is right within its error, that within the bound, and nobody above the bound is missing.
    fn kept(top: &[Hot<()>], exact: &HashMap<u64, u64>, bound: u64) -> Result<(), TestCaseError> {
        for one in top {
            let truth = exact.get(&one.hash).copied().unwrap_or(0);
            prop_assert!(one.certain() <= truth && truth <= one.count, "{one:?} {truth}");
            prop_assert!(one.error <= bound, "{one:?} {bound}");
        }
        for (key, truth) in exact.iter().filter(|(_, truth)| **truth > bound) {
            prop_assert!(top.iter().any(|one| one.hash == *key), "{key} came up {truth} times");
        }
        Ok(())
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut hot: HotKeys<u32> = HotKeys::new(ROOM);
        for key in [3, 1, 3, 2, 3] {
            *hot.count(key, 0, &format!("key-{key}")).expect("no filter") += 1;
        }
        let top = hot.top(&HotKeys::new(ROOM), 2, |a, b| a + b);
        assert_eq!((top[0].key.as_str(), top[0].count, top[0].error, top[0].note), ("key-3", 3, 0, 3));
        assert_eq!((top.len(), hot.total()), (2, 5));
    }
}
