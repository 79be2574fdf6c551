//! What can be asked of the audit.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollkeeper::{Span, Timestamp, parse_span};

use super::Violation;
use crate::privacy::{MAX_KEY, bounded, fingerprint};
use crate::wire::{Invalid, quoted, unknown};

/// The names of all parameters.
const PARAMETERS: [&str; 8] = ["user_id", "ip", "rule", "key", "since", "until", "limit", "cursor"];

/// Which violations. Everything that is given has to fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) user_id: Option<String>,
    pub(crate) ip: Option<IpNet>,
    pub(crate) rule: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    /// Only those that come after this place in the list.
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

    /// Understands parameters; times that are relative end at `now`.
    pub(crate) fn parse(pairs: Vec<(String, String)>, now: Timestamp) -> Result<Query, Invalid> {
        check_names(&pairs, &PARAMETERS)?;
        let mut query = Query::default();
        for (name, value) in pairs {
            let invalid = |problem: String| Invalid { field: name.clone(), problem };
            match name.as_str() {
                "user_id" => query.user_id = Some(value),
                "ip" => query.ip = Some(parse_network(&value).map_err(invalid)?),
                "rule" => query.rule = Some(value),
                "key" => query.key = Some(value),
                "since" => query.since = Some(parse_time(&value, now).map_err(invalid)?),
                "until" => query.until = Some(parse_time(&value, now).map_err(invalid)?),
                "limit" => query.limit = parse_limit(&value).map_err(invalid)?,
                _ => query.after = Some(Cursor::parse(&value).map_err(invalid)?),
            }
        }
        Ok(query)
    }

    /// The ways in which a text may have been stored: as it is, or by its fingerprint.
    pub(crate) fn spellings(text: &str) -> [String; 2] {
        let text = bounded(text, MAX_KEY);
        [text.to_string(), fingerprint(&text)]
    }

    /// Whether a violation is among those that are asked for.
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

/// Refuses parameters that are unknown, empty or given twice.
pub(super) fn check_names(pairs: &[(String, String)], known: &[&str]) -> Result<(), Invalid> {
    for (index, (name, value)) in pairs.iter().enumerate() {
        let invalid = |problem: String| Err(Invalid { field: name.clone(), problem });
        if !known.contains(&name.as_str()) {
            return invalid(unknown(name, known));
        }
        if pairs[..index].iter().any(|(before, _)| before == name) {
            return invalid("is given twice; leave one out".into());
        }
        if value.is_empty() {
            return invalid("is empty; give it a value, or leave it out".into());
        }
    }
    Ok(())
}

/// Whether an address lies in a network, or a network in another. IPv6 clients are known by a network of theirs, in which
/// the address that is asked for may lie.
fn is_within(asked: IpNet, ip: &str) -> bool {
    let known = parse_network(ip);
    known.is_ok_and(|known| asked.contains(&known) || known.contains(&asked))
}

pub(super) fn parse_network(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
        format!("{} is no address and no network; write for example 203.0.113.9 or 10.0.0.0/8", quoted(text))
    })
}

/// `2026-01-31T12:00:00Z`, or `1h`: so long ago.
pub(super) fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(ago) = parse_span(text) {
        return Ok(Timestamp::from_micros(now.as_micros().saturating_sub(ago.as_micros())));
    }
    // A plus that nobody encoded arrives as a space.
    let time = OffsetDateTime::parse(&text.replace(' ', "+"), &Rfc3339);
    let micros =
        time.ok().map(|time| time.unix_timestamp_nanos() / 1_000).and_then(|micros| u64::try_from(micros).ok());
    micros.map(Timestamp::from_micros).ok_or_else(|| {
        format!("{} is no time; write 1h or 30min for so long ago, or 2026-01-31T12:00:00Z", quoted(text))
    })
}

pub(super) fn parse_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=Query::MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| format!("{} is not between 1 and {}", quoted(text), Query::MAX_LIMIT))
}

/// A place in the list: the last violation that was seen of it. Written `AT.ID`.
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

    fn parse(text: &str) -> Result<Cursor, String> {
        let number = |text: &str| text.parse().ok().filter(|number: &u64| *number <= i64::MAX as u64);
        let cursor = text
            .split_once('.')
            .and_then(|(at, id)| Some(Cursor { at: Timestamp::from_micros(number(at)?), id: number(id)? }));
        cursor.ok_or_else(|| format!("{} is no place in the list; take it from `next` of an answer", quoted(text)))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_micros(), self.id)
    }
}

/// A moment as RFC 3339, in UTC.
pub(crate) fn written_time(at: Timestamp) -> String {
    let micros = at.as_micros();
    let (seconds, rest) = (micros / Span::SECOND.as_micros(), micros % Span::SECOND.as_micros());
    // Every timestamp lies before the year 10,000, so none of this fails.
    let whole = OffsetDateTime::from_unix_timestamp(seconds as i64).ok().and_then(|time| time.format(&Rfc3339).ok());
    let whole = whole.unwrap_or_default();
    format!("{}.{rest:06}Z", whole.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn parse(text: &str) -> Result<Query, String> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').expect("a pair");
            (name.to_string(), value.to_string())
        });
        Query::parse(pairs.collect(), NOW).map_err(|invalid| invalid.to_string())
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
        assert!(parse("key=k-123").expect("fine").matches(&hidden), "a secret is found by who knows it");
        assert!(parse("ip=2001:db8:1:2::77").expect("fine").matches(&network));
        assert!(parse("ip=2001:db8::/32").expect("fine").matches(&network));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, problem) in [
            ("usr_id=1", "usr_id: is not known; did you mean `user_id`?"),
            ("ip=1.2.3", "ip: \"1.2.3\" is no address and no network"),
            ("since=yesterday", "since: \"yesterday\" is no time; write 1h"),
            ("since=5", "since: \"5\" is no time"),
            ("limit=0", "limit: \"0\" is not between 1 and 1000"),
            ("limit=1001", "limit: \"1001\" is not between"),
            ("cursor=7", "cursor: \"7\" is no place"),
            ("rule=", "rule: is empty"),
            ("rule=a&rule=b", "rule: is given twice"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(problem), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        let at = Timestamp::from_micros(NOW.as_micros() + 1_234_567);
        assert_eq!(written_time(at), "2026-01-01T00:00:01.234567Z");
        assert_eq!(parse_time(&written_time(at), NOW), Ok(at));
        assert_eq!(parse_time("90s", NOW), Ok(Timestamp::from_micros(NOW.as_micros() - 90_000_000)));
    }
}
