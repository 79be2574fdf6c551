//! Stores: where state lives. A store decides all charges of a request together, on its own clock.

mod error;
pub(crate) mod exceptions;
pub(crate) mod held;
mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
mod unreachable;

pub use error::{Overloaded, StoreError};
pub use exceptions::ExceptionError;
pub use held::{MAX_HOLD, Owner};
pub(crate) use memory::{Id, Lookup, Newcomer, Place, Table};
pub use memory::{MemoryStore, Overflowed, TooManyKeys};
#[cfg(feature = "redis")]
pub use redis::{
    BreakerState, ConnectError, DURATION_BOUNDS, ExceptionsCopy, RedisOptions, RedisStore, RedisTls, Server, Traffic,
};
#[cfg(feature = "redis")]
pub use unreachable::UnreachableStore;

use std::time::Duration;

use tollkeeper_core::{BucketRef, Charge, Decision, Exception, Hold, Policy, Source, Timestamp};

use exceptions::Exceptions;
use held::{Held, Reserved};

/// Where state lives: in this process, or on a server that many processes share.
///
/// This is an enum and not a trait, on purpose. A store has to decide all charges of a request in one step, on its own
/// clock, and exactly as [`decide`](tollkeeper_core::decide) does, to the microsecond. It also has to convert existing
/// buckets when a limit changes, correct estimates, and renew slots. An implementation that gets one of these wrong
/// still looks fine in most tests, and limits the wrong clients in production. The stores here share one suite of
/// conformance tests, and their internals can still change.
#[derive(Debug)]
#[non_exhaustive]
#[cfg_attr(
    feature = "redis",
    expect(clippy::large_enum_variant, reason = "there is one store in a process, and memory is the fast one")
)]
pub enum Store {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis or Valkey, shared by many processes.
    #[cfg(feature = "redis")]
    Redis(RedisStore),
    /// On a server that has not been reached yet: each rule answers by its failure policy.
    #[cfg(feature = "redis")]
    Unreachable(UnreachableStore),
}

impl Store {
    /// The store in this process, if it is that.
    pub(crate) fn as_memory(&self) -> Option<&MemoryStore> {
        match self {
            Store::Memory(memory) => Some(memory),
            #[cfg(feature = "redis")]
            _ => None,
        }
    }

    /// The store's time, by which it decides.
    pub fn now(&self) -> Timestamp {
        match self {
            Store::Memory(memory) => memory.clock().now(),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.now(),
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => unreachable.now(),
        }
    }

    /// Decides all charges together, all or nothing, and says what decided.
    pub async fn charge(&self, charges: &[Charge]) -> Result<Vec<(Decision, Source)>, StoreError> {
        match self {
            Store::Memory(memory) => {
                Ok(memory.charge(charges)?.into_iter().map(|decision| (decision, Source::Store)).collect())
            }
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.charge(charges).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Decides as [`Store::charge`] does, on this thread; `None`, and nothing charged, if that takes a call or there is no room.
    pub(crate) fn charge_ahead(&self, charges: &[Charge]) -> Option<Vec<(Decision, Source)>> {
        match self {
            Store::Memory(memory) => {
                let decisions = memory.charge(charges).ok()?;
                Some(decisions.into_iter().map(|decision| (decision, Source::Store)).collect())
            }
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.charge_ahead(charges),
            #[cfg(feature = "redis")]
            Store::Unreachable(_) => None,
        }
    }

    /// Decides as [`Store::charge`] does, always in the store itself, so that the charges can be corrected.
    pub(crate) async fn reserve(&self, charges: &[Charge], hold: Duration) -> Result<Reserved, StoreError> {
        match self {
            Store::Memory(memory) => memory.reserve(charges, hold),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.reserve(charges, hold).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Corrects charges to their actual costs, each once; returns how much of each was refunded.
    pub(crate) async fn settle(&self, held: &[(Held, u32)]) -> Result<Vec<u32>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.settle(held)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.settle(held).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Keeps a small record under an unguessable name, for all processes that share the store. How much is kept for each
    /// owner is limited.
    pub(crate) async fn keep(
        &self,
        id: &str,
        record: &[u8],
        owners: &[held::Owner<'_>],
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => memory.keep(id, record, owners, lifetime),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.keep(id, record, owners, lifetime).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Takes a record and removes it; `None` when there is none, or it has expired.
    pub(crate) async fn claim(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.claim(id)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.claim(id).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// What all processes that share the store call by this name: the first value that one of them offered. It lasts for
    /// as long as the store remembers it.
    pub async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        match self {
            Store::Memory(_) => {
                // Nobody else shares it, whatever the name.
                let _ = name;
                Ok(offer.to_vec())
            }
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.agree(name, offer).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// The rules have changed: decisions made ahead under the old ones are void, and the new ones share the memory.
    pub(crate) fn rules_changed(&self, policy: &Policy) {
        match self {
            Store::Memory(memory) => memory.expect_rules(policy.rules().iter().map(|rule| rule.name())),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.rules_changed(),
            #[cfg(feature = "redis")]
            Store::Unreachable(_) => {}
        }
    }

    /// The exceptions that this instance knows.
    pub(crate) fn exceptions(&self) -> &Exceptions {
        match self {
            Store::Memory(memory) => &memory.exceptions,
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.exceptions(),
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => unreachable.exceptions(),
        }
    }

    /// All stored exceptions, including those that have ended.
    pub(crate) async fn known_exceptions(&self) -> Result<Vec<Exception>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.exceptions.all()),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.known_exceptions().await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Stores an exception, removes one, and drops outdated ones from those that are known.
    pub(crate) async fn change_exceptions(
        &self,
        #[cfg_attr(not(feature = "redis"), expect(unused_variables))] known: Vec<Exception>,
        keep: Option<Exception>,
        remove: Option<Exception>,
        now: Timestamp,
    ) -> Result<(), ExceptionError> {
        match self {
            Store::Memory(memory) => {
                memory.exceptions.change(keep, remove, now);
                Ok(())
            }
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.change_exceptions(known, keep, remove, now).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error().into()),
        }
    }

    /// How many instances share this store, by their heartbeats.
    pub fn instances(&self) -> u32 {
        match self {
            Store::Memory(_) => 1,
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.instances(),
            #[cfg(feature = "redis")]
            Store::Unreachable(_) => 1,
        }
    }

    /// Among how many instances a limit is divided while the store is unreachable.
    pub(crate) fn sharers(&self) -> u32 {
        match self {
            Store::Memory(_) => 1,
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.sharers(),
            #[cfg(feature = "redis")]
            Store::Unreachable(_) => 1,
        }
    }

    /// The bucket's answer to a request of cost 1, without changing it: `remaining` does not include that request.
    pub async fn inspect(&self, bucket: BucketRef<'_>) -> Result<Decision, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.inspect(bucket)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.inspect(bucket).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Resets a bucket; false when there was nothing to reset.
    pub async fn reset(&self, bucket: BucketRef<'_>) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.reset(bucket)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.reset(bucket).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Releases a `concurrency` slot; false when it had expired or was released before.
    pub async fn release(&self, bucket: BucketRef<'_>, hold: Hold) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.release(bucket, hold)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.release(bucket, hold).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Holds a `concurrency` slot for another period and returns its new name. The step is atomic: the slot is never
    /// free in between. `None` when it had expired or was released before.
    pub async fn renew(&self, bucket: BucketRef<'_>, hold: Hold) -> Result<Option<Hold>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.renew(bucket, hold)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.renew(bucket, hold).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Refunds up to `cost` of a bucket's latest charges, for callers that do not know which charges; false when none
    /// of it still counts. The bucket never has more left than its limit. A `concurrency` slot is released only by
    /// its hold.
    pub async fn refund(&self, bucket: BucketRef<'_>, cost: u32) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.refund(bucket, cost)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.refund(bucket, cost).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }
}

impl From<MemoryStore> for Store {
    fn from(memory: MemoryStore) -> Store {
        Store::Memory(memory)
    }
}

#[cfg(feature = "redis")]
impl From<RedisStore> for Store {
    fn from(redis: RedisStore) -> Store {
        Store::Redis(redis)
    }
}

#[cfg(feature = "redis")]
impl From<UnreachableStore> for Store {
    fn from(unreachable: UnreachableStore) -> Store {
        Store::Unreachable(unreachable)
    }
}
