//! Requests by front and outcome. A request is counted once, however many rules decided about it.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollkeeper::{CheckError, StoreError, Verdict};

use super::catalog;
use super::family::Family;

/// Where requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Http,
    Proxy,
    Grpc,
    Resp,
}

const FRONTS: [&str; 4] = ["http", "proxy", "grpc", "resp"];

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// Allowed, because no rule applies to it.
    NoRule,
    /// Neither allowed nor denied, because too many were waiting.
    Shed,
    /// Not decided: it is a bad request, or the store is unreachable and a rule fails closed.
    Error,
}

const OUTCOMES: [&str; 5] = ["allowed", "denied", "no_rule", "shed", "error"];

impl From<&Verdict> for Outcome {
    fn from(verdict: &Verdict) -> Outcome {
        match verdict {
            _ if verdict.rows().is_empty() => Outcome::NoRule,
            _ if verdict.is_unavailable() => Outcome::Error,
            _ if verdict.is_allowed() => Outcome::Allowed,
            _ => Outcome::Denied,
        }
    }
}

impl From<&CheckError> for Outcome {
    fn from(error: &CheckError) -> Outcome {
        if matches!(error, CheckError::Overloaded(_)) { Outcome::Shed } else { Outcome::Error }
    }
}

impl From<&StoreError> for Outcome {
    fn from(error: &StoreError) -> Outcome {
        if matches!(error, StoreError::Overloaded(_)) { Outcome::Shed } else { Outcome::Error }
    }
}

/// How many requests had each outcome, on all fronts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestCounts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) no_rule: u64,
    pub(crate) shed: u64,
    pub(crate) error: u64,
}

impl RequestCounts {
    pub(crate) fn total(&self) -> u64 {
        self.allowed + self.denied + self.no_rule + self.shed + self.error
    }

    /// The difference to an earlier count.
    pub(crate) fn since(self, before: RequestCounts) -> RequestCounts {
        RequestCounts {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            no_rule: self.no_rule.saturating_sub(before.no_rule),
            shed: self.shed.saturating_sub(before.shed),
            error: self.error.saturating_sub(before.error),
        }
    }
}

impl AddAssign for RequestCounts {
    fn add_assign(&mut self, other: RequestCounts) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.no_rule += other.no_rule;
        self.shed += other.shed;
        self.error += other.error;
    }
}

#[derive(Debug, Default)]
pub(super) struct Requests([[AtomicU64; OUTCOMES.len()]; FRONTS.len()]);

impl Requests {
    pub(super) fn count(&self, front: Front, outcome: Outcome, requests: u64) {
        self.0[front as usize][outcome as usize].fetch_add(requests, Relaxed);
    }

    pub(super) fn counts(&self) -> RequestCounts {
        let sum = |outcome: Outcome| self.0.iter().map(|counts| counts[outcome as usize].load(Relaxed)).sum();
        RequestCounts {
            allowed: sum(Outcome::Allowed),
            denied: sum(Outcome::Denied),
            no_rule: sum(Outcome::NoRule),
            shed: sum(Outcome::Shed),
            error: sum(Outcome::Error),
        }
    }

    pub(super) fn families(&self) -> [Family; 2] {
        let mut requests = Family::new(&catalog::REQUESTS);
        let mut shed = Family::new(&catalog::SHED);
        for (front, counts) in FRONTS.iter().zip(&self.0) {
            for (outcome, count) in OUTCOMES.iter().zip(counts) {
                requests.add([*front, *outcome], count.load(Relaxed));
            }
            shed.add([*front], counts[Outcome::Shed as usize].load(Relaxed));
        }
        [requests, shed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fronts_and_outcomes_are_numbered_as_listed() {
        use Front::{Grpc, Http, Proxy, Resp};
        use Outcome::{Allowed, Denied, Error, NoRule, Shed};
        assert_eq!([Http, Proxy, Grpc, Resp].map(|front| FRONTS[front as usize]), FRONTS);
        assert_eq!([Allowed, Denied, NoRule, Shed, Error].map(|outcome| OUTCOMES[outcome as usize]), OUTCOMES);
    }
}
