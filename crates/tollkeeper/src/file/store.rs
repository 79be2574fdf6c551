//! Opens the store of a file.

use std::time::Duration;

use tollkeeper_core::{Span, parse_span};

use super::settings::{Settings, StoreSettings};
use super::store_url::check_store;
#[cfg(feature = "redis")]
use super::store_url::without_password;
use crate::clock::Clock;
use crate::store::{MemoryStore, Store, TooManyKeys};
use crate::strict::Invalid;

impl StoreSettings {
    /// How long a remote store may take, if given.
    pub(super) fn deadline(&self) -> Result<Option<Duration>, String> {
        let Some(text) = &self.timeout else { return Ok(None) };
        let timeout = parse_span(text).map_err(|error| error.to_string())?;
        match (Span::from_micros(1_000)..=Span::from_secs(60)).contains(&timeout) {
            true => Ok(Some(timeout.as_duration())),
            false => Err(format!("{timeout} is not between 1ms and 60s; 20ms is usual")),
        }
    }
}

impl Settings {
    /// The configured store, connected, deciding by `clock`.
    pub async fn store(&self, clock: Clock) -> Result<Store, Invalid> {
        check_store(&self.store.url).map_err(|problem| Invalid::new("store.url", problem))?;
        #[cfg(feature = "redis")]
        if !self.is_memory() {
            let options = self.redis_options(clock)?;
            let connected = crate::store::RedisStore::connect(&self.store.url, options).await;
            let at = |error| Invalid::new("store.url", format!("{}: {error}", without_password(&self.store.url)));
            return connected.map(Store::from).map_err(at);
        }
        Ok(self.memory_store(clock)?.into())
    }

    /// A store in this process, of the size that is said.
    pub fn memory_store(&self, clock: Clock) -> Result<MemoryStore, Invalid> {
        let too_many = |error: TooManyKeys| Invalid::new("store.max_keys", error.to_string());
        let store = MemoryStore::try_with(self.store.max_keys, clock).map_err(too_many)?;
        Ok(store.with_max_log_bytes(self.store.max_log_bytes))
    }

    /// The options of the Redis store. Certificates are read from their files.
    #[cfg(feature = "redis")]
    pub fn redis_options(&self, clock: Clock) -> Result<crate::store::RedisOptions, Invalid> {
        let mut options = crate::store::RedisOptions { clock, ..Default::default() };
        if let Some(deadline) = self.store.deadline().map_err(|problem| Invalid::new("store.timeout", problem))? {
            options.deadline = deadline;
        }
        if let Some(namespace) = &self.store.namespace {
            options.namespace.clone_from(namespace);
        }
        let Some(files) = &self.store.tls else { return Ok(options) };
        let read = |field: &str, path: &Option<std::path::PathBuf>| {
            let read = |path: &std::path::PathBuf| {
                std::fs::read(path).map_err(|error| {
                    Invalid::new(format!("store.tls.{field}"), format!("cannot read {}: {error}", path.display()))
                })
            };
            path.as_ref().map(read).transpose()
        };
        options.tls = Some(crate::store::RedisTls {
            authority: read("ca", &files.ca)?,
            certificate: read("cert", &files.cert)?,
            key: read("key", &files.key)?,
        });
        Ok(options)
    }
}
