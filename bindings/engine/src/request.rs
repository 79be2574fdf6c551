//! A request as hosts know it, and which parts of it the rules in force need.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::header::{COOKIE, FORWARDED, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tollkeeper::file::Settings;
use tollkeeper::http::{Answer, HttpRequest, Identity};
use tollkeeper::{Algorithm, Descriptor, Request, RuleSpec};

use crate::error::{Error, Kind};

/// What to decide on.
#[derive(Debug)]
pub enum Subject {
    /// Attributes given by the caller.
    Attributes(Descriptor),
    /// An HTTP request.
    Http(Box<Head>),
}

/// The head of an HTTP request.
#[derive(Debug, Default)]
pub struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Option<IpAddr>,
    /// Attributes from the host: a user, or the result of a key function.
    pub(crate) known: Vec<(String, String)>,
    pub(crate) cost: u32,
}

impl Head {
    /// A request from this peer, at cost 1.
    pub fn new(peer: Option<IpAddr>) -> Head {
        Head { peer, cost: 1, ..Head::default() }
    }

    /// Makes it another request, from this peer, at cost 1. What it has allocated is used again.
    pub fn begin(&mut self, peer: Option<IpAddr>) {
        self.method = Method::default();
        self.uri = Uri::default();
        self.headers.clear();
        self.known.clear();
        (self.peer, self.cost) = (peer, 1);
    }

    /// Sets the cost.
    pub fn set_cost(&mut self, cost: u32) {
        self.cost = cost;
    }

    /// Adds an attribute from the host; it overrides the request's own value of that name.
    pub fn know(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.known.push((name.into(), value.into()));
    }

    /// Sets the method; an invalid one counts as an unknown method.
    pub fn set_method(&mut self, method: &[u8]) {
        self.method = Method::from_bytes(method).unwrap_or_default();
    }

    /// Sets path and query, as they came over the wire or decoded. Bytes that are invalid in a request target are
    /// escaped.
    pub fn set_target(&mut self, path: &[u8], query: &[u8]) -> Result<(), Error> {
        let mut target = Vec::with_capacity(path.len() + query.len() + 2);
        if !path.starts_with(b"/") {
            target.push(b'/');
        }
        escape(path, &mut target, b"?#");
        if !query.is_empty() {
            target.push(b'?');
            escape(query, &mut target, b"#");
        }
        self.uri = Uri::try_from(target).map_err(|_| {
            let answer = Answer::contradiction(&tollkeeper::http::AttributeSource::Attribute("path".into()));
            Error::refused(Kind::Request, "the request's target is too long to be read", answer)
        })?;
        Ok(())
    }

    /// Adds a header; one with an invalid value is left out, as every server does.
    pub fn add_header(&mut self, name: HeaderName, value: &[u8]) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.headers.append(name, value);
        }
    }

    /// The request as rules see it.
    pub(crate) fn describe<'h>(&'h self, identity: &'h Identity) -> Described<'h> {
        let http = identity.describe(&self.method, &self.uri, &self.headers, self.peer).with_cost(self.cost);
        Described { http, known: &self.known, lacks_address: AtomicBool::new(false) }
    }
}

/// Escapes bytes that are invalid in a request target, or would end this part of it.
fn escape(text: &[u8], target: &mut Vec<u8>, ends: &[u8]) {
    for byte in text {
        let is_fine = byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(byte) && !ends.contains(byte);
        if is_fine {
            target.push(*byte);
        } else {
            target.extend(format!("%{byte:02X}").into_bytes());
        }
    }
}

/// An HTTP request with the attributes from the host.
pub(crate) struct Described<'h> {
    http: HttpRequest<'h>,
    known: &'h [(String, String)],
    /// A rule asked for the client's address, which is unknown.
    pub(crate) lacks_address: AtomicBool,
}

impl Request for Described<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        if let Some((_, value)) = self.known.iter().find(|(known, _)| known == name) {
            return Some(Cow::Borrowed(value));
        }
        let value = self.http.attribute(name);
        if value.is_none() && name == "ip" {
            self.lacks_address.store(true, Relaxed);
        }
        value
    }

    fn cost(&self) -> u32 {
        self.http.cost()
    }
}

/// What a host has to pass for the rules in force. Found by searching the text of the rules for names, which may find
/// too many but never too few.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Method.
    pub method: bool,
    /// Path and query.
    pub target: bool,
    /// Headers by name, in lower case.
    pub headers: Vec<HeaderName>,
    /// Whether a rule has slots, so that requests must be acquired rather than checked.
    pub slots: bool,
    /// Whether a rule limits by user, which the host knows.
    pub user: bool,
    /// The client's address.
    pub address: bool,
}

impl Needs {
    pub(crate) fn of(rules: &[RuleSpec], settings: &Settings) -> Needs {
        let mut text = serde_json::to_string(rules).unwrap_or_default();
        for source in settings.identify.values() {
            text.push(' ');
            text.push_str(source);
        }
        let mut headers = names_after(&text, "header.");
        if text.contains("cookie.") {
            headers.push(COOKIE);
        }
        if text.contains("host") {
            headers.push(HOST);
        }
        if !settings.trusted_proxies.is_empty() {
            match settings.client_address.parse() {
                Ok(tollkeeper::http::AddressSource::Header(name)) => headers.push(name),
                _ => headers.extend([FORWARDED, HeaderName::from_static("x-forwarded-for")]),
            }
        }
        headers.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        headers.dedup();
        Needs {
            method: text.contains("method"),
            target: text.contains("path") || text.contains("query."),
            headers,
            slots: rules.iter().any(|rule| rule.algorithm == Algorithm::Concurrency),
            user: names(&text, "user"),
            address: names(&text, "ip") || settings.identify.values().any(|source| source == "ip"),
        }
    }
}

/// Whether a key or a condition names this attribute.
fn names(text: &str, attribute: &str) -> bool {
    [("{", "}"), ("{", "|"), ("|", "|"), ("|", "}"), ("\"", "\"")].iter().any(|(before, after)| {
        text.match_indices(attribute)
            .any(|(at, _)| text[..at].ends_with(before) && text[at + attribute.len()..].starts_with(after))
    })
}

/// The names that follow a prefix anywhere in a text.
fn names_after(text: &str, prefix: &str) -> Vec<HeaderName> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+.^_`~-".contains(c);
    text.match_indices(prefix)
        .filter_map(|(at, _)| {
            let rest = &text[at + prefix.len()..];
            rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())].parse().ok()
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn needs(settings: &str) -> Needs {
        let settings = crate::settings::from_json(settings).unwrap();
        Needs::of(&settings.rules, &settings)
    }

    #[test]
    fn only_what_rules_name_is_needed() {
        let by_header = needs(r#"{"rules": [{"name": "zip", "key": "{header.x-user}", "limit": "1/s"}]}"#);
        assert!(!by_header.address && !by_header.method && !by_header.target && !by_header.user);
        assert_eq!(by_header.headers, ["x-user"]);
        assert!(needs(r#"{"rules": [{"name": "a", "key": "{header.x-user|ip}", "limit": "1/s"}]}"#).address);
        assert!(
            needs(r#"{"rules": [{"name": "a", "key": "global", "when": {"ip": "10.0.0.0/8"}, "limit": "1/s"}]}"#)
                .address
        );
    }

    /// The address under another name was not found in the text of the rules.
    #[test]
    fn an_attribute_that_is_mapped_to_the_address_needs_it() {
        let mapped = r#"{"identify": {"client": "ip"}, "rules": [{"name": "a", "key": "{client}", "limit": "1/s"}]}"#;
        assert!(needs(mapped).address);
    }
}
