//! Heartbeats: each instance sends them, and counts those of the others.
//!
//! While the store is unreachable, a rule that is decided locally gets its share of the limit by the last count. Each
//! heartbeat also checks for exceptions that other instances made, and probes servers that did not answer.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::FromRedisValue as _;

use super::node::Work;
use super::script::{Call, HEARTBEAT};
use super::shared::Shared;
use crate::store::error::StoreError;

const EVERY: Duration = Duration::from_secs(1);
/// After three missed heartbeats an instance counts as gone.
const GONE_AFTER_MS: u64 = 3_500;

/// Sends heartbeats for as long as the store is in use.
pub(super) fn start(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    tokio::spawn(async move {
        let name = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        while beat(&shared, &name).await {
            tokio::time::sleep(EVERY).await;
        }
    });
}

/// False when the store is no longer used.
async fn beat(shared: &Weak<Shared>, name: &str) -> bool {
    let Some(shared) = shared.upgrade() else { return false };
    let arguments = vec![name.as_bytes().to_vec(), GONE_AFTER_MS.to_string().into_bytes()];
    let key = format!("{}:instances", shared.namespace);
    let slot = shared.nodes.slot(&key);
    let call = Call { keys: vec![key], arguments };
    let read = |value| u32::from_redis_value(value).map_err(|error| StoreError::unavailable(error.to_string()));
    // A node whose breaker is open is left to requests that need it.
    if shared.nodes.admit(slot).is_ok()
        && let Ok(instances) = shared.nodes.call(slot, Work::Script(&HEARTBEAT, &call), read).await
    {
        shared.instances.store(instances.max(1), Relaxed);
    }
    shared.follow_exceptions().await;
    shared.nodes.probe().await;
    true
}
