//! The refunds of buckets with unsettled estimates, and the records of those estimates.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tollkeeper_core::{Refunds, Span, State, Timestamp};

use super::identity::Id;
use crate::store::held::{Held, Owner};

/// Behind one lock: settling is rare compared to deciding.
#[derive(Debug, Default)]
pub(super) struct Holds {
    refunded: Lasting<Id, Refunds>,
    records: Records,
}

/// Records of unsettled estimates, bounded in number and bytes, in total and per owner.
#[derive(Debug, Default)]
struct Records {
    kept: Lasting<String, Record>,
    bytes: usize,
    owned: HashMap<u64, Owned>,
}

#[derive(Debug)]
struct Record {
    bytes: Vec<u8>,
    owners: Vec<u64>,
}

/// The records of one owner.
#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    records: usize,
    bytes: usize,
}

/// Entries that expire.
#[derive(Debug)]
struct Lasting<K, V> {
    entries: HashMap<K, (V, Timestamp)>,
    /// The size at which expired entries are removed.
    sweep_at: usize,
    /// When they were removed last.
    swept: Timestamp,
}

impl Holds {
    /// The most unsettled estimates at a time: a bound on memory.
    const MOST_RECORDS: usize = 100_000;
    /// The most memory that they take.
    const MOST_RECORD_BYTES: usize = 64 << 20;
    /// The most buckets whose refunds are tracked.
    const MOST_WATCHED: usize = 1_000_000;

    /// Starts tracking the refunds of a bucket and returns what was counted before; `None` when there are too many.
    pub(super) fn watch(&mut self, id: Id, lifetime: Duration, now: Timestamp) -> Option<u64> {
        self.refunded.sweep(now);
        if !self.refunded.entries.contains_key(&id) && !self.refunded.has_room(Holds::MOST_WATCHED, now) {
            return None;
        }
        let (refunds, until) = self.refunded.entries.entry(id).or_default();
        *until = (*until).max(now + Span::from(lifetime));
        Some(refunds.total(now))
    }

    /// The refunds of earlier charges since this one. When they were forgotten, a bucket may have got back anything.
    pub(super) fn since(&self, id: Id, held: &Held) -> u64 {
        let forgotten = if held.receipt.after.is_some() { State::RESET } else { 0 };
        self.refunded.entries.get(&id).map_or(forgotten, |(refunds, _)| refunds.since(held.receipt, held.refunded))
    }

    /// Counts a refund of a charge, if the key is tracked.
    pub(super) fn count(&mut self, id: Id, held: &Held, back: u32, now: Timestamp) {
        if let Some((refunds, _)) = self.refunded.entries.get_mut(&id).filter(|_| back > 0) {
            refunds.add(held.receipt, held.refunded, back.into(), now);
        }
    }

    /// Counts a refund of which it is not known which charges it is of.
    pub(super) fn count_of_any(&mut self, id: Id, back: u32) {
        if let Some((refunds, _)) = self.refunded.entries.get_mut(&id) {
            refunds.add_of_any(back.into());
        }
    }

    /// The key was reset, which refunds everything charged before.
    pub(super) fn reset(&mut self, id: Id) {
        if let Some((refunds, _)) = self.refunded.entries.get_mut(&id) {
            refunds.reset();
        }
    }

    /// Keeps a record for its owners, each of which gets a share of the room.
    pub(super) fn keep(
        &mut self,
        id: &str,
        record: &[u8],
        owners: &[Owner<'_>],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(), TooMany> {
        let fits = self.records.has_room(record.len(), owners);
        if fits.is_err() || self.records.kept.entries.len() >= self.records.kept.sweep_at {
            self.records.sweep(now);
            self.records.has_room(record.len(), owners)?;
        }
        self.records.insert(id, record, owners, now + Span::from(lifetime));
        Ok(())
    }

    pub(super) fn claim(&mut self, id: &str, now: Timestamp) -> Option<Vec<u8>> {
        self.records.remove(id).filter(|(_, until)| *until > now).map(|(bytes, _)| bytes)
    }
}

/// Why a record was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooMany {
    /// The store is full.
    All,
    /// One owner has used its share.
    OfOneOwner,
}

impl Records {
    /// What a record takes besides its bytes: its name, its place in the map and its owners.
    const OVERHEAD: usize = 256;

    fn has_room(&self, bytes: usize, owners: &[Owner<'_>]) -> Result<(), TooMany> {
        let bytes = bytes + Records::OVERHEAD;
        let is_full = |records: usize, used: usize, share: usize| {
            records >= Holds::MOST_RECORDS / share || used + bytes > Holds::MOST_RECORD_BYTES / share
        };
        for owner in owners {
            let owned = self.owned.get(&owner.id()).copied().unwrap_or_default();
            if is_full(owned.records, owned.bytes, owner.share()) {
                return Err(TooMany::OfOneOwner);
            }
        }
        if is_full(self.kept.entries.len(), self.bytes, 1) { Err(TooMany::All) } else { Ok(()) }
    }

    fn insert(&mut self, id: &str, record: &[u8], owners: &[Owner<'_>], until: Timestamp) {
        // A record under the same name would be counted twice otherwise.
        self.remove(id);
        let record = Record { bytes: record.to_vec(), owners: owners.iter().map(Owner::id).collect() };
        let size = record.bytes.len() + Records::OVERHEAD;
        self.bytes += size;
        for owner in &record.owners {
            let owned = self.owned.entry(*owner).or_default();
            owned.records += 1;
            owned.bytes += size;
        }
        self.kept.entries.insert(id.to_string(), (record, until));
    }

    fn remove(&mut self, id: &str) -> Option<(Vec<u8>, Timestamp)> {
        let (record, until) = self.kept.entries.remove(id)?;
        self.forget(&record);
        Some((record.bytes, until))
    }

    /// Removes expired records.
    fn sweep(&mut self, now: Timestamp) {
        let expired = self.kept.sweep_now(now);
        for record in expired {
            self.forget(&record);
        }
    }

    fn forget(&mut self, record: &Record) {
        let size = record.bytes.len() + Records::OVERHEAD;
        self.bytes -= size;
        for owner in &record.owners {
            if let Some(owned) = self.owned.get_mut(owner) {
                owned.records -= 1;
                owned.bytes -= size;
                if owned.records == 0 {
                    self.owned.remove(owner);
                }
            }
        }
    }
}

impl<K, V> Default for Lasting<K, V> {
    fn default() -> Self {
        Lasting { entries: HashMap::new(), sweep_at: 1_024, swept: Timestamp::default() }
    }
}

impl<K: Hash + Eq, V> Lasting<K, V> {
    /// Removes expired entries whenever the map has doubled since the last time.
    fn sweep(&mut self, now: Timestamp) {
        if self.entries.len() >= self.sweep_at {
            self.sweep_now(now);
        }
    }

    /// Whether there are fewer than `most`. A full map is not swept for each request that asks: that looks at all entries.
    fn has_room(&mut self, most: usize, now: Timestamp) -> bool {
        if self.entries.len() >= most && now >= self.swept + Span::SECOND {
            self.sweep_now(now);
        }
        self.entries.len() < most
    }

    fn sweep_now(&mut self, now: Timestamp) -> Vec<V> {
        let expired = self.entries.extract_if(|_, (_, until)| *until <= now).map(|(_, (value, _))| value).collect();
        self.sweep_at = (2 * self.entries.len()).max(1_024);
        self.swept = now;
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(60);

    fn keep(holds: &mut Holds, number: usize, bytes: usize, owners: &[Owner<'_>], now: u64) -> Result<(), TooMany> {
        holds.keep(&number.to_string(), &vec![0; bytes], owners, HOLD, Timestamp::from_micros(now))
    }

    /// One client filled all 100,000 records, and no other client could reserve anything.
    #[test]
    fn an_owner_has_a_share_and_others_have_the_rest() {
        let mut holds = Holds::default();
        let (eve, peer) = (Owner::Key("eve"), Owner::Peer("203.0.113.6"));
        let kept = (0..Holds::MOST_RECORDS).take_while(|number| keep(&mut holds, *number, 10, &[eve, peer], 0).is_ok());
        assert_eq!(kept.count(), Holds::MOST_RECORDS / eve.share());
        assert_eq!(keep(&mut holds, 1_000_000, 10, &[eve], 0), Err(TooMany::OfOneOwner));
        // With many names from one address, half of the room is left for everyone else.
        let names: Vec<String> = (0..1_000).map(|number| format!("eve-{number}")).collect();
        let kept = (200_000..400_000)
            .take_while(|number| keep(&mut holds, *number, 10, &[Owner::Key(&names[number % 1_000]), peer], 0).is_ok());
        assert!(kept.count() < Holds::MOST_RECORDS / 2);
        assert!(holds.records.kept.entries.len() <= Holds::MOST_RECORDS / 2);
        for number in 500_000..510_000 {
            assert_eq!(keep(&mut holds, number, 10, &[Owner::Key("ann"), Owner::Peer("198.51.100.7")], 0), Ok(()));
        }
    }

    /// With half a million clients at a time the map was to be swept at more entries than it can have: once full, it was full for good,
    /// and no other client ever got anything back.
    #[test]
    fn what_was_watched_makes_room_when_it_has_expired() {
        let (mut holds, at) = (Holds::default(), Timestamp::from_micros);
        let id = |number: usize| Id { tag: number as u64, place: 0 };
        for number in 0..Holds::MOST_WATCHED {
            assert_eq!(holds.watch(id(number), HOLD, at(0)), Some(0));
        }
        let another = id(Holds::MOST_WATCHED);
        assert_eq!(holds.watch(another, HOLD, at(60_000_000 - 1)), None);
        assert_eq!(holds.watch(id(0), HOLD, at(60_000_000 - 1)), Some(0), "known ones stay");
        assert_eq!(holds.watch(another, HOLD, at(61_000_000)), Some(0));
        assert_eq!(holds.refunded.entries.len(), 2);
    }

    /// 6,000 reservations with keys of 62 KB took a gigabyte.
    #[test]
    fn records_are_bounded_in_bytes_and_expire() {
        let mut holds = Holds::default();
        let owners: Vec<String> = (0..100).map(|number| format!("owner-{number}")).collect();
        let mut refused = None;
        for number in 0..6_000 {
            refused = keep(&mut holds, number, 62_000, &[Owner::Key(&owners[number % 100])], 0).err().or(refused);
        }
        assert_eq!(refused, Some(TooMany::All));
        assert!(holds.records.bytes <= Holds::MOST_RECORD_BYTES && holds.records.bytes > Holds::MOST_RECORD_BYTES / 2);
        let later = 60_000_001;
        assert_eq!(keep(&mut holds, 9_999, 62_000, &[Owner::Key("owner-1")], later), Ok(()));
        assert_eq!((holds.records.kept.entries.len(), holds.records.owned.len()), (1, 1), "expired ones are gone");
        assert_eq!(holds.claim("9999", Timestamp::from_micros(later)).map(|record| record.len()), Some(62_000));
        assert_eq!((holds.records.bytes, holds.records.owned.len()), (0, 0));
    }
}
