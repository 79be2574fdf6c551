//! What a changed rule would have denied of the remembered requests, before it is saved.

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{Algorithm, Policy, Rule, Timestamp};
use tollkeeper_tune::{Journal, Replayed, percent, span_of};

/// What a rule would have decided.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Preview {
    /// For people; also why there are no numbers.
    sentence: String,
    /// Null when the remembered requests cannot tell.
    replayed: Option<Numbers>,
}

/// The remembered requests of the rule's keys, run against the new numbers.
#[derive(Debug, Serialize, JsonSchema)]
struct Numbers {
    /// The time covered, in seconds: up to six hours.
    seconds: u64,
    /// Requests in that time: all of them, or those of some keys unless `exact`.
    requests: u64,
    /// Those that it would have denied.
    denied: u64,
    /// Their share, 0 to 1.
    share_denied: f64,
    /// Those that were denied in fact, or would have been in shadow mode.
    denied_before: u64,
    /// Different keys.
    keys: u64,
    /// Those that it would have denied at least once.
    keys_denied: u64,
    /// Whether these are all requests; otherwise all of some keys, chosen by chance.
    exact: bool,
}

impl Preview {
    /// Runs remembered requests against a rule, or says why there are none.
    pub(super) fn new(journal: Result<Journal, &'static str>, rule: Rule, now: Timestamp) -> Preview {
        match journal {
            Err(why) => Preview { sentence: why.into(), replayed: None },
            Ok(journal) => Preview::of(journal.replay(&rule, now)),
        }
    }

    /// Whether past requests can tell what a rule would do, or why they cannot.
    pub(super) fn check(policy: &Policy, rule: &Rule) -> Result<(), &'static str> {
        let Some(former) = policy.rule(rule.name()) else {
            return Err("a new rule has no traffic yet: save it in shadow mode first, and see what it would deny");
        };
        let (new, old) = (rule.spec(), former.spec());
        if new.when != old.when || new.key != old.key || new.cost != old.cost {
            return Err(
                "only changes to the limit can be tried on past requests; to change the key, `when` or cost, save the \
                 rule in shadow mode first",
            );
        }
        if [rule, &**former].iter().any(|rule| rule.quota().algorithm() == Algorithm::Concurrency) {
            return Err(
                "a concurrency limit cannot be tried on past requests, because it is unknown when they would have \
                 ended",
            );
        }
        Ok(())
    }

    fn of(replayed: Replayed) -> Preview {
        let Replayed { seconds, requests, denied, denied_before, keys, keys_denied, exact } = replayed;
        if requests == 0 {
            return Preview { sentence: "no request matched this rule in the last 6 hours".into(), replayed: None };
        }
        let share = |count: u64| count as f64 / requests as f64;
        let about = if exact { "" } else { "about " };
        let sentence = format!(
            "would have denied {about}{} of requests and {about}{} of keys in the last {}; {about}{} of requests were denied",
            percent(share(denied)),
            percent(keys_denied as f64 / keys.max(1) as f64),
            span_of(seconds),
            percent(share(denied_before)),
        );
        let share_denied = share(denied);
        let numbers = Numbers { seconds, requests, denied, share_denied, denied_before, keys, keys_denied, exact };
        Preview { sentence, replayed: Some(numbers) }
    }
}
