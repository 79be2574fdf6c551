//! Metrics of the store.

use std::iter;

use tollkeeper::{BreakerState, DURATION_BOUNDS, Limiter, MemoryStore, Store, Traffic};

use super::catalog;
use super::family::{Distribution, Family, Value};

/// A store in this process makes no calls, so its families stay at 0.
pub(super) fn families(limiter: &Limiter) -> Vec<Family> {
    let store = limiter.store();
    let (breaker, traffic, leased, instances) = match store {
        Store::Redis(redis) => (redis.breaker(), redis.traffic(), redis.leased_tokens(), redis.instances()),
        Store::Unreachable(_) => (BreakerState::Open, Traffic::default(), 0, 1),
        _ => (BreakerState::Closed, Traffic::default(), 0, 1),
    };
    let breaker = match breaker {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    };
    let mut families = vec![Family::single(&catalog::STORE_ERRORS, limiter.store_errors())];
    if let Store::Memory(memory) = store {
        families.push(Family::single(&catalog::KEYS, memory.len() as u64));
    }
    let overflowed = limiter.memory().map(MemoryStore::overflowed).unwrap_or_default();
    let overflow = Family::new(&catalog::OVERFLOW).with(["keys"], overflowed.keys).with(["logs"], overflowed.logs);
    families.push(overflow);
    let (full, losses, sharers) = match store {
        Store::Redis(redis) => (redis.full(), redis.losses(), redis.sharers()),
        _ => (0, 0, 1),
    };
    families.push(Family::single(&catalog::STORE_FULL, full));
    families.push(Family::single(&catalog::STORE_LOSSES, losses));
    let batch_size = Value::Summary { sum: traffic.requests as f64, count: traffic.calls };
    families.extend([
        Family::single(&catalog::BREAKER_STATE, breaker),
        Family::single(&catalog::BATCH_SIZE, batch_size),
        Family::single(&catalog::STORE_DURATION, durations(&traffic)),
        Family::single(&catalog::LEASED_TOKENS, leased),
        Family::single(&catalog::INSTANCES, u64::from(instances)),
        Family::single(&catalog::SHARERS, u64::from(sharers)),
    ]);
    families
}

fn durations(traffic: &Traffic) -> Distribution {
    let bounds: Vec<f64> = DURATION_BOUNDS.iter().map(|bound| bound.as_secs_f64()).collect();
    let counts = traffic.durations.iter().copied().chain(iter::repeat(0)).take(bounds.len() + 1).collect();
    Distribution { bounds, counts, sum: traffic.total.as_secs_f64() }
}
