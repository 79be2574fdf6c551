//! What is watched, and its state at one moment.

use std::sync::Arc;

use tollkeeper::{BreakerState, Limiter, Store};

use super::counters::Counters;
use crate::metrics::{Metrics, Refusal, WithoutStore};
use crate::rules::Following;

/// What is watched, and where alerts are counted.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) metrics: Arc<Metrics>,
    /// Where the rules come from, if not from a file.
    pub(crate) rules: Option<Arc<Following>>,
    pub(crate) counters: Arc<Counters>,
}

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    /// Whether the store is shared; otherwise it is in this process.
    pub(super) is_shared: bool,
    pub(super) is_breaker_open: bool,
    /// Decisions so far that the store did not make.
    pub(super) without_store: WithoutStore,
    /// Why new rules were refused.
    pub(super) refused: Option<Arc<Refusal>>,
}

impl Signs {
    pub(super) fn of(watched: &Watched) -> Signs {
        let breaker = match watched.limiter.store() {
            Store::Redis(redis) => Some(redis.breaker()),
            _ => None,
        };
        Signs {
            is_shared: breaker.is_some(),
            is_breaker_open: breaker.is_some_and(|breaker| breaker != BreakerState::Closed),
            without_store: watched.metrics.without_store(),
            refused: watched.metrics.reloads.refused().or_else(|| refused_rows(watched.rules.as_deref()?)),
        }
    }
}

/// Rules from the database that could not be put in force.
fn refused_rows(rules: &Following) -> Option<Arc<Refusal>> {
    let (version, problem) = rules.status().refused?;
    Some(Arc::new(Refusal { reason: format!("version {version}: {problem}") }))
}
