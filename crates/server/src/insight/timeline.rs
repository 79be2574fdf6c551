//! What happened in each of the last seconds and minutes.

use std::collections::VecDeque;
use std::ops::AddAssign;

/// Sums for each second of the last 5 minutes and each minute of the last 6 hours.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<T> {
    seconds: Slots<T>,
    minutes: Slots<T>,
}

impl<T: AddAssign + Clone + Default> Timeline<T> {
    pub(crate) const SECONDS: usize = 300;
    pub(crate) const MINUTES: usize = 360;

    pub(crate) fn new() -> Timeline<T> {
        Timeline { seconds: Slots::new(Self::SECONDS), minutes: Slots::new(Self::MINUTES) }
    }

    /// Adds what happened in a second since the epoch.
    pub(crate) fn add(&mut self, second: u64, what: T) {
        self.minutes.add(second / 60, what.clone());
        self.seconds.add(second, what);
    }

    /// Each second up to this one, oldest first, starting with the first event.
    pub(crate) fn seconds(&self, now: u64) -> impl ExactSizeIterator<Item = T> {
        self.seconds.until(now).into_iter()
    }

    /// Each minute up to that of this second.
    pub(crate) fn minutes(&self, now: u64) -> impl ExactSizeIterator<Item = T> {
        self.minutes.until(now / 60).into_iter()
    }
}

#[derive(Clone, Debug)]
struct Slots<T> {
    most: usize,
    /// The number of the last slot.
    last: u64,
    sums: VecDeque<T>,
}

impl<T: AddAssign + Clone + Default> Slots<T> {
    fn new(most: usize) -> Slots<T> {
        Slots { most, last: 0, sums: VecDeque::new() }
    }

    fn add(&mut self, slot: u64, what: T) {
        if self.sums.is_empty() {
            self.last = slot;
            self.sums.push_back(T::default());
        }
        for _ in 0..slot.saturating_sub(self.last).min(self.most as u64) {
            if self.sums.len() == self.most {
                self.sums.pop_front();
            }
            self.sums.push_back(T::default());
        }
        // If the clock goes back, add to the latest slot.
        self.last = self.last.max(slot);
        if let Some(sum) = self.sums.back_mut() {
            *sum += what;
        }
    }

    fn until(&self, slot: u64) -> VecDeque<T> {
        let mut copy = self.clone();
        if !copy.sums.is_empty() {
            copy.add(slot, T::default());
        }
        copy.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_minutes_are_summed_and_gaps_are_zero() {
        let mut timeline: Timeline<u64> = Timeline::new();
        assert_eq!(timeline.seconds(100).len(), 0);
        for (second, what) in [(100, 1), (100, 2), (103, 5), (102, 7), (130, 1)] {
            timeline.add(second, what);
        }
        let seconds: Vec<u64> = timeline.seconds(132).collect();
        assert_eq!((seconds[..5].to_vec(), seconds.len()), (vec![3, 0, 0, 12, 0], 33));
        assert_eq!(seconds[30..], [1, 0, 0]);
        assert_eq!(timeline.minutes(132).collect::<Vec<_>>(), [15, 1]);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut timeline: Timeline<u64> = Timeline::new();
        for second in 0..100_000 {
            timeline.add(second, 1);
        }
        assert_eq!(timeline.seconds(99_999).sum::<u64>(), 300);
        assert_eq!(timeline.minutes(99_999).len(), 360);
        assert_eq!(timeline.seconds(99_999 + 299).sum::<u64>(), 1);
        assert_eq!(timeline.seconds(u64::MAX).sum::<u64>(), 0);
    }
}
