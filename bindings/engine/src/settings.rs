//! Settings beside the rules: from a file, or from code as JSON of the same shape.
//!
//! The file is the service's configuration file. Settings that only a service has (listeners, access) are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tollkeeper::http::{AddressSource, AnswerStyle, AttributeSource, Identity};
use tollkeeper::{HeaderStyle, MemoryStore, RedisStore, RedisTls, RuleSpec, Span, parse_span};
use tollkeeper_core::KeyTemplate;

use crate::error::{Error, Kind};

/// What a limiter is made from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where state lives.
    pub store: StoreSettings,
    /// Addresses or CIDRs of trusted proxies, whose forwarding headers are used.
    pub trusted_proxies: Vec<String>,
    /// The header in which they pass on the client's address.
    pub client_address: String,
    /// IPv6 clients are grouped by this many leading bits.
    pub ipv6_prefix: u8,
    /// The convention that limit headers follow.
    pub headers: HeaderStyle,
    /// Attributes taken from the request: `user_id: header.x-user-id`.
    pub identify: BTreeMap<String, String>,
    /// The status of a denied request.
    pub deny_status: u16,
    /// The rules, all enforced together.
    pub rules: Vec<RuleSpec>,
    listen: Option<IgnoredAny>,
    rules_from: Option<String>,
    rules_snapshot: Option<IgnoredAny>,
    admin: Option<IgnoredAny>,
    insight: Option<IgnoredAny>,
    audit: Option<IgnoredAny>,
    alerts: Option<IgnoredAny>,
    telemetry: Option<IgnoredAny>,
    decisions: Option<IgnoredAny>,
    metrics: Option<IgnoredAny>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            store: StoreSettings::default(),
            trusted_proxies: Vec::new(),
            client_address: "auto".into(),
            ipv6_prefix: Identity::IPV6_PREFIX,
            headers: HeaderStyle::default(),
            identify: BTreeMap::new(),
            deny_status: 429,
            rules: Vec::new(),
            listen: None,
            rules_from: None,
            rules_snapshot: None,
            admin: None,
            insight: None,
            audit: None,
            alerts: None,
            telemetry: None,
            decisions: None,
            metrics: None,
        }
    }
}

/// Where state lives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// `memory:`, `redis://`, `redis+cluster://`, `redis+sentinel://`; `rediss` for TLS.
    pub url: String,
    /// How long a remote store may take, such as `20ms`.
    pub timeout: Option<String>,
    /// How many keys the memory store holds at most.
    pub max_keys: usize,
    /// Certificates for `rediss://`.
    pub tls: Option<TlsFiles>,
    /// The prefix of all keys in Redis.
    pub namespace: Option<String>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        let max_keys = MemoryStore::DEFAULT_MAX_KEYS;
        StoreSettings { url: "memory:".into(), timeout: None, max_keys, tls: None, namespace: None }
    }
}

/// Files in PEM format.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsFiles {
    /// CA certificates to trust, instead of the system's trust store.
    pub ca: Option<PathBuf>,
    /// The client certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

impl Settings {
    /// From code: JSON in the shape of the file.
    pub fn from_json(text: &str) -> Result<Settings, Error> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let settings: Settings = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let (path, message) = (error.path().to_string(), error.inner().to_string());
            let message = message.split(" at line ").next().unwrap_or(&message).to_string();
            let kind = if path.starts_with("rules") { Kind::Rule } else { Kind::Config };
            Error::new(kind, if path == "." { message } else { format!("{path}: {message}") })
        })?;
        settings.proven()
    }

    /// From a file; `store` overrides the URL in it.
    pub fn from_file(path: &Path, store: Option<&str>) -> Result<Settings, Error> {
        let at = |problem: String| Error::new(Kind::Config, format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| at(format!("cannot be read: {error}")))?;
        let mut settings: Settings = if text.trim().is_empty() {
            Settings::default()
        } else {
            serde_saphyr::from_str(&text).map_err(|error| {
                let place = error.location().map(|place| format!("{}:{}: ", place.line(), place.column()));
                at(format!("{}{}", place.unwrap_or_default(), error.without_snippet()))
            })?
        };
        if let Some(url) = store {
            settings.store.url = url.into();
        }
        settings.proven().map_err(|error| error.at(path))
    }

    /// Whether state is kept in this process.
    pub fn is_memory(&self) -> bool {
        self.store.url.starts_with("memory:")
    }

    /// Checks everything that can be checked before use.
    fn proven(self) -> Result<Settings, Error> {
        let wrong =
            |field: &str, problem: &dyn std::fmt::Display| Error::new(Kind::Config, format!("{field}: {problem}"));
        let url = &self.store.url;
        if !self.is_memory() {
            let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
            if !["redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"]
                .contains(&scheme)
            {
                let problem = "it names no store; write memory:, redis://HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT \
                               or redis+sentinel://HOST:PORT,HOST:PORT/NAME";
                return Err(wrong("store", &problem));
            }
            RedisStore::check_url(url).map_err(|error| wrong("store", &error))?;
        }
        if self.store.max_keys == 0 {
            return Err(wrong("store.max_keys", &"0 keys hold no limit; use at least 1"));
        }
        self.timeout()?;
        self.identity()?;
        self.style()?;
        if self.rules_from.is_some() {
            return Err(wrong(
                "rules_from",
                &"rules from Postgres are for the service so far; write them here under `rules`",
            ));
        }
        Ok(self)
    }

    /// How long a remote store may take.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Error> {
        let wrong = |problem: String| Error::new(Kind::Config, format!("store.timeout: {problem}"));
        let Some(text) = &self.store.timeout else { return Ok(None) };
        let timeout = parse_span(text).map_err(|error| wrong(error.to_string()))?;
        if !(Span::from_micros(1_000)..=Span::from_secs(60)).contains(&timeout) {
            return Err(wrong(format!("{timeout} is not between 1ms and 60s; 20ms is usual")));
        }
        Ok(Some(timeout.as_duration()))
    }

    /// Certificates for `rediss://`.
    pub(crate) fn certificates(&self) -> Result<Option<RedisTls>, Error> {
        let Some(files) = &self.store.tls else { return Ok(None) };
        let read = |field: &str, path: &Option<PathBuf>| {
            let read = |path: &PathBuf| {
                std::fs::read(path).map_err(|error| {
                    Error::new(Kind::Config, format!("store.tls.{field}: cannot read {}: {error}", path.display()))
                })
            };
            path.as_ref().map(read).transpose()
        };
        Ok(Some(RedisTls {
            authority: read("ca", &files.ca)?,
            certificate: read("cert", &files.cert)?,
            key: read("key", &files.key)?,
        }))
    }

    /// How HTTP requests become attributes.
    pub(crate) fn identity(&self) -> Result<Identity, Error> {
        let wrong = |field: String, problem: String| Error::new(Kind::Config, format!("{field}: {problem}"));
        let mut proxies = Vec::new();
        for (index, proxy) in self.trusted_proxies.iter().enumerate() {
            let network = proxy.parse::<IpNet>().or_else(|_| proxy.parse::<IpAddr>().map(IpNet::from));
            proxies.push(network.map_err(|_| {
                let problem = format!("{proxy:?} is not an address or a CIDR; write for example 10.0.0.0/8");
                wrong(format!("trusted_proxies[{index}]"), problem)
            })?);
        }
        if !(1..=128).contains(&self.ipv6_prefix) {
            return Err(wrong("ipv6_prefix".into(), format!("{} is not between 1 and 128", self.ipv6_prefix)));
        }
        let source: AddressSource =
            self.client_address.parse().map_err(|error| wrong("client_address".into(), format!("{error}")))?;
        let mut identity = Identity::new().trust(proxies).address_from(source).ipv6_prefix(self.ipv6_prefix);
        for (attribute, source) in &self.identify {
            let source = source
                .parse::<AttributeSource>()
                .map_err(|error| wrong(format!("identify.{attribute}"), error.to_string()))?;
            identity = identity.identify(attribute, source);
        }
        Ok(identity)
    }

    /// A place that a key names directly also identifies clients, so a request may have it only once.
    pub(crate) fn identity_for(&self, rules: &[RuleSpec]) -> Result<Identity, Error> {
        let keys = rules.iter().filter_map(|rule| KeyTemplate::new(&rule.key).ok());
        let named: BTreeSet<String> = keys.flat_map(|key| key.needs().flatten().cloned().collect::<Vec<_>>()).collect();
        let places =
            named.iter().filter(|name| !self.identify.contains_key(*name)).filter_map(|name| name.parse().ok());
        Ok(places.fold(self.identity()?, Identity::single))
    }

    /// How verdicts become responses.
    pub(crate) fn style(&self) -> Result<AnswerStyle, Error> {
        let status = StatusCode::from_u16(self.deny_status).ok().filter(|_| (400..=599).contains(&self.deny_status));
        let problem = "does not tell a client that it was denied; use 429, or another 4xx or 5xx";
        let wrong = || Error::new(Kind::Config, format!("deny_status: {} {problem}", self.deny_status));
        Ok(AnswerStyle { headers: self.headers, deny_status: status.ok_or_else(wrong)? })
    }
}
