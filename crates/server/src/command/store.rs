//! The store of a service: opened at the start, or reached later if the configuration allows that.

use std::sync::Arc;
use std::time::Duration;

use tollkeeper::file::without_password;
use tollkeeper::{RedisStore, Store};

use crate::config::Config;
use crate::service::Service;
use crate::{exceptions, settings};

/// Opens the configured store, with a warning if its server may lose data.
pub(super) async fn open(config: &Config) -> anyhow::Result<Store> {
    let store = settings::store_for_service(config).await?;
    match &store {
        Store::Redis(redis) => warn_of(redis),
        Store::Unreachable(unreachable) => tracing::warn!(
            "store.url: {}: {}; starting without it, because store.required is false; until it is reachable, rules \
             use on_store_failure",
            without_password(&config.store.url),
            unreachable.reason()
        ),
        _ => {}
    }
    Ok(store)
}

/// Starts what needs the store, now or as soon as it is reached.
pub(super) async fn start(service: &Arc<Service>, config: &Config) {
    service.seal.start(&service.limiter).await;
    match service.limiter.store() {
        Store::Unreachable(unreachable) => {
            let reason = unreachable.reason().to_string();
            crate::background::spawn(reach(service.clone(), config.clone(), reason));
        }
        _ => exceptions::keep(&service.limiter, settings::kept_in(config)).await,
    }
}

/// Tries until the server is reached.
async fn reach(service: Arc<Service>, config: Config, mut reason: String) {
    const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(10);
    /// However long it takes, the log does not grow without end.
    const MOST_WARNINGS: usize = 10;
    let address = without_password(&config.store.url);
    let (mut pause, mut warnings) = (FIRST, 0);
    let redis = loop {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST);
        let failed = match settings::connect(&config).await {
            Ok(Ok(redis)) => break redis,
            Ok(Err(unreachable)) => unreachable,
            Err(error) => format!("{error:#}"),
        };
        // Only what is new.
        if failed != reason && warnings < MOST_WARNINGS {
            tracing::warn!("store.url: {address}: still unreachable: {failed}");
            warnings += 1;
            reason = failed;
        }
    };
    warn_of(&redis);
    let server = redis.server().to_string();
    service.limiter.store_reached(redis);
    service.seal.agree(&service.limiter).await;
    exceptions::keep(&service.limiter, settings::kept_in(&config)).await;
    tracing::info!("store: {server} at {address} is reachable now and in use");
}

fn warn_of(redis: &RedisStore) {
    if let Some(warning) = redis.server().warning() {
        tracing::warn!("store.url: {warning}");
    }
}
