//! Queries to the audit.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use tollkeeper::Timestamp;

use super::Violation;
use crate::moment::PastMoment;
use crate::privacy::{MAX_KEY, bounded, fingerprint};
use crate::strict::{Filled, Whole, parsed};

/// How many entries of the audit an answer may hold.
pub(super) type PageSize = Whole<1, { Query::MAX_LIMIT as u64 }>;

/// The parameters of `GET /v1/violations`. All are optional, and each narrows the answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViolationsQuery {
    /// The request's user.
    user_id: Option<Filled>,
    /// An address, or a network such as 10.0.0.0/8.
    ip: Option<Network>,
    /// The rule's name.
    rule: Option<Filled>,
    /// The bucket's key; a secret is found by its value or by its fingerprint.
    key: Option<Filled>,
    /// From then on: 1h for that long ago, or a time such as 2026-01-31T12:00:00Z.
    since: Option<PastMoment>,
    /// Before then, written the same way.
    until: Option<PastMoment>,
    /// The maximum number of violations.
    #[schemars(extend("default" = Query::USUAL_LIMIT))]
    limit: Option<PageSize>,
    /// Where to continue: `next` of a previous answer.
    cursor: Option<Cursor>,
}

/// Which violations. All given conditions must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) user_id: Option<String>,
    pub(crate) ip: Option<IpNet>,
    pub(crate) rule: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    /// Only those after this place in the list.
    pub(crate) after: Option<Cursor>,
    pub(crate) limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        let (user_id, rule, key) = (None, None, None);
        let limit = Query::USUAL_LIMIT;
        Query { user_id, ip: None, rule, key, since: None, until: None, after: None, limit }
    }
}

impl Query {
    pub(crate) const USUAL_LIMIT: usize = 100;
    pub(crate) const MAX_LIMIT: usize = 1_000;

    /// The query; relative times are relative to `now`.
    pub(crate) fn new(asked: ViolationsQuery, now: Timestamp) -> Query {
        Query {
            user_id: asked.user_id.map(|Filled(text)| text),
            ip: asked.ip.map(|Network(network)| network),
            rule: asked.rule.map(|Filled(text)| text),
            key: asked.key.map(|Filled(text)| text),
            since: asked.since.map(|since| since.seen_from(now)),
            until: asked.until.map(|until| until.seen_from(now)),
            after: asked.cursor,
            limit: page_size(asked.limit),
        }
    }

    /// The forms in which a text may have been stored: as it is, or as its fingerprint.
    pub(crate) fn spellings(text: &str) -> [String; 2] {
        let text = bounded(text, MAX_KEY);
        [text.to_string(), fingerprint(&text)]
    }

    /// Whether a violation matches.
    pub(super) fn matches(&self, violation: &Violation) -> bool {
        let is = |wanted: &Option<String>, text: Option<&str>| {
            wanted
                .as_ref()
                .is_none_or(|wanted| text.is_some_and(|text| Query::spellings(wanted).iter().any(|one| one == text)))
        };
        self.after.is_none_or(|last| violation.id < last.id)
            && self.rule.as_ref().is_none_or(|rule| **rule == *violation.rule)
            && is(&self.key, Some(&violation.key))
            && is(&self.user_id, violation.user_id.as_deref())
            && self.ip.is_none_or(|network| violation.ip.as_deref().is_some_and(|ip| is_within(network, ip)))
            && self.since.is_none_or(|since| violation.at >= since)
            && self.until.is_none_or(|until| violation.at < until)
    }
}

pub(super) fn page_size(asked: Option<PageSize>) -> usize {
    asked.map_or(Query::USUAL_LIMIT, |size| usize::try_from(size.0).unwrap_or(Query::MAX_LIMIT))
}

/// Whether an address lies in a network, or a network in another. IPv6 clients are stored as a network, which may
/// contain the address asked for.
fn is_within(asked: IpNet, ip: &str) -> bool {
    ip.parse().is_ok_and(|Network(known)| asked.contains(&known) || known.contains(&asked))
}

/// A network, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network(IpNet);

/// A text that is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an address or a network; use for example 203.0.113.9 or 10.0.0.0/8")]
pub(super) struct NotANetwork;

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Network, NotANetwork> {
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse::<IpNet>()).map(Network).map_err(|_| NotANetwork)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl JsonSchema for Network {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Network".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
        // Shorter spellings of IPv6 are accepted too, but the pattern does not cover them.
        let pattern =
            format!(r"^({octet}\.){{3}}{octet}(/(3[0-2]|[12]?[0-9]))?$|^([0-9a-f]{{1,4}}:){{7}}[0-9a-f]{{1,4}}$");
        json_schema!({ "type": "string", "pattern": pattern, "examples": ["203.0.113.9"] })
    }
}

/// The violations that match, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) violations: Vec<Violation>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<Cursor>,
}

/// A place in the list: the last violation seen. Written `AT.ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) at: Timestamp,
    pub(crate) id: u64,
}

impl Cursor {
    /// Right after a violation.
    pub(super) fn after(violation: &Violation) -> Cursor {
        Cursor { at: violation.at, id: violation.id }
    }
}

/// A text that is not a `next` of any answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a cursor; send the `next` of an answer")]
pub(crate) struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Cursor, NotACursor> {
        let number = |text: &str| text.parse().ok().filter(|number: &u64| *number <= i64::MAX as u64);
        let cursor = text
            .split_once('.')
            .and_then(|(at, id)| Some(Cursor { at: Timestamp::from_micros(number(at)?), id: number(id)? }));
        cursor.ok_or(NotACursor)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl JsonSchema for Cursor {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cursor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^[0-9]{1,16}\.[0-9]{1,15}$",
            "examples": ["1767225600000000.7"],
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_micros(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn parse(text: &str) -> Result<Query, String> {
        let asked = crate::strict::query(Some(text), "").map_err(|invalid| invalid.to_string())?;
        Ok(Query::new(asked, NOW))
    }

    #[test]
    fn every_parameter_narrows_the_answer() {
        let violation = Violation { id: 7, user_id: Some("42".into()), ..Violation::example() };
        let hidden = Violation { key: fingerprint("k-123"), ..violation.clone() };
        let network = Violation { ip: Some("2001:db8:1:2::/64".into()), ..violation.clone() };
        for (text, fits) in [
            ("", true),
            ("user_id=42&rule=login&key=203.0.113.9&limit=5", true),
            ("user_id=43", false),
            ("rule=logout", false),
            ("key=k-123", false),
            ("ip=203.0.113.9", true),
            ("ip=203.0.113.0/24", true),
            ("ip=203.0.114.0/24", false),
            ("ip=::1", false),
            ("since=1h", true),
            ("since=2026-01-01T00:00:00Z", true),
            ("since=2026-01-01T00:00:00.000001Z", false),
            ("until=2026-01-01T01:00:00 01:00", false),
            ("until=2026-01-01T00:00:01Z", true),
            ("cursor=1767225600000000.8", true),
            ("cursor=1767225600000000.7", false),
        ] {
            assert_eq!(parse(text).expect(text).matches(&violation), fits, "{text}");
        }
        assert!(parse("key=k-123").expect("fine").matches(&hidden), "a secret is found by its value");
        assert!(parse("ip=2001:db8:1:2::77").expect("fine").matches(&network));
        assert!(parse("ip=2001:db8::/32").expect("fine").matches(&network));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, problem) in [
            ("usr_id=1", "usr_id: is not known; did you mean `user_id`?"),
            ("ip=1.2.3", "ip: \"1.2.3\" is not an address or a network"),
            ("since=yesterday", "since: \"yesterday\" is not a time; use 1h"),
            ("since=5", "since: \"5\" is not a time"),
            ("limit=0", "limit: must be a whole number from 1 to 1000, not 0"),
            ("limit=1001", "limit: must be a whole number from 1 to 1000, not 1001"),
            ("cursor=7", "cursor: \"7\" is not a cursor"),
            ("rule=", "rule: is empty"),
            ("rule=a&rule=b", "rule: is given twice"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(problem), "{text}: {error}");
        }
    }
}
