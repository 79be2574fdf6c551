//! Which rule an entry belongs to, as a small number: the entries of a flood on one rule are counted against that
//! rule.
//!
//! Only a new key needs the number of its rule, and only moving or dropping an entry reads it. Existing entries are
//! found and charged without it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

/// How many numbers there are.
pub(super) const OWNERS: usize = 256;
/// More names than this share one number: a bound on memory when callers invent rules.
const MOST_NAMES: usize = 10_000;

/// The number of a rule. With more than 255 rules some share a number, and its room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner(pub(super) u8);

/// The known rules, in the order in which they became known.
#[derive(Debug, Default)]
pub(super) struct Owners {
    numbers: RwLock<HashMap<Box<str>, Owner>>,
    count: AtomicUsize,
}

impl Owners {
    /// How many rules are known.
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// All known rules.
    pub(super) fn names(&self) -> Vec<(Box<str>, Owner)> {
        let numbers = self.numbers.read().unwrap_or_else(PoisonError::into_inner);
        numbers.iter().map(|(name, number)| (name.clone(), *number)).collect()
    }

    /// The number of a rule, which becomes known. Without a name there is only one rule.
    pub(super) fn number(&self, rule: &str) -> Owner {
        if rule.is_empty() {
            return Owner::default();
        }
        let known = self.numbers.read().unwrap_or_else(PoisonError::into_inner).get(rule).copied();
        known.unwrap_or_else(|| self.add(rule))
    }

    #[cold]
    fn add(&self, rule: &str) -> Owner {
        let mut numbers = self.numbers.write().unwrap_or_else(PoisonError::into_inner);
        let next = Owner((1 + numbers.len() % (OWNERS - 1)) as u8);
        if numbers.len() >= MOST_NAMES {
            return next;
        }
        let number = *numbers.entry(rule.into()).or_insert(next);
        self.count.store(numbers.len(), Relaxed);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_numbered_as_they_come() {
        let owners = Owners::default();
        assert_eq!([owners.number("a"), owners.number("b"), owners.number("a")], [Owner(1), Owner(2), Owner(1)]);
        assert_eq!((owners.number(""), owners.count()), (Owner(0), 2));
    }

    #[test]
    fn endless_names_are_not_kept() {
        let owners = Owners::default();
        for nth in 0..20_000 {
            owners.number(&format!("rule-{nth}"));
        }
        assert_eq!(owners.count(), MOST_NAMES);
    }
}
