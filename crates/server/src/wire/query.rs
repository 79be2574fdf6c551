//! The query parameters of the admin part.

use schemars::JsonSchema;
use serde::Deserialize;
use tollkeeper::NamedKey;

use crate::strict::{Filled, Note, Whole};

/// No parameters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

/// A bucket.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BucketQuery {
    /// The rule's name.
    pub(crate) rule: Filled,
    /// The key's text, as in the row of a check.
    pub(crate) key: Filled,
    /// The attribute that the key is for, where the rule's key has alternatives such as `{api_key|ip}`; with several
    /// such placeholders one for each, as in `api_key,tenant`. By default all of them are shown.
    pub(crate) by: Option<Filled>,
}

/// A bucket to change, and by whom.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BucketChangeQuery {
    /// The rule's name.
    pub(crate) rule: Filled,
    /// The key's text, as in the row of a check.
    pub(crate) key: Filled,
    /// The attribute that the key is for, where the rule's key has alternatives such as `{api_key|ip}`; by default
    /// the only possible one.
    pub(crate) by: Option<Filled>,
    /// Who does it, for the audit.
    #[serde(rename = "as")]
    pub(crate) who: Option<Note>,
}

impl BucketChangeQuery {
    /// The key, as it was named.
    pub(crate) fn named_key(&self) -> NamedKey {
        named_key(&self.key, self.by.as_ref())
    }
}

impl BucketQuery {
    /// The key, as it was named.
    pub(crate) fn named_key(&self) -> NamedKey {
        named_key(&self.key, self.by.as_ref())
    }
}

fn named_key(Filled(text): &Filled, by: Option<&Filled>) -> NamedKey {
    NamedKey::from(text).by(by.map_or("", |Filled(by)| by))
}

/// Who makes an exception.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExceptionQuery {
    /// Who does it, for the audit.
    #[serde(rename = "as")]
    pub(crate) who: Option<Note>,
}

/// Who changes rules, and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RulesChangeQuery {
    /// Who changes it, for the history.
    #[serde(rename = "as")]
    pub(crate) by: Option<Note>,
    /// Why, for the history.
    pub(crate) message: Option<Note>,
}

/// Which versions of the rules.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// The maximum number of versions.
    #[schemars(extend("default" = HistoryQuery::USUAL_LIMIT))]
    pub(crate) limit: Option<Whole<1, 100>>,
    /// Only versions before this one.
    pub(crate) before: Option<Whole<1, { i64::MAX as u64 }>>,
}

impl HistoryQuery {
    pub(crate) const USUAL_LIMIT: u64 = 20;
}
