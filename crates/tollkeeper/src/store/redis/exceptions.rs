//! Exceptions in one hash, from which all instances read them. Each change updates its version, which every instance
//! polls once a second.
//!
//! A server that restarts empty, or a replica that is promoted before it got the latest changes, has lost some of them.
//! The version says so, and the instances that know them put them back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::Cmd;
use serde_json::{Value, json};
use tollkeeper_core::{Exception, ExceptionKind, Grant, Timestamp};

use super::RedisStore;
use super::link::ConnectionManager;
use super::script::{Call, EXCEPTIONS, RESTORE};
use super::server::ask;
use super::shared::Shared;
use super::version::{ExceptionsCopy, Version};
use crate::sparing::Sparing;
use crate::store::error::StoreError;
use crate::store::exceptions::{ExceptionError, Exceptions};

/// People read and change them, on a connection of their own: that may take longer than a decision.
const WITHIN: Duration = Duration::from_secs(5);

/// Whether exceptions were put back.
enum Restored {
    Nothing,
    Some,
}

impl RedisStore {
    /// The exceptions that this instance knows; `None` if there were never any, or if `last` is still up to date.
    pub async fn copy_exceptions(&self, last: Option<&ExceptionsCopy>) -> Option<ExceptionsCopy> {
        let known = self.0.exceptions_known.lock().await;
        let Version { born, changed } = (*known)?;
        if last.is_some_and(|last| (last.born, last.changed) == (born, changed)) {
            return None;
        }
        let document = self.0.exceptions.all().iter().map(write).collect::<Vec<_>>().join(",");
        Some(ExceptionsCopy { born, changed, document: format!("[{document}]") })
    }

    /// Puts back what a copy has and the server lacks, and returns how many that were.
    pub async fn restore_exceptions(&self, copy: &ExceptionsCopy) -> Result<usize, StoreError> {
        let unusable = |error: serde_json::Error| StoreError::unavailable(format!("not a copy of exceptions: {error}"));
        let values: Vec<Value> = serde_json::from_str(&copy.document).map_err(unusable)?;
        let exceptions: Vec<Exception> = values.iter().filter_map(|value| read(&value.to_string())).collect();
        let restored = self.0.put_back(Version { born: copy.born, changed: copy.changed }, &exceptions).await?;
        self.0.load_exceptions().await?;
        Ok(restored)
    }

    /// All that are stored, including those that have ended.
    pub(crate) async fn known_exceptions(&self) -> Result<Vec<Exception>, StoreError> {
        let (stored, version) = self.0.read_exceptions().await?;
        match self.0.restore_exceptions(version).await? {
            Restored::Nothing => Ok(stored),
            Restored::Some => Ok(self.0.read_exceptions().await?.0),
        }
    }

    /// Stores one, removes one, and drops outdated ones.
    pub(crate) async fn change_exceptions(
        &self,
        known: Vec<Exception>,
        keep: Option<Exception>,
        remove: Option<Exception>,
        now: Timestamp,
    ) -> Result<(), ExceptionError> {
        let outdated = known.iter().filter(|exception| Exceptions::is_outdated(exception, now));
        let removed: Vec<_> = outdated.map(|old| (field(old), write(old))).collect();
        let removed: Vec<_> = removed.into_iter().chain(remove.map(|one| (field(&one), String::new()))).collect();
        let mut arguments = vec![Exceptions::MOST.to_string(), removed.len().to_string()];
        arguments.extend(removed.into_iter().flat_map(|(field, value)| [field, value]));
        arguments.extend(keep.iter().flat_map(|one| [field(one), write(one)]));
        let arguments = arguments.into_iter().map(String::into_bytes).collect();
        let call = Call { keys: vec![self.0.exceptions_key().into()], arguments };
        let is_kept: i64 = self.0.ask_alone_for_exceptions(&EXCEPTIONS.eval(&call)).await?;
        if is_kept == 0 {
            return Err(ExceptionError::TooMany);
        }
        self.0.load_exceptions().await?;
        Ok(())
    }
}

impl Shared {
    fn exceptions_key(&self) -> String {
        format!("{}:exceptions", self.namespace)
    }

    /// Loads them before the first request; if that fails, with the first heartbeat that succeeds.
    pub(super) async fn start_exceptions(&self) {
        if let Err(error) = self.load_exceptions().await
            && error.to_string().to_lowercase().contains("perm")
        {
            // Asking repeatedly would look like a failing server.
            self.reads_exceptions.store(false, Relaxed);
            tracing::warn!("exceptions for single keys are off: the user of the store lacks +@hash");
        }
    }

    /// Loads them if they have changed, and puts back those that the server has lost.
    pub(super) async fn follow_exceptions(self: &Arc<Self>) {
        if !self.reads_exceptions.load(Relaxed) {
            return;
        }
        let key = self.exceptions_key();
        let stored: Result<Option<Version>, StoreError> =
            self.command(&key, redis::cmd("HGET").arg(&key).arg("")).await;
        let Ok(stored) = stored else { return };
        let known = *self.exceptions_known.lock().await;
        if stored == known {
            return;
        }
        let followed = match self.restore_exceptions(stored).await {
            Ok(_) => self.load_exceptions().await,
            Err(error) => Err(error),
        };
        static LINES: Sparing = Sparing::while_failing();
        if let Err(error) = followed
            && let Some(left_out) = LINES.turn()
        {
            tracing::warn!("exceptions could not be read, and the last known ones stay in force: {error}{left_out}");
        }
    }

    /// Puts back what the server has lost of what this instance knows. Until then nothing may be loaded or changed.
    async fn restore_exceptions(&self, stored: Option<Version>) -> Result<Restored, StoreError> {
        let known = self.exceptions_known.lock().await;
        let Some(version) = known.filter(|known| known.is_lost_in(stored)) else {
            return Ok(Restored::Nothing);
        };
        self.put_back(version, &self.exceptions.all()).await?;
        Ok(Restored::Some)
    }

    /// Stores the exceptions of a version, as far as the server has lost them; returns how many that were.
    async fn put_back(&self, version: Version, exceptions: &[Exception]) -> Result<usize, StoreError> {
        let mut arguments = vec![version.born.to_string(), version.changed.to_string()];
        arguments.extend(exceptions.iter().flat_map(|one| [field(one), write(one)]));
        let arguments = arguments.into_iter().map(String::into_bytes).collect();
        let call = Call { keys: vec![self.exceptions_key().into()], arguments };
        let restored: i64 = self.ask_alone_for_exceptions(&RESTORE.eval(&call)).await?;
        if restored > 0 {
            tracing::warn!("Redis had lost exceptions for single keys; restored: {restored}");
        }
        Ok(restored.max(0) as usize)
    }

    /// Puts the stored ones in force. One load at a time, so that an older one never comes last.
    pub(super) async fn load_exceptions(&self) -> Result<(), StoreError> {
        let mut known = self.exceptions_known.lock().await;
        let (stored, version) = self.read_exceptions().await?;
        self.exceptions.replace(stored);
        *known = version;
        Ok(())
    }

    /// With their version.
    async fn read_exceptions(&self) -> Result<(Vec<Exception>, Option<Version>), StoreError> {
        let key = self.exceptions_key();
        let mut all: HashMap<String, String> = self.ask_alone_for_exceptions(redis::cmd("HGETALL").arg(&key)).await?;
        let version = all.remove("").map(|version| Version::parse(&version));
        Ok((all.into_values().filter_map(|value| read(&value)).collect(), version))
    }

    async fn ask_alone_for_exceptions<T: redis::FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let failed = |error: &dyn std::fmt::Display| StoreError::unavailable(error.to_string());
        let asked = async {
            let owner = self.nodes.owner(self.nodes.slot(&self.exceptions_key())).map_err(|error| failed(&error))?;
            let mut connection: ConnectionManager = owner.open().await.map_err(|error| failed(&error))?;
            ask(&mut connection, command).await.map_err(|error| failed(&error))
        };
        tokio::time::timeout(WITHIN, asked)
            .await
            .unwrap_or_else(|_| Err(failed(&format!("no answer within {WITHIN:?}"))))
    }
}

/// Rule names have neither spaces nor `|`, so no two exceptions share a field.
fn field(exception: &Exception) -> String {
    let Exception { rule, key, by, .. } = exception;
    let rule = rule.as_deref().unwrap_or("*");
    if by.is_empty() {
        return format!("{rule} {key}");
    }
    let by = by.to_string();
    format!("{rule}|{}|{by} {key}", by.len())
}

fn write(exception: &Exception) -> String {
    let Exception { rule, key, by, kind, since, until, reason, made_by, former } = exception;
    let grant = |grant: &Grant| json!({ "limit": grant.limit, "burst": grant.burst });
    let mut written = json!({
        "rule": rule, "key": key, "kind": kind.name(), "since_us": since.as_micros(),
        "until_us": until.map(Timestamp::as_micros), "reason": reason, "made_by": made_by,
    });
    if !by.is_empty() {
        written["by"] = json!(by.to_string());
    }
    if let ExceptionKind::Grant(granted) = kind {
        written["grant"] = grant(granted);
    }
    if let Some((granted, since)) = former {
        written["former"] = json!({ "grant": grant(granted), "since_us": since.as_micros() });
    }
    written.to_string()
}

/// `None` for a format that this version does not know.
fn read(text: &str) -> Option<Exception> {
    let value: Value = serde_json::from_str(text).ok()?;
    let text = |name: &str| value[name].as_str().map(str::to_string);
    let moment = |value: &Value| value.as_u64().map(Timestamp::from_micros);
    let grant = |value: &Value| {
        let burst = value["burst"].as_u64().and_then(|burst| u32::try_from(burst).ok());
        Some(Grant { limit: value["limit"].as_str()?.to_string(), burst })
    };
    let kind = match value["kind"].as_str()? {
        "block" => ExceptionKind::Block,
        "allow" => ExceptionKind::Allow,
        "grant" => ExceptionKind::Grant(grant(&value["grant"])?),
        _ => return None,
    };
    Some(Exception {
        rule: text("rule"),
        key: text("key")?,
        by: text("by").as_deref().unwrap_or_default().into(),
        kind,
        since: moment(&value["since_us"])?,
        until: moment(&value["until_us"]),
        reason: text("reason"),
        made_by: text("made_by"),
        former: grant(&value["former"]["grant"]).zip(moment(&value["former"]["since_us"])),
    })
}
