//! Which charges of a key were refunded, and how much, while estimates are unsettled.

use std::fmt;

use super::state::State;
use crate::time::Timestamp;

/// The refunds of one key. A refund of a later charge has no effect on settling an earlier one (see
/// [`State::settle`]), so refunds are kept by the time of their charge, earliest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refunds {
    by_charge: Vec<(Timestamp, u64)>,
}

impl Refunds {
    /// A bound on memory. Beyond it the two earliest are merged under the time of the earlier one, so that they count
    /// for more charges, never for fewer.
    const MOST: usize = 64;

    /// The total, which an estimate charged now has to remember.
    pub fn total(&self) -> u64 {
        self.by_charge.iter().map(|(_, back)| back).sum()
    }

    /// Those that matter to a charge made at this moment, since it was made: `before` was the total then.
    pub fn since(&self, charged: Timestamp, before: u64) -> u64 {
        let earlier = self.by_charge.iter().take_while(|(of, _)| *of <= charged);
        earlier.map(|(_, back)| back).sum::<u64>().saturating_sub(before)
    }

    /// Records that this much of the charge of this moment was refunded.
    pub fn add(&mut self, charged: Timestamp, back: u64) {
        match self.by_charge.binary_search_by_key(&charged, |(of, _)| *of) {
            Ok(known) => self.by_charge[known].1 += back,
            Err(place) => self.by_charge.insert(place, (charged, back)),
        }
        if self.by_charge.len() > Refunds::MOST {
            let (_, back) = self.by_charge.remove(1);
            self.by_charge[0].1 += back;
        }
    }

    /// The key was reset, which refunds everything charged before.
    pub fn reset(&mut self) {
        self.add(Timestamp::default(), State::RESET);
    }
}

/// As stored beside the key: `1700000000000000:12,...`.
impl fmt::Display for Refunds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (of, back)) in self.by_charge.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{}:{back}", of.as_micros())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn later_charges_do_not_bear_on_earlier_ones() {
        let mut refunds = Refunds::default();
        refunds.add(at(10), 5);
        let before = refunds.total();
        refunds.add(at(30), 7);
        refunds.add(at(10), 1);
        assert_eq!((refunds.since(at(20), before), refunds.since(at(30), before)), (1, 8));
        refunds.reset();
        assert!(refunds.since(at(20), before) >= State::RESET);
        assert_eq!(refunds.since(at(40), refunds.total()), 0);
        assert_eq!(refunds.to_string(), "0:1099511627776,10:6,30:7");
    }

    #[test]
    fn of_too_many_the_earliest_are_taken_together_and_bear_on_no_fewer() {
        let mut refunds = Refunds::default();
        for micros in 1..=100 {
            refunds.add(at(micros), 1);
        }
        assert_eq!((refunds.by_charge.len(), refunds.total()), (64, 100));
        for micros in 1..=100 {
            assert!(refunds.since(at(micros), 0) >= micros);
        }
        assert_eq!(refunds.since(at(90), 0), 90);
    }
}
