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
    /// Decisions so far for which the store had no room.
    pub(super) full: Full,
    /// How often Redis was found to have lost its data.
    pub(super) losses: u64,
    /// Why new rules were refused.
    pub(super) refused: Option<Arc<Refusal>>,
}

/// How many decisions were made without room, by what was full; and what fills the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Full {
    /// No room for another key in memory.
    pub(super) keys: u64,
    /// No room for another log in memory.
    pub(super) logs: u64,
    /// No room for another key in Redis.
    pub(super) redis: u64,
    /// The rules that hold most keys, and how many, most first.
    pub(super) rules: Vec<(Box<str>, usize)>,
}

impl Full {
    fn of(limiter: &Limiter) -> Full {
        const MOST_NAMED: usize = 10;
        let redis = if let Store::Redis(redis) = limiter.store() { redis.full() } else { 0 };
        let memory = limiter.memory().map(|memory| (memory, memory.overflowed()));
        let Some((memory, overflowed)) = memory.filter(|(_, overflowed)| overflowed.keys + overflowed.logs > 0) else {
            return Full { redis, ..Full::default() };
        };
        let mut rules = memory.keys_by_rule();
        rules.sort_by_key(|(_, keys)| std::cmp::Reverse(*keys));
        rules.truncate(MOST_NAMED);
        Full { keys: overflowed.keys, logs: overflowed.logs, redis, rules }
    }

    pub(super) fn since(&self, before: &Full) -> Full {
        Full {
            keys: self.keys.saturating_sub(before.keys),
            logs: self.logs.saturating_sub(before.logs),
            redis: self.redis.saturating_sub(before.redis),
            rules: self.rules.clone(),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.keys + self.logs + self.redis
    }
}

impl Signs {
    pub(super) fn of(watched: &Watched) -> Signs {
        let (breaker, losses) = match watched.limiter.store() {
            Store::Redis(redis) => (Some(redis.breaker()), redis.losses()),
            Store::Unreachable(_) => (Some(BreakerState::Open), 0),
            _ => (None, 0),
        };
        Signs {
            is_shared: breaker.is_some(),
            is_breaker_open: breaker.is_some_and(|breaker| breaker != BreakerState::Closed),
            without_store: watched.metrics.without_store(),
            full: Full::of(&watched.limiter),
            losses,
            refused: watched.metrics.reloads.refused().or_else(|| refused_rows(watched.rules.as_deref()?)),
        }
    }
}

/// Rules from the database that could not be put in force.
fn refused_rows(rules: &Following) -> Option<Arc<Refusal>> {
    let (version, problem) = rules.status().refused?;
    Some(Arc::new(Refusal { reason: format!("version {version}: {problem}") }))
}
