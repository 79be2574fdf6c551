//! An action of an operator on a single key, and the query for actions.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollkeeper::Timestamp;

use super::Query;
use super::query::{PageSize, page_size};
use crate::moment::{self, Moment, PastMoment};
use crate::strict::Filled;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum ActionKind {
    Block,
    Allow,
    Grant,
    Lift,
    Reset,
}

impl ActionKind {
    const ALL: [ActionKind; 5] =
        [ActionKind::Block, ActionKind::Allow, ActionKind::Grant, ActionKind::Lift, ActionKind::Reset];

    const NAMES: [&str; 5] = ["block", "allow", "grant", "lift", "reset"];

    pub(crate) const fn name(self) -> &'static str {
        ActionKind::NAMES[self as usize]
    }

    pub(super) fn named(name: &str) -> Option<ActionKind> {
        ActionKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An action on a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Action {
    /// When.
    #[serde(serialize_with = "moment::serialize")]
    #[schemars(with = "Moment")]
    pub(crate) at: Timestamp,
    /// What was done.
    pub(crate) action: ActionKind,
    /// The rule's name, or `*` for every rule that has the key.
    pub(crate) rule: String,
    /// Which of the rule's buckets; a secret by its fingerprint.
    pub(crate) key: String,
    /// The attribute that the key is for, where the rule's key has alternatives such as `{api_key|ip}`.
    pub(crate) key_by: Option<String>,
    /// What was granted; null for all but a grant.
    pub(crate) limit: Option<String>,
    /// When it ends; null when it does not.
    #[serde(serialize_with = "moment::serialize")]
    #[schemars(with = "Option<Moment>")]
    pub(crate) until: Option<Timestamp>,
    /// Why, if a reason was given.
    pub(crate) reason: Option<String>,
    /// Who: the given name, which is not verified, and how the caller authenticated.
    pub(crate) by: String,
    /// The process that handled it.
    pub(crate) instance: Arc<str>,
}

/// The parameters of `GET /v1/actions`. All are optional, and each narrows the answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionsQuery {
    /// What was done.
    action: Option<ActionKind>,
    /// The rule's name.
    rule: Option<Filled>,
    /// The bucket's key; a secret is found by its value or by its fingerprint.
    key: Option<Filled>,
    /// From then on: 1h for that long ago, or a time such as 2026-01-31T12:00:00Z.
    since: Option<PastMoment>,
    /// Before then, written the same way.
    until: Option<PastMoment>,
    /// The maximum number of actions.
    #[schemars(extend("default" = Query::USUAL_LIMIT))]
    limit: Option<PageSize>,
}

/// Which actions. All given conditions must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActionQuery {
    pub(crate) action: Option<ActionKind>,
    pub(crate) rule: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) limit: usize,
}

impl Default for ActionQuery {
    fn default() -> Self {
        ActionQuery { action: None, rule: None, key: None, since: None, until: None, limit: Query::USUAL_LIMIT }
    }
}

impl ActionQuery {
    /// The query; relative times are relative to `now`.
    pub(crate) fn new(asked: ActionsQuery, now: Timestamp) -> ActionQuery {
        ActionQuery {
            action: asked.action,
            rule: asked.rule.map(|Filled(text)| text),
            key: asked.key.map(|Filled(text)| text),
            since: asked.since.map(|since| since.seen_from(now)),
            until: asked.until.map(|until| until.seen_from(now)),
            limit: page_size(asked.limit),
        }
    }

    pub(super) fn matches(&self, action: &Action) -> bool {
        self.action.is_none_or(|kind| action.action == kind)
            && self.rule.as_ref().is_none_or(|rule| action.rule == *rule)
            && self.key.as_ref().is_none_or(|key| Query::spellings(key).contains(&action.key))
            && self.since.is_none_or(|since| action.at >= since)
            && self.until.is_none_or(|until| action.at < until)
    }
}

#[cfg(test)]
impl Action {
    /// An action to be modified by a test.
    pub(super) fn example(key: &str) -> Action {
        Action {
            at: Timestamp::from_micros(1_767_225_600_000_000),
            action: ActionKind::Block,
            rule: "login".into(),
            key: key.into(),
            key_by: None,
            limit: None,
            until: None,
            reason: None,
            by: "loopback".into(),
            instance: "here:1".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::fingerprint;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn parse(name: &str, value: &str) -> Result<ActionQuery, String> {
        let asked = crate::strict::query(Some(&format!("{name}={value}")), "");
        Ok(ActionQuery::new(asked.map_err(|invalid| invalid.to_string())?, NOW))
    }

    #[test]
    fn every_parameter_narrows_the_answer() {
        for (name, value, fits) in [
            ("action", "block", true),
            ("action", "lift", false),
            ("rule", "login", true),
            ("rule", "*", false),
            ("key", "k-123", true),
            ("key", "k-124", false),
            ("since", "1h", true),
            ("since", "2026-01-01T00:00:00.000001Z", false),
            ("until", "1s", false),
        ] {
            let query = parse(name, value).expect(value);
            for shown in ["k-123".to_string(), fingerprint("k-123")] {
                assert_eq!(query.matches(&Action::example(&shown)), fits, "{name}={value} for {shown}");
            }
        }
        assert_eq!(parse("action", "blok"), Err("action: \"blok\" is not known; did you mean `block`?".into()));
    }

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in ActionKind::ALL {
            assert_eq!(ActionKind::named(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).expect("text"), kind.name());
        }
    }
}
