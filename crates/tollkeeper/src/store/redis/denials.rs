//! A cache of denials that are still true, so that a client that hammers a limit costs the store nothing.
//!
//! A denial with its exact wait is a proof: until then the same request cannot pass, whatever else is admitted. It is
//! cached by the clock of this process. The server decided between the moments at which the call was sent and its
//! answer came. Counted from the first, the wait ends no later than on the server, so no client is denied for longer
//! than necessary. The remaining wait in an answer is counted from the second, so a client that obeys it does not
//! come too early.
//!
//! A reset, a refund or a changed clock on the server could end a denial early. A reset by this instance drops the
//! cache at once, and so does settling an estimate; for everything else, a denial is checked again after at most a second.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper_core::{Algorithm, Charge, Decision, Outcome, Source, Span};

use super::instant::Instant;
use crate::store::memory::{Id, Secret};

/// Cached denials. A new one replaces an old one in the same slot: forgetting only costs a call.
pub(super) struct Denials {
    secret: Secret,
    slots: Box<[Mutex<Option<Denial>>]>,
    /// How often all were forgotten.
    forgotten: AtomicU64,
}

struct Denial {
    /// Of the whole request: rules, keys and costs.
    id: Id,
    /// True until then,
    until: Instant,
    /// and known since.
    since: Instant,
    /// What was counted in [`Denials::forgotten`] when it was asked for.
    forgotten: u64,
    decisions: Box<[Decision]>,
}

/// A request before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    id: Id,
    /// What was counted in [`Denials::forgotten`]: a denial may be decided before a reset and be answered after it.
    forgotten: u64,
}

/// The parts of a request that matter to its decision.
struct Request<'c>(&'c [Charge]);

impl Hash for Request<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for charge in self.0 {
            let Charge { rule, key, cost, .. } = charge;
            (rule.name(), charge.quota(), charge.enforcement(), key.variant, &*key.value, cost).hash(state);
        }
    }
}

impl Denials {
    /// A few megabytes when all are used.
    const SLOTS: usize = 1 << 14;
    const LONGEST: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Denials {
        let slots = (0..Denials::SLOTS).map(|_| Mutex::new(None)).collect();
        Denials { secret: Secret::random(), slots, forgotten: AtomicU64::new(0) }
    }

    pub(super) fn question(&self, charges: &[Charge]) -> Question {
        Question { id: self.secret.key(&Request(charges)), forgotten: self.forgotten.load(Relaxed) }
    }

    /// The answer to a request that was denied before and still is.
    pub(super) fn recall(&self, question: Question, now: Instant) -> Option<Vec<(Decision, Source)>> {
        let Question { id, forgotten } = question;
        let slot = self.slot(id);
        let is_true = |denial: &&Denial| denial.id == id && now < denial.until && denial.forgotten == forgotten;
        let denial = slot.as_ref().filter(is_true)?;
        let elapsed = Span::from(now.saturating_duration_since(denial.since));
        let still = |decision: &Decision| {
            let outcome = match decision.outcome {
                Outcome::Denied { retry_after } => {
                    Outcome::Denied { retry_after: retry_after.map(|wait| wait - elapsed) }
                }
                allowed => allowed,
            };
            (Decision { outcome, reset_after: decision.reset_after - elapsed, ..*decision }, Source::DenyCache)
        };
        Some(denial.decisions.iter().map(still).collect())
    }

    /// Caches a denial that was asked for at `asked_at` and is known `now`.
    pub(super) fn remember(
        &self,
        question: Question,
        charges: &[Charge],
        decisions: &[Decision],
        asked_at: Instant,
        now: Instant,
    ) {
        // A slot can be released at any time.
        if charges.iter().any(|charge| charge.quota().algorithm() == Algorithm::Concurrency) {
            return;
        }
        // Until the first of the denying rules no longer denies, so that each rule's answer stays true.
        let waits = decisions.iter().filter(|decision| !decision.is_allowed()).filter_map(Decision::retry_after);
        let wait = waits.min().map_or(Denials::LONGEST, |wait| wait.as_duration().min(Denials::LONGEST));
        let (Question { id, forgotten }, until) = (question, asked_at + wait);
        *self.slot(id) = Some(Denial { id, until, since: now, forgotten, decisions: decisions.into() });
    }

    /// A bucket was reset or got something back, and it is unknown which denials it had caused. Where requests may not count, that is
    /// after each of them, so it takes no time.
    pub(super) fn forget_all(&self) {
        self.forgotten.fetch_add(1, Relaxed);
    }

    fn slot(&self, id: Id) -> MutexGuard<'_, Option<Denial>> {
        self.slots[id.place as usize % Denials::SLOTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollkeeper_core::{Key, RuleSpec, State, Timestamp, decide_all};

    use super::*;

    fn charge(limit: &str, algorithm: Algorithm, user: &str, cost: u32) -> Charge {
        let spec =
            RuleSpec { name: "r".into(), key: "{user}".into(), limit: limit.into(), algorithm, ..RuleSpec::default() };
        let rule = Arc::new(spec.build().expect("valid"));
        Charge::new(rule, Key { variant: 0, value: user.into() }, cost)
    }

    /// The answer for a request whose rule has just admitted all that it can.
    fn denied(charge: &Charge) -> Vec<Decision> {
        let (now, mut state) = (Timestamp::from_micros(1_700_000_000_000_000), State::Fresh);
        let full = charge.clone().with_cost(charge.quota().limit());
        state.apply(decide_all(&[full], [&state.clone()], now).remove(0).1);
        decide_all(std::slice::from_ref(charge), [&state], now).into_iter().map(|(decision, _)| decision).collect()
    }

    #[test]
    fn a_denial_is_true_until_its_wait_is_over_and_shows_what_is_left() {
        let (denials, charge) = (Denials::new(), charge("10/s", Algorithm::TokenBucket, "a", 1));
        let question = denials.question(std::slice::from_ref(&charge));
        let (asked, ms) = (Instant::now(), Duration::from_millis);
        denials.remember(question, std::slice::from_ref(&charge), &denied(&charge), asked, asked + ms(5));
        let wait =
            |at| denials.recall(question, at).map(|decisions| decisions[0].0.retry_after().expect("it passes one day"));
        assert_eq!(wait(asked + ms(5)), Some(Span::from_micros(100_000)));
        assert_eq!(wait(asked + ms(65)), Some(Span::from_micros(40_000)));
        assert_eq!(wait(asked + ms(99)), Some(Span::from_micros(6_000)), "counted from when the answer came");
        assert_eq!(wait(asked + ms(100)), None, "the server may let it pass now");
    }

    #[test]
    fn nothing_is_remembered_for_longer_than_a_second() {
        for (limit, cost) in [("1/day", 1), ("1/s", 2)] {
            let (denials, charge) = (Denials::new(), charge(limit, Algorithm::TokenBucket, "a", cost));
            let question = denials.question(std::slice::from_ref(&charge));
            let now = Instant::now();
            denials.remember(question, std::slice::from_ref(&charge), &denied(&charge), now, now);
            assert!(denials.recall(question, now + Duration::from_millis(999)).is_some());
            assert!(denials.recall(question, now + Duration::from_secs(1)).is_none());
        }
    }

    #[test]
    fn slots_that_may_be_released_are_not_remembered() {
        let (denials, charge) = (Denials::new(), charge("1", Algorithm::Concurrency, "a", 1));
        let (question, now) = (denials.question(std::slice::from_ref(&charge)), Instant::now());
        denials.remember(question, std::slice::from_ref(&charge), &denied(&charge), now, now);
        assert!(denials.recall(question, now).is_none());
    }

    #[test]
    fn another_key_cost_or_quota_is_another_request() {
        let denials = Denials::new();
        let questions = [
            charge("1/s", Algorithm::TokenBucket, "a", 1),
            charge("1/s", Algorithm::TokenBucket, "b", 1),
            charge("1/s", Algorithm::TokenBucket, "a", 2),
            charge("2/s", Algorithm::TokenBucket, "a", 1),
            charge("1/s", Algorithm::FixedWindow, "a", 1),
        ]
        .map(|charge| denials.question(std::slice::from_ref(&charge)));
        for (index, question) in questions.iter().enumerate() {
            assert!(!questions[..index].contains(question));
        }
    }

    #[test]
    fn a_reset_forgets() {
        let (denials, charge) = (Denials::new(), charge("1/s", Algorithm::TokenBucket, "a", 1));
        let (question, now) = (denials.question(std::slice::from_ref(&charge)), Instant::now());
        denials.remember(question, std::slice::from_ref(&charge), &denied(&charge), now, now);
        denials.forget_all();
        let again = denials.question(std::slice::from_ref(&charge));
        assert!(denials.recall(again, now).is_none());
        denials.remember(question, std::slice::from_ref(&charge), &denied(&charge), now, now);
        assert!(denials.recall(again, now).is_none(), "asked before");
        denials.remember(again, std::slice::from_ref(&charge), &denied(&charge), now, now);
        assert!(denials.recall(again, now).is_some(), "denied again since");
    }
}
