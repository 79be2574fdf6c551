//! Heartbeats: each instance sends them, and counts those of the others.
//!
//! Each heartbeat also checks for exceptions that other instances made, and probes servers that did not answer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::FromRedisValue;

use super::fleet::{Counted, Fleet, Kept};
use super::instant::Instant;
use super::node::Work;
use super::script::{Call, HEARTBEAT};
use super::shared::Shared;
use crate::store::error::StoreError;

const EVERY: Duration = Duration::from_secs(1);

/// Sends heartbeats for as long as the store is in use.
pub(super) fn start(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    tokio::spawn(async move {
        while beat(&shared).await {
            tokio::time::sleep(EVERY).await;
        }
    });
}

/// False when the store is no longer used.
async fn beat(shared: &Weak<Shared>) -> bool {
    let Some(shared) = shared.upgrade() else { return false };
    if shared.fleet.has_left() {
        return false;
    }
    let key = key(&shared);
    let slot = shared.nodes.slot(&key);
    let ages = [Fleet::GONE_AFTER, Fleet::FORGOTTEN_AFTER].map(|age| age.as_millis().to_string().into_bytes());
    let arguments = [vec![shared.fleet.name.as_bytes().to_vec()], ages.to_vec()].concat();
    let call = Call { keys: vec![key.into()], arguments };
    // A node whose breaker is open is left to requests that need it.
    if shared.nodes.admit(slot).is_ok()
        && let Ok(counted) = shared.nodes.call(slot, Work::Script(&HEARTBEAT, &call), read).await
        && shared.fleet.note(counted, Instant::now()) == Kept::Lost
    {
        tracing::warn!(
            "Redis has lost its data: it was restarted without persistence, emptied, or replaced by an empty replica; \
             every limit starts full again"
        );
    }
    shared.follow_exceptions().await;
    shared.nodes.probe().await;
    true
}

fn read(value: redis::Value) -> Result<Counted, StoreError> {
    let unusable = |error: redis::ParsingError| StoreError::unavailable(error.to_string());
    let (sharers, alive, is_new): (u32, u32, u32) = FromRedisValue::from_redis_value(value).map_err(unusable)?;
    Ok(Counted { sharers, alive, is_new: is_new > 0 })
}

impl Shared {
    /// No more heartbeats: the others share what this instance had. It is forgotten anyway if that fails.
    pub(super) async fn sign_off(self: &Arc<Self>) {
        self.fleet.leave();
        let key = key(self);
        let _: Result<i64, StoreError> = self.command(&key, redis::cmd("ZREM").arg(&key).arg(&self.fleet.name)).await;
    }
}

fn key(shared: &Shared) -> String {
    format!("{}:instances", shared.namespace)
}
