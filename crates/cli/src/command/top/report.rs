//! The answer of `GET /v1/insight`, as far as it is shown.

use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Report {
    pub(super) version: String,
    pub(super) instance: String,
    pub(super) uptime_seconds: u64,
    pub(super) totals: Totals,
    pub(super) findings: Vec<Finding>,
    pub(super) latency: Latency,
    pub(super) store: Store,
    pub(super) rules: Vec<Rule>,
    pub(super) violations: Vec<Violation>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Totals {
    pub(super) requests: u64,
    pub(super) denied: u64,
    pub(super) no_rule: u64,
    pub(super) shed: u64,
    pub(super) error: u64,
    pub(super) share_denied: f64,
    pub(super) requests_per_second: f64,
    pub(super) denied_per_second: f64,
    pub(super) no_rule_per_second: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Latency {
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Store {
    pub(super) kind: String,
    pub(super) breaker: String,
    pub(super) errors: u64,
    pub(super) keys: Option<u64>,
    pub(super) max_keys: Option<u64>,
    pub(super) instances: u32,
    pub(super) calls: u64,
    pub(super) p99_us: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) mode: String,
    pub(super) active: bool,
    pub(super) key: String,
    pub(super) limit: String,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) shadow_denied: u64,
    #[serde(default)]
    pub(super) annotated: u64,
    pub(super) allowed_per_second: f64,
    pub(super) denied_per_second: f64,
    pub(super) shadow_denied_per_second: f64,
    #[serde(default)]
    pub(super) annotated_per_second: f64,
    pub(super) seconds: Series,
    pub(super) hot_by_traffic: Vec<HotKey>,
    pub(super) hot_by_denials: Vec<HotKey>,
    pub(super) finding: Option<Finding>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Series {
    pub(super) allowed: Vec<u64>,
    pub(super) denied: Vec<u64>,
    pub(super) shadow_denied: Vec<u64>,
    #[serde(default)]
    pub(super) annotated: Vec<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct HotKey {
    pub(super) key: String,
    pub(super) count: u64,
    pub(super) error: u64,
    #[serde(default)]
    pub(super) waits_kept: u64,
    #[serde(default)]
    pub(super) waits_broken: u64,
    #[serde(default)]
    pub(super) blocked: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Finding {
    pub(super) kind: String,
    pub(super) sentence: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Violation {
    pub(super) at: String,
    pub(super) rule: String,
    pub(super) key: String,
    pub(super) ip: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) count: u64,
    /// Empty from a service that is older than this command.
    #[serde(default)]
    pub(super) mode: String,
    pub(super) blocked: Option<Blocked>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Blocked {
    pub(super) by: Option<String>,
    pub(super) until: Option<String>,
}
