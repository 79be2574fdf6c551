//! One request, as its line tells it.

use std::borrow::Cow;

use crate::moment::Moment;
use crate::search::find;

/// One request of a log. What the line does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'l> {
    /// When it arrived, in microseconds since the epoch.
    pub at_us: u64,
    /// The client's address, without its port.
    pub ip: Option<Cow<'l, str>>,
    /// Who signed in, as the server says.
    pub user: Option<Cow<'l, str>>,
    /// `GET`, `POST`, and so on.
    pub method: Option<Cow<'l, str>>,
    /// The path with its query.
    pub target: Option<Cow<'l, str>>,
    /// The host that was asked for.
    pub host: Option<Cow<'l, str>>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// What one request costs, where the log says so.
    pub cost: Option<u32>,
    /// How many requests the line stands for, within a second from `at_us` on: 1 in all logs but our own violations.
    pub count: u32,
    /// Other attributes by their name in rules, such as `header.user-agent`.
    pub others: Vec<(Cow<'l, str>, Cow<'l, str>)>,
}

impl Default for Entry<'_> {
    fn default() -> Self {
        Entry {
            at_us: 0,
            ip: None,
            user: None,
            method: None,
            target: None,
            host: None,
            status: None,
            cost: None,
            count: 1,
            others: Vec::new(),
        }
    }
}

impl<'l> Entry<'l> {
    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.target.as_deref().map(|target| find(b'?', target.as_bytes()).map_or(target, |at| &target[..at]))
    }

    /// The query, without its `?`.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.target.as_deref().and_then(|target| target.split_once('?')).map(|(_, query)| query)
    }

    /// Makes it an entry of which nothing is known, and keeps the room that `others` has.
    pub(crate) fn clear(&mut self) {
        let mut others = std::mem::take(&mut self.others);
        others.clear();
        *self = Entry { others, ..Entry::default() };
    }

    pub(crate) fn set_moment(&mut self, moment: Moment) {
        self.at_us = moment.micros;
    }

    /// `GET /x HTTP/1.1`, or what a client sent instead: then neither method nor target is known.
    pub(crate) fn set_request(&mut self, request: Cow<'l, str>) {
        match request {
            Cow::Borrowed(line) => {
                if let Some((method, target)) = request_line(line) {
                    self.method = Some(Cow::Borrowed(method));
                    self.target = Some(origin_form(Cow::Borrowed(target), &mut self.host));
                }
            }
            Cow::Owned(line) => {
                if let Some((method, target)) = request_line(&line) {
                    self.method = Some(Cow::Owned(method.to_owned()));
                    self.target = Some(origin_form(Cow::Owned(target.to_owned()), &mut self.host));
                }
            }
        }
    }

    pub(crate) fn set_target(&mut self, target: Cow<'l, str>) {
        self.target = Some(origin_form(target, &mut self.host));
    }

    /// A path on its own; a query that came first is kept.
    pub(crate) fn set_path(&mut self, path: Cow<'l, str>) {
        match self.query() {
            Some(query) => self.target = Some(Cow::Owned(format!("{path}?{query}"))),
            None => self.target = Some(path),
        }
    }

    pub(crate) fn set_query(&mut self, query: &str) {
        if query.is_empty() {
            return;
        }
        let path = self.path().unwrap_or_default();
        self.target = Some(Cow::Owned(format!("{path}?{}", query.trim_start_matches('?'))));
    }
}

fn request_line(line: &str) -> Option<(&str, &str)> {
    let end = find(b' ', line.as_bytes())?;
    let (method, rest) = (&line[..end], &line[end + 1..]);
    if method.is_empty()
        || method.len() > 32
        || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-' || byte == b'_')
    {
        return None;
    }
    // The protocol is the last word; a target with spaces in it is what a scanner sends, and HTTP/0.9 has none.
    let target = match rest.as_bytes() {
        [.., b' ', b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => &rest[..rest.len() - 9],
        bytes => match memchr::memrchr(b' ', bytes) {
            Some(end) if rest[end + 1..].starts_with("HTTP/") => &rest[..end],
            _ => rest,
        },
    };
    (!target.is_empty()).then_some((method, target))
}

/// `https://host/path` as `/path`; load balancers log the whole.
fn origin_form<'l>(target: Cow<'l, str>, host: &mut Option<Cow<'l, str>>) -> Cow<'l, str> {
    // Nearly all begin with a slash.
    if target.starts_with('/') {
        return target;
    }
    let Some(scheme) = target.find("://").filter(|at| target[..*at].bytes().all(|byte| byte.is_ascii_alphanumeric()))
    else {
        return target;
    };
    let authority = &target[scheme + 3..];
    let end = authority.find(['/', '?']).unwrap_or(authority.len());
    if host.is_none() && end > 0 {
        let name = authority[..end].rsplit_once('@').map_or(&authority[..end], |(_, name)| name);
        *host = Some(Cow::Owned(without_port(name).to_owned()));
    }
    let rest = scheme + 3 + end;
    match target {
        Cow::Borrowed(target) if target[rest..].starts_with('/') => Cow::Borrowed(&target[rest..]),
        _ if target[rest..].starts_with('/') => Cow::Owned(target[rest..].to_owned()),
        _ => Cow::Owned(format!("/{}", &target[rest..])),
    }
}

/// `10.0.0.1:4711` and `[2001:db8::1]:4711` without the port; a bare IPv6 address stays whole.
pub(crate) fn without_port(address: &str) -> &str {
    if let Some(inner) = address.strip_prefix('[') {
        return inner.split_once(']').map_or(inner, |(inner, _)| inner);
    }
    match address.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => address,
    }
}

/// [`without_port`] of what may be owned.
pub(crate) fn cow_without_port(address: Cow<'_, str>) -> Cow<'_, str> {
    match address {
        Cow::Borrowed(address) => Cow::Borrowed(without_port(address)),
        Cow::Owned(address) => Cow::Owned(without_port(&address).to_owned()),
    }
}
