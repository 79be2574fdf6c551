//! The configuration file as written: what it may contain, and where each value is.
//!
//! Nothing is validated across fields here. What the values mean together, and what is wrong with them, is in
//! `settings`.

mod address;
pub mod operations;

pub use tollkeeper::file::{ConfigError, Document, Problem, StoreSettings};

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollkeeper::file::Settings;
use tollkeeper::{DenySpec, HeaderStyle, RuleSpec};

use operations::{AlertsConfig, TelemetryConfig};

/// The embedded default: a memory store and a few example rules.
pub const DEFAULT: &str = include_str!("config/default.yaml");

/// A Tollkeeper configuration: where to listen, where state lives, how clients are identified, and the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Tollkeeper configuration")]
pub struct Config {
    /// Addresses to listen on.
    pub listen: Listen,
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
    #[schemars(range(min = 1, max = 128))]
    pub ipv6_prefix: u8,
    /// The convention that limit headers follow.
    pub headers: HeaderStyle,
    /// Attributes taken from the request: `user_id: header.x-user-id`.
    pub identify: BTreeMap<String, String>,
    /// The status of a denied request on `/v1/authorize`.
    #[schemars(range(min = 400, max = 599))]
    pub deny_status: u16,
    /// The response to denied requests, for all rules without their own `deny`, instead of a problem document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<DenySpec>,
    /// The admin API, which shows and changes state.
    pub admin: AdminConfig,
    /// The API that makes decisions.
    pub decisions: DecisionsConfig,
    /// Who may see `/metrics`: `auto` requires a token except on loopback, `open` never does, `token` always does.
    pub metrics: MetricsAccess,
    /// Whether traffic is analysed: hot keys, findings, charts. The audit is kept either way.
    pub insight: bool,
    /// Who was denied.
    pub audit: AuditConfig,
    /// How the service stops.
    pub shutdown: ShutdownConfig,
    /// Where alerts go when something is wrong.
    pub alerts: AlertsConfig,
    /// Traces and metrics for an OpenTelemetry collector.
    pub telemetry: TelemetryConfig,
    /// The rules, all enforced together.
    pub rules: Vec<RuleSpec>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: Listen::default(),
            store: StoreSettings::default(),
            rules_from: None,
            rules_snapshot: None,
            trusted_proxies: Vec::new(),
            client_address: "auto".into(),
            ipv6_prefix: 64,
            headers: HeaderStyle::default(),
            identify: BTreeMap::new(),
            deny_status: 429,
            deny: None,
            admin: AdminConfig::default(),
            decisions: DecisionsConfig::default(),
            metrics: MetricsAccess::default(),
            insight: true,
            audit: AuditConfig::default(),
            shutdown: ShutdownConfig::default(),
            alerts: AlertsConfig::default(),
            telemetry: TelemetryConfig::default(),
            rules: Vec::new(),
        }
    }
}

impl Config {
    /// The part that a limiter needs, wherever it runs.
    pub fn limiter(&self) -> Settings {
        Settings {
            store: self.store.clone(),
            rules_from: self.rules_from.clone(),
            rules_snapshot: self.rules_snapshot.clone(),
            trusted_proxies: self.trusted_proxies.clone(),
            client_address: self.client_address.clone(),
            ipv6_prefix: self.ipv6_prefix,
            headers: self.headers,
            identify: self.identify.clone(),
            deny_status: self.deny_status,
            deny: self.deny.clone(),
            rules: self.rules.clone(),
        }
    }
}

/// Addresses to listen on; port 0 picks a free one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    /// The HTTP API.
    #[serde(deserialize_with = "address::read")]
    pub http: String,
    /// Envoy's rate limit service, over gRPC. Off by default.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address::read_maybe")]
    pub grpc: Option<String>,
    /// The Redis protocol: `CL.THROTTLE` and `TOLLKEEPER.CHECK`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address::read_maybe")]
    pub resp: Option<String>,
    /// The password that clients of the Redis protocol send with `AUTH`. Without one, any client may connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resp_password: Option<String>,
    /// An address that serves only health checks, and answers even when the others are overloaded. Plain HTTP, without
    /// TLS.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address::read_maybe")]
    pub health: Option<String>,
    /// How many connections each address takes at the same time; further ones wait.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: usize,
    /// How many of them one client may have: an IPv4 address, or an IPv6 network of 64 bits. By default a quarter of
    /// `connections`. Trusted proxies may have all.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_address: Option<usize>,
    /// TLS on every address. Without it, nothing is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenTls>,
}

impl Default for Listen {
    fn default() -> Self {
        Listen {
            http: "127.0.0.1:8080".into(),
            grpc: None,
            resp: None,
            resp_password: None,
            health: None,
            connections: 10_000,
            connections_per_address: None,
            tls: None,
        }
    }
}

/// Files in PEM format, read when the service starts and on SIGHUP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTls {
    /// The server certificate, followed by its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its key, not encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// CA certificates for clients: every client must then present a certificate signed by one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
}

/// Access to the admin part of the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Required as `Authorization: Bearer TOKEN`. Without one, a token is made at start on loopback addresses, and the admin
    /// part is off on others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A read-only token, for Prometheus and dashboards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_token: Option<String>,
}

/// Access to decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecisionsConfig {
    /// Required as `Authorization: Bearer TOKEN` or `X-Tollkeeper-Token: TOKEN` over HTTP and gRPC. Not required by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Access to the metrics page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// On loopback any client, elsewhere clients with the admin or the read-only token.
    #[default]
    Auto,
    /// Any client.
    Open,
    /// Clients with the admin or the read-only token.
    Token,
}

/// How the service stops when it is terminated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// How long `/readyz` says `draining` before connections are closed, so that load balancers notice; at most `10min`.
    pub delay: String,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        ShutdownConfig { delay: "0s".into() }
    }
}

/// The audit of denied requests, and how long it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// How many of the latest violations are kept in memory.
    #[schemars(range(max = 1_000_000))]
    pub keep: usize,
    /// A Postgres URL to write violations to; the database of `rules_from` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// How long the database keeps them, from `1h` to `3653d`.
    pub retention: String,
    /// How large the table of violations may be, in megabytes. Beyond that the oldest days are dropped; when today alone is
    /// larger, further violations are counted and not written.
    #[schemars(range(min = 1))]
    pub max_size_mb: u64,
}

impl Default for AuditConfig {
    fn default() -> Self {
        AuditConfig { keep: 10_000, database: None, retention: "30d".into(), max_size_mb: 10_000 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tollkeeper::file::SERVICE_FIELDS;

    use super::*;

    /// The library reads the same file: each field is one that it knows, with the same default, or one that it leaves to us.
    #[test]
    fn every_field_is_the_librarys_or_left_to_the_service() {
        let names = |schema: schemars::Schema| -> Vec<String> {
            schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect()
        };
        let of_library = names(schemars::schema_for!(Settings));
        for name in names(schemars::schema_for!(Config)) {
            let (is_known, is_left) = (of_library.contains(&name), SERVICE_FIELDS.contains(&name.as_str()));
            assert!(is_known != is_left, "`{name}` belongs into either tollkeeper::file::Settings or SERVICE_FIELDS");
        }
        assert_eq!(Config::default().limiter(), Settings::default());
    }
}
