//! How often rules did not apply because requests lacked what they need.

use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule};

fn counts(limiter: &Limiter) -> Vec<u64> {
    limiter.lacking().into_iter().map(|(_, count)| count).collect()
}

#[test]
fn only_rules_that_lack_something_are_counted() {
    let rules = [Rule::new("everyone").key("{ip}").limit("9/min"), Rule::new("users").key("{user}").limit("9/min")];
    let limiter = Limiter::new(Policy::new(rules).unwrap(), MemoryStore::new());
    limiter.try_check(&Descriptor::new([("ip", "192.0.2.1"), ("user", "42")])).unwrap();
    assert_eq!(counts(&limiter), [0, 0], "all rules were charged");
    limiter.try_check(&Descriptor::new([("ip", "192.0.2.1")])).unwrap();
    assert_eq!(counts(&limiter).iter().sum::<u64>(), 1);
    let (lacking, _) = limiter.lacking().into_iter().find(|(_, count)| *count == 1).unwrap();
    assert_eq!(lacking.name(), "users");
}

/// A rule with a condition that the request does not meet is not charged either, and lacks nothing.
#[test]
fn a_rule_that_does_not_apply_lacks_nothing() {
    let rules = [
        Rule::new("everyone").key("{ip}").limit("9/min"),
        Rule::new("writes").key("{ip}").when("method", "POST").limit("9/min"),
    ];
    let limiter = Limiter::new(Policy::new(rules).unwrap(), MemoryStore::new());
    limiter.try_check(&Descriptor::new([("ip", "192.0.2.1"), ("method", "GET")])).unwrap();
    assert_eq!(counts(&limiter), [0, 0]);
}
