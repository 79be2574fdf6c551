//! The reverse proxy: requests that wait for their turn, and how the upstream answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::catalog;
use super::family::Family;
use super::histogram::{Histogram, RESPONSE};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The request was forwarded.
    Passed,
    /// It was denied after all.
    Denied,
    /// Its client left.
    Gone,
}

const WAIT_OUTCOMES: [&str; 3] = ["passed", "denied", "gone"];

/// Why there is no response of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamError {
    /// It accepts no connection.
    Unreachable,
    /// It accepted no connection in time.
    ConnectTimeout,
    /// No TLS connection could be made.
    Tls,
    /// It took the request and did not answer in time.
    Timeout,
    /// Its answer is not valid, or was cut off.
    InvalidResponse,
}

const UPSTREAM_ERRORS: [&str; 5] = ["unreachable", "connect_timeout", "tls", "timeout", "invalid_response"];

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What is counted of the proxy.
#[derive(Debug)]
pub(crate) struct Proxied {
    is_used: AtomicBool,
    waiting: AtomicU64,
    waits: [Histogram; WAIT_OUTCOMES.len()],
    queue_full: AtomicU64,
    upstream_duration: Histogram,
    /// By the first digit of the status.
    responses: [AtomicU64; CLASSES.len()],
    errors: [AtomicU64; UPSTREAM_ERRORS.len()],
}

impl Default for Proxied {
    fn default() -> Proxied {
        Proxied {
            is_used: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            waits: std::array::from_fn(|_| Histogram::new(RESPONSE)),
            queue_full: AtomicU64::new(0),
            upstream_duration: Histogram::new(RESPONSE),
            responses: Default::default(),
            errors: Default::default(),
        }
    }
}

impl Proxied {
    /// From now on it is shown: most services have no proxy.
    pub(crate) fn begin(&self) {
        self.is_used.store(true, Relaxed);
    }

    /// A request has taken a place to wait.
    pub(crate) fn enter(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    /// A request has left its place.
    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// A request has waited.
    pub(crate) fn waited(&self, outcome: WaitOutcome, time: Duration) {
        self.waits[outcome as usize].observe(micros(time));
    }

    /// A request should have waited, and there was no place.
    pub(crate) fn found_no_place(&self) {
        self.queue_full.fetch_add(1, Relaxed);
    }

    /// The upstream answered.
    pub(crate) fn answered(&self, status: u16, time: Duration) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.responses[class].fetch_add(1, Relaxed);
        self.upstream_duration.observe(micros(time));
    }

    /// The upstream did not answer.
    pub(crate) fn failed(&self, error: UpstreamError) {
        self.errors[error as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn families(&self) -> Vec<Family> {
        if !self.is_used.load(Relaxed) {
            return Vec::new();
        }
        let mut waits = Family::new(&catalog::PROXY_WAIT);
        for (outcome, histogram) in WAIT_OUTCOMES.iter().zip(&self.waits) {
            waits.add([*outcome], histogram.distribution());
        }
        let mut responses = Family::new(&catalog::UPSTREAM_RESPONSES);
        for (class, count) in CLASSES.iter().zip(&self.responses) {
            responses.add([*class], count.load(Relaxed));
        }
        let mut errors = Family::new(&catalog::UPSTREAM_ERRORS);
        for (reason, count) in UPSTREAM_ERRORS.iter().zip(&self.errors) {
            errors.add([*reason], count.load(Relaxed));
        }
        vec![
            Family::single(&catalog::PROXY_WAITING, self.waiting.load(Relaxed)),
            waits,
            Family::single(&catalog::PROXY_QUEUE_FULL, self.queue_full.load(Relaxed)),
            Family::single(&catalog::UPSTREAM_DURATION, self.upstream_duration.distribution()),
            responses,
            errors,
        ]
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_and_errors_are_numbered_as_listed() {
        use UpstreamError::{ConnectTimeout, InvalidResponse, Timeout, Tls, Unreachable};
        use WaitOutcome::{Denied, Gone, Passed};
        assert_eq!([Passed, Denied, Gone].map(|outcome| WAIT_OUTCOMES[outcome as usize]), WAIT_OUTCOMES);
        let errors = [Unreachable, ConnectTimeout, Tls, Timeout, InvalidResponse];
        assert_eq!(errors.map(|error| UPSTREAM_ERRORS[error as usize]), UPSTREAM_ERRORS);
    }
}
