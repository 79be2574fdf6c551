//! Opens the configured store.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use anyhow::Context as _;
use tollkeeper::file::without_password;
use tollkeeper::{Clock, MemoryStore, RedisStore, Store};

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
