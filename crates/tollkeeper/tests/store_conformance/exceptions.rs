//! Exceptions for single keys: the same over every store.

use tollkeeper::{
    Descriptor, Exception, ExceptionError, ExceptionKind, Grant, Limiter, ManualClock, NamedKey, Policy, Rule,
    RuleSpec, Source, Span, Verdict,
};

use super::NOON;
use crate::every_store::{STORES, now_or_never, turn};

/// A limiter over a store, on a clock that the test moves.
struct World {
    limiter: Limiter,
    clock: ManualClock,
}

impl World {
    fn check(&self, user: &str) -> Verdict {
        let request = Descriptor::new([("user", user), ("tenant", "t")]);
        now_or_never(self.limiter.check(&request)).unwrap()
    }

    fn remaining(&self, user: &str, row: usize) -> u32 {
        self.check(user).rows()[row].decision.remaining
    }

    fn except(&self, rule: &str, key: &str, kind: ExceptionKind, seconds: u64) -> Result<Exception, ExceptionError> {
        let until = self.clock.now() + Span::from_secs(seconds);
        now_or_never(self.limiter.except(Exception::new(rule, key, kind).until(until)))
    }
}

fn grant(limit: &str, burst: u32) -> ExceptionKind {
    ExceptionKind::Grant(Grant { limit: limit.into(), burst: Some(burst) })
}

fn policy() -> Policy {
    let rule = |name: &str, key: &str, limit: &str| RuleSpec {
        name: name.into(),
        key: key.into(),
        limit: limit.into(),
        ..RuleSpec::default()
    };
    Policy::new([rule("per-user", "{user}", "10/s"), rule("per-tenant", "{tenant}", "100/s")]).unwrap()
}

fn for_each_world(test: impl Fn(World)) {
    for (name, new) in STORES {
        println!("store: {name}");
        let (_turn, clock) = (turn(name), ManualClock::at(NOON));
        test(World { limiter: Limiter::new(policy(), new(clock.clone())), clock });
    }
}

#[test]
fn a_blocked_key_is_denied_at_once_until_the_end() {
    for_each_world(|world| {
        assert!(world.check("a").is_allowed());
        world.except("per-user", "a", ExceptionKind::Block, 60).unwrap();
        let denied = world.check("a");
        assert_eq!(denied.limiting().unwrap().charge.rule.name(), "per-user");
        assert_eq!((denied.retry_after(), denied.source()), (Some(Span::from_secs(60)), Source::Exception));
        assert!(!denied.is_unavailable());
        assert_eq!(world.remaining("b", 1), 98, "another key passes, and nobody was charged for the blocked one");
        world.clock.advance(Span::from_secs(60) - Span::from_micros(1));
        assert_eq!(world.check("a").retry_after(), Some(Span::from_micros(1)));
        world.clock.advance(Span::from_micros(1));
        assert!(world.check("a").is_allowed());
        assert!(world.limiter.exceptions().is_empty());
    });
}

#[test]
fn without_an_end_nobody_is_asked_to_retry() {
    for_each_world(|world| {
        now_or_never(world.limiter.except(Exception::new("per-user", "a", ExceptionKind::Block).because("abuse")))
            .unwrap();
        assert_eq!(world.check("a").retry_after(), None);
        assert_eq!(world.limiter.exceptions()[0].reason.as_deref(), Some("abuse"));
        assert!(now_or_never(world.limiter.lift(Some("per-user"), "a")).unwrap().is_some());
        assert!(now_or_never(world.limiter.lift(Some("per-user"), "a")).unwrap().is_none());
        assert!(world.check("a").is_allowed());
    });
}

#[test]
fn an_allowed_key_is_not_charged() {
    for_each_world(|world| {
        world.except("per-user", "a", ExceptionKind::Allow, 60).unwrap();
        for left in (80..100).rev() {
            let verdict = world.check("a");
            assert!(verdict.is_allowed());
            let [user, tenant] = verdict.rows() else { panic!("two rules apply") };
            assert_eq!((user.decision.remaining, user.source), (10, Source::Exception));
            assert_eq!((tenant.decision.remaining, tenant.source), (left, Source::Store), "the other rule counts");
        }
        world.clock.advance(Span::from_secs(60));
        assert_eq!(world.remaining("a", 0), 9, "nothing was charged meanwhile");
    });
}

/// In both directions missing tokens stay missing: a client gets no burst from a grant, or from its end.
#[test]
fn a_grant_is_another_limit_and_ends_without_a_burst() {
    for_each_world(|world| {
        for _ in 0..10 {
            world.check("a");
        }
        assert!(!world.check("a").is_allowed());
        world.except("per-user", "a", grant("20/s", 50), 10).unwrap();
        for left in (0..40).rev() {
            assert_eq!(world.remaining("a", 0), left);
        }
        assert!(!world.check("a").is_allowed());
        assert!(world.check("b").is_allowed());
        assert_eq!(world.limiter.exceptions().len(), 1);
        // A larger grant replaces it: tokens missing from the first stay missing.
        world.except("per-user", "a", grant("40/s", 60), 1).unwrap();
        assert_eq!(world.remaining("a", 0), 9);
        world.clock.advance(Span::from_micros(500_000));
        assert_eq!(world.remaining("a", 0), 28, "twenty came back in half a second");
        assert!(now_or_never(world.limiter.lift(Some("per-user"), "a")).unwrap().is_some());
        assert!(world.limiter.exceptions().is_empty());
        assert!(!world.check("a").is_allowed(), "32 are missing, which is more than ten");
        world.clock.advance(Span::from_micros(100_000));
        assert_eq!(world.remaining("a", 0), 0, "and one comes back in a tenth of a second");
    });
}

#[test]
fn an_exception_from_every_rule_gives_way_to_one_from_a_rule() {
    for_each_world(|world| {
        world.except("*", "a", ExceptionKind::Block, 60).unwrap();
        assert!(!world.check("a").is_allowed());
        world.except("per-user", "a", ExceptionKind::Allow, 30).unwrap();
        assert!(world.check("a").is_allowed());
        world.clock.advance(Span::from_secs(30));
        assert!(!world.check("a").is_allowed());
        world.except("*", "t", ExceptionKind::Block, 60).unwrap();
        assert_eq!(world.check("b").limiting().unwrap().charge.rule.name(), "per-tenant");
    });
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for_each_world(|world| {
        let refused =
            |rule: &str, key: &str, kind, seconds| world.except(rule, key, kind, seconds).unwrap_err().to_string();
        assert!(refused("per-usr", "a", ExceptionKind::Block, 1).starts_with("rule: there is none named \"per-usr\""));
        assert!(refused("per-user", "", ExceptionKind::Block, 1).starts_with("key: is empty"));
        assert!(refused("per-user", "a", ExceptionKind::Block, 0).starts_with("until: is not in the future"));
        assert!(refused("per-user", "a", grant("lots", 1), 1).starts_with("limit: "));
        assert!(refused("*", "a", grant("10", 1), 1).starts_with("limit: "));
        assert!(refused("per-user", "a", grant("10/s", 0), 1).starts_with("burst: "));
        assert!(world.limiter.exceptions().is_empty());
    });
}

/// After `allow --key 198.51.100.7` on a rule keyed `{header.x-api-key|ip}`, any client that sent that address as an
/// API key passed without a limit: exceptions were looked up by the text of the key alone, not by its alternative.
#[test]
fn an_api_key_that_looks_like_an_address_has_no_part_in_the_exceptions_of_the_address() {
    const ADDRESS: &str = "198.51.100.7";
    let rules = || {
        let clients = Rule::new("clients").key("{header.x-api-key|ip}").limit("1/day");
        let ambiguous = Rule::new("ambiguous").key("{header.x-api-key|user|ip}").limit("1/day").when("path", "/a");
        Policy::new([clients, ambiguous]).unwrap()
    };
    for (name, new) in STORES {
        println!("store: {name}");
        let (_turn, clock) = (turn(name), ManualClock::at(NOON));
        let limiter = Limiter::new(rules(), new(clock.clone()));
        let ask = |attributes: &[(&str, &str)]| {
            let verdict = now_or_never(limiter.check(&Descriptor::new(attributes.iter().copied()))).unwrap();
            (verdict.is_allowed(), verdict.source())
        };
        let address = || ask(&[("ip", ADDRESS)]);
        let spoofed = || ask(&[("header.x-api-key", ADDRESS), ("ip", "203.0.113.9")]);
        let make = |rule: &str, kind, by: &str| {
            now_or_never(limiter.except(Exception::new(rule, NamedKey::from(ADDRESS).by(by), kind)))
        };
        let lift = |by: &str| now_or_never(limiter.lift(Some("clients"), NamedKey::from(ADDRESS).by(by)));

        let made = make("clients", ExceptionKind::Allow, "").unwrap();
        assert_eq!(made.by.to_string(), "ip", "an address is one");
        for _ in 0..3 {
            assert_eq!(address(), (true, Source::Exception));
        }
        assert_eq!(spoofed(), (true, Source::Store), "its own bucket of one");
        assert!(!spoofed().0, "and no more");

        // Both at once: the address passes, and the API key is blocked.
        make("clients", ExceptionKind::Block, "header.x-api-key").unwrap();
        assert_eq!(limiter.exceptions().len(), 2);
        assert_eq!((address(), spoofed()), ((true, Source::Exception), (false, Source::Exception)));
        assert_eq!(lift("").unwrap().unwrap().by.to_string(), "ip", "found out as when it was made");
        assert_eq!((address().1, spoofed().1), (Source::Store, Source::Exception));
        assert!(lift("ip").unwrap().is_none());
        assert!(lift("header.x-api-key").unwrap().is_some());

        // For every rule, it applies where the bucket is unambiguous.
        make("*", ExceptionKind::Allow, "").unwrap();
        assert_eq!(address(), (true, Source::Exception));
        assert_ne!(spoofed().1, Source::Exception);
        now_or_never(limiter.lift(None, ADDRESS)).unwrap().unwrap();
        make("*", ExceptionKind::Block, "header.x-api-key").unwrap();
        assert_eq!(spoofed(), (false, Source::Exception));
        assert_ne!(address().1, Source::Exception);

        let unclear = Exception::new("ambiguous", "42", ExceptionKind::Block);
        let refused = now_or_never(limiter.except(unclear)).unwrap_err().to_string();
        assert!(refused.starts_with("by: ") && refused.contains("header.x-api-key or user or ip"), "{refused}");
        let wrong = Exception::new("clients", NamedKey::from("42").by("user"), ExceptionKind::Block);
        let refused = now_or_never(limiter.except(wrong)).unwrap_err().to_string();
        assert!(refused.contains("use header.x-api-key or ip"), "{refused}");
    }
}
