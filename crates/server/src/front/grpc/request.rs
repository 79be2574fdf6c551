//! Envoy's request, parsed and bounded: each descriptor's attributes, its hits and its own limit.

use std::borrow::Cow;
use std::sync::Arc;

use tollkeeper::{Algorithm, Charge, Limiter, Quota, Request, Rule, Span};
use tollkeeper_core::{Cost, usual_spelling};
use tonic::Status;

use super::attributes::{Attributes, invalid};
use super::envoy::{RateLimitOverride, RateLimitRequest, RateLimitUnit};
use super::overrides;
use crate::service::together::{Effect, Part};

/// More than any proxy sends.
const MAX_DESCRIPTORS: usize = 100;

/// One descriptor.
#[derive(Debug)]
pub(super) struct Asked {
    attributes: Attributes,
    hits: u32,
    effect: Effect,
    pub(super) limit: Option<RateLimitOverride>,
}

impl Request for Asked {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.attributes.get(name).map(|value| usual_spelling(name, value))
    }

    fn cost(&self) -> u32 {
        self.hits
    }

    /// An entry with an empty value is an entry: Envoy sends one for an empty header, which must not escape the limit.
    fn keeps_empty(&self) -> bool {
        true
    }
}

/// All descriptors of a call describe one request: an attribute has the value of the first descriptor with it.
#[derive(Debug)]
pub(super) struct Described<'a>(pub(super) &'a [Asked]);

impl Request for Described<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.iter().find_map(|asked| asked.attribute(name))
    }
}

/// Parses a request, or says what is wrong with it.
pub(super) fn read(request: RateLimitRequest) -> Result<Vec<Asked>, Status> {
    let RateLimitRequest { domain, descriptors, hits_addend } = request;
    let domain: Arc<str> = domain.into();
    if domain.is_empty() {
        return Err(invalid("domain", "is empty; name the one that your rules match"));
    }
    if descriptors.is_empty() {
        return Err(invalid("descriptors", "is empty; send at least one"));
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(invalid("descriptors", format!("{} are too many (at most {MAX_DESCRIPTORS})", descriptors.len())));
    }
    let asked = descriptors.into_iter().enumerate().map(|(index, descriptor)| {
        let attributes = Attributes::new(domain.clone(), descriptor.entries, index)?;
        // The descriptor's own number wins, even if it is 0; that of the request is 0 when it is not set.
        let hits = match descriptor.hits_addend {
            Some(hits) => u32::try_from(hits).unwrap_or(u32::MAX),
            None => hits_addend.max(1),
        };
        let effect = match hits {
            0 => Effect::Check,
            _ if descriptor.is_negative_hits => Effect::Refund,
            _ => Effect::Charge,
        };
        Ok(Asked { attributes, hits, effect, limit: descriptor.limit })
    });
    asked.collect()
}

/// The charges of each descriptor under the rules in force, with its own limit if it has one.
pub(super) fn parts(limiter: &Limiter, asked: &[Asked]) -> Result<Vec<Part>, Status> {
    let mut charges = limiter.charges(asked).map_err(|error| {
        // Its value is not repeated: it may not be meant for every reader.
        let (attribute, rule) = (&error.attribute, &error.rule);
        invalid(attribute, format!("is the cost of rule `{rule}` and must be a whole number"))
    })?;
    for (index, (asked, charges)) in asked.iter().zip(&mut charges).enumerate() {
        if let Some(limit) = &asked.limit {
            override_limit(limit, asked, charges, &format!("descriptors[{index}].limit"))?;
        }
    }
    Ok(asked.iter().zip(charges).map(|(asked, charges)| Part { charges, effect: asked.effect }).collect())
}

/// Replaces the limit of the most specific rule for this descriptor (the first of several) by the caller's. The
/// bucket and the algorithm stay. The caller's limit is enforced in any case: if there is no rule, or one that does not
/// enforce its own, by a window of its own.
fn override_limit(
    limit: &RateLimitOverride,
    asked: &Asked,
    charges: &mut Vec<Charge>,
    field: &str,
) -> Result<(), Status> {
    let period = match RateLimitUnit::try_from(limit.unit).ok().and_then(period_of) {
        Some(period) => period,
        None => return Err(invalid(&format!("{field}.unit"), format!("{} is not a unit of time", limit.unit))),
    };
    let says = |rule: &Rule| rule.when().len() + rule.key().needs().count();
    let most = charges.iter().map(|charge| says(&charge.rule)).max();
    let own = || overrides::charge(&asked.attributes, asked.hits);
    let place = charges.iter().position(|charge| Some(says(&charge.rule)) == most).unwrap_or_else(|| {
        charges.push(own());
        charges.len() - 1
    });
    let charge = &mut charges[place];
    if !charge.rule.is_enforced() {
        *charge = own();
    }
    let algorithm = charge.quota().algorithm();
    let period = if algorithm == Algorithm::Concurrency { charge.quota().period() } else { period };
    let count = limit.requests_per_unit.clamp(1, Quota::MAX_COUNT);
    let quota = Quota::per(count, period)
        .algorithm(algorithm)
        .build()
        .map_err(|error| invalid(field, format!("{count} for rule `{}`: {error}", charge.rule.name())))?;
    *charge = charge.clone().with_quota(quota);
    if matches!(charge.rule.cost(), Cost::Fixed(cost) if *cost > charge.rule.quota().limit()) {
        // A rule that lets nothing pass by its cost, as imported for a limit of 0: now it has a limit.
        charge.cost = asked.hits;
    }
    if limit.requests_per_unit == 0 {
        // A cost too large to count never passes, which is what a limit of 0 means.
        charge.cost = if charge.cost == 0 { 0 } else { u32::MAX };
    }
    Ok(())
}

/// A unit as Envoy's reference service counts it: a month is 30 days and a year 365.
fn period_of(unit: RateLimitUnit) -> Option<Span> {
    const DAY: u64 = 86_400;
    let seconds = match unit {
        RateLimitUnit::Unknown => return None,
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY,
        RateLimitUnit::Month => 30 * DAY,
        RateLimitUnit::Year => 365 * DAY,
    };
    Some(Span::from_secs(seconds))
}
