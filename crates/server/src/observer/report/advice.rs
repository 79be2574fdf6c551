//! What an operator can do about a finding, complete enough to be done with one click.

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::Rule;
use tollkeeper_tune::{Finding, Hot, Kind};

use crate::insight::RuleInsight;
use crate::privacy::{MAX_KEY, Privacy};

/// How long a suggested block lasts.
const BLOCK_MS: u64 = 3_600_000;

/// What would help.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(super) enum Advice {
    /// Change the numbers of the rule: with these, the observed requests would have passed.
    SetLimit {
        /// Such as `25/min`.
        limit: String,
        /// Null for algorithms without one.
        burst: Option<u32>,
    },
    /// Block keys that retry without waiting.
    Block {
        /// Which ones.
        keys: Vec<AdvisedKey>,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
}

/// A key that can be named in an exception.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AdvisedKey {
    key: String,
    /// The attribute that the key is for, where the rule's key has alternatives such as `{api_key|ip}`.
    by: Option<String>,
}

impl Advice {
    pub(super) fn of(finding: &Finding, insight: &RuleInsight, rule: &Rule, privacy: &Privacy) -> Option<Advice> {
        let evidence = &finding.evidence;
        match finding.kind {
            Kind::TooLow | Kind::Mixed if evidence.is_helped_by_more() => {
                let enough = evidence.enough.as_ref()?;
                Some(Advice::SetLimit { limit: enough.limit.clone(), burst: enough.burst })
            }
            Kind::Abuse => {
                let few = evidence.few.as_ref()?;
                let keys: Vec<AdvisedKey> =
                    insight.hammering(few).iter().filter_map(|hot| AdvisedKey::of(hot, rule, privacy)).collect();
                (!keys.is_empty()).then_some(Advice::Block { keys, for_ms: BLOCK_MS })
            }
            _ => None,
        }
    }
}

impl AdvisedKey {
    /// `None` for a secret, which is known by its fingerprint only, and for a key too long to be remembered.
    fn of<T>(hot: &Hot<T>, rule: &Rule, privacy: &Privacy) -> Option<AdvisedKey> {
        let is_known = !privacy.is_key_secret(rule, hot.variant) && hot.key.len() < MAX_KEY;
        let by = rule.key().keyed_by(hot.variant);
        let by = (!by.is_empty()).then(|| by.to_string());
        is_known.then(|| AdvisedKey { key: hot.key.clone(), by })
    }
}
