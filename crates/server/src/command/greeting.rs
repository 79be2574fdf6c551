//! The first lines that every service prints: where state lives, and which rules are in force.

use std::io::{self, Write};

use tollkeeper::{Enforcement, Limiter, Policy, Rule, Store};

use crate::config::{Config, ListenTls};
use crate::service::Service;
use crate::settings;

pub(super) fn store(out: &mut impl Write, config: &Config, limiter: &Limiter) -> io::Result<()> {
    match limiter.store() {
        Store::Redis(redis) => {
            writeln!(out, "store: {} at {}", redis.server(), settings::without_password(&config.store.url))
        }
        Store::Unreachable(unreachable) => {
            let url = settings::without_password(&config.store.url);
            writeln!(out, "store: {url} is UNREACHABLE ({}); rules use on_store_failure", unreachable.reason())
        }
        _ => writeln!(out, "store: memory, up to {} keys", config.store.max_keys),
    }
}

/// The flags that curl and redis-cli need with certificates.
pub(super) fn certificate_flags(config: &Config) -> &'static str {
    match &config.listen.tls {
        None => "",
        Some(ListenTls { client_ca: None, .. }) => " --cacert CA.pem",
        Some(_) => " --cacert CA.pem --cert CLIENT.pem --key CLIENT.key",
    }
}

/// Where `ip` comes from, if a rule needs it.
pub(super) fn clients(out: &mut impl Write, config: &Config, policy: &Policy) -> io::Result<()> {
    let wants_ip = |rule: &Rule| rule.is_active() && rule.key().needs().flatten().any(|attribute| attribute == "ip");
    if !policy.rules().iter().any(|rule| wants_ip(rule)) {
        return Ok(());
    }
    let header = match config.client_address.as_str() {
        "auto" => "forwarded or x-forwarded-for",
        header => header,
    };
    match config.trusted_proxies.as_slice() {
        [] => writeln!(out, "client IP: the peer address; behind a proxy, add the proxy to trusted_proxies"),
        proxies => writeln!(
            out,
            "client IP: {header} from trusted proxies ({}), otherwise the peer address",
            proxies.join(", ")
        ),
    }
}

pub(super) fn rules(out: &mut impl Write, service: &Service) -> io::Result<()> {
    let policy = service.limiter.policy();
    let from = service.rules.as_ref().map(|following| {
        format!(", version {} from {}", following.status().version, following.table().database().address())
    });
    writeln!(out, "rules: {}{}", policy.rules().len(), from.unwrap_or_default())?;
    const MOST_SHOWN: usize = 20;
    for rule in policy.rules().iter().take(MOST_SHOWN) {
        let mode = match rule.mode() {
            Enforcement::Shadow => " (shadow)",
            Enforcement::Annotate => " (annotate)",
            Enforcement::Quota => " (quota)",
            _ => "",
        };
        let inactive = if rule.is_active() { "" } else { " (inactive)" };
        writeln!(out, "  {:<16} {} by {}{mode}{inactive}", rule.name(), rule.quota(), rule.spec().key)?;
    }
    if policy.rules().len() > MOST_SHOWN {
        writeln!(out, "  ... and {} more", policy.rules().len() - MOST_SHOWN)?;
    }
    Ok(())
}
