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
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use super::area::{Area, MOST_SHIFT, STEP, Spread};
use super::pages::Pages;
use super::returned::{self, Left};
use super::slots::{self, Slot};

/// A shard has at least this many slots, so that keys, which are spread at random, fill all shards alike.
const FEWEST_SLOTS: usize = 32;

/// The slots of all shards, one shard after the other.
struct Level {
    /// Dropped before the slots.
    pages: Pages,
    slots: Box<[Slot]>,
    /// The number of the rule that each slot belongs to.
    owners: Box<[AtomicU8]>,
    spread: Spread,
    left: Left,
}

impl Level {
    fn new(spread: Spread, shards: usize) -> Option<Level> {
        let slots = spread.slots().checked_mul(shards)?;
        let owners = slots::allocate_owners(slots)?;
        let slots = slots::allocate(slots)?;
        Some(Level { pages: Pages::new(&slots), slots, owners, spread, left: Left::new(shards) })
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
}

/// Does not print a million entries.
impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Levels").field("reached", &self.reached()).finish_non_exhaustive()
    }
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
        let spreads = (0..=shift).step_by(STEP as usize).map(|shift| Spread::new(first, shift));
        let all = spreads.map(|spread| Level::new(spread, shards)).collect::<Option<_>>()?;
        Some(Levels { all, reached: AtomicUsize::new(0) })
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

    /// Whether there is such a level.
    pub(super) fn has(&self, level: usize) -> bool {
        level < self.all.len()
    }

    /// A shard has gone on from a level to the next: its pages there are not needed any more.
    pub(super) fn leave(&self, level: usize, shard: usize) {
        self.reached.fetch_max(level + 1, Relaxed);
        let Level { slots, owners, left, spread, .. } = &self.all[level];
        let emptied = left.add(shard);
        returned::release(slots, emptied, spread.slots());
        returned::release(owners, emptied, spread.slots());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
