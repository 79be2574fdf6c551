//! Requests of callers: checks, releases, reservations, and the events of `replay`.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use tollkeeper::{Request, Timestamp};
use tollkeeper_core::{parse_cost, usual_spelling};

use super::attributes::Attributes;
use super::hold::HoldToken;
use super::rule_names::RuleNames;
use crate::strict::{self, Invalid, Object, Whole, given, quoted, shortened};

/// How many checks a batch may hold.
const MAX_CHECKS: usize = 1_000;
const DEFAULT_HOLD_MS: u64 = 60_000;
const MAX_HOLD_MS: u64 = tollkeeper::MAX_HOLD.as_millis() as u64;
const MAX_COST: u64 = u32::MAX as u64;

/// What a request costs.
type Cost = Whole<0, MAX_COST>;

fn one() -> Cost {
    Whole(1)
}

/// A request to check.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check<'b> {
    /// The attributes of the request.
    #[serde(default, borrow)]
    attributes: Attributes<'b>,
    /// What the request costs; each rule multiplies it by its own cost. 0 peeks and charges nothing.
    #[serde(default = "one")]
    #[schemars(extend("default" = 1))]
    cost: Cost,
    /// The names of the rules to apply; all by default.
    #[serde(default, borrow, deserialize_with = "given")]
    #[schemars(with = "RuleNames")]
    rules: Option<RuleNames<'b>>,
    /// Whether to include the limit headers and `retry-after`, for the caller's own response.
    #[serde(default)]
    headers: bool,
}

impl Check<'_> {
    /// The names of the rules to apply, if not all.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().flat_map(RuleNames::iter)
    }

    pub(crate) fn wants_headers(&self) -> bool {
        self.headers
    }
}

impl Request for Check<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes.get(name).map(|value| usual_spelling(name, value))
    }

    fn cost(&self) -> u32 {
        count(self.cost)
    }

    fn considers(&self, rule: &str) -> bool {
        self.rules.as_ref().is_none_or(|names| names.contains(rule))
    }
}

fn count(cost: Cost) -> u32 {
    cost.0.try_into().unwrap_or(u32::MAX)
}

/// One check, or many.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(untagged, deny_unknown_fields, rename = "CheckRequest")]
pub(crate) enum CheckBody<'b> {
    /// One.
    One(Check<'b>),
    /// Many, each decided by itself.
    Batch {
        /// Each is decided by itself. The results are in the same order.
        #[schemars(length(max = MAX_CHECKS))]
        checks: Vec<Check<'b>>,
    },
}

/// A slot to release.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ReleaseRequest")]
pub(crate) struct Release<'b> {
    /// The rule's name.
    #[serde(borrow)]
    pub(crate) rule: Cow<'b, str>,
    /// The row's key.
    #[serde(borrow)]
    pub(crate) key: Cow<'b, str>,
    /// The row's hold.
    pub(crate) hold: HoldToken,
}

/// An estimate to reserve.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ReserveRequest")]
pub(crate) struct Reserve<'b> {
    /// The attributes of the request.
    #[serde(default, borrow)]
    attributes: Attributes<'b>,
    /// The estimated cost of the request.
    #[serde(default = "one")]
    #[schemars(extend("default" = 1))]
    cost: Cost,
    /// For how many milliseconds the reservation can be settled; after that the estimate stays charged.
    #[serde(default = "a_minute")]
    #[schemars(extend("default" = DEFAULT_HOLD_MS))]
    hold_ms: Whole<1, MAX_HOLD_MS>,
    /// The names of the rules to apply; all by default.
    #[serde(default, borrow, deserialize_with = "given")]
    #[schemars(with = "RuleNames")]
    rules: Option<RuleNames<'b>>,
    /// Whether to include the limit headers and `retry-after`, for the caller's own response.
    #[serde(default)]
    headers: bool,
}

fn a_minute() -> Whole<1, MAX_HOLD_MS> {
    Whole(DEFAULT_HOLD_MS)
}

impl<'b> Reserve<'b> {
    /// The request, and for how many milliseconds it can be settled.
    pub(crate) fn into_parts(self) -> (Check<'b>, u64) {
        let Reserve { attributes, cost, hold_ms, rules, headers } = self;
        (Check { attributes, cost, rules, headers }, hold_ms.0)
    }
}

/// The actual cost of a reserved request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SettleRequest")]
pub(crate) struct Settle<'b> {
    /// The actual cost of the request, instead of the estimate; 0 refunds all of it.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Cost")]
    cost: Option<Cost>,
    /// Attributes that carry the cost of a rule, with their actual values: whole numbers.
    #[serde(default, borrow)]
    #[schemars(with = "std::collections::BTreeMap<String, WholeNumber>")]
    pub(crate) attributes: Attributes<'b>,
}

impl Settle<'_> {
    /// The actual cost, if it is one number for all rules.
    pub(crate) fn cost(&self) -> Option<u32> {
        self.cost.map(count)
    }
}

/// A number as a string.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only described here")]
struct WholeNumber(#[schemars(regex(pattern = r"^ *[0-9]+ *$"))] String);

/// All fields that the body of a check may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckFields<'b> {
    #[serde(default, borrow, deserialize_with = "given")]
    attributes: Option<Attributes<'b>>,
    #[serde(default, deserialize_with = "given")]
    cost: Option<Cost>,
    #[serde(default, borrow, deserialize_with = "given")]
    rules: Option<RuleNames<'b>>,
    #[serde(default, deserialize_with = "given")]
    headers: Option<bool>,
    #[serde(default, borrow, deserialize_with = "given")]
    checks: Option<Checks<'b>>,
}

/// Reads the body of a check.
pub(crate) fn parse_check(body: &[u8]) -> Result<CheckBody<'_>, Invalid> {
    let example = r#"{"attributes": {"user_id": "42"}, "cost": 1}"#;
    match strict::json(body, example)? {
        CheckFields { attributes: None, cost: None, rules: None, headers: None, checks: Some(Checks(checks)) } => {
            Ok(CheckBody::Batch { checks })
        }
        CheckFields { checks: Some(_), .. } => Err(Invalid::new(
            "checks",
            "cannot be combined with other fields: in a batch they belong in each item; move them there, or leave checks out",
        )),
        CheckFields { attributes, cost, rules, headers, checks: None } => Ok(CheckBody::One(Check {
            attributes: attributes.unwrap_or_default(),
            cost: cost.unwrap_or_else(one),
            rules,
            headers: headers.unwrap_or_default(),
        })),
    }
}

/// Reads the body of a release.
pub(crate) fn parse_release(body: &[u8]) -> Result<Release<'_>, Invalid> {
    strict::json(body, r#"{"rule": "jobs", "key": "42", "hold": "0.1767225600000000.0"}"#)
}

/// Reads the body of a reservation.
pub(crate) fn parse_reserve(body: &[u8]) -> Result<Reserve<'_>, Invalid> {
    strict::json(body, r#"{"attributes": {"user_id": "42"}, "cost": 4000, "hold_ms": 60000}"#)
}

/// Reads the body that settles a reservation.
pub(crate) fn parse_settle(body: &[u8]) -> Result<Settle<'_>, Invalid> {
    let settle: Settle<'_> = strict::json(body, r#"{"cost": 2311}"#)?;
    // Checked before anything is settled, because settling works only once.
    if let Some((name, value)) = settle.attributes.iter().find(|(_, value)| parse_cost(value).is_none()) {
        let problem = format!("{} is not a whole number; send what was used, for example \"3\"", quoted(value));
        return Err(Invalid::new(format!("attributes.{}", shortened(name)), problem));
    }
    Ok(settle)
}

/// One line of `replay`'s input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayEvent<'l> {
    /// The time of the request, in microseconds since the epoch.
    pub(crate) at_us: u64,
    /// The request.
    pub(crate) request: Check<'l>,
}

/// A line of `replay`, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventFields<'b> {
    at_us: Whole<0, { Timestamp::MAX.as_micros() }>,
    #[serde(default, borrow)]
    attributes: Attributes<'b>,
    #[serde(default = "one")]
    cost: Cost,
}

/// Reads a line of `replay`.
pub(crate) fn parse_event(line: &str) -> Result<ReplayEvent<'_>, String> {
    let example = r#"{"at_us": 3000000, "attributes": {"user_id": "42"}, "cost": 1}"#;
    let EventFields { at_us, attributes, cost } =
        strict::json(line.as_bytes(), example).map_err(|invalid| invalid.to_string())?;
    Ok(ReplayEvent { at_us: at_us.0, request: Check { attributes, cost, rules: None, headers: false } })
}

/// The checks of a batch.
struct Checks<'b>(Vec<Check<'b>>);

impl<'de: 'b, 'b> Deserialize<'de> for Checks<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ChecksVisitor).map(Checks)
    }
}

struct ChecksVisitor;

impl<'de> Visitor<'de> for ChecksVisitor {
    type Value = Vec<Check<'de>>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Check<'de>>, A::Error> {
        let mut checks = Vec::new();
        while let Some(Object(check)) = list.next_element()? {
            if checks.len() == MAX_CHECKS {
                return Err(Error::custom(format_args!("has more than {MAX_CHECKS} items; send several batches")));
            }
            checks.push(check);
        }
        Ok(checks)
    }
}
