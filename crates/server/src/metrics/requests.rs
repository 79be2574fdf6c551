//! Requests by front and outcome. A request is counted once, however many rules decided about it.

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
    /// Not decided: it has an invalid cost, or the store is unreachable and a rule fails closed.
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

#[derive(Debug, Default)]
pub(super) struct Requests([[AtomicU64; OUTCOMES.len()]; FRONTS.len()]);

impl Requests {
    pub(super) fn count(&self, front: Front, outcome: Outcome) {
        self.0[front as usize][outcome as usize].fetch_add(1, Relaxed);
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
