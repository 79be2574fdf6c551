//! The slots of one shard, and how entries are spread over them.

use std::sync::atomic::AtomicU8;

use super::identity::Id;
use super::slots::Slot;

/// How many times the slots of a level the next one has, as a power of two.
pub(super) const STEP: u32 = 2;
/// So many bits of a tag place an entry, at most. They do not tell entries of one slot apart any more.
pub(super) const MOST_SHIFT: u32 = 16;

/// The slots of a shard at its level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area<'t> {
    pub(super) slots: &'t [Slot],
    pub(super) spread: Spread,
    /// The number of the rule of each slot, those of this shard from `first_owner` on.
    pub(super) owners: &'t [AtomicU8],
    pub(super) first_owner: usize,
}

/// How entries are spread over the slots of one shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// The slots of a shard at the first level: one half of an identity chooses among these.
    first: u64,
    /// The other half divides each of them into this many, as a power of two: the highest bits of a tag. An entry keeps its tag, so it can
    /// be moved to the next level without its key.
    shift: u32,
}

impl Spread {
    pub(super) fn new(first: u64, shift: u32) -> Spread {
        Spread { first, shift }
    }

    /// Over this many slots that do not grow.
    pub(super) fn fixed(slots: usize) -> Spread {
        Spread { first: slots as u64, shift: 0 }
    }

    /// The slot of a shard at which a search for `id` starts.
    #[inline(always)]
    pub(super) fn home(self, id: Id) -> usize {
        let first = ((id.place & u64::from(u32::MAX)) * self.first) >> 32;
        // In two steps: a shift by all 64 bits is none.
        (first << self.shift | id.tag >> 1 >> (63 - self.shift)) as usize
    }

    /// Where an entry with this home belongs at the next level.
    pub(super) fn next_home(self, home: usize, tag: u64) -> usize {
        let next_bits = tag >> (64 - STEP - self.shift) & ((1 << STEP) - 1);
        home << STEP | next_bits as usize
    }

    pub(super) fn slots(self) -> usize {
        (self.first << self.shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_where_it_was_moved() {
        let id = Id { tag: 0xDEAD_BEEF_1234_5601, place: 0xABCD_EF01_8765_4321 };
        for shift in (0..MOST_SHIFT).step_by(STEP as usize) {
            let (here, next) = (Spread { first: 87, shift }, Spread { first: 87, shift: shift + STEP });
            assert_eq!(here.next_home(here.home(id), id.tag), next.home(id), "{shift}");
            // The lowest byte of a tag is the distance, wherever it is.
            assert_eq!(here.next_home(here.home(id), id.tag + 7), next.home(id), "{shift}");
            assert!(next.home(id) < next.slots());
        }
    }
}
