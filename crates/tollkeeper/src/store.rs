//! Where state lives. A store decides all charges of a request together, on its own clock.

pub(crate) mod held;
mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
mod unreachable;

pub use held::MAX_HOLD;
pub use memory::MemoryStore;
pub(crate) use memory::{Id, Table};
#[cfg(feature = "redis")]
pub use redis::{BreakerState, ConnectError, DURATION_BOUNDS, RedisOptions, RedisStore, RedisTls, Server, Traffic};
#[cfg(feature = "redis")]
pub use unreachable::UnreachableStore;

use std::time::Duration;

use held::{Held, Reserved};
use tollkeeper_core::{BucketRef, Charge, Decision, Exception, Hold, Source, Timestamp};

use crate::exceptions::{ExceptionError, Exceptions};

/// A place that keeps state.
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
    /// On a server that nobody has reached yet: each rule answers by its failure policy.
    #[cfg(feature = "redis")]
    Unreachable(UnreachableStore),
}

/// Why a store could not decide. Nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Every entry is of a client that is still limited, so none can be dropped for a new one.
    #[error(
        "the memory store is full of live limits and has no room for the key or the log of charge {charge}; \
         raise store.max_keys, or keep fewer logs (sliding_window_log, concurrency)"
    )]
    Full {
        /// The charge that found no room, by position.
        charge: usize,
    },
    /// Some of the charges are kept by a server that is away; the others could be decided without them.
    #[error("a part of the store is unavailable: {reason}")]
    Away {
        /// Those charges, by position.
        charges: Vec<usize>,
        /// What happened, without secrets.
        reason: String,
    },
    /// The store did not answer in time, or not at all. Whether a charge arrived is not known.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What happened, without secrets.
        reason: String,
    },
}

impl StoreError {
    pub(crate) fn unavailable(reason: impl Into<String>) -> StoreError {
        StoreError::Unavailable { reason: reason.into() }
    }
}

impl Store {
    /// The time by which the store decides.
    pub fn now(&self) -> Timestamp {
        match self {
            Store::Memory(memory) => memory.clock().now(),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.now(),
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => unreachable.now(),
        }
    }

    /// Decides all charges together, all or nothing, and says who decided.
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

    /// Decides as [`Store::charge`] does, by the store itself, so that what was charged can be corrected.
    pub(crate) async fn reserve(&self, charges: &[Charge], hold: Duration) -> Result<Reserved, StoreError> {
        match self {
            Store::Memory(memory) => memory.reserve(charges, hold),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.reserve(charges, hold).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Corrects charges to what they did cost, each once, and says how much of each went back.
    pub(crate) async fn settle(&self, held: &[(Held, u32)]) -> Result<Vec<u32>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.settle(held)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.settle(held).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Keeps a small record under a name that nobody can guess, for all who share the store.
    pub(crate) async fn keep(&self, id: &str, record: &[u8], lifetime: Duration) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => memory.keep(id, record, lifetime),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.keep(id, record, lifetime).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Takes a record, which nobody else gets then; `None` when there is none, or its time is over.
    pub(crate) async fn claim(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.claim(id)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.claim(id).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Other rules are in force: what was decided ahead by the old ones no longer counts.
    pub(crate) fn rules_changed(&self) {
        match self {
            Store::Memory(_) => {}
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

    /// All exceptions that are kept, also those that are over.
    pub(crate) async fn known_exceptions(&self) -> Result<Vec<Exception>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.exceptions.all()),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.known_exceptions().await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Keeps an exception, removes one, and forgets what is outdated of those that are known.
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

    /// How many instances share this store, by their last signs of life.
    pub fn instances(&self) -> u32 {
        match self {
            Store::Memory(_) => 1,
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.instances(),
            #[cfg(feature = "redis")]
            Store::Unreachable(_) => 1,
        }
    }

    /// What a bucket would say to a request of cost 1, without touching it: `remaining` is uncharged.
    pub async fn inspect(&self, bucket: BucketRef<'_>) -> Result<Decision, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.inspect(bucket)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.inspect(bucket).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Forgets a bucket; false when there was nothing to forget.
    pub async fn reset(&self, bucket: BucketRef<'_>) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.reset(bucket)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.reset(bucket).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Gives a `concurrency` slot back; false when it had expired or was given back before.
    pub async fn release(&self, bucket: BucketRef<'_>, hold: Hold) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.release(bucket, hold)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.release(bucket, hold).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Holds a `concurrency` slot for another period, in one step, under the name that is returned: it is never free in
    /// between, and nobody else gets in. `None` when it had expired or was given back before.
    pub async fn renew(&self, bucket: BucketRef<'_>, hold: Hold) -> Result<Option<Hold>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.renew(bucket, hold)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.renew(bucket, hold).await,
            #[cfg(feature = "redis")]
            Store::Unreachable(unreachable) => Err(unreachable.error()),
        }
    }

    /// Gives back up to `cost` of what a bucket was charged last, for callers who do not know of which charges; false when
    /// nothing of it counts any more. Nobody ever has more left than the limit. A `concurrency` slot is given back by its
    /// hold only.
    pub async fn give_back(&self, bucket: BucketRef<'_>, cost: u32) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.give_back(bucket, cost)),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.give_back(bucket, cost).await,
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
