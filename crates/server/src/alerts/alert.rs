//! One message to the operators.

use serde::Serialize;
use serde_json::Value;
use tollkeeper::Timestamp;

use crate::moment::Moment;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The store is unreachable, and the circuit breaker has stopped calls to it.
    BreakerOpen,
    /// Rules answer by their failure policy, because the store could not.
    WithoutStore,
    /// The memory store has no room for a new key.
    StoreFull,
    /// Redis has lost its data, so every limit started full again.
    StoreLost,
    /// New rules were refused.
    RulesRefused,
    /// Nothing is wrong: a test of whether alerts arrive.
    Test,
}

/// All kinds, in the order of their numbers.
pub(crate) const KINDS: [Kind; 6] =
    [Kind::BreakerOpen, Kind::WithoutStore, Kind::StoreFull, Kind::StoreLost, Kind::RulesRefused, Kind::Test];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::BreakerOpen => "breaker_open",
            Kind::WithoutStore => "without_store",
            Kind::StoreFull => "store_full",
            Kind::StoreLost => "store_lost",
            Kind::RulesRefused => "rules_refused",
            Kind::Test => "test",
        }
    }
}

/// The state of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Started,
    Ongoing,
    Over,
}

/// All of them, in the order of their numbers.
pub(crate) const STATUSES: [Status; 3] = [Status::Started, Status::Ongoing, Status::Over];

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Started => "started",
            Status::Ongoing => "ongoing",
            Status::Over => "over",
        }
    }
}

/// One message, as it is posted.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Alert {
    /// The same in every attempt to deliver it, so that a receiver can detect duplicates.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) status: Status,
    severity: &'static str,
    at: Moment,
    instance: String,
    pub(crate) summary: String,
    /// A sentence for people, which chat services show.
    text: String,
    details: Value,
}

impl Alert {
    pub(crate) fn new(
        (kind, status): (Kind, Status),
        at: Timestamp,
        instance: &str,
        summary: String,
        details: Value,
    ) -> Alert {
        let severity = match (kind, status) {
            (_, Status::Over) | (Kind::Test, _) => "info",
            (Kind::BreakerOpen, _) => "critical",
            _ => "warning",
        };
        let text = format!("[{severity}] tollkeeper {instance}: {summary}");
        Alert {
            id: new_id(),
            kind,
            status,
            severity,
            at: Moment(at),
            instance: instance.into(),
            summary,
            text,
            details,
        }
    }
}

fn new_id() -> String {
    let mut bytes = [0; 16];
    // Without random numbers all IDs are equal; the alert matters more.
    let _ = getrandom::fill(&mut bytes);
    data_encoding::HEXLOWER.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_statuses_are_numbered_as_listed_and_posted_as_counted() {
        for (index, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(serde_json::to_value(kind).ok(), Some(kind.name().into()));
        }
        for (index, status) in STATUSES.into_iter().enumerate() {
            assert_eq!(status as usize, index);
            assert_eq!(serde_json::to_value(status).ok(), Some(status.name().into()));
        }
    }
}
