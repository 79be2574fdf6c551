//! Opens the configured store.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use tollkeeper::{Clock, MemoryStore, RedisOptions, RedisStore, RedisTls, Store, parse_span};

use crate::config::{Config, StoreConfig, TlsFiles};

/// Whether the URL names a store. Whether it is reachable is known only when it is connected.
pub(super) fn check_store(url: &str) -> anyhow::Result<()> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("memory") => Ok(()),
        Some("redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel") => {
            Ok(RedisStore::check_url(url)?)
        }
        _ => bail!(
            "{} names no store; write \"memory:\", redis://HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT or \
             redis+sentinel://HOST:PORT,HOST:PORT/NAME",
            without_password(url)
        ),
    }
}

/// The configured store, deciding by `clock`.
pub(crate) async fn store(config: &Config, clock: Clock) -> anyhow::Result<Store> {
    let StoreConfig { url, timeout, max_keys, tls } = &config.store;
    check_store(url).context("store.url")?;
    if url.starts_with("memory:") {
        return Ok(MemoryStore::with(*max_keys, clock).into());
    }
    let mut options = RedisOptions { clock, ..RedisOptions::default() };
    if let Some(timeout) = timeout {
        options.deadline = parse_span(timeout).context("store.timeout")?.as_duration();
    }
    options.tls = tls.as_ref().map(certificates).transpose()?;
    if matches!(options.clock, Clock::Manual(_)) {
        // Replay uses a namespace of its own, from an empty state, and is not in a hurry.
        options.namespace = format!("tollkeeper-replay-{:016x}", RandomState::new().hash_one(std::process::id()));
        options.deadline = options.deadline.max(Duration::from_secs(10));
    }
    let store =
        RedisStore::connect(url, options).await.with_context(|| format!("store.url: {}", without_password(url)))?;
    Ok(store.into())
}

fn certificates(files: &TlsFiles) -> anyhow::Result<RedisTls> {
    let read = |field: &str, path: &Option<PathBuf>| {
        let read = |path: &PathBuf| {
            std::fs::read(path).with_context(|| format!("store.tls.{field}: cannot read {}", path.display()))
        };
        path.as_ref().map(read).transpose()
    };
    Ok(RedisTls {
        authority: read("ca", &files.ca)?,
        certificate: read("cert", &files.cert)?,
        key: read("key", &files.key)?,
    })
}

/// A URL as it may be shown.
pub(crate) fn without_password(url: &str) -> String {
    // The rest may contain the user and password of the sentinels.
    let url = url.split_once('?').map_or(url, |(url, _)| url);
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}"),
        None => url.to_string(),
    }
}
