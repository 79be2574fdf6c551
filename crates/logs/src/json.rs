//! JSON logs: one object a line. Servers log the same few things under many names; [`lookup`] is the table of them.
//! Nested objects are read by their dotted path, as Caddy writes `request.client_ip`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::entry::Entry;
use crate::field::{Field, Times};

/// Deeper objects are passed over.
const DEPTH: u8 = 4;

pub(crate) fn read<'l>(line: &'l str, times: &mut Times, entry: &mut Entry<'l>) -> Result<(), String> {
    let mut found = Found { others: std::mem::take(&mut entry.others), ..Found::default() };
    let mut deserializer = serde_json::Deserializer::from_str(line);
    Object { found: &mut found, path: Path::default(), depth: 0 }
        .deserialize(&mut deserializer)
        .map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    found.fill(times, entry)
}

/// Whose JSON this is, by a name that only it uses.
pub(crate) fn dialect(line: &str) -> Option<&'static str> {
    [
        ("\"EdgeStartTimestamp\"", "cloudflare"),
        ("\"DownstreamStatus\"", "traefik json"),
        ("\"http.log.access", "caddy"),
        ("\"response_flags\"", "envoy json"),
        ("\"at_us\"", "tollkeeper replay"),
        ("\"retry_after_ms\"", "tollkeeper violations"),
    ]
    .into_iter()
    .find_map(|(sign, name)| line.contains(sign).then_some(name))
}

/// The slots of an entry that several names can fill; the name with the lowest rank wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Time,
    Ip,
    User,
    Method,
    Target,
    Request,
    Host,
    Status,
    Cost,
    Count,
}
const SLOTS: usize = Slot::Count as usize + 1;

enum Meaning<'n> {
    Slot(Slot, u8),
    Header(&'n str),
    Attribute(&'n str),
}

fn lookup(path: &str) -> Option<Meaning<'_>> {
    use Slot::{Cost, Count, Host, Ip, Method, Request, Status, Target, Time, User};
    let (slot, rank) = match path {
        "at_us" => (Time, 0),
        // When it arrived is better than when it was answered.
        "start_time" | "StartUTC" | "EdgeStartTimestamp" => (Time, 1),
        "StartLocal" => (Time, 2),
        "time_iso8601" | "msec" | "ts" | "@timestamp" | "timestamp" | "requestTimeEpoch" => (Time, 3),
        "time_local" | "time" | "at" | "requestTime" => (Time, 4),
        "request.client_ip" | "ClientIP" | "client_ip" | "ClientHost" | "cf_connecting_ip" => (Ip, 0),
        "request.remote_ip"
        | "request.remote_addr"
        | "httpRequest.remoteIp"
        | "sourceIp"
        | "remote_addr"
        | "remote_ip"
        | "clientip"
        | "ip" => (Ip, 1),
        "downstream_remote_address" | "ClientAddr" | "client" => (Ip, 3),
        "x_forwarded_for" | "x-forwarded-for" => (Ip, 2),
        "user_id" | "remote_user" | "ClientUsername" | "user" => (User, 0),
        "request.method"
        | "ClientRequestMethod"
        | "RequestMethod"
        | "request_method"
        | "method"
        | ":method"
        | "httpMethod"
        | "httpRequest.requestMethod" => (Method, 0),
        "request.uri"
        | "ClientRequestURI"
        | "request_uri"
        | "x_envoy_original_path"
        | "x-envoy-origin-path"
        | "httpRequest.requestUrl" => (Target, 0),
        "RequestPath" | "ClientRequestPath" | "path" | ":path" | "uri" | "url" => (Target, 1),
        "resourcePath" => (Target, 2),
        "request" | "RequestLine" => (Request, 0),
        "endpoint" => (Request, 1),
        "request.host" | "ClientRequestHost" | "RequestHost" | "authority" | ":authority" | "http_host" | "host"
        | "domainName" => (Host, 0),
        "server_name" | "vhost" => (Host, 1),
        "status" | "EdgeResponseStatus" | "DownstreamStatus" | "response_code" | "status_code"
        | "httpRequest.status" => (Status, 0),
        "cost" => (Cost, 0),
        "count" => (Count, 0),
        "user_agent" | "user-agent" | "ClientRequestUserAgent" | "agent" | "userAgent" | "httpRequest.userAgent" => {
            return Some(Meaning::Header("user-agent"));
        }
        "referer" | "referrer" | "ClientRequestReferer" | "httpRequest.referer" => {
            return Some(Meaning::Header("referer"));
        }
        _ => {
            return [("request.headers.", true), ("request_", true), ("http_", true), ("attributes.", false)]
                .into_iter()
                .find_map(|(prefix, header)| {
                    let name = path.strip_prefix(prefix).filter(|name| !name.is_empty())?;
                    Some(if header { Meaning::Header(name) } else { Meaning::Attribute(name) })
                });
        }
    };
    Some(Meaning::Slot(slot, rank))
}

#[derive(Default)]
struct Found<'l> {
    slots: [Option<(u8, Cow<'l, str>)>; SLOTS],
    /// Whether the address is a list that proxies added to.
    forwarded: bool,
    /// Whether it is a record of our own audit log, which may stand for several requests.
    is_violation: bool,
    others: Vec<(Cow<'l, str>, Cow<'l, str>)>,
}

impl<'l> Found<'l> {
    fn take(&mut self, path: &str, value: Cow<'l, str>) {
        if value.is_empty() || value == "-" {
            return;
        }
        match lookup(path) {
            Some(Meaning::Slot(slot, rank)) => {
                let held = &mut self.slots[slot as usize];
                if held.as_ref().is_none_or(|(best, _)| rank < *best) {
                    *held = Some((rank, value));
                    if slot == Slot::Ip {
                        self.forwarded = path.contains("forwarded");
                    }
                }
            }
            Some(Meaning::Header(name)) => {
                let name = format!("header.{}", name.to_ascii_lowercase().replace('_', "-"));
                self.others.push((Cow::Owned(name), value));
            }
            Some(Meaning::Attribute(name)) => match name {
                "ip" | "method" | "host" | "path" => self.take(name, value),
                _ => self.others.push((Cow::Owned(name.to_owned()), value)),
            },
            // Each has it, and no other log has these values there.
            None if path == "mode" => {
                self.is_violation = matches!(value.as_ref(), "enforce" | "shadow" | "annotate" | "quota");
            }
            None => {}
        }
    }

    fn fill(mut self, times: &mut Times, entry: &mut Entry<'l>) -> Result<(), String> {
        entry.others = self.others;
        let time =
            self.slots[Slot::Time as usize].take().ok_or("has no time: none of the names that servers use for it")?;
        if time.0 == 0 {
            entry.at_us = time.1.parse().map_err(|_| format!("at_us: {:?} is not a number of microseconds", time.1))?;
        } else {
            let shown = time.1.clone();
            Field::Time.set(entry, time.1, times).map_err(|wanted| format!("{shown:?} is not {wanted}"))?;
        }
        let ip = if self.forwarded { Field::ForwardedFor } else { Field::Ip };
        let fields = [
            (Slot::Request, Field::Request),
            (Slot::Host, Field::Host),
            (Slot::Ip, ip),
            (Slot::User, Field::User),
            (Slot::Method, Field::Method),
            (Slot::Target, Field::Target),
            (Slot::Status, Field::Status),
        ];
        for (slot, field) in fields {
            if let Some((_, value)) = self.slots[slot as usize].take() {
                let shown = value.clone();
                field.set(entry, value, times).map_err(|wanted| format!("{slot:?}: {shown:?} is not {wanted}"))?;
            }
        }
        if let Some((_, cost)) = self.slots[Slot::Cost as usize].take() {
            entry.cost = Some(cost.parse().map_err(|_| format!("cost: {cost:?} is not a whole number"))?);
        }
        if let Some((_, count)) = self.slots[Slot::Count as usize].take().filter(|_| self.is_violation) {
            entry.count = count.parse().map_err(|_| format!("count: {count:?} is not a whole number"))?;
        }
        Ok(())
    }
}

/// The dotted path of the value being read.
#[derive(Clone, Default)]
struct Path(String);

impl Path {
    fn with<T>(&mut self, name: &str, then: impl FnOnce(&mut Path) -> T) -> T {
        let length = self.0.len();
        if length > 0 {
            self.0.push('.');
        }
        self.0.push_str(name);
        let result = then(self);
        self.0.truncate(length);
        result
    }
}

struct Object<'f, 'l> {
    found: &'f mut Found<'l>,
    path: Path,
    depth: u8,
}

impl<'l> DeserializeSeed<'l> for Object<'_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(ObjectVisitor { found: self.found, path: &mut { self.path }, depth: self.depth })
    }
}

struct ObjectVisitor<'f, 'l> {
    found: &'f mut Found<'l>,
    path: &'f mut Path,
    depth: u8,
}

impl<'l> Visitor<'l> for ObjectVisitor<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        let ObjectVisitor { found, path, depth } = self;
        while let Some(name) = map.next_key_seed(Name)? {
            path.with(&name, |path| map.next_value_seed(Leaf { found, path, depth }))?;
        }
        Ok(())
    }
}

/// A name, borrowed where it has no escapes.
struct Name;

impl<'l> DeserializeSeed<'l> for Name {
    type Value = Cow<'l, str>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Cow<'l, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'l> Visitor<'l> for Name {
    type Value = Cow<'l, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Cow<'l, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'l, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A value: text and numbers are looked up by their path, of a list the first, objects are entered.
struct Leaf<'f, 'l> {
    found: &'f mut Found<'l>,
    path: &'f mut Path,
    depth: u8,
}

impl<'l> DeserializeSeed<'l> for Leaf<'_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Leaf<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<(), E> {
        self.found.take(&self.path.0, Cow::Borrowed(text));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.found.take(&self.path.0, Cow::Owned(text.to_owned()));
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.visit_number(number.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.visit_number(number.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        // Seconds since the epoch with microseconds are exact to a quarter of one in a double.
        self.visit_number(format!("{number:.6}"));
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut list: A) -> Result<(), A::Error> {
        let Leaf { found, path, depth } = self;
        if list.next_element_seed(Leaf { found, path, depth })?.is_some() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        let Leaf { found, path, depth } = self;
        if depth == DEPTH {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        ObjectVisitor { found, path, depth: depth + 1 }.visit_map(map)
    }
}

impl Leaf<'_, '_> {
    fn visit_number(self, number: String) {
        self.found.take(&self.path.0, Cow::Owned(number));
    }
}
