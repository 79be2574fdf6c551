//! The JSON of the API: requests and answers.
//!
//! The API and `replay` share these types, so a request means the same to both. Every type also describes itself for
//! `/openapi.json`.

mod attributes;
mod bucket;
mod exceptions;
mod hold;
mod member;
mod problem;
mod query;
mod replay;
mod request;
mod reservation;
mod rule;
mod rule_names;
mod verdict;

pub(crate) use bucket::KeyAnswer;
use exceptions::shown_by;
pub(crate) use exceptions::{ExceptionBody, ExceptionView, ExceptionsAnswer, LiftedAnswer, parse_exception};
pub(crate) use hold::HoldToken;
pub(crate) use problem::{DenialAnswer, ProblemAnswer};
pub(crate) use query::{BucketChangeQuery, BucketQuery, ExceptionQuery, HistoryQuery, NoQuery, RulesChangeQuery};
pub(crate) use replay::write_replay_line;
pub(crate) use request::{
    Check, CheckBody, Release, Reserve, Settle, parse_check, parse_event, parse_release, parse_reserve, parse_settle,
};
pub(crate) use reservation::{ReservationAnswer, ReserveAnswer, SettleAnswer};
pub(crate) use rule::{
    EditAnswer, HistoryAnswer, Rollback, RulesAnswer, WarningAnswer, parse_rollback, parse_rule, rule_schema,
};
pub(crate) use verdict::{BatchAnswer, BatchResult, CheckAnswer, HeadersAnswer};

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::KeyedBy;

use crate::audit::{Action, Violation};

/// Whether a slot was released.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Released")]
pub(crate) struct ReleaseAnswer {
    /// False when the slot was already free: released before, or its hold expired.
    pub(crate) released: bool,
}

/// Whether a bucket was reset.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reset")]
pub(crate) struct ResetAnswer {
    /// False when there was nothing to reset.
    reset: bool,
    /// The attribute that the key was for, where the rule's key has alternatives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    by: Option<String>,
}

impl ResetAnswer {
    pub(crate) fn new(reset: bool, by: &KeyedBy) -> ResetAnswer {
        ResetAnswer { reset, by: shown_by(by) }
    }
}

/// Violations, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Violations")]
pub(crate) struct ViolationsAnswer {
    /// As many as were asked for.
    pub(crate) violations: Vec<Violation>,
    /// The `cursor` to ask for more; absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) next: Option<String>,
    /// Denials of this process that are missing because there was no room.
    pub(crate) dropped: u64,
    /// Where they were kept: `memory` or `postgres`.
    #[schemars(extend("enum" = ["memory", "postgres"]))]
    pub(crate) source: &'static str,
}

/// Actions on single keys, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Actions")]
pub(crate) struct ActionsAnswer {
    /// As many as were asked for.
    pub(crate) actions: Vec<Action>,
    /// Actions of this process that are missing because there was no room.
    pub(crate) dropped: u64,
    /// Where they were kept: `memory` or `postgres`.
    #[schemars(extend("enum" = ["memory", "postgres"]))]
    pub(crate) source: &'static str,
}

/// Whether the service is healthy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(crate) struct HealthAnswer {
    /// `ok`.
    pub(crate) status: &'static str,
    /// Only when newer rules cannot be loaded: the last good ones decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) rules: Option<String>,
}

#[cfg(test)]
mod tests;
