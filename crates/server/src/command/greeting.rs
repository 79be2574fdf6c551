//! What the first lines of every service say: where state lives, and which rules are in force.

use std::io::{self, Write};

use tollgate::{Limiter, Store};

use crate::config::Config;
use crate::front::Service;
use crate::settings;

pub(super) fn store(out: &mut impl Write, config: &Config, limiter: &Limiter) -> io::Result<()> {
    match limiter.store() {
        Store::Redis(redis) => {
            writeln!(out, "store: {} at {}", redis.server(), settings::without_password(&config.store.url))
        }
        _ => writeln!(out, "store: memory, up to {} keys", config.store.max_keys),
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
        let shadow = if rule.is_enforced() { "" } else { " (shadow)" };
        let inactive = if rule.active { "" } else { " (inactive)" };
        writeln!(out, "  {:<16} {} by {}{shadow}{inactive}", rule.name, rule.quota, rule.spec.key)?;
    }
    if policy.rules().len() > MOST_SHOWN {
        writeln!(out, "  ... and {} more", policy.rules().len() - MOST_SHOWN)?;
    }
    Ok(())
}
