//! Where a table keeps its entries: in levels, each with four times the slots of the one before.
//!
//! A table begins at the smallest, so a few keys take a few pages however many may come. When a shard gets tight it moves to the
//! next level, and the others follow when they are next locked. So growing is done a shard at a time, in well under a millisecond, and
//! memory follows the keys.
//!
//! An entry is in one level only, that of its shard, and what was left behind is cleared under the lock of the shard. So a search
//! without the lock that looks at the wrong level finds nothing, and never something old. No level is freed before the table: there may
//! be such readers. But the system gets the pages of a level that all shards have left.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};

use super::identity::{DISTANCE, Id};
use super::owners::Owner;
use super::pages::{self, Pages};
use super::runs;
use super::shard::Locked;
use super::slots::{self, Slot};

/// How many times the slots of a level the next one has, as a power of two.
const STEP: u32 = 2;
/// A shard has at least this many slots, so that keys, which are spread at random, fill all shards alike.
const FEWEST_SLOTS: usize = 32;
/// So many bits of a tag place an entry, at most. They do not tell entries of one slot apart any more.
const MOST_SHIFT: u32 = 16;

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
    fn next_home(self, home: usize, tag: u64) -> usize {
        let next_bits = tag >> (64 - STEP - self.shift) & ((1 << STEP) - 1);
        home << STEP | next_bits as usize
    }

    fn slots(self) -> usize {
        (self.first << self.shift) as usize
    }
}

/// The slots of all shards, one shard after the other.
struct Level {
    /// Dropped before the slots.
    pages: Pages,
    slots: Box<[Slot]>,
    /// The number of the rule that each slot belongs to.
    owners: Box<[AtomicU8]>,
    spread: Spread,
    /// How many shards are at a higher level.
    left: AtomicUsize,
}

impl Level {
    fn new(spread: Spread, shards: usize) -> Option<Level> {
        let slots = spread.slots().checked_mul(shards)?;
        let owners = slots::allocate_owners(slots)?;
        let slots = slots::allocate(slots)?;
        Some(Level { pages: Pages::new(&slots), slots, owners, spread, left: AtomicUsize::new(0) })
    }

    #[inline(always)]
    fn slots_of(&self, shard: usize) -> &[Slot] {
        let count = self.spread.slots();
        &self.slots[shard * count..][..count]
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.owners)
    }
}

/// All levels of a table.
pub(super) struct Levels {
    all: Box<[Level]>,
    /// The highest that a shard has reached. Nearly always all of them have.
    reached: AtomicUsize,
    shards: usize,
}

/// Does not print a million entries.
impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Levels").field("reached", &self.reached()).finish_non_exhaustive()
    }
}

/// The slots of a shard at its level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area<'t> {
    pub(super) slots: &'t [Slot],
    pub(super) spread: Spread,
    /// The number of the rule of each slot, those of this shard from `first_owner` on.
    pub(super) owners: &'t [AtomicU8],
    pub(super) first_owner: usize,
}

impl Levels {
    /// With this many slots a shard at the last level, or up to a hundredth more or less; `None` when the system does not have the memory.
    pub(super) fn new(slots: usize, shards: usize) -> Option<Levels> {
        let mut shift = 0;
        while shift < MOST_SHIFT && slots >> (shift + STEP) >= FEWEST_SLOTS {
            shift += STEP;
        }
        let half = (1_usize << shift) / 2;
        let first = (slots.checked_add(half)? >> shift) as u64;
        let spreads = (0..=shift).step_by(STEP as usize).map(|shift| Spread { first, shift });
        let all = spreads.map(|spread| Level::new(spread, shards)).collect::<Option<_>>()?;
        Some(Levels { all, reached: AtomicUsize::new(0), shards })
    }

    #[inline(always)]
    pub(super) fn reached(&self) -> usize {
        self.reached.load(Relaxed)
    }

    /// Where the entries of a shard most probably are.
    #[inline(always)]
    pub(super) fn likely(&self, shard: usize) -> (&[Slot], Spread) {
        let level = &self.all[self.reached()];
        (level.slots_of(shard), level.spread)
    }

    #[inline]
    pub(super) fn area(&self, level: usize, shard: usize) -> Area<'_> {
        let Level { owners, spread, .. } = &self.all[level];
        let slots = self.all[level].slots_of(shard);
        Area { slots, spread: *spread, owners, first_owner: shard * slots.len() }
    }

    /// The table has this many keys now. Before the next level is needed, its pages are prepared.
    #[inline]
    pub(super) fn used_by(&self, keys: usize) {
        let reached = self.reached();
        // Half of what makes a shard tight.
        if keys >= self.all[reached].slots.len() / 8 * 3
            && let Some(Level { pages, slots, .. }) = self.all.get(reached + 1)
        {
            pages.prepare(slots);
        }
    }

    /// What the entries take when there are as many as may be.
    pub(super) fn bytes(&self) -> usize {
        self.all.last().map_or(0, Level::bytes)
    }

    /// A shard has left a level: its pages are not needed any more.
    fn leave(&self, level: usize, shard: usize) {
        let Level { slots, owners, left, .. } = &self.all[level];
        // In parts, because it takes time.
        pages::release(self.all[level].slots_of(shard));
        // Who releases the rest has seen what all others did before they left.
        if left.fetch_add(1, AcqRel) + 1 == self.shards {
            pages::release(slots);
            pages::release(owners);
        }
    }
}

impl Locked<'_> {
    /// Moves to the level that others have reached.
    #[cold]
    #[inline(never)]
    pub(super) fn catch_up(&mut self, reached: usize) {
        while self.shard.level < reached && self.grow() {}
    }

    /// Makes this many new keys fit comfortably, as long as there is a higher level.
    pub(super) fn grow_for(&mut self, new: usize) {
        while self.shard.used + new > self.area.slots.len() / 4 * 3 && self.grow() {}
    }

    /// Moves all entries to the next level; false if there is none.
    fn grow(&mut self) -> bool {
        let Some(levels) = self.levels else { return false };
        let (from, to) = (self.shard.level, self.shard.level + 1);
        if to >= levels.all.len() {
            return false;
        }
        let (old, new) = (self.area, levels.area(to, self.number));
        let is_moved = move_entries(old, new);
        // Nothing stays behind where it does not belong.
        let emptied = if is_moved { old } else { new };
        emptied.slots.iter().filter(|slot| slot.tag() != 0).for_each(|slot| slot.set_tag(0));
        if is_moved {
            (self.area, self.shard.level) = (new, to);
            levels.reached.fetch_max(to, Relaxed);
            levels.leave(from, self.number);
        }
        is_moved
    }
}

/// False if an entry would get too far from its home, which does not happen in practice.
fn move_entries(old: Area<'_>, new: Area<'_>) -> bool {
    for (at, slot) in old.slots.iter().enumerate() {
        let tag = slot.tag();
        if tag == 0 {
            continue;
        }
        let distance = (tag & DISTANCE) as usize - 1;
        let home = at.checked_sub(distance).unwrap_or_else(|| at + old.slots.len() - distance);
        let owner = Owner(old.owners[old.first_owner + at].load(Relaxed));
        let Some(to) = runs::open(new, old.spread.next_home(home, tag), tag & !DISTANCE | 1, owner) else {
            return false;
        };
        new.slots[to].set_packed(slot.packed());
    }
    true
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

    #[test]
    fn the_last_level_has_nearly_as_many_slots_as_asked_for() {
        for slots in [8, 63, 64, 255, 256, 1_000, 22_322, 66_965, 1_500_001] {
            let levels = Levels::new(slots, 1).expect("small");
            let last = levels.all.last().expect("never empty").slots.len();
            assert!(last.abs_diff(slots) * 100 <= slots, "{last} for {slots}");
            assert!(levels.all[0].slots.len() < 4 * FEWEST_SLOTS || levels.all.len() == 1, "{slots}");
        }
    }
}
