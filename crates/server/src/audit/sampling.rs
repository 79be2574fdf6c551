//! Sampling of denials: under attack the first denials of a key are recorded one by one, then one record a second
//! stands for all of them.
//!
//! The counts of the records always add up to the denials. Memory is bounded: keys beyond the bound share a record of
//! their rule.

use std::collections::HashMap;

use tollkeeper::{Span, Timestamp};

use super::Violation;

/// Denials of a key that are recorded one by one.
const FIRST: u8 = 5;
/// Keys that have records of their own.
const KEYS: usize = 10_000;
/// A key that was quiet for this long is recorded one by one again.
const QUIET: Span = Span::from_secs(60);
/// What the shared record of a rule names instead of a key.
pub(crate) const MANY_KEYS: &str = "(many keys)";

/// Decides which denials become records.
#[derive(Debug)]
pub(super) struct Sampler {
    room: usize,
    keys: HashMap<u64, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    alone: u8,
    last: Timestamp,
    /// Counts all denials since its own.
    gathering: Option<Violation>,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler::new(KEYS)
    }
}

impl Sampler {
    fn new(room: usize) -> Sampler {
        Sampler { room, keys: HashMap::new() }
    }

    /// Adds a denial of a key, and emits what is to be recorded. `rule` identifies the key's rule. `denial` is called only for a
    /// record: nearly all denials of a flood just add to a count.
    pub(super) fn add(
        &mut self,
        key: u64,
        rule: u64,
        at: Timestamp,
        denial: impl FnOnce() -> Violation,
        mut record: impl FnMut(Violation),
    ) {
        let has_own = self.keys.len() < self.room || self.keys.contains_key(&key);
        let entry = self.keys.entry(if has_own { key } else { rule }).or_default();
        entry.last = at;
        let denial = || match denial() {
            denial if has_own => denial,
            denial => Violation { key: MANY_KEYS.into(), user_id: None, ip: None, endpoint: None, ..denial },
        };
        if entry.alone < FIRST {
            entry.alone += 1;
            return record(denial());
        }
        match &mut entry.gathering {
            Some(gathering) if at < gathering.at + Span::SECOND => gathering.count += 1,
            gathering => {
                if let Some(full) = gathering.replace(denial()) {
                    record(full);
                }
            }
        }
    }

    /// Emits the records whose second has passed, and forgets quiet keys.
    pub(super) fn flush(&mut self, now: Timestamp, mut record: impl FnMut(Violation)) {
        let mut full = Vec::new();
        self.keys.retain(|_, entry| {
            full.extend(entry.gathering.take_if(|gathering| gathering.at + Span::SECOND <= now));
            entry.gathering.is_some() || entry.last + QUIET > now
        });
        full.sort_by_key(|record| record.at);
        full.into_iter().for_each(&mut record);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn denial(at_ms: u64, key: u64) -> Violation {
        let at = Timestamp::from_micros(at_ms * 1_000);
        Violation { at, rule: "r".into(), key: key.to_string(), ..Violation::example() }
    }

    fn records(sampler: &mut Sampler, denials: &[Violation]) -> Vec<Violation> {
        let mut records = Vec::new();
        for denial in denials {
            let key = denial.key.parse().expect("a number");
            sampler.add(key, u64::MAX, denial.at, || denial.clone(), |record| records.push(record));
        }
        records
    }

    #[test]
    fn the_first_are_recorded_alone_and_then_one_a_second() {
        let mut sampler = Sampler::default();
        let denials: Vec<Violation> = (0..3_000).map(|ms| denial(ms, 7)).collect();
        let mut all = records(&mut sampler, &denials);
        sampler.flush(Timestamp::from_micros(60_000_000), |record| all.push(record));
        let counts: Vec<u64> = all.iter().map(|record| record.count).collect();
        assert_eq!(counts, [1, 1, 1, 1, 1, 1_000, 1_000, 995]);
        assert_eq!(sampler.keys.len(), 1, "not quiet for long enough");
        sampler.flush(Timestamp::from_micros(63_000_000), |_| panic!("nothing is left"));
        assert_eq!(sampler.keys.len(), 0);
    }

    proptest! {
        #[test]
        fn the_counts_add_up_to_the_denials_in_bounded_memory(
            steps in prop::collection::vec((0u64..400, 0u64..40, prop::bool::weighted(0.1)), 1..400),
        ) {
            let mut sampler = Sampler::new(10);
            let mut sums: HashMap<String, u64> = HashMap::new();
            let mut at_ms = 0;
            for (step, key, flush) in &steps {
                at_ms += step;
                let mut record = |record: Violation| *sums.entry(record.key).or_default() += record.count;
                sampler.add(*key, u64::MAX, Timestamp::from_micros(at_ms * 1_000), || denial(at_ms, *key), &mut record);
                if *flush {
                    sampler.flush(Timestamp::from_micros(at_ms * 1_000), record);
                }
                prop_assert!(sampler.keys.len() <= 11);
            }
            sampler.flush(Timestamp::MAX, |record| *sums.entry(record.key).or_default() += record.count);
            prop_assert_eq!(sums.values().sum::<u64>(), steps.len() as u64);
            for (key, sum) in sums.iter().filter(|(key, _)| *key != MANY_KEYS) {
                let truth = steps.iter().filter(|(_, one, _)| one.to_string() == **key).count() as u64;
                prop_assert!(*sum <= truth, "{key}: {sum} of {truth}");
            }
            prop_assert!(sampler.keys.is_empty());
        }
    }
}
