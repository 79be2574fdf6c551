//! Opens the configured store.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use anyhow::Context as _;
use tollkeeper::file::without_password;
use tollkeeper::{Clock, ConnectError, MemoryStore, RedisStore, Store, UnreachableStore};

use crate::config::Config;

/// A store in this process of the configured size.
pub(crate) fn memory_store(config: &Config, clock: Clock) -> anyhow::Result<MemoryStore> {
    Ok(config.limiter().memory_store(clock)?)
}

/// The configured store, deciding by `clock`.
pub(crate) async fn store(config: &Config, clock: Clock) -> anyhow::Result<Store> {
    let settings = config.limiter();
    if settings.is_memory() || !matches!(clock, Clock::Manual(_)) {
        return Ok(settings.store(clock).await?);
    }
    // Replay uses a namespace of its own, from an empty state, and is not in a hurry.
    let mut options = settings.redis_options(clock)?;
    options.namespace = format!("tollkeeper-replay-{:016x}", RandomState::new().hash_one(std::process::id()));
    options.deadline = options.deadline.max(Duration::from_secs(10));
    let url = &settings.store.url;
    let store =
        RedisStore::connect(url, options).await.with_context(|| format!("store.url: {}", without_password(url)))?;
    Ok(store.into())
}

/// The configured store for a service. With `store.required: false`, something stands in for a server that cannot be
/// reached.
pub(crate) async fn store_for_service(config: &Config) -> anyhow::Result<Store> {
    if config.limiter().is_memory() {
        return store(config, Clock::system()).await;
    }
    match connect(config).await? {
        Ok(redis) => Ok(redis.into()),
        Err(unreachable) if config.store.required => anyhow::bail!(
            "store.url: {}: {unreachable}; check that Redis runs there, or set store.required to false to start without it",
            without_password(&config.store.url)
        ),
        Err(unreachable) => Ok(UnreachableStore::new(unreachable, Clock::system()).into()),
    }
}

/// Connects to the configured server. The inner error says why it cannot be reached, which may pass; everything else
/// has to be repaired by somebody.
pub(crate) async fn connect(config: &Config) -> anyhow::Result<Result<RedisStore, String>> {
    let settings = config.limiter();
    let url = &settings.store.url;
    match RedisStore::connect(url, settings.redis_options(Clock::system())?).await {
        Ok(redis) => Ok(Ok(redis)),
        Err(error @ (ConnectError::Connect(_) | ConnectError::Incomplete(_))) => Ok(Err(error.to_string())),
        Err(error) => Err(error).with_context(|| format!("store.url: {}", without_password(url))),
    }
}
