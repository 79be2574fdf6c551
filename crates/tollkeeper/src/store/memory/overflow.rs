//! Overflow buckets: where new keys are counted while there is no room for buckets of their own. Each rule has a few,
//! each shared by all keys of one class. Their memory is reserved from the start, so there is always an answer.
//!
//! A class follows from the keyed hash of a key, so clients cannot choose it. A flood limits itself: it gets what one
//! key would get, times the number of classes, and an honest new client shares a bucket with a small part of the
//! flood.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use tollkeeper_core::{Algorithm, Bucket, Receipt, Timestamp};

use super::area::{Area, Spread};
use super::identity::CLASSES;
use super::lock::Lock;
use super::logs::SMALLEST_BYTES;
use super::room::Room;
use super::shard::{Locked, NoRoom, Shard};
use super::slots::{self, Slot};

/// The shared buckets of a table.
pub(super) struct Overflow {
    lock: Lock<Shard>,
    slots: Box<[Slot]>,
    owners: Box<[AtomicU8]>,
    room: Room,
    without_key: AtomicU64,
    without_log: AtomicU64,
}

/// How many charges were counted in shared buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overflowed {
    /// Because there was no room for another key.
    pub keys: u64,
    /// Because there was no room for another log.
    pub logs: u64,
}

impl Overflow {
    /// How many bytes logs of `concurrency` may take beyond what each key is guaranteed.
    const MAX_GROWTH: usize = 4 << 20;

    /// For this many rules; `None` when the system does not have the memory.
    pub(super) fn new(rules: usize) -> Option<Overflow> {
        let keys = rules * usize::from(CLASSES);
        let slots = keys * 10 / 7 + 1;
        Some(Overflow {
            lock: Lock::default(),
            slots: slots::allocate(slots)?,
            owners: slots::allocate_owners(slots)?,
            room: Room::reserved(keys, SMALLEST_BYTES, Self::MAX_GROWTH),
            without_key: AtomicU64::new(0),
            without_log: AtomicU64::new(0),
        })
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let (shard, slots) = (self.lock.lock(), &*self.slots);
        let area = Area { slots, spread: Spread::fixed(slots.len()), owners: &self.owners, first_owner: 0 };
        let calm = self.room.max_keys / 2;
        Locked { shard, area, number: 0, levels: None, room: &self.room, rules: None, calm }
    }

    pub(super) fn count(&self, lacking: NoRoom) {
        let count = if lacking == NoRoom::Key { &self.without_key } else { &self.without_log };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn counts(&self) -> Overflowed {
        Overflowed { keys: self.without_key.load(Relaxed), logs: self.without_log.load(Relaxed) }
    }

    /// The slots and the current logs.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.owners) + self.room.log_bytes()
    }
}

/// A charge to a shared bucket is never refunded: by then the key may have a bucket of its own, which was not
/// charged. A slot is known by its name.
pub(super) fn without_refund(algorithm: Algorithm, receipt: Receipt) -> Receipt {
    if algorithm == Algorithm::Concurrency {
        return receipt;
    }
    let after = receipt.after.map(|after| Bucket { full_at: Timestamp::default(), part: 0, ..after });
    Receipt { at: Timestamp::default(), after, ..receipt }
}
