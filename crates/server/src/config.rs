//! The configuration file: what it may say, and errors that name file, line, column, field and what to do.

pub(crate) mod located;
pub(crate) mod operations;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollkeeper::{HeaderStyle, Policy, PolicyError, RuleSpec};

use located::Located;
use operations::{AlertsConfig, TelemetryConfig};

/// The embedded default: a memory store and a few example rules.
pub(crate) const DEFAULT: &str = include_str!("config/default.yaml");

/// A Tollkeeper configuration: where to listen, where state lives, how clients are told apart, and the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Tollkeeper configuration")]
pub(crate) struct Config {
    /// Addresses to listen on.
    pub(crate) listen: Listen,
    /// Where state lives.
    pub(crate) store: StoreConfig,
    /// A Postgres URL to take rules from, instead of this file: `postgres://USER:PASSWORD@HOST:5432/DATABASE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rules_from: Option<String>,
    /// Where the last good rules of `rules_from` are kept, for a start while the database is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rules_snapshot: Option<PathBuf>,
    /// Addresses or CIDRs of the proxies whose forwarding headers are believed. None by default.
    pub(crate) trusted_proxies: Vec<String>,
    /// The header in which trusted proxies tell the client's address: `forwarded`, `x-forwarded-for`, one that holds a single
    /// address such as `x-real-ip` or `cf-connecting-ip`, or `auto` for what both of the first two tell.
    pub(crate) client_address: String,
    /// IPv6 clients are told apart by this many leading bits.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) ipv6_prefix: u8,
    /// The convention that limit headers follow.
    pub(crate) headers: HeaderStyle,
    /// Attributes taken from the request: `user_id: header.x-user-id`.
    pub(crate) identify: BTreeMap<String, String>,
    /// The status of a denied request on `/v1/authorize`.
    #[schemars(range(min = 400, max = 599))]
    pub(crate) deny_status: u16,
    /// The part of the API that looks and changes rather than decides.
    pub(crate) admin: AdminConfig,
    /// Whether traffic is observed: hot keys, findings, the audit.
    pub(crate) insight: bool,
    /// Who was denied.
    pub(crate) audit: AuditConfig,
    /// Who is told when something is wrong.
    pub(crate) alerts: AlertsConfig,
    /// Traces and metrics for a collector of OpenTelemetry.
    pub(crate) telemetry: TelemetryConfig,
    /// The rules, all enforced together.
    pub(crate) rules: Vec<RuleSpec>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: Listen::default(),
            store: StoreConfig::default(),
            rules_from: None,
            rules_snapshot: None,
            trusted_proxies: Vec::new(),
            client_address: "auto".into(),
            ipv6_prefix: 64,
            headers: HeaderStyle::default(),
            identify: BTreeMap::new(),
            deny_status: 429,
            admin: AdminConfig::default(),
            insight: true,
            audit: AuditConfig::default(),
            alerts: AlertsConfig::default(),
            telemetry: TelemetryConfig::default(),
            rules: Vec::new(),
        }
    }
}

/// Addresses to listen on; port 0 picks a free one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Listen {
    /// The HTTP API.
    pub(crate) http: String,
    /// Envoy's rate limit service, over gRPC. Not served unless it has an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grpc: Option<String>,
    /// The Redis protocol: `CL.THROTTLE` and `TOLLKEEPER.CHECK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resp: Option<String>,
    /// What clients of the Redis protocol have to say with `AUTH`. Without one, everybody may ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resp_password: Option<String>,
    /// TLS on every address. Without it, nothing is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<ListenTls>,
}

impl Default for Listen {
    fn default() -> Self {
        Listen { http: "127.0.0.1:8080".into(), grpc: None, resp: None, resp_password: None, tls: None }
    }
}

/// Files in PEM format, read when the service starts and on SIGHUP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListenTls {
    /// The certificate that clients see, followed by those that vouch for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key, not encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    /// Certificates of those who vouch for clients: every client must then show a certificate of theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_ca: Option<PathBuf>,
}

/// Where state lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreConfig {
    /// `memory:` keeps state in this process, `redis://HOST:PORT` in a server shared by many,
    /// `redis+cluster://HOST:PORT,HOST:PORT` in a cluster, `redis+sentinel://HOST:PORT,HOST:PORT/NAME` where sentinels
    /// know the primary. `rediss` instead of `redis` means TLS.
    pub(crate) url: String,
    /// How long a remote store may take, such as `20ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<String>,
    /// How many keys the memory store holds at most.
    #[schemars(range(min = 1))]
    pub(crate) max_keys: usize,
    /// Certificates for `rediss://`, where those that the system trusts are not meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<TlsFiles>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        let max_keys = tollkeeper::MemoryStore::DEFAULT_MAX_KEYS;
        StoreConfig { url: "memory:".into(), timeout: None, max_keys, tls: None }
    }
}

/// Files in PEM format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsFiles {
    /// Certificates of those who vouch for the server, instead of those that the system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate that this client shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
}

/// Who may look and change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminConfig {
    /// Required as `Authorization: Bearer TOKEN`. Without one, admin works on loopback addresses only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// Who was denied, and for how long that is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditConfig {
    /// How many of the last violations are kept in memory.
    #[schemars(range(max = 1_000_000))]
    pub(crate) keep: usize,
    /// A Postgres URL to write violations to; the database of `rules_from` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) database: Option<String>,
    /// How long the database keeps them.
    pub(crate) retention: String,
}

impl Default for AuditConfig {
    fn default() -> Self {
        AuditConfig { keep: 10_000, database: None, retention: "30d".into() }
    }
}

/// A configuration file that was read and whose rules were understood.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) policy: Policy,
    /// Things that are allowed and probably not meant.
    pub(crate) warnings: Vec<Problem>,
}

/// Everything that is wrong with a file.
#[derive(Debug)]
pub(crate) struct ConfigError {
    /// Nobody could read it, so nothing is known of what it says.
    pub(crate) unreadable: bool,
    pub(crate) problems: Vec<Problem>,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Problem {
    pub(crate) file: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field: String,
    pub(crate) problem: String,
    /// The line, and a second one that marks the place in it.
    #[serde(skip)]
    excerpt: Option<(String, String)>,
}

impl Config {
    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Loaded, ConfigError> {
        Config::parse(path, &read_text(path)?)
    }

    /// The embedded default.
    pub(crate) fn embedded() -> Result<Loaded, ConfigError> {
        Config::parse(Path::new("(built-in default)"), DEFAULT)
    }

    /// Reads a text that came from `path`.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Loaded, ConfigError> {
        Config::parse_as(path, text, |_| {})
    }

    /// Reads a file for its rules alone, wherever a service that runs on it takes its own from.
    pub(crate) fn load_rules(path: &Path) -> Result<Loaded, ConfigError> {
        Config::parse_as(path, &read_text(path)?, |config| (config.rules_from, config.rules_snapshot) = (None, None))
    }

    fn parse_as(path: &Path, text: &str, change: impl FnOnce(&mut Config)) -> Result<Loaded, ConfigError> {
        let located = Located::parse(text)
            .map_err(|(place, message)| ConfigError::of(Problem::new(path, String::new(), message).at(place, text)))?;
        let mut config: Config = located.read().map_err(|unreadable| {
            ConfigError::of(Problem::new(path, unreadable.field, unreadable.message).at(unreadable.place, text))
        })?;
        change(&mut config);
        let problem_at = |field: String, problem: String| {
            let place = located.place_of(&field);
            Problem::new(path, field, problem).at(place, text)
        };
        let mut problems: Vec<Problem> =
            crate::settings::problems(&config).into_iter().map(|(field, problem)| problem_at(field, problem)).collect();
        match Policy::new(config.rules.clone()) {
            Ok(policy) if problems.is_empty() => {
                let rules = policy.rules().iter().enumerate();
                let mut warnings: Vec<Problem> = rules
                    .flat_map(|(index, rule)| rule.warnings().into_iter().map(move |warning| (index, warning)))
                    .map(|(index, warning)| problem_at(format!("rules[{index}].{}", warning.field), warning.problem))
                    .collect();
                warnings
                    .extend(crate::settings::warnings(&config).into_iter().map(|(f, problem)| problem_at(f, problem)));
                Ok(Loaded { config, policy, warnings })
            }
            Ok(_) => Err(ConfigError { unreadable: false, problems }),
            Err(errors) => {
                problems.extend(errors.into_iter().map(|PolicyError { index, name, error }| {
                    let rule = name.map(|name| format!("rule `{name}`: ")).unwrap_or_default();
                    problem_at(format!("rules[{index}].{}", error.field), format!("{rule}{}", error.problem))
                }));
                Err(ConfigError { unreadable: false, problems })
            }
        }
    }
}

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| {
        let problem = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_string(),
            std::io::ErrorKind::InvalidData => "is not UTF-8 text; save it as UTF-8".to_string(),
            _ => format!("cannot be read: {error}"),
        };
        ConfigError { unreadable: true, problems: vec![Problem::new(path, String::new(), problem)] }
    })
}

impl ConfigError {
    pub(crate) fn of(problem: Problem) -> ConfigError {
        ConfigError { unreadable: false, problems: vec![problem] }
    }
}

impl Problem {
    pub(crate) fn new(file: &Path, field: String, problem: String) -> Problem {
        let problem = without_secrets(&problem);
        Problem { file: file.to_path_buf(), line: None, column: None, field, problem, excerpt: None }
    }

    pub(crate) fn at(mut self, place: Option<(u64, u64)>, text: &str) -> Problem {
        if let Some((line, column)) = place {
            (self.line, self.column) = (Some(line), Some(column));
            let line = text.lines().nth(line as usize - 1);
            self.excerpt = line.filter(|line| !has_secret(line)).map(|line| excerpt(line, column));
        }
        self
    }
}

/// `rules.yaml:7:12: rules[1].limit: ...`, the line, and a mark under the place.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.problem)?;
        if let (Some((text, mark)), Some(line)) = (&self.excerpt, self.line) {
            let gutter = line.to_string();
            let blank = " ".repeat(gutter.len());
            write!(f, "\n  {gutter} | {text}\n  {blank} | {mark}")?;
        }
        Ok(())
    }
}

/// Lines that may hold a password or a token are not repeated: errors end up in logs.
fn has_secret(line: &str) -> bool {
    let is_address = ["://", "redis", "postgres"].iter().any(|part| line.contains(part));
    let names_one = ["token", "password", "secret", "webhook", "otlp"].iter().any(|name| line.contains(name));
    (is_address && line.contains(['@', '?'])) || names_one
}

/// A text whose words that may hold a password are cut short.
fn without_secrets(text: &str) -> String {
    let shown = |word: &str| {
        let hidden = has_secret(word) && (word.contains('@') || word.contains('='));
        let start = word.find(':').map_or(0, |colon| colon + 1);
        if hidden { format!("{}…", &word[..start]) } else { word.to_string() }
    };
    text.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

/// The part of a line around a column, and a mark under it. Files made by programs have very long lines.
fn excerpt(line: &str, column: u64) -> (String, String) {
    const BEFORE: usize = 60;
    const SHOWN: usize = 100;
    let column = (column as usize).saturating_sub(1);
    let first = if column > SHOWN - 20 { column - BEFORE } else { 0 };
    let dots = if first > 0 { "..." } else { "" };
    let text: String = line.chars().skip(first).take(SHOWN).collect();
    (format!("{dots}{text}"), format!("{}^", " ".repeat(dots.len() + column - first)))
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
