//! Warnings: settings that are valid but probably mistakes.

use std::net::SocketAddr;

use tollkeeper::{Enforcement, RuleSpec};
use tollkeeper_core::KeyTemplate;

use crate::config::Config;

/// Settings that are valid but probably mistakes, by field.
pub(super) fn warnings(config: &Config) -> Vec<(String, String)> {
    let mut warnings = Vec::new();
    if config.listen.resp_password.is_some() && config.listen.resp.is_none() {
        warnings.push(("listen.resp_password".into(), "has no effect; set listen.resp, or remove it".to_string()));
    }
    if config.decisions.token.is_some() && config.listen.resp.is_some() && config.listen.resp_password.is_none() {
        let problem = "does not protect the Redis protocol; set listen.resp_password as well";
        warnings.push(("decisions.token".into(), problem.to_string()));
    }
    warnings.extend(open_to_all(config).map(|problem| ("listen.resp".into(), problem)));
    warnings.extend(spoofing(config));
    if config.rules_snapshot.is_some() && config.rules_from.is_none() {
        let problem = "has no effect without rules_from; set that, or remove it";
        warnings.push(("rules_snapshot".into(), problem.to_string()));
    }
    if config.rules.is_empty() && config.rules_from.is_none() {
        warnings.push(("rules".into(), "there are none, so every request passes".to_string()));
    }
    warnings
}

/// What a client can spoof, and what puts all clients into one bucket.
fn spoofing(config: &Config) -> Vec<(String, String)> {
    let mut warnings = config.limiter().warnings();
    warnings.extend(way_around(config).map(|escape| ("rules".into(), escape)));
    warnings
}

/// The Redis protocol on a network, where anyone may ask.
fn open_to_all(config: &Config) -> Option<String> {
    let address = config.listen.resp.as_deref()?;
    let is_on_a_network = address.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback());
    let asks_for_certificates = config.listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    (is_on_a_network && config.listen.resp_password.is_none() && !asks_for_certificates).then(|| {
        format!(
            "{address} can be reached from the network, and anyone there can use up any limit; set listen.resp_password, or \
             listen on 127.0.0.1"
        )
    })
}

/// Rules that identify clients only by what clients send, and none that applies regardless.
fn way_around(config: &Config) -> Option<String> {
    let rules = || config.rules.iter().filter(|rule| rule.active && rule.mode == Enforcement::Enforce);
    let said = |attribute: &str| {
        let sources = ["header.", "query.", "cookie."];
        sources.iter().any(|source| attribute.starts_with(source)) || config.identify.contains_key(attribute)
    };
    // Every alternative of every placeholder; a client can avoid a rule with a condition by not matching it.
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
        "`{rule}` identifies clients by `{attribute}`, which a client can leave out or change with every request, and no \
         other rule limits it then; add one by \"{{ip}}\" or \"global\", unless something in front of this service sets it"
    ))
}
