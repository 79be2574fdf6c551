//! Reads what callers send: checks, releases, and the events of `replay`.
//!
//! Texts stay borrowed from the body where they can, so that a check costs one list and no map.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;

use schemars::JsonSchema;
use serde::de::{self, DeserializeSeed as _, MapAccess, SeqAccess};
use tollkeeper::{Descriptor, Request, Timestamp};
use tollkeeper_core::parse_cost;

use super::strict::{At, Invalid, Name, TWICE, Text, Want, Wanted, Whole, once, quoted, unknown};
use super::{HoldToken, ReplayEvent};

/// How many checks a batch may hold.
const MAX_CHECKS: usize = 1_000;

/// A request as the API takes it.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, transform = may_be_left_out)]
pub(crate) struct Check<'b> {
    /// What is known of the request.
    // Sorted by name, so that looking one up is cheap however many were sent.
    #[schemars(with = "BTreeMap<String, String>")]
    attributes: Vec<(Cow<'b, str>, Cow<'b, str>)>,
    /// What the request costs; each rule multiplies it by its own cost. 0 peeks and charges nothing.
    #[schemars(range(max = 4_294_967_295u32), extend("default" = 1))]
    cost: u32,
}

fn may_be_left_out(schema: &mut schemars::Schema) {
    schema.remove("required");
}

impl Request for Check<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let found = self.attributes.binary_search_by(|(other, _)| other.as_ref().cmp(name)).ok()?;
        Some(Cow::Borrowed(&self.attributes[found].1))
    }

    fn cost(&self) -> u32 {
        self.cost
    }
}

impl From<Check<'_>> for Descriptor {
    fn from(check: Check<'_>) -> Descriptor {
        let attributes = check.attributes.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned()));
        Descriptor::new(attributes).with_cost(check.cost)
    }
}

/// One check, or many.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(untagged, deny_unknown_fields, rename = "CheckRequest")]
pub(crate) enum CheckBody<'b> {
    /// One.
    One(Check<'b>),
    /// Many, decided in order.
    Batch {
        /// Decided in order; each sees the ones before it.
        #[schemars(length(max = MAX_CHECKS))]
        checks: Vec<Check<'b>>,
    },
}

/// A slot to give back.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ReleaseRequest")]
pub(crate) struct Release<'b> {
    /// The rule's name.
    pub(crate) rule: Cow<'b, str>,
    /// The row's key.
    pub(crate) key: Cow<'b, str>,
    /// The row's hold.
    pub(crate) hold: HoldToken,
}

/// An estimate to reserve.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ReserveRequest", transform = may_be_left_out)]
pub(crate) struct Reserve<'b> {
    #[schemars(flatten)]
    pub(crate) check: Check<'b>,
    /// For how many milliseconds the reservation can be settled; after that the estimate stays charged.
    #[schemars(range(min = 1, max = MAX_HOLD_MS), extend("default" = DEFAULT_HOLD_MS))]
    pub(crate) hold_ms: u64,
}

/// What a reserved request did cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "SettleRequest", transform = may_be_left_out)]
pub(crate) struct Settle<'b> {
    /// What the request did cost, instead of the estimate; 0 gives all of it back.
    #[schemars(with = "u32", range(max = 4_294_967_295u32))]
    pub(crate) cost: Option<u32>,
    /// Attributes that carry the cost of a rule, with what they turned out to be: whole numbers.
    #[schemars(with = "BTreeMap<String, WholeNumber>")]
    pub(crate) attributes: Vec<(Cow<'b, str>, Cow<'b, str>)>,
}

/// A number in a text.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only described here")]
struct WholeNumber(#[schemars(regex(pattern = r"^ *[0-9]+ *$"))] String);

const DEFAULT_HOLD_MS: u64 = 60_000;
const MAX_HOLD_MS: u64 = tollkeeper::MAX_HOLD.as_millis() as u64;

const CHECK_FIELDS: &[&str] = &["attributes", "cost"];
pub(super) const BODY_FIELDS: &[&str] = &["attributes", "cost", "checks"];
const EVENT_FIELDS: &[&str] = &["at_us", "attributes", "cost"];
const RELEASE_FIELDS: &[&str] = &["rule", "key", "hold"];
const RESERVE_FIELDS: &[&str] = &["attributes", "cost", "hold_ms"];

/// Reads the body of a check.
pub(crate) fn parse_check(body: &[u8]) -> Result<CheckBody<'_>, Invalid> {
    let example = r#"{"attributes": {"user_id": "42"}, "cost": 1}"#;
    parse(body, BODY_FIELDS, example, |at, mut fields| match fields.checks.take() {
        Some(_) if fields.attributes.is_some() || fields.cost.is_some() => Err(at.field("checks").invalid(
            "stands alone: a batch takes attributes and cost in its items; move them there, or leave checks out",
        )),
        Some(checks) => Ok(CheckBody::Batch { checks }),
        None => Ok(CheckBody::One(fields.check())),
    })
}

/// Reads the body of a release.
pub(crate) fn parse_release(body: &[u8]) -> Result<Release<'_>, Invalid> {
    let example = r#"{"rule": "jobs", "key": "42", "hold": "0.1767225600000000.0"}"#;
    parse(body, RELEASE_FIELDS, example, |at, fields| {
        let missing = |name| at.field(name).invalid(format_args!("is missing; take it from the row of the check"));
        let (Some(rule), Some(key), Some(hold)) = (&fields.rule, &fields.key, &fields.hold) else {
            let given = [fields.rule.is_some(), fields.key.is_some(), fields.hold.is_some()];
            let absent = RELEASE_FIELDS.iter().zip(given).find(|(_, given)| !given).map_or("rule", |(name, _)| name);
            return Err(missing(absent));
        };
        let token = hold.parse().map_err(|_| {
            let problem = format!("{} is no hold; give back what the check answered in `hold`", quoted(hold));
            at.field("hold").invalid(problem)
        })?;
        Ok(Release { rule: rule.clone(), key: key.clone(), hold: token })
    })
}

/// Reads the body of a reservation.
pub(crate) fn parse_reserve(body: &[u8]) -> Result<Reserve<'_>, Invalid> {
    let example = r#"{"attributes": {"user_id": "42"}, "cost": 4000, "hold_ms": 60000}"#;
    parse(body, RESERVE_FIELDS, example, |at, fields| match fields.hold_ms.unwrap_or(DEFAULT_HOLD_MS) {
        0 => {
            Err(at.field("hold_ms").invalid("0 is over at once; say how many milliseconds, or leave it out for 60000"))
        }
        hold_ms => Ok(Reserve { check: fields.check(), hold_ms }),
    })
}

/// Reads the body that settles a reservation.
pub(crate) fn parse_settle(body: &[u8]) -> Result<Settle<'_>, Invalid> {
    let example = r#"{"cost": 2311}"#;
    parse(body, CHECK_FIELDS, example, |at, fields| {
        let attributes = fields.attributes.unwrap_or_default();
        // Before anything is settled: it can be done once only.
        match attributes.iter().find(|(_, value)| parse_cost(value).is_none()) {
            Some((name, value)) => {
                let problem =
                    format!("{} is no whole number, and tells what was used; send for example \"3\"", quoted(value));
                Err(at.field("attributes").field(name).invalid(problem))
            }
            None => Ok(Settle { cost: fields.cost, attributes }),
        }
    })
}

/// Reads a line of `replay`.
pub(crate) fn parse_event(line: &str) -> Result<ReplayEvent, String> {
    let example = r#"{"at_us": 3000000, "attributes": {"user_id": "42"}, "cost": 1}"#;
    let event = parse(line.as_bytes(), EVENT_FIELDS, example, |at, fields| match fields.at_us {
        Some(at_us) => Ok(ReplayEvent { at_us, descriptor: fields.check().into() }),
        None => Err(at.field("at_us").invalid("is missing; say when, in microseconds since the epoch")),
    });
    event.map_err(|invalid| invalid.to_string())
}

fn parse<'b, T>(
    text: &'b [u8],
    known: &'static [&'static str],
    example: &str,
    understand: impl FnOnce(At<'_>, Fields<'b>) -> Result<T, Invalid>,
) -> Result<T, Invalid> {
    let complaint = RefCell::new(None);
    let at = At::whole(&complaint);
    let whole = |problem| Invalid { field: String::new(), problem };
    if text.trim_ascii().is_empty() {
        return Err(whole(format!("there is nothing here; send for example {example}")));
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = Want(Object { at, known, example }).deserialize(&mut json);
    match read.and_then(|fields| json.end().map(|()| fields)) {
        Ok(fields) => understand(at, fields),
        Err(syntax) => Err(complaint
            .take()
            .unwrap_or_else(|| whole(format!("this is not JSON: {syntax}; send for example {example}")))),
    }
}

/// Everything that any of the bodies may hold; which of it is known differs.
#[derive(Default)]
struct Fields<'b> {
    attributes: Option<Vec<(Cow<'b, str>, Cow<'b, str>)>>,
    cost: Option<u32>,
    checks: Option<Vec<Check<'b>>>,
    at_us: Option<u64>,
    rule: Option<Cow<'b, str>>,
    key: Option<Cow<'b, str>>,
    hold: Option<Cow<'b, str>>,
    hold_ms: Option<u64>,
}

impl<'b> Fields<'b> {
    fn check(self) -> Check<'b> {
        Check { attributes: self.attributes.unwrap_or_default(), cost: self.cost.unwrap_or(1) }
    }
}

/// A body, or an item of a batch.
struct Object<'p> {
    at: At<'p>,
    known: &'static [&'static str],
    example: &'p str,
}

impl<'b> Wanted<'b> for Object<'_> {
    type Value = Fields<'b>;

    fn refuse<E: de::Error>(self, seen: impl Display) -> E {
        self.at.refuse(format_args!("an object such as {} is wanted here, not {seen}", self.example))
    }

    fn object<A: MapAccess<'b>>(self, mut object: A) -> Result<Fields<'b>, A::Error> {
        let mut fields = Fields::default();
        while let Some(name) = object.next_key_seed(Want(Name))? {
            let at = self.at.field(&name);
            let Some(name) = self.known.iter().copied().find(|known| *known == name) else {
                return Err(at.refuse(unknown(&name, self.known)));
            };
            match name {
                "attributes" => once(at, &mut fields.attributes, &mut object, Attributes(at))?,
                "cost" => {
                    let want = Whole { at, max: u32::MAX.into(), what: "0 peeks" };
                    let mut cost = fields.cost.map(u64::from);
                    once(at, &mut cost, &mut object, want)?;
                    fields.cost = cost.and_then(|cost| cost.try_into().ok());
                }
                "checks" => once(at, &mut fields.checks, &mut object, Checks(at))?,
                "at_us" => {
                    let want = Whole { at, max: Timestamp::MAX.as_micros(), what: "microseconds since the epoch" };
                    once(at, &mut fields.at_us, &mut object, want)?;
                }
                "hold_ms" => {
                    let want = Whole { at, max: MAX_HOLD_MS, what: "milliseconds, a day at most" };
                    once(at, &mut fields.hold_ms, &mut object, want)?;
                }
                "rule" => once(at, &mut fields.rule, &mut object, Text(at))?,
                "key" => once(at, &mut fields.key, &mut object, Text(at))?,
                _ => once(at, &mut fields.hold, &mut object, Text(at))?,
            }
        }
        Ok(fields)
    }
}

struct Checks<'p>(At<'p>);

impl<'b> Wanted<'b> for Checks<'_> {
    type Value = Vec<Check<'b>>;

    fn refuse<E: de::Error>(self, seen: impl Display) -> E {
        self.0.refuse(format_args!("must be a list of checks, not {seen}"))
    }

    fn list<A: SeqAccess<'b>>(self, mut list: A) -> Result<Vec<Check<'b>>, A::Error> {
        let mut checks = Vec::new();
        loop {
            let at = self.0.item(checks.len());
            let want = Object { at, known: CHECK_FIELDS, example: r#"{"attributes": {"user_id": "42"}}"# };
            let Some(fields) = list.next_element_seed(Want(want))? else {
                return Ok(checks);
            };
            if checks.len() == MAX_CHECKS {
                return Err(self.0.refuse(format_args!("has more than {MAX_CHECKS} items; send several batches")));
            }
            checks.push(fields.check());
        }
    }
}

struct Attributes<'p>(At<'p>);

impl<'b> Wanted<'b> for Attributes<'_> {
    type Value = Vec<(Cow<'b, str>, Cow<'b, str>)>;

    fn refuse<E: de::Error>(self, seen: impl Display) -> E {
        self.0.refuse(format_args!(r#"must be an object such as {{"user_id": "42"}}, not {seen}"#))
    }

    fn object<A: MapAccess<'b>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut attributes: Self::Value = Vec::new();
        while let Some(name) = object.next_key_seed(Want(Name))? {
            let value = object.next_value_seed(Want(AttributeValue(self.0.field(&name))))?;
            attributes.push((name, value));
        }
        attributes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        match attributes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(twice) => Err(self.0.field(&twice[0].0).refuse(TWICE)),
            None => Ok(attributes),
        }
    }
}

struct AttributeValue<'p>(At<'p>);

impl<'b> Wanted<'b> for AttributeValue<'_> {
    type Value = Cow<'b, str>;

    fn refuse<E: de::Error>(self, seen: impl Display) -> E {
        let seen = seen.to_string();
        let remedy = match seen.as_str() {
            "null" => "leave the attribute out".to_string(),
            "a list" | "an object" => "attributes are a flat map of names to strings".to_string(),
            scalar => format!("quote it: \"{scalar}\""),
        };
        self.0.refuse(format_args!("must be a string, not {seen}; {remedy}"))
    }

    fn text<E: de::Error>(self, text: Cow<'b, str>) -> Result<Cow<'b, str>, E> {
        Ok(text)
    }
}
