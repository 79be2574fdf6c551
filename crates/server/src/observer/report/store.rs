//! Where state lives, and its condition.

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{BreakerState, DURATION_BOUNDS, Limiter, Store};

use super::latency::quantile;

/// Where state lives, and its condition.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StoreReport {
    /// `memory` or `redis`.
    kind: &'static str,
    /// Circuit breaker: `closed` calls go out, `half_open` probing, `open` no calls.
    breaker: &'static str,
    /// How often it could not answer.
    errors: u64,
    /// Keys that it holds, if known.
    keys: Option<usize>,
    /// The most keys that it can hold, if bounded.
    max_keys: Option<usize>,
    /// Tokens leased and not yet used.
    leased_tokens: u64,
    /// Instances that share it.
    instances: u32,
    /// Calls so far.
    calls: u64,
    /// The median call, in microseconds.
    p50_us: Option<f64>,
    /// The 99th percentile of calls, in microseconds.
    p99_us: Option<f64>,
}

impl StoreReport {
    pub(super) fn new(limiter: &Limiter) -> StoreReport {
        let errors = limiter.store_errors();
        let nothing = StoreReport {
            kind: "memory",
            breaker: "closed",
            errors,
            keys: None,
            max_keys: None,
            leased_tokens: 0,
            instances: limiter.store().instances(),
            calls: 0,
            p50_us: None,
            p99_us: None,
        };
        match limiter.store() {
            Store::Memory(memory) => {
                StoreReport { keys: Some(memory.len()), max_keys: Some(memory.max_keys()), ..nothing }
            }
            Store::Redis(redis) => {
                let traffic = redis.traffic();
                let bound = |bucket: usize| DURATION_BOUNDS.get(bucket).map(|bound| bound.as_secs_f64() * 1e6);
                StoreReport {
                    kind: "redis",
                    breaker: match redis.breaker() {
                        BreakerState::Closed => "closed",
                        BreakerState::HalfOpen => "half_open",
                        BreakerState::Open => "open",
                    },
                    leased_tokens: redis.leased_tokens(),
                    calls: traffic.calls,
                    p50_us: quantile(&traffic.durations, 0.5, bound),
                    p99_us: quantile(&traffic.durations, 0.99, bound),
                    ..nothing
                }
            }
            Store::Unreachable(_) => StoreReport { kind: "redis", breaker: "open", ..nothing },
            _ => nothing,
        }
    }
}
