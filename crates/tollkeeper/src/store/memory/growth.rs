//! A shard that gets tight moves its entries to the next level.

use std::sync::atomic::Ordering::Relaxed;

use super::area::Area;
use super::identity::DISTANCE;
use super::owners::Owner;
use super::runs;
use super::shard::Locked;

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
        if !levels.has(to) {
            return false;
        }
        let (old, new) = (self.area, levels.area(to, self.number));
        let is_moved = move_entries(old, new);
        // Nothing stays behind where it does not belong.
        let emptied = if is_moved { old } else { new };
        emptied.slots.iter().filter(|slot| slot.tag() != 0).for_each(|slot| slot.set_tag(0));
        if is_moved {
            (self.area, self.shard.level) = (new, to);
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
