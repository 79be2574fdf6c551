//! Errors in a configuration beside its rules, by field, with what to do.

use anyhow::{Context, bail};
use tollkeeper::{Span, parse_span};

use super::operations;
use super::shutdown::shutdown_delay;
use crate::config::{Config, ListenTls};
use crate::database::database;
use crate::tls::CLIENT_ATTRIBUTE;
use crate::tokens::Token;

/// The errors in the configuration beside its rules, by field.
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
    if let Some(Err(problem)) = config.listen.health.as_deref().map(check_address) {
        note("listen.health".into(), problem);
    }
    let connections = [
        ("listen.connections", Some(config.listen.connections)),
        ("listen.connections_per_address", config.listen.connections_per_address),
    ];
    for (field, _) in connections.iter().filter(|(_, most)| most.is_some_and(|most| !(1..=1_000_000).contains(&most))) {
        note(field.to_string(), anyhow::anyhow!("is not between 1 and 1000000"));
    }
    if let Err(problem) = shutdown_delay(&config.shutdown) {
        note("shutdown.delay".into(), problem);
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
    for (field, problem) in config.limiter().problems() {
        note(field, anyhow::anyhow!(problem));
    }
    if config.identify.contains_key(CLIENT_ATTRIBUTE) {
        let problem = "comes only from the client's certificate; choose another name";
        note(format!("identify.{CLIENT_ATTRIBUTE}"), anyhow::anyhow!(problem));
    }
    check_tokens(config, &mut note);
    check_audit(config, &mut note);
    for (field, problem) in operations::problems(&config.alerts, &config.telemetry) {
        note(field, problem);
    }
    problems
}

fn check_tokens(config: &Config, note: &mut impl FnMut(String, anyhow::Error)) {
    let tokens = [
        ("admin.token", &config.admin.token),
        ("admin.read_token", &config.admin.read_token),
        ("decisions.token", &config.decisions.token),
    ];
    for (index, (field, token)) in tokens.iter().enumerate() {
        let Some(token) = token else { continue };
        if let Some(problem) = Token::weakness(token) {
            note(field.to_string(), anyhow::anyhow!(problem));
        }
        if let Some((other, _)) = tokens[..index].iter().find(|(_, other)| other.as_ref() == Some(token)) {
            let problem = format!("is the same as {other}; choose a different token");
            note(field.to_string(), anyhow::anyhow!(problem));
        }
    }
}

fn check_audit(config: &Config, note: &mut impl FnMut(String, anyhow::Error)) {
    const MOST: usize = 1_000_000;
    let audit = &config.audit;
    if audit.keep > MOST {
        note("audit.keep".into(), anyhow::anyhow!("{} are too many to keep in memory (at most {MOST})", audit.keep));
    }
    if audit.max_size_mb == 0 {
        note("audit.max_size_mb".into(), anyhow::anyhow!("0 keeps nothing; use at least 1, or remove audit.database"));
    }
    match parse_span(&audit.retention) {
        Err(problem) => note("audit.retention".into(), problem.into()),
        Ok(span) if !(Span::from_secs(3_600)..=Span::from_secs(3_653 * 86_400)).contains(&span) => {
            let problem = format!("{} is not between 1h and 3653d; 30d is usual", audit.retention);
            note("audit.retention".into(), anyhow::anyhow!(problem));
        }
        Ok(_) => {}
    }
    if let Some(Err(problem)) = audit.database.as_deref().map(database) {
        note("audit.database".into(), anyhow::anyhow!(problem));
    }
}

/// `host:port`, or `:port` for every address of this machine; whether the host exists is known only when it is bound.
fn check_address(text: &str) -> anyhow::Result<()> {
    let (host, port) = text
        .rsplit_once(':')
        .with_context(|| format!("{text:?} is not an address; write for example 127.0.0.1:8080, or :8080 for all"))?;
    port.parse::<u16>().with_context(|| format!("{port:?} is not a port; use 0 to 65535"))?;
    if host.contains(char::is_whitespace) {
        bail!("{host:?} is not a host");
    }
    Ok(())
}
