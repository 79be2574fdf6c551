//! Hashes that this thread computed lately, by the bytes of the key.
//!
//! A decision cannot begin before the key is hashed, and hashing takes longer than comparing 16 bytes: half of the time of a decision on a hot
//! key. What is remembered is compared in full, secret included, so an answer from here is the same as a new one.

use std::cell::Cell;

/// A short key, under the secret of its table.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Short {
    pub(super) bytes: u128,
    pub(super) length: usize,
    pub(super) secret: (u64, u64),
}

/// As many as a thread remembers: 4 kB.
const SLOTS: usize = 64;

#[derive(Clone, Copy)]
struct Slot {
    key: Short,
    hash: (u64, u64),
}

/// No key has this length, so this is never found.
const UNUSED: Slot = Slot { key: Short { bytes: 0, length: usize::MAX, secret: (0, 0) }, hash: (0, 0) };

thread_local! {
    static RECENT: [Cell<Slot>; SLOTS] = const { [const { Cell::new(UNUSED) }; SLOTS] };
}

/// The hash of a key, from memory if this thread has computed it lately.
#[inline(always)]
pub(super) fn recall(key: Short, compute: impl FnOnce() -> (u64, u64)) -> (u64, u64) {
    RECENT.with(|recent| {
        let slot = &recent[slot_of(key.bytes)];
        let Slot { key: known, hash } = slot.get();
        if known == key {
            return hash;
        }
        let hash = compute();
        slot.set(Slot { key, hash });
        hash
    })
}

/// Clients may choose keys that share a slot: then all of them are computed.
#[inline(always)]
fn slot_of(bytes: u128) -> usize {
    let folded = bytes as u64 ^ (bytes >> 64) as u64;
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: u128) -> Short {
        Short { bytes, length: 3, secret: (1, 2) }
    }

    #[test]
    fn a_hash_is_computed_once() {
        assert_eq!(recall(key(1), || (0, 5)), (0, 5));
        assert_eq!(recall(key(1), || unreachable!("known")), (0, 5));
    }

    #[test]
    fn keys_that_share_a_slot_are_not_confused() {
        let other = (2..).find(|bytes| slot_of(*bytes) == slot_of(1)).expect("64 slots");
        assert_eq!(recall(key(1), || (0, 5)), (0, 5));
        assert_eq!(recall(key(other), || (0, 6)), (0, 6));
        assert_eq!(recall(key(1), || (0, 5)), (0, 5));
    }

    #[test]
    fn length_and_secret_are_part_of_the_key() {
        assert_eq!(recall(key(1), || (0, 5)), (0, 5));
        assert_eq!(recall(Short { length: 4, ..key(1) }, || (0, 6)), (0, 6));
        assert_eq!(recall(Short { secret: (1, 3), ..key(1) }, || (0, 7)), (0, 7));
        assert_eq!(recall(Short { bytes: 0, length: 0, secret: (0, 0) }, || (0, 8)), (0, 8));
    }
}
