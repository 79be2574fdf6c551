//! Whether more was admitted than the rules allow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tollkeeper::{Algorithm, Charge, Key, Policy, Quota, Rule, Span, Timestamp};

use super::target::Target;

/// The clocks of two machines may differ by this much, for windows that start at fixed times.
const CLOCKS: Span = Span::from_micros(100_000);

/// When the first request was sent and the last one answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) begun: Timestamp,
    pub(crate) took: Duration,
}

/// The keys of one rule.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) rule: Arc<Rule>,
    pub(crate) keys: u64,
    /// How many of them got more than the rule allows.
    pub(crate) exceeded: u64,
    /// The one that got the most of what the rule allows.
    pub(crate) fullest: Fullest,
}

/// What one key got.
#[derive(Clone, Debug)]
pub(crate) struct Fullest {
    pub(crate) key: String,
    pub(crate) admitted: u64,
    pub(crate) lawful: u64,
}

/// Judges what was admitted by the enforced rules that have a rate, in the order of the file.
pub(crate) fn judge(
    policy: &Policy,
    target: &Target,
    admitted: impl Iterator<Item = u32>,
    stretch: Stretch,
) -> Vec<Judged> {
    let mut buckets: HashMap<(String, Key), (Charge, u64)> = HashMap::new();
    for (number, count) in admitted.enumerate().filter(|(_, count)| *count > 0) {
        for charge in policy.charges(&target.descriptor(number as u64)).unwrap_or_default() {
            let is_judged = charge.rule.is_enforced() && charge.quota().algorithm() != Algorithm::Concurrency;
            if is_judged && charge.cost > 0 {
                let spent = u64::from(count) * u64::from(charge.cost);
                let bucket = (charge.rule.name().to_string(), charge.key.clone());
                buckets.entry(bucket).or_insert((charge, 0)).1 += spent;
            }
        }
    }
    let mut judged: HashMap<String, Judged> = HashMap::new();
    for ((rule, key), (charge, admitted)) in buckets {
        let fullest = Fullest { key: key.value, admitted, lawful: lawful(charge.quota(), stretch) };
        let first = || Judged { rule: charge.rule.clone(), keys: 0, exceeded: 0, fullest: fullest.clone() };
        let rule = judged.entry(rule).or_insert_with(first);
        rule.keys += 1;
        rule.exceeded += u64::from(fullest.admitted > fullest.lawful);
        if share(&fullest) > share(&rule.fullest) {
            rule.fullest = fullest;
        }
    }
    policy.rules().iter().filter_map(|rule| judged.remove(rule.name())).collect()
}

fn share(of: &Fullest) -> f64 {
    of.admitted as f64 / of.lawful.max(1) as f64
}

/// The most that a key can get in such a stretch, whatever it used before.
fn lawful(quota: &Quota, stretch: Stretch) -> u64 {
    let (count, period) = (u64::from(quota.count()), quota.period().as_micros().max(1));
    let took = stretch.took.as_micros() as u64;
    match quota.algorithm() {
        Algorithm::FixedWindow => {
            let mut windows = 1;
            let mut window = quota.window_at(Timestamp::from_micros(
                stretch.begun.since(Timestamp::from_micros(CLOCKS.as_micros())).as_micros(),
            ));
            let end = stretch.begun + Span::from_micros(took) + CLOCKS;
            while window.end < end {
                window = quota.window_at(window.end);
                windows += 1;
            }
            count * windows
        }
        Algorithm::SlidingWindowLog => count * (took / period + 1),
        // Its estimate may be one window too low.
        Algorithm::SlidingWindowCounter => count * (took / period + 2),
        _ => u64::from(quota.limit()) + (u128::from(count) * u128::from(took)).div_ceil(u128::from(period)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(text: &str) -> Quota {
        text.parse().expect(text)
    }

    #[test]
    fn a_stretch_admits_what_was_there_and_what_came() {
        let stretch = Stretch { begun: Timestamp::from_micros(1_700_000_000_000_000), took: Duration::from_secs(10) };
        assert_eq!(lawful(&quota("10/s burst 20"), stretch), 120);
        assert_eq!(lawful(&quota("100/min"), stretch), 117);
        // 1,700,000,000 is 20 seconds into a minute.
        assert_eq!(lawful(&quota("100/min algorithm fixed_window"), stretch), 100);
        let longer = Stretch { took: Duration::from_secs(41), ..stretch };
        assert_eq!(lawful(&quota("100/min algorithm fixed_window"), longer), 200);
        assert_eq!(lawful(&quota("5/s algorithm sliding_window_log"), stretch), 55);
    }

    #[test]
    fn keys_of_one_bucket_are_added_up() {
        let rules = "rules:\n- {name: all, key: global, limit: 10/h}\n- {name: each, key: '{user_id}', limit: 5/h}\n";
        let policy = tollkeeper::policy_from_yaml(rules).expect("valid rules");
        let target = Target::parse("http://127.0.0.1:8080", "user_id", &[], None).expect("valid");
        let stretch = Stretch { begun: Timestamp::from_micros(0), took: Duration::from_secs(1) };
        let judged = judge(&policy, &target, [5, 4, 0, 3].into_iter(), stretch);
        let shown: Vec<_> = judged
            .iter()
            .map(|each| (each.rule.name(), each.keys, each.exceeded, each.fullest.admitted, each.fullest.lawful))
            .collect();
        assert_eq!(shown, [("all", 1, 1, 12, 11), ("each", 3, 0, 5, 6)]);
    }
}
