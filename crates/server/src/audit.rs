//! The audit: who was denied by which rule, when, and how often; and what people did to single keys.
//!
//! Violations reach this place off the way of requests. The last ones are kept in memory; with a database they are written
//! there as well, and questions go there.

mod action;
mod postgres;
mod query;
mod ring;
mod sampling;

pub(crate) use action::{Action, ActionKind, ActionQuery, Actions, ActionsQuery};
pub(crate) use postgres::Sink;
pub(crate) use query::{Cursor, Query, ViolationsQuery};

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::Timestamp;

use crate::moment::{self, Moment};
use ring::Ring;
use sampling::Sampler;

/// A request that a rule denied, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Violation {
    /// Larger for later ones; a place to go on from.
    pub(crate) id: u64,
    /// When: the first, where it stands for several.
    #[serde(serialize_with = "moment::serialize")]
    #[schemars(with = "Moment")]
    pub(crate) at: Timestamp,
    /// The rule that denied.
    pub(crate) rule: Arc<str>,
    /// Which of the rule's buckets; a secret by its fingerprint.
    pub(crate) key: String,
    /// The request's `user_id`, if it had one.
    pub(crate) user_id: Option<String>,
    /// The request's `ip`, if it had one.
    pub(crate) ip: Option<String>,
    /// Method and path, as far as the request had them.
    pub(crate) endpoint: Option<String>,
    /// What the request would have been charged.
    pub(crate) cost: u32,
    /// Whole tokens that were left.
    pub(crate) remaining: u32,
    /// Milliseconds after which it would have passed; null when it never can.
    pub(crate) retry_after_ms: Option<u64>,
    /// How many denials of this key it stands for: one, or those of a second.
    pub(crate) count: u64,
    /// Whether the rule only watches: nobody was denied.
    pub(crate) shadow: bool,
    /// The process that decided.
    pub(crate) instance: Arc<str>,
}

/// Violations that were asked for, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) violations: Vec<Violation>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<Cursor>,
}

/// Gathers violations. It belongs to whoever reads what requests leave behind.
#[derive(Debug)]
pub(crate) struct Audit {
    sampler: Sampler,
    records: Records,
}

/// Where records go.
#[derive(Debug)]
struct Records {
    ring: Ring,
    sink: Option<Arc<Sink>>,
}

impl Records {
    fn push(&mut self, record: Violation) {
        if let Some(sink) = &self.sink {
            sink.push(record.clone());
        }
        self.ring.push(record);
    }
}

impl Audit {
    /// Keeps so many of the last violations in memory, and passes all on to a database if there is one.
    pub(crate) fn new(keep: usize, sink: Option<Arc<Sink>>) -> Audit {
        Audit { sampler: Sampler::default(), records: Records { ring: Ring::new(keep), sink } }
    }

    /// Adds a denial, identified by its key and by its rule.
    pub(crate) fn add(&mut self, key: u64, rule: u64, denial: Violation) {
        self.sampler.add(key, rule, denial, |record| self.records.push(record));
    }

    /// Records what has gathered.
    pub(crate) fn flush(&mut self, now: Timestamp) {
        self.sampler.flush(now, |record| self.records.push(record));
    }

    /// What is kept in memory.
    pub(crate) fn find(&self, query: &Query) -> Page {
        self.records.ring.find(query)
    }
}

#[cfg(test)]
impl Violation {
    /// Something to change.
    pub(crate) fn example() -> Violation {
        Violation {
            id: 0,
            at: Timestamp::from_micros(1_767_225_600_000_000),
            rule: "login".into(),
            key: "203.0.113.9".into(),
            user_id: None,
            ip: Some("203.0.113.9".into()),
            endpoint: Some("POST /login".into()),
            cost: 1,
            remaining: 0,
            retry_after_ms: Some(1_500),
            count: 1,
            shadow: false,
            instance: "here:1".into(),
        }
    }
}
