//! The hard caps of a table: the number of keys, and the bytes of logs. No rule may take all of it.
//!
//! How much one rule may take depends on what is free: at most [`SHARE`] times as much. So a flood on one rule stops
//! while there is room left for the others, and a rule that is used alone still gets nearly everything. This is the
//! dynamic threshold algorithm (Choudhury and Hahne, 1998), known from switches whose queues share one memory.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::owners::{OWNERS, Owner};

/// One rule holds at most this many times what is free: eight ninths of everything, if no other rule holds anything.
const SHARE: usize = 8;

/// Current usage. On cache lines of its own: it changes with every new key, its neighbours never.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Room {
    keys: AtomicUsize,
    pub(super) max_keys: usize,
    log_bytes: AtomicUsize,
    pub(super) max_log_bytes: usize,
    /// How many bytes of logs are kept for every future key: growing logs must not use them.
    kept_per_key: usize,
    held: Box<[Held]>,
}

/// What one rule holds.
#[derive(Debug, Default)]
struct Held {
    keys: AtomicUsize,
    log_bytes: AtomicUsize,
}

impl Room {
    /// For rules that each take their share.
    pub(super) fn new(max_keys: usize, max_log_bytes: usize) -> Room {
        Room::with(max_keys, max_log_bytes, 0)
    }

    /// With this many bytes of logs guaranteed for every key that fits.
    pub(super) fn reserved(max_keys: usize, bytes_per_key: usize, max_log_bytes: usize) -> Room {
        Room::with(max_keys, max_keys * bytes_per_key + max_log_bytes, bytes_per_key)
    }

    fn with(max_keys: usize, max_log_bytes: usize, kept_per_key: usize) -> Room {
        Room {
            keys: AtomicUsize::new(0),
            max_keys,
            log_bytes: AtomicUsize::new(0),
            max_log_bytes,
            kept_per_key,
            held: (0..OWNERS).map(|_| Held::default()).collect(),
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    pub(super) fn keys_of(&self, owner: Owner) -> usize {
        self.held(owner).keys.load(Relaxed)
    }

    /// Whether this many new keys of a rule have room, when this many rules are known.
    pub(super) fn fits(&self, new: usize, owner: Owner, owners: usize) -> bool {
        let keys = self.keys();
        keys + new <= self.max_keys && is_within_share(owners, self.keys_of(owner), self.max_keys - keys)
    }

    /// Reserves room for one more key; false when there is none.
    pub(super) fn take_key(&self, owner: Owner) -> bool {
        let one_more = |keys| (keys < self.max_keys).then_some(keys + 1);
        let is_taken = self.keys.fetch_update(Relaxed, Relaxed, one_more).is_ok();
        if is_taken {
            self.held(owner).keys.fetch_add(1, Relaxed);
        }
        is_taken
    }

    pub(super) fn return_key(&self, owner: Owner) {
        self.keys.fetch_sub(1, Relaxed);
        self.held(owner).keys.fetch_sub(1, Relaxed);
    }

    pub(super) fn log_bytes(&self) -> usize {
        self.log_bytes.load(Relaxed)
    }

    /// Whether the first bytes of a new log have room.
    pub(super) fn fits_log(&self, bytes: usize, owner: Owner, owners: usize) -> bool {
        let used = self.log_bytes();
        used + bytes <= self.max_log_bytes && self.is_within_share_of_bytes(owners, owner, used)
    }

    /// Reserves bytes for a new log; false when there are not enough left.
    pub(super) fn take_log(&self, bytes: usize, owner: Owner, owners: usize) -> bool {
        // Its own part of the kept bytes is available to it.
        let kept = self.kept().saturating_sub(self.kept_per_key);
        self.take_bytes(bytes, self.max_log_bytes.saturating_sub(kept), owner, owners)
    }

    /// Reserves bytes for a growing log; false when there are not enough left.
    pub(super) fn take_growth(&self, bytes: usize, owner: Owner, owners: usize) -> bool {
        self.take_bytes(bytes, self.max_log_bytes.saturating_sub(self.kept()), owner, owners)
    }

    /// The bytes kept for future keys.
    fn kept(&self) -> usize {
        self.max_keys.saturating_sub(self.keys()) * self.kept_per_key
    }

    fn take_bytes(&self, bytes: usize, most: usize, owner: Owner, owners: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let more = |used: usize| {
            let after = used.checked_add(bytes).filter(|after| *after <= most)?;
            self.is_within_share_of_bytes(owners, owner, used).then_some(after)
        };
        let is_taken = self.log_bytes.fetch_update(Relaxed, Relaxed, more).is_ok();
        if is_taken {
            self.held(owner).log_bytes.fetch_add(bytes, Relaxed);
        }
        is_taken
    }

    pub(super) fn return_bytes(&self, bytes: usize, owner: Owner) {
        if bytes > 0 {
            self.log_bytes.fetch_sub(bytes, Relaxed);
            self.held(owner).log_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// A log changed its size, within what was reserved.
    pub(super) fn resize(&self, before: usize, after: usize, owner: Owner) {
        if before != after {
            self.log_bytes.fetch_add(after, Relaxed);
            self.held(owner).log_bytes.fetch_add(after, Relaxed);
            self.return_bytes(before, owner);
        }
    }

    fn is_within_share_of_bytes(&self, owners: usize, owner: Owner, used: usize) -> bool {
        is_within_share(
            owners,
            self.held(owner).log_bytes.load(Relaxed),
            self.max_log_bytes - used.min(self.max_log_bytes),
        )
    }

    fn held(&self, owner: Owner) -> &Held {
        &self.held[usize::from(owner.0)]
    }
}

/// A rule that shares the room with no other takes all of it.
fn is_within_share(owners: usize, held: usize, free: usize) -> bool {
    owners <= 1 || held < free.saturating_mul(SHARE)
}
