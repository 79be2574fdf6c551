//! What a variable of a log format means to us, by the names that nginx and Apache give it.

use std::borrow::Cow;

use crate::entry::{Entry, cow_without_port};
use crate::moment::{Moment, Precision};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    Ip,
    /// An address that is always followed by its port, as HAProxy and AWS write IPv6 addresses too.
    IpAndPort,
    /// The same of whoever connected: the client unless a proxy named another.
    PeerAndPort,
    /// Addresses joined by commas as each proxy added one: the last is the one that the logging proxy saw.
    ForwardedFor,
    User,
    Time,
    Request,
    Method,
    Target,
    Path,
    Query,
    Host,
    Status,
    /// An attribute of rules under this name: `header.user-agent`, `cookie.session`.
    Attribute(Cow<'static, str>),
    /// A number that means nothing to a limit; it must look like one, which tells formats apart.
    Number,
    /// Several values joined by `, ` or ` : `, as nginx logs one for each upstream that it tried.
    List,
    Ignored,
}

/// How times are read: what the log leaves out of them, and how fine they turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) offset_seconds: i64,
    pub(crate) precision: Precision,
    /// The last one: many lines have the same.
    last: (String, Option<Moment>),
}

impl Times {
    pub(crate) fn new() -> Times {
        Times { offset_seconds: 0, precision: Precision::Fine, last: (String::new(), None) }
    }

    pub(crate) fn at_offset(&mut self, seconds: i64) {
        (self.offset_seconds, self.last) = (seconds, (String::new(), None));
    }

    fn read(&mut self, text: &str) -> Option<Moment> {
        if self.last.0 != text {
            self.last.1 = Moment::any(text, self.offset_seconds);
            self.last.0.clear();
            self.last.0.push_str(text);
        }
        let moment = self.last.1?;
        self.precision = self.precision.max(moment.precision);
        Some(moment)
    }
}

impl Field {
    /// A variable of nginx's `log_format`.
    pub(crate) fn nginx(name: &str) -> Field {
        match name {
            "remote_addr" | "realip_remote_addr" | "proxy_protocol_addr" => Field::Ip,
            "remote_user" => Field::User,
            "time_local" | "time_iso8601" | "msec" => Field::Time,
            "request" => Field::Request,
            "request_method" => Field::Method,
            "request_uri" => Field::Target,
            "uri" | "document_uri" => Field::Path,
            "args" | "query_string" => Field::Query,
            "host" | "http_host" | "server_name" => Field::Host,
            "status" => Field::Status,
            "body_bytes_sent" | "bytes_sent" | "request_length" | "connection" | "connection_requests" | "pid" => {
                Field::Number
            }
            _ if name.starts_with("upstream_") => Field::List,
            _ => match (name.strip_prefix("http_"), name.strip_prefix("cookie_")) {
                (Some(header), _) => Field::header(&header.replace('_', "-")),
                (_, Some(cookie)) => Field::Attribute(format!("cookie.{cookie}").into()),
                _ => Field::Ignored,
            },
        }
    }

    /// A directive of Apache's `LogFormat`: its letter, and what stands in braces before it.
    pub(crate) fn apache(letter: char, argument: Option<&str>) -> Field {
        match (letter, argument) {
            ('h' | 'a', _) => Field::Ip,
            ('u', _) => Field::User,
            ('t', None) => Field::Time,
            ('r', _) => Field::Request,
            ('m', _) => Field::Method,
            ('U', _) => Field::Path,
            ('q', _) => Field::Query,
            ('v' | 'V', _) => Field::Host,
            ('s', _) => Field::Status,
            ('b' | 'B' | 'D' | 'I' | 'O' | 'k' | 'P', None) => Field::Number,
            ('i', Some(header)) if header.eq_ignore_ascii_case("host") => Field::Host,
            ('i', Some(header)) => Field::header(&header.to_ascii_lowercase()),
            ('C', Some(cookie)) => Field::Attribute(format!("cookie.{cookie}").into()),
            _ => Field::Ignored,
        }
    }

    /// A request header, by its name in lower case. The two that most logs have need no copy of their name on every line.
    pub(crate) fn header(name: &str) -> Field {
        Field::Attribute(match name {
            "user-agent" => Cow::Borrowed("header.user-agent"),
            "referer" => Cow::Borrowed("header.referer"),
            _ => Cow::Owned(format!("header.{name}")),
        })
    }

    /// Takes over a value, or says what it should have been. `-` and nothing at all mean that there is none.
    #[inline(always)]
    pub(crate) fn set<'l>(
        &self,
        entry: &mut Entry<'l>,
        value: Cow<'l, str>,
        times: &mut Times,
    ) -> Result<(), &'static str> {
        if matches!(self, Field::Time) {
            entry.set_moment(times.read(&value).ok_or("a time")?);
            return Ok(());
        }
        if value.is_empty() || value == "-" {
            return Ok(());
        }
        match self {
            // Digits, dots and slashes: an address as it is.
            Field::Ip if value.bytes().all(|byte| matches!(byte, b'.'..=b'9')) => entry.ip = Some(value),
            // Tells a virtual host before the address from the address.
            Field::Ip if value.contains(' ') && !value.contains(',') => return Err("an address"),
            // Formats that log X-Forwarded-For in place of the address are common.
            Field::Ip | Field::ForwardedFor => entry.ip = Some(cow_without_port(last(value))),
            Field::IpAndPort => entry.ip = Some(before_last_colon(value)),
            Field::PeerAndPort if entry.ip.is_none() => entry.ip = Some(before_last_colon(value)),
            Field::User => entry.user = Some(value),
            Field::Request => entry.set_request(value),
            Field::Method => entry.method = Some(value),
            Field::Target => entry.set_target(value),
            Field::Path => entry.set_path(value),
            Field::Query => entry.set_query(&value),
            Field::Host => entry.host = Some(cow_without_port(value)),
            Field::Status => entry.status = Some(status(&value).ok_or("a status code")?),
            Field::Attribute(name) => entry.others.push((name.clone(), value)),
            // HAProxy puts a + before what was not complete when it was logged.
            Field::Number if !is_number(value.trim_start_matches('+')) => return Err("a number"),
            Field::Time | Field::PeerAndPort | Field::Number | Field::List | Field::Ignored => {}
        }
        Ok(())
    }
}

/// `2001:db8::1:4711` and `[2001:db8::1]:4711` as `2001:db8::1`.
fn before_last_colon(value: Cow<'_, str>) -> Cow<'_, str> {
    let end = value.rfind(':').unwrap_or(value.len());
    let bare = |text: &str| text.trim_start_matches('[').trim_end_matches(']').len();
    let (from, length) = (usize::from(value.starts_with('[')), bare(&value[..end]));
    match value {
        Cow::Borrowed(value) => Cow::Borrowed(&value[from..from + length]),
        Cow::Owned(value) => Cow::Owned(value[from..from + length].to_owned()),
    }
}

fn is_number(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn status(value: &str) -> Option<u16> {
    // Nearly all have three digits.
    if let [hundreds @ b'0'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = value.as_bytes() {
        return Some(u16::from(hundreds - b'0') * 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0'));
    }
    value.parse().ok().filter(|status| *status < 1_000)
}

fn last(list: Cow<'_, str>) -> Cow<'_, str> {
    if !list.contains(',') {
        return list;
    }
    match list {
        Cow::Borrowed(list) => Cow::Borrowed(list.rsplit(',').next().unwrap_or(list).trim()),
        Cow::Owned(list) => Cow::Owned(list.rsplit(',').next().unwrap_or(&list).trim().to_owned()),
    }
}
