//! Which charges of a key were refunded, and how much, while estimates are unsettled.

use std::fmt;

use super::receipt::Receipt;
use super::state::State;
use crate::time::Timestamp;

/// The refunds of one key. A refund of a later charge has no effect on settling an earlier one (see
/// [`State::settle`]), so refunds are kept by their charge, earliest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refunds {
    by_charge: Vec<Refunded>,
}

/// What was refunded of a charge, or of several between which there is no unsettled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refunded {
    of: Place,
    back: u64,
}

/// Which charge of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Timestamp,
    /// Orders the charges of one moment: what was used after the charge, and refunded before it. A charge adds its cost to that, and
    /// a refund takes nothing from it. 0 where it is not known, as in what 0.1.0 wrote.
    nth: u64,
}

impl Place {
    /// `before` was the total when it was charged.
    fn of(receipt: Receipt, before: u64) -> Place {
        let nth = if receipt.nth == 0 { 0 } else { before + u64::from(receipt.nth) };
        Place { at: receipt.at, nth }
    }

    /// Whether this charge is certainly later.
    fn is_after(self, other: Place) -> bool {
        self.at > other.at || (self.at == other.at && other.nth > 0 && self.nth > other.nth)
    }
}

impl Refunds {
    /// A bound on memory. Beyond it the two earliest are merged under the time of the earlier one, so that they count
    /// for more charges, never for fewer.
    const MOST: usize = 64;

    /// The total, which an estimate charged now has to remember. What a clock that has stepped back since left behind is not in
    /// it: that does not count for the estimate later either.
    pub fn total(&self, now: Timestamp) -> u64 {
        self.by_charge.iter().filter(|refunded| refunded.of.at <= now).map(|refunded| refunded.back).sum()
    }

    /// Those of earlier charges than this one, since it was made: `before` was the total then.
    pub fn since(&self, receipt: Receipt, before: u64) -> u64 {
        let charge = Place::of(receipt, before);
        let earlier = self.by_charge.iter().filter(|refunded| !refunded.of.is_after(charge));
        earlier.map(|refunded| refunded.back).sum::<u64>().saturating_sub(before)
    }

    /// Records that this much of a charge was refunded. `before` was the total when it was made. If the clock has stepped back since,
    /// charges after it may seem to be before it, so it counts for all.
    pub fn add(&mut self, receipt: Receipt, before: u64, back: u64, now: Timestamp) {
        let of = if receipt.at <= now { Place::of(receipt, before) } else { Place::default() };
        self.insert(Refunded { of, back });
    }

    /// Records that this much was refunded, and it is not known of which charges. It counts for all of them.
    pub fn add_of_any(&mut self, back: u64) {
        self.insert(Refunded { of: Place::default(), back });
    }

    /// The key was reset, which refunds everything charged before.
    pub fn reset(&mut self) {
        self.add_of_any(State::RESET);
    }

    fn insert(&mut self, new: Refunded) {
        let place = self.by_charge.partition_point(|refunded| refunded.of < new.of);
        match self.by_charge.get_mut(place).filter(|known| known.of == new.of) {
            Some(known) => known.back += new.back,
            None => {
                self.by_charge.insert(place, new);
                self.join(place);
                if place > 0 {
                    self.join(place - 1);
                }
            }
        }
        if self.by_charge.len() > Refunds::MOST {
            let Refunded { back, .. } = self.by_charge.remove(1);
            let earliest = &mut self.by_charge[0];
            *earliest = Refunded { of: Place { nth: 0, ..earliest.of }, back: earliest.back + back };
        }
    }

    /// Makes one of two that follow each other, if the second is of charges right after the first: all of them are settled, and
    /// for every other charge they count alike. So requests that overlap take little room.
    fn join(&mut self, first: usize) {
        let Some(&[one, next]) = self.by_charge.get(first..first + 2) else { return };
        if one.of.at == next.of.at && one.of.nth > 0 && one.of.nth + next.back == next.of.nth {
            self.by_charge[first + 1].back += one.back;
            self.by_charge.remove(first);
        }
    }
}

/// As stored beside the key: `1700000000000000:12/42,...`, or without the last number where it is 0. 0.1.0 does not know it, reads
/// what is before it, and drops it.
impl fmt::Display for Refunds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Refunded { of: Place { at, nth }, back }) in self.by_charge.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{}:{back}", at.as_micros())?;
            if *nth > 0 {
                write!(f, "/{nth}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later than all charges, unless the clock has stepped back.
    const NOW: Timestamp = Timestamp::from_micros(1_000);

    /// Of the charge at this moment after which so much was used; 0 if that is not known.
    fn charge(micros: u64, used: u32) -> Receipt {
        Receipt { cost: 1, at: Timestamp::from_micros(micros), nth: used, is_lease: false, after: None }
    }

    #[test]
    fn later_charges_do_not_bear_on_earlier_ones() {
        let mut refunds = Refunds::default();
        refunds.add(charge(10, 0), 0, 5, NOW);
        let before = refunds.total(NOW);
        refunds.add(charge(30, 0), 0, 7, NOW);
        refunds.add(charge(10, 0), 0, 1, NOW);
        assert_eq!((refunds.since(charge(20, 0), before), refunds.since(charge(30, 0), before)), (1, 8));
        refunds.reset();
        assert!(refunds.since(charge(20, 0), before) >= State::RESET);
        assert_eq!(refunds.since(charge(40, 0), refunds.total(NOW)), 0);
        assert_eq!(refunds.to_string(), "0:1099511627776,10:6,30:7");
    }

    /// What was refunded before a step back was in the total that a later estimate remembered, but its charges seemed later than the
    /// estimate. So as much of what was refunded since did not count.
    #[test]
    fn a_clock_that_steps_back_hides_no_refunds() {
        let (mut refunds, now) = (Refunds::default(), Timestamp::from_micros(20));
        refunds.add(charge(30, 5), 0, 5, NOW);
        let before = refunds.total(now);
        refunds.add(charge(19, 2), 0, 2, now);
        refunds.add(charge(30, 9), 0, 4, now);
        assert_eq!((before, refunds.since(charge(20, 3), before)), (0, 6));
        assert_eq!(refunds.total(NOW), 11);
    }

    /// Those of one call are charged at one moment, and refunds of the later ones were counted for the earlier ones.
    #[test]
    fn charges_of_one_moment_have_an_order() {
        let mut refunds = Refunds::default();
        refunds.add(charge(10, 6), 0, 2, NOW);
        assert_eq!([2, 4, 8].map(|used| refunds.since(charge(10, used), 0)), [0, 0, 2]);
        // After that refund, as much was used as before it, and this charge is the later one.
        refunds.add(charge(10, 6), 2, 1, NOW);
        assert_eq!(refunds.to_string(), "10:2/6,10:1/8");
        assert_eq!((refunds.since(charge(10, 6), 0), refunds.since(charge(10, 8), 2)), (2, 1));
    }

    /// As tickets and counts of 0.1.0.
    #[test]
    fn where_the_order_is_not_known_all_of_the_moment_count() {
        let mut refunds = Refunds::default();
        refunds.add(charge(10, 6), 0, 2, NOW);
        refunds.add(charge(10, 0), 0, 1, NOW);
        assert_eq!(refunds.to_string(), "10:1,10:2/6");
        assert_eq!(
            [(9, 0), (10, 0), (10, 4), (11, 1)].map(|(at, used)| refunds.since(charge(at, used), 0)),
            [0, 3, 1, 3]
        );
    }

    /// It takes every pair of numbers with a colon between them.
    #[test]
    fn for_0_1_0_it_is_the_same_without_the_order() {
        let mut refunds = Refunds::default();
        for (at, used, back) in [(10, 7, 1), (10, 0, 2), (30, 1, 4), (30, 9, 7), (50, 0, 16)] {
            refunds.add(charge(at, used), 100, back, NOW);
        }
        let stored = refunds.to_string();
        assert_eq!(stored, "10:2,10:1/107,30:4/101,30:7/109,50:16");
        let number = |digits: &str| digits.parse::<u64>().expect("a number");
        let pieces: Vec<&str> = stored.split(':').collect();
        let pairs = pieces.windows(2).map(|pair| {
            let at = pair[0].rsplit(|c: char| !c.is_ascii_digit()).next().map(number);
            let back = pair[1].split(|c: char| !c.is_ascii_digit()).next().map(number);
            (at.unwrap_or_default(), back.unwrap_or_default())
        });
        assert_eq!(pairs.collect::<Vec<_>>(), [(10, 2), (10, 1), (30, 4), (30, 7), (50, 16)]);
    }

    #[test]
    fn those_of_neighbours_are_one() {
        let mut refunds = Refunds::default();
        let order: [u32; 6] = [5, 1, 3, 2, 6, 8];
        let stored = order.map(|used| {
            refunds.add(charge(10, used), 0, 1, NOW);
            refunds.to_string()
        });
        let third = "10:1/1,10:1/3,10:1/5";
        assert_eq!(
            stored,
            ["10:1/5", "10:1/1,10:1/5", third, "10:3/3,10:1/5", "10:3/3,10:2/6", "10:3/3,10:2/6,10:1/8"]
        );
        assert_eq!([4, 7, 9].map(|used| refunds.since(charge(10, used), 0)), [3, 5, 6]);
    }

    #[test]
    fn of_too_many_the_earliest_are_taken_together_and_bear_on_no_fewer() {
        for used in [0, 7] {
            let mut refunds = Refunds::default();
            for micros in 1..=100 {
                refunds.add(charge(micros, used), 0, 1, NOW);
            }
            assert_eq!((refunds.by_charge.len(), refunds.total(NOW)), (64, 100));
            for micros in 1..=100 {
                assert!(refunds.since(charge(micros, used), 0) >= micros);
            }
            assert_eq!(refunds.since(charge(90, used), 0), 90);
        }
    }
}
