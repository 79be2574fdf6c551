//! Robin Hood hashing: open addressing with linear probing, in which the entries of a run are sorted by their home
//! slots.
//!
//! Each entry knows its distance from home. So a search ends at the first entry that is nearer to its home than the
//! one searched for would be, and a removal shifts the rest of the run back by one, leaving no tombstone.

use std::sync::atomic::Ordering::Relaxed;

use tollkeeper_core::Bucket;

use super::area::{Area, Spread};
use super::identity::{DISTANCE, Id};
use super::owners::Owner;
use super::packed::Packed;
use super::shard::Locked;
use super::slots::Slot;

/// The largest distance of an entry from home, plus 1. Keys are spread by a keyed hash and a table is never more than
/// 7/8 full, so no entry gets that far in practice.
const MAX_DISTANCE: u64 = DISTANCE - 1;

impl Locked<'_> {
    /// Where the entry of `id` is.
    #[inline]
    pub(super) fn find(&self, id: Id) -> Option<usize> {
        let mut at = self.area.spread.home(id);
        let mut wanted = id.tag;
        loop {
            let found = self.area.slots[at].tag();
            if found == wanted {
                return Some(at);
            }
            if found & DISTANCE < wanted & DISTANCE {
                return None;
            }
            wanted += 1;
            at = self.area.after(at);
        }
    }

    /// Makes a free slot where `id` belongs. `None`, with nothing moved, if an entry would get too far from home.
    pub(super) fn open(&self, id: Id, owner: Owner) -> Option<usize> {
        open(self.area, self.area.spread.home(id), id.tag, owner)
    }

    /// Frees a slot, and shifts displaced entries back by one.
    pub(super) fn remove(&mut self, at: usize) {
        self.free_log(at);
        self.shard.used -= 1;
        self.room.return_key(self.owner(at));
        let mut free = at;
        loop {
            let next = self.area.after(free);
            let tag = self.area.slots[next].tag();
            // Empty, or at home.
            if tag & DISTANCE <= 1 {
                break;
            }
            self.area.move_entry(next, free, tag - 1);
            free = next;
        }
        self.area.slots[free].set_tag(0);
    }

    /// The rule that an entry belongs to.
    pub(super) fn owner(&self, at: usize) -> Owner {
        self.area.owner(at)
    }
}

impl Area<'_> {
    fn move_entry(&self, from: usize, to: usize, tag: u64) {
        self.slots[to].set_tag(tag);
        self.slots[to].set_packed(self.slots[from].packed());
        self.set_owner(to, self.owner(from));
    }

    pub(super) fn owner(&self, at: usize) -> Owner {
        Owner(self.owners[self.first_owner + at].load(Relaxed))
    }

    fn set_owner(&self, at: usize, owner: Owner) {
        self.owners[self.first_owner + at].store(owner.0, Relaxed);
    }

    #[inline]
    pub(super) fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn before(&self, at: usize) -> usize {
        at.checked_sub(1).unwrap_or(self.slots.len() - 1)
    }
}

/// Makes a free slot for an entry with this home, and this tag there, by shifting entries that are nearer to their homes by one. `None`,
/// with nothing moved, if one would get too far.
pub(super) fn open(area: Area<'_>, home: usize, mut tag: u64, owner: Owner) -> Option<usize> {
    let mut place = home;
    while area.slots[place].tag() & DISTANCE >= tag & DISTANCE {
        place = area.after(place);
        tag += 1;
    }
    let mut free = place;
    let mut farthest = tag & DISTANCE;
    while area.slots[free].tag() != 0 {
        farthest = farthest.max((area.slots[free].tag() & DISTANCE) + 1);
        free = area.after(free);
    }
    if farthest > MAX_DISTANCE {
        return None;
    }
    while free != place {
        let before = area.before(free);
        area.move_entry(before, free, area.slots[before].tag() + 1);
        free = before;
    }
    area.slots[place].set_tag(tag);
    area.slots[place].set_packed(Packed::default());
    area.set_owner(place, owner);
    Some(place)
}

/// Whether a bucket is looked up by itself, or as one of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Single,
    OfMany,
}

/// The bucket of `id` and where it is, as seen without the lock, while other threads may move entries. `None` if it is not
/// found at once: it may still be there.
#[inline(always)]
pub(super) fn glimpse(slots: &[Slot], spread: Spread, id: Id, lookup: Lookup) -> Option<(&Slot, Bucket)> {
    /// Nearly all entries are nearer to home than this.
    const MOST: u64 = 16;
    let home = spread.home(id);
    if lookup == Lookup::OfMany
        && let Some(slot) = near(slots, home, id)
    {
        return slot.packed().bucket().map(|bucket| (slot, bucket));
    }
    let mut at = home;
    for distance in 0..MOST {
        let slot = &slots[at];
        let found = slot.tag();
        if found == id.tag + distance {
            return slot.packed().bucket().map(|bucket| (slot, bucket));
        }
        if found & DISTANCE <= distance {
            return None;
        }
        at = if at + 1 == slots.len() { 0 } else { at + 1 };
    }
    None
}

/// The entry of `id`, if it is at home or one of the next two: as many as there are in the two cache lines that are prefetched. Compared
/// without a branch for each: the processor cannot predict how far from home the next one of many keys is.
#[inline(always)]
fn near(slots: &[Slot], home: usize, id: Id) -> Option<&Slot> {
    let [first, second, third] = slots.get(home..)?.first_chunk()?;
    let is_at = |slot: &Slot, distance| usize::from(slot.tag() == id.tag + distance);
    let found = is_at(first, 0) | is_at(second, 1) << 1 | is_at(third, 2) << 2;
    slots.get(home + found.trailing_zeros() as usize).filter(|_| found != 0)
}
