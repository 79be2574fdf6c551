//! A configuration turned into the things that a service is made of.

mod identity;

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http::StatusCode;
use ipnet::IpNet;
use tollkeeper::http::{AddressSource, AnswerStyle, AttributeSource, Identity};
use tollkeeper::{
    Clock, Enforcement, MemoryStore, RedisOptions, RedisStore, RedisTls, RuleSpec, Span, Store, parse_span,
};
use tollkeeper_core::KeyTemplate;

use crate::audit::Sink;
use crate::config::{Config, ListenTls, StoreConfig, TlsFiles, operations};
use crate::database::Database;
use crate::front::TLS_CLIENT;
use crate::insight;
use crate::privacy::Privacy;
pub(crate) use identity::warnings as identity_warnings;

/// What is wrong with the configuration beside its rules, by field.
pub(crate) fn problems(config: &Config) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut note = |field: String, problem: anyhow::Error| problems.push((field, format!("{problem:#}")));
    if let Err(problem) = check_address(&config.listen.http) {
        note("listen.http".into(), problem);
    }
    if let Some(Err(problem)) = config.listen.grpc.as_deref().map(check_address) {
        note("listen.grpc".into(), problem);
    }
    if let Some(Err(problem)) = config.listen.resp.as_deref().map(check_address) {
        note("listen.resp".into(), problem);
    }
    if config.listen.resp_password.as_deref() == Some("") {
        note("listen.resp_password".into(), anyhow::anyhow!("is empty; choose a long random one, or remove it"));
    }
    if let Some(ListenTls { cert, key, .. }) = &config.listen.tls {
        for (file, name) in [(cert, "cert"), (key, "key")] {
            if file.is_none() {
                let problem = "is missing; TLS needs a certificate and its key, as files in PEM format";
                note(format!("listen.tls.{name}"), anyhow::anyhow!(problem));
            }
        }
    }
    if let Err(problem) = check_store(&config.store.url) {
        note("store.url".into(), problem);
    }
    if config.store.max_keys == 0 {
        note("store.max_keys".into(), anyhow::anyhow!("0 keys hold no limit; use at least 1"));
    }
    match config.store.timeout.as_deref().map(parse_span) {
        Some(Err(problem)) => note("store.timeout".into(), problem.into()),
        Some(Ok(timeout)) if !(Span::from_micros(1_000)..=Span::from_secs(60)).contains(&timeout) => {
            note("store.timeout".into(), anyhow::anyhow!("{timeout} is not between 1ms and 60s; 20ms is usual"));
        }
        _ => {}
    }
    if let Some(tls) = &config.store.tls {
        if !config.store.url.starts_with("rediss") {
            note(
                "store.tls".into(),
                anyhow::anyhow!("is for rediss:// and the like; write store.url so, or remove it"),
            );
        }
        if tls.cert.is_some() != tls.key.is_some() {
            note("store.tls".into(), anyhow::anyhow!("a cert needs its key, and a key its cert"));
        }
    }
    if let Some(Err(problem)) = config.rules_from.as_deref().map(Database::new) {
        note("rules_from".into(), anyhow::anyhow!(problem));
    }
    if config.rules_from.is_some() && !config.rules.is_empty() {
        let problem =
            "rules_from takes them from Postgres; put these there with `tollkeeper rules apply`, then remove them here";
        note("rules".into(), anyhow::anyhow!(problem));
    }
    for (index, proxy) in config.trusted_proxies.iter().enumerate() {
        if let Err(problem) = parse_proxy(proxy) {
            note(format!("trusted_proxies[{index}]"), problem);
        }
    }
    if let Err(problem) = config.client_address.parse::<AddressSource>() {
        note("client_address".into(), problem.into());
    }
    if !(1..=128).contains(&config.ipv6_prefix) {
        note("ipv6_prefix".into(), anyhow::anyhow!("{} is not between 1 and 128", config.ipv6_prefix));
    }
    for (attribute, source) in &config.identify {
        if attribute == TLS_CLIENT {
            let problem = "is what the client's certificate says and nothing else; choose another name";
            note(format!("identify.{attribute}"), anyhow::anyhow!(problem));
        }
        if let Err(problem) = source.parse::<AttributeSource>() {
            note(format!("identify.{attribute}"), anyhow::anyhow!("{problem}"));
        }
    }
    if !(400..=599).contains(&config.deny_status) {
        let problem =
            format!("{} does not tell a client that it was denied; use 429, or another 4xx or 5xx", config.deny_status);
        note("deny_status".into(), anyhow::anyhow!(problem));
    }
    if config.admin.token.as_deref().is_some_and(|token| token.trim().is_empty()) {
        note("admin.token".into(), anyhow::anyhow!("is empty; choose a long random one, or remove it"));
    }
    check_audit(config, &mut note);
    for (field, problem) in operations::problems(&config.alerts, &config.telemetry) {
        note(field, problem);
    }
    problems
}

fn check_audit(config: &Config, note: &mut impl FnMut(String, anyhow::Error)) {
    const MOST: usize = 1_000_000;
    let audit = &config.audit;
    if audit.keep > MOST {
        note("audit.keep".into(), anyhow::anyhow!("{} are too many to keep in memory (at most {MOST})", audit.keep));
    }
    match parse_span(&audit.retention) {
        Err(problem) => note("audit.retention".into(), problem.into()),
        Ok(span) if !(Span::from_secs(3_600)..=Span::from_secs(3_653 * 86_400)).contains(&span) => {
            let problem = format!("{} is not between 1h and 3653d; 30d is usual", audit.retention);
            note("audit.retention".into(), anyhow::anyhow!(problem));
        }
        Ok(_) => {}
    }
    if let Some(Err(problem)) = audit.database.as_deref().map(Database::new) {
        note("audit.database".into(), anyhow::anyhow!(problem));
    }
}

/// What is observed of traffic, and what of it is secret. The configuration has been checked.
pub(crate) fn insight(config: &Config) -> insight::Settings {
    let retention = parse_span(&config.audit.retention).unwrap_or(Span::from_secs(30 * 86_400));
    let url = config.audit.database.as_deref().or(config.rules_from.as_deref());
    let database = url.and_then(|url| Database::new(url).ok()).filter(|_| config.insight);
    insight::Settings {
        enabled: config.insight,
        keep: config.audit.keep,
        sink: database.map(|database| Arc::new(Sink::new(database, retention))),
        privacy: Privacy::new(&config.identify),
    }
}

/// What is allowed and probably not meant, by field.
pub(crate) fn warnings(config: &Config) -> Vec<(String, String)> {
    let mut warnings = Vec::new();
    if config.listen.resp_password.is_some() && config.listen.resp.is_none() {
        warnings.push(("listen.resp_password".into(), "guards nothing; set listen.resp, or remove it".to_string()));
    }
    warnings.extend(identity_warnings(config));
    if let Some(escape) = way_around(config) {
        warnings.push(("rules".into(), escape));
    }
    if config.rules_snapshot.is_some() && config.rules_from.is_none() {
        let problem = "keeps nothing without rules_from; set that, or remove it";
        warnings.push(("rules_snapshot".into(), problem.to_string()));
    }
    if config.rules.is_empty() && config.rules_from.is_none() {
        warnings.push(("rules".into(), "there are none, so every request passes".to_string()));
    }
    warnings
}

/// Rules that tell clients apart by what clients say of themselves, and none that holds whatever they say.
fn way_around(config: &Config) -> Option<String> {
    let rules = || config.rules.iter().filter(|rule| rule.active && rule.mode == Enforcement::Enforce);
    let said = |attribute: &str| {
        let sources = ["header.", "query.", "cookie."];
        sources.iter().any(|source| attribute.starts_with(source)) || config.identify.contains_key(attribute)
    };
    // Every alternative of every placeholder; a rule with a condition can be left by not meeting it.
    let needs = |rule: &RuleSpec| {
        let key = KeyTemplate::new(&rule.key).ok()?;
        Some(key.needs().flatten().cloned().collect::<Vec<String>>())
    };
    let mut named = None;
    for rule in rules() {
        let attributes = needs(rule)?;
        match attributes.into_iter().find(|attribute| said(attribute)) {
            Some(attribute) => named = named.or(Some((rule.name.clone(), attribute))),
            None if rule.when.is_empty() => return None,
            None => {}
        }
    }
    let (rule, attribute) = named?;
    Some(format!(
        "`{rule}` tells clients apart by `{attribute}`, which a client can leave out or change with every request, and no \
         rule holds in any case; add one by \"{{ip}}\" or \"global\", unless something in front of this service sets it"
    ))
}

/// How HTTP requests become attributes. The configuration has been checked.
pub(crate) fn identity(config: &Config) -> anyhow::Result<Identity> {
    let proxies = config.trusted_proxies.iter().map(|proxy| parse_proxy(proxy)).collect::<Result<Vec<_>, _>>()?;
    let mut identity = Identity::new()
        .trust(proxies)
        .address_from(config.client_address.parse().context("client_address")?)
        .ipv6_prefix(config.ipv6_prefix);
    for (attribute, source) in &config.identify {
        identity = identity.identify(attribute, source.parse().map_err(|error| anyhow::anyhow!("{error}"))?);
    }
    // What a key names directly tells clients apart as well.
    let keys = config.rules.iter().filter_map(|rule| KeyTemplate::new(&rule.key).ok());
    let named: BTreeSet<String> = keys.flat_map(|key| key.needs().flatten().cloned().collect::<Vec<_>>()).collect();
    let places = named.iter().filter(|name| !config.identify.contains_key(*name)).filter_map(|name| name.parse().ok());
    Ok(places.fold(identity, Identity::single))
}

/// How verdicts become responses.
pub(crate) fn answer_style(config: &Config) -> anyhow::Result<AnswerStyle> {
    Ok(AnswerStyle { headers: config.headers, deny_status: StatusCode::from_u16(config.deny_status)? })
}

fn parse_proxy(text: &str) -> anyhow::Result<IpNet> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| anyhow::anyhow!("{text:?} is no address and no CIDR; write for example 10.0.0.0/8"))
}

/// `host:port`; whether the host exists is known when it is bound.
fn check_address(text: &str) -> anyhow::Result<()> {
    let (host, port) = text
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .with_context(|| format!("{text:?} is no address; write for example 127.0.0.1:8080"))?;
    port.parse::<u16>().with_context(|| format!("{port:?} is no port; use 0 to 65535"))?;
    if host.contains(char::is_whitespace) {
        bail!("{host:?} is no host");
    }
    Ok(())
}

/// Whether a store is named. Whether it is there is known when it is connected.
pub(crate) fn check_store(url: &str) -> anyhow::Result<()> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("memory") => Ok(()),
        Some("redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel") => {
            Ok(RedisStore::check_url(url)?)
        }
        _ => bail!(
            "{} names no store; write \"memory:\", redis://HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT or \
             redis+sentinel://HOST:PORT,HOST:PORT/NAME",
            without_password(url)
        ),
    }
}

/// The store that a configuration names, deciding by `clock`.
pub(crate) async fn store(config: &Config, clock: Clock) -> anyhow::Result<Store> {
    let StoreConfig { url, timeout, max_keys, tls } = &config.store;
    check_store(url).context("store.url")?;
    if url.starts_with("memory:") {
        return Ok(MemoryStore::with(*max_keys, clock).into());
    }
    let mut options = RedisOptions { clock, ..RedisOptions::default() };
    if let Some(timeout) = timeout {
        options.deadline = parse_span(timeout).context("store.timeout")?.as_duration();
    }
    options.tls = tls.as_ref().map(certificates).transpose()?;
    if matches!(options.clock, Clock::Manual(_)) {
        // Replay decides in a world of its own, from nothing and without a hurry.
        options.namespace = format!("tollkeeper-replay-{:016x}", RandomState::new().hash_one(std::process::id()));
        options.deadline = options.deadline.max(Duration::from_secs(10));
    }
    let store =
        RedisStore::connect(url, options).await.with_context(|| format!("store.url: {}", without_password(url)))?;
    Ok(store.into())
}

fn certificates(files: &TlsFiles) -> anyhow::Result<RedisTls> {
    let read = |field: &str, path: &Option<PathBuf>| {
        let read = |path: &PathBuf| {
            std::fs::read(path).with_context(|| format!("store.tls.{field}: cannot read {}", path.display()))
        };
        path.as_ref().map(read).transpose()
    };
    Ok(RedisTls {
        authority: read("ca", &files.ca)?,
        certificate: read("cert", &files.cert)?,
        key: read("key", &files.key)?,
    })
}

/// A URL as it may be shown.
pub(crate) fn without_password(url: &str) -> String {
    // What follows are the sentinels' user and password.
    let url = url.split_once('?').map_or(url, |(url, _)| url);
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}"),
        None => url.to_string(),
    }
}
