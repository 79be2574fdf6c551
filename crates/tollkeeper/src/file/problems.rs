//! Errors in settings beside the rules, by field, with what to do.

use std::sync::Arc;

use http::StatusCode;
use tollkeeper_core::Denial;

use super::memory;
use super::proxy::parse_proxy;
use super::settings::Settings;
use super::store_url::check_store;
use crate::http::{AddressSource, AnswerStyle, AttributeSource};
use crate::strict::Invalid;

impl Settings {
    /// The errors beside the rules, by field, with what to do.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut note = |field: &str, problem: String| problems.push((field.to_string(), problem));
        if let Err(problem) = check_store(&self.store.url) {
            note("store.url", problem);
        }
        for (field, problem) in memory::problems(&self.store, memory::available()) {
            note(field, problem);
        }
        if let Err(problem) = self.store.deadline() {
            note("store.timeout", problem);
        }
        if self.store.namespace.as_deref().is_some_and(|name| name.is_empty() || name.contains(['{', '}'])) {
            let problem =
                "is empty or contains braces, which select the hash slot in a cluster; use a word such as tollkeeper";
            note("store.namespace", problem.into());
        }
        if let Some(tls) = &self.store.tls {
            if !self.store.url.starts_with("rediss") {
                note("store.tls", "needs a URL with TLS; write rediss:// in store.url, or remove it".into());
            }
            if tls.cert.is_some() != tls.key.is_some() {
                note("store.tls", "a cert needs its key, and a key its cert".into());
            }
        }
        if let Some(Err(problem)) = self.rules_from.as_deref().map(check_database) {
            note("rules_from", problem);
        }
        if self.rules_from.is_some() && !self.rules.is_empty() {
            let problem = "rules_from takes them from Postgres; put these there with `tollkeeper rules apply`, then \
                           remove them here";
            note("rules", problem.into());
        }
        for (index, proxy) in self.trusted_proxies.iter().enumerate() {
            if let Err(problem) = parse_proxy(proxy) {
                note(&format!("trusted_proxies[{index}]"), problem);
            }
        }
        if let Err(problem) = self.client_address.parse::<AddressSource>() {
            note("client_address", problem.to_string());
        }
        if !(1..=128).contains(&self.ipv6_prefix) {
            note("ipv6_prefix", format!("{} is not between 1 and 128", self.ipv6_prefix));
        }
        for (attribute, source) in &self.identify {
            if let Err(problem) = source.parse::<AttributeSource>() {
                note(&format!("identify.{attribute}"), problem.to_string());
            }
        }
        if let Err(Invalid { field, problem }) = self.answer_style() {
            note(&field, problem);
        }
        problems
    }

    /// How verdicts become responses.
    pub fn answer_style(&self) -> Result<AnswerStyle, Invalid> {
        let status = StatusCode::from_u16(self.deny_status).ok().filter(|_| (400..=599).contains(&self.deny_status));
        let problem = "is not an error status, so clients would not see the denial; use 429, or another 4xx or 5xx";
        let wrong = || Invalid::new("deny_status", format!("{} {problem}", self.deny_status));
        let deny = self.deny.as_ref().map(Denial::new).transpose();
        let deny = deny.map_err(|(field, problem)| Invalid::new(format!("deny.{field}"), problem))?;
        Ok(AnswerStyle { headers: self.headers, deny_status: status.ok_or_else(wrong)?, deny: deny.map(Arc::new) })
    }
}

#[cfg(feature = "postgres")]
fn check_database(url: &str) -> Result<(), String> {
    crate::postgres::Database::new(url).map(drop)
}

#[cfg(not(feature = "postgres"))]
fn check_database(_: &str) -> Result<(), String> {
    Err("this program cannot read rules from Postgres; build it with the feature `postgres`".into())
}
