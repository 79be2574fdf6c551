//! The settings of a limiter beside its rules.

use std::collections::BTreeMap;
use std::path::PathBuf;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollkeeper_core::{DenySpec, HeaderStyle, RuleSpec};

use crate::http::Identity;
use crate::store::MemoryStore;

/// The settings of a limiter, as written. They have been checked only if they came from [`load`](super::load): see
/// [`Settings::problems`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where state lives.
    pub store: StoreSettings,
    /// A Postgres URL to take rules from, instead of this file: `postgres://USER:PASSWORD@HOST:5432/DATABASE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules_from: Option<String>,
    /// A file with the last good rules of `rules_from`, so that the service can start while the database is
    /// unreachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules_snapshot: Option<PathBuf>,
    /// Addresses or CIDRs of trusted proxies, whose forwarding headers are used. None by default.
    pub trusted_proxies: Vec<String>,
    /// The header in which trusted proxies report the client's address: `forwarded`, `x-forwarded-for`, one that
    /// holds a single address such as `x-real-ip` or `cf-connecting-ip`, or `auto` for the hops on which the first
    /// two agree.
    pub client_address: String,
    /// IPv6 clients are grouped by this many leading bits.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 128)))]
    pub ipv6_prefix: u8,
    /// The convention that limit headers follow.
    pub headers: HeaderStyle,
    /// Attributes taken from the request: `user_id: header.x-user-id`.
    pub identify: BTreeMap<String, String>,
    /// The status of a denied request.
    #[cfg_attr(feature = "schema", schemars(range(min = 400, max = 599)))]
    pub deny_status: u16,
    /// The response to denied requests, for all rules without their own `deny`, instead of a problem document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<DenySpec>,
    /// The rules, all enforced together.
    pub rules: Vec<RuleSpec>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            store: StoreSettings::default(),
            rules_from: None,
            rules_snapshot: None,
            trusted_proxies: Vec::new(),
            client_address: "auto".into(),
            ipv6_prefix: Identity::IPV6_PREFIX,
            headers: HeaderStyle::default(),
            identify: BTreeMap::new(),
            deny_status: 429,
            deny: None,
            rules: Vec::new(),
        }
    }
}

/// Where state lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "StoreConfig"))]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// `memory:` keeps state in this process, `redis://HOST:PORT` in a server shared by many,
    /// `redis+cluster://HOST:PORT,HOST:PORT` in a cluster, `redis+sentinel://HOST:PORT,HOST:PORT/NAME` where sentinels
    /// know the primary. `rediss` instead of `redis` means TLS.
    pub url: String,
    /// Whether a service refuses to start while a remote store is unreachable. With `false` it starts without the
    /// store: rules use `on_store_failure`, and `/readyz` says so, until the store is reachable.
    pub required: bool,
    /// How long a call to a remote store may take, from `1ms` to `60s`: `20ms` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// The maximum number of keys in the memory store, also while it stands in for Redis. A key takes 36 bytes.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_keys: usize,
    /// How many bytes the memory store keeps for the logs of `sliding_window_log` and `concurrency`.
    #[cfg_attr(feature = "schema", schemars(range(min = 1024)))]
    pub max_log_bytes: usize,
    /// Certificates for `rediss://`, instead of the system's trust store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// The prefix of all keys in Redis: `tollkeeper` by default. Limiters with different prefixes share nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        let max_keys = MemoryStore::DEFAULT_MAX_KEYS;
        let max_log_bytes = MemoryStore::DEFAULT_MAX_LOG_BYTES;
        StoreSettings {
            url: "memory:".into(),
            required: true,
            timeout: None,
            max_keys,
            max_log_bytes,
            tls: None,
            namespace: None,
        }
    }
}

/// Files in PEM format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TlsFiles {
    /// CA certificates for the server, instead of the system's trust store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Settings {
    /// Whether state is kept in this process.
    pub fn is_memory(&self) -> bool {
        self.store.url.starts_with("memory:")
    }
}
