//! The state of every bucket while rules are tried, for one thread: the memory store without its locks, deciding with the same [`decide`].
//!
//! A bucket that is full again, or a window that has passed, equals one that was never used. So before the table grows, what no longer counts
//! is dropped, and its size follows the keys that are busy at the same time, not all keys of a log. At its bound, new keys share buckets as
//! in the memory store, and are counted.

use tollkeeper::{Decision, Quota, Span, Timestamp};
use tollkeeper_core::{Bucket, Change, State, decide};

use crate::hash::{ByHash, hash_of};
use crate::lines::LineCharge;

/// Where a bucket's state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

#[derive(Debug)]
pub(crate) struct Buckets {
    states: ByHash<Kept>,
    /// Beyond this many, what no longer counts is dropped first.
    room: usize,
    most: usize,
    /// New keys since idle ones were last dropped.
    newcomers: usize,
    overflowed: u64,
}

#[derive(Debug)]
struct Kept {
    rule: u32,
    state: State,
}

/// Room to begin with.
const FEWEST: usize = 4_096;
/// A new key that finds no room shares a bucket with one in this many of all keys of its rule.
const CLASSES: u64 = 64;

impl Buckets {
    /// For at most this many keys, and those that share.
    pub(crate) fn new(most: usize) -> Buckets {
        Buckets { states: ByHash::default(), room: FEWEST.min(most), most, newcomers: 0, overflowed: 0 }
    }

    /// Decisions of new keys that had to share a bucket.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// The bucket of a charge. `quotas` are those of all rules, by position.
    pub(crate) fn place(&mut self, charge: &LineCharge, now: Timestamp, quotas: &[Quota]) -> Place {
        let own = charge.bucket;
        if self.states.len() < self.room || self.states.contains_key(&own) {
            return Place(own);
        }
        self.make_room(now, quotas);
        if self.states.len() < self.room {
            return Place(own);
        }
        self.overflowed += 1;
        self.newcomers += 1;
        Place(hash_of(u64::from(charge.rule) << 32 | CLASSES, &(charge.key.hash % CLASSES).to_le_bytes()))
    }

    /// What a quota says to a charge: the outcome only. Nothing is changed.
    pub(crate) fn decide(&self, place: Place, quota: &Quota, cost: u32, now: Timestamp) -> (Decision, Change) {
        let state = self.states.get(&place.0).map_or(&State::Fresh, |kept| &kept.state);
        let (decision, change) = match state {
            // Most rules have a burst. The compiler sees that nobody asks for the rest of the decision, and leaves out the divisions for it.
            State::Fresh | State::Bucket(_) if quota.algorithm().has_burst() => {
                let bucket = if let State::Bucket(bucket) = state { Some(*bucket) } else { None };
                let (decision, next) = Bucket::decide(quota, cost, bucket, now);
                (decision, next.map_or(Change::None, |bucket| Change::Replace(State::Bucket(bucket))))
            }
            _ => decide(quota, cost, state, now),
        };
        (Decision { remaining: 0, reset_after: Span::ZERO, ..decision }, change)
    }

    pub(crate) fn apply(&mut self, place: Place, rule: u32, change: Change) {
        if change == Change::None {
            return;
        }
        let kept = self.states.entry(place.0).or_insert_with(|| {
            self.newcomers += 1;
            Kept { rule, state: State::Fresh }
        });
        kept.state.apply(change);
    }

    #[cold]
    fn make_room(&mut self, now: Timestamp, quotas: &[Quota]) {
        // To look through a full table for every new key would take most of the time.
        if self.room == self.most && self.newcomers < self.most / 16 {
            return;
        }
        self.newcomers = 0;
        self.states.retain(|_, kept| kept.state.until(&quotas[kept.rule as usize]) > now);
        self.room = (self.states.len() * 2).max(FEWEST).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas() -> Vec<Quota> {
        vec![Quota::per_minute(60).burst(2).build().expect("a quota")]
    }

    fn is_allowed(buckets: &mut Buckets, key: u64, second: u64) -> bool {
        let (quotas, now) = (quotas(), Timestamp::from_micros(second * 1_000_000));
        let place = buckets.place(&LineCharge::of_hash(key), now, &quotas);
        let (decision, change) = buckets.decide(place, &quotas[0], 1, now);
        buckets.apply(place, 0, change);
        decision.is_allowed()
    }

    #[test]
    fn idle_keys_make_room_and_busy_ones_stay() {
        let mut buckets = Buckets::new(1_000_000);
        for second in 0..100 {
            assert!((0..2_000).all(|key| is_allowed(&mut buckets, second * 2_000 + key, second)));
            // One that comes twice a second is denied every other time, once its burst is used up.
            let both = [(); 2].map(|()| is_allowed(&mut buckets, u64::MAX, second));
            assert_eq!(both, [true, second == 0]);
        }
        assert!(buckets.states.len() <= 3 * FEWEST, "{}", buckets.states.len());
        assert_eq!(buckets.overflowed(), 0);
    }

    #[test]
    fn a_key_takes_what_the_documentation_says() {
        assert!(size_of::<(u64, Kept)>() <= 64, "{}", size_of::<(u64, Kept)>());
    }

    #[test]
    fn beyond_the_bound_new_keys_share_and_old_ones_do_not_suffer() {
        let mut buckets = Buckets::new(5_000);
        assert!((0..5_000).all(|key| is_allowed(&mut buckets, key, 1)));
        let admitted = (5_000..9_000).filter(|key| is_allowed(&mut buckets, *key, 1)).count();
        assert_eq!(admitted as u64, 2 * CLASSES, "a burst of two for each shared bucket");
        assert_eq!(buckets.overflowed(), 4_000);
        assert!((0..5_000).all(|key| is_allowed(&mut buckets, key, 1)), "their own second");
        assert!(buckets.states.len() <= 5_000 + CLASSES as usize);
    }
}
