//! A server that has not been reached yet.
//!
//! For a program that has to answer before its store is reachable: with this as its store, each rule answers by its
//! failure policy, until the real store takes over ([`Limiter::store_reached`](crate::Limiter::store_reached)).

use tollkeeper_core::Timestamp;

use super::error::StoreError;
use crate::clock::Clock;
use crate::store::exceptions::Exceptions;

/// Stands in for a server that cannot be reached, and says why.
#[derive(Debug)]
pub struct UnreachableStore {
    reason: String,
    clock: Clock,
    exceptions: Exceptions,
}

impl UnreachableStore {
    /// With the reason, which must not contain secrets.
    pub fn new(reason: impl Into<String>, clock: impl Into<Clock>) -> UnreachableStore {
        UnreachableStore { reason: reason.into(), clock: clock.into(), exceptions: Exceptions::new() }
    }

    /// Why it could not be reached.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn exceptions(&self) -> &Exceptions {
        &self.exceptions
    }

    pub(super) fn error(&self) -> StoreError {
        StoreError::unavailable(self.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use tollkeeper_core::{Descriptor, FailurePolicy, Policy, Rule, Source};

    use super::*;
    use crate::Limiter;

    #[tokio::test]
    async fn each_rule_answers_by_its_failure_policy() {
        let cases = [
            (FailurePolicy::Local, [true, false], Source::Local),
            (FailurePolicy::Open, [true, true], Source::Policy),
            (FailurePolicy::Closed, [false, false], Source::Policy),
        ];
        for (policy, allowed, source) in cases {
            let rule = Rule::new("one").key("global").limit("1/min").on_store_failure(policy);
            let store = UnreachableStore::new("cannot connect", Clock::system());
            let limiter = Limiter::new(Policy::new([rule]).expect("valid"), store);
            for allowed in allowed {
                let verdict = limiter.check(&Descriptor::default()).await.expect("no cost attribute");
                assert_eq!((verdict.is_allowed(), verdict.source()), (allowed, source), "{policy:?}");
            }
        }
    }

    /// A limit of failed logins counted the others too while Redis could not be reached, and denied those who made no mistake.
    #[tokio::test]
    async fn what_this_process_was_charged_is_given_back_there() {
        let rules = [Rule::new("failures").key("global").limit("2/h"), Rule::new("all").key("global").limit("9/h")];
        let store = UnreachableStore::new("cannot connect", Clock::system());
        let limiter = std::sync::Arc::new(Limiter::new(Policy::new(rules).expect("valid"), store));
        let reserve = async || limiter.reserve(&Descriptor::default()).await.expect("no cost attribute");
        for _ in 0..20 {
            let (verdict, reservation) = reserve().await;
            assert_eq!((verdict.is_allowed(), verdict.source()), (true, Source::Local));
            reservation.give_back().await.expect("it is in this process");
        }
        // Another process may redeem a ticket, and could give back what it was never charged.
        let ticket = reserve().await.1.into_ticket();
        assert!(limiter.redeem(ticket).is_empty());
        drop(reserve().await);
        assert!(!reserve().await.0.is_allowed());
    }

    #[tokio::test]
    async fn the_real_store_takes_over_when_it_is_reached() {
        let rule = Rule::new("one").key("global").limit("1/min").on_store_failure(FailurePolicy::Open);
        let store = UnreachableStore::new("cannot connect", Clock::system());
        let limiter = Limiter::new(Policy::new([rule]).expect("valid"), store);
        let source = async || limiter.check(&Descriptor::default()).await.expect("no cost attribute").source();
        assert_eq!(source().await, Source::Policy);
        assert!(limiter.store_reached(crate::MemoryStore::new()));
        assert_eq!(source().await, Source::Store);
        assert!(!limiter.store_reached(crate::MemoryStore::new()), "only once");
        let settled = Limiter::new(Policy::default(), crate::MemoryStore::new());
        assert!(!settled.store_reached(crate::MemoryStore::new()), "it was never unreachable");
    }
}
