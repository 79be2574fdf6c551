//! Buckets as the admin part shows them.

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{Inspected, Rule, Span};

use super::exceptions::shown_by;

/// The current state of a bucket.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Bucket")]
pub(crate) struct KeyAnswer<'r> {
    /// The rule's name.
    rule: &'r str,
    /// The rule's label, if it has one.
    scope: Option<&'r str>,
    /// Which of the rule's buckets.
    key: &'r str,
    /// The attribute that the key is for, where the rule's key has alternatives such as `{api_key|ip}`: of several
    /// buckets in use under this text, the most used one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    by: Option<String>,
    /// Every attribute that a key of this rule can be for, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alternatives: Vec<String>,
    /// How requests are counted.
    algorithm: &'static str,
    /// Algorithm and numbers, for people.
    quota: String,
    /// The burst of a bucket, or N of a window.
    limit: u32,
    #[serde(flatten)]
    level: Level,
    /// The buckets of each alternative, when the rule's key has alternatives such as `{api_key|ip}` and several of
    /// them are in use under this text. The answer itself is for the most used one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variants: Vec<VariantAnswer>,
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Level {
    /// Whole tokens left.
    remaining: u32,
    /// Milliseconds until a request passes, rounded up; 0 when one passes now.
    retry_after_ms: Option<u64>,
    /// Milliseconds until the bucket is full again, rounded up.
    reset_after_ms: u64,
}

/// One of several buckets that share a text.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Variant")]
struct VariantAnswer {
    /// Which alternatives of the key's template were used; 0 when each placeholder used its first.
    variant: u16,
    /// The attributes of these alternatives.
    by: String,
    #[serde(flatten)]
    level: Level,
}

impl Level {
    fn of(bucket: &Inspected) -> Level {
        let decision = &bucket.decision;
        Level {
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after().map(Span::as_millis_ceil),
            reset_after_ms: decision.reset_after.as_millis_ceil(),
        }
    }
}

impl<'r> KeyAnswer<'r> {
    /// The buckets of a rule that share a key's text.
    pub(crate) fn new(rule: &'r Rule, key: &'r str, buckets: &[Inspected]) -> KeyAnswer<'r> {
        let used = |bucket: &&Inspected| {
            bucket.decision.remaining < bucket.decision.limit || bucket.decision.reset_after > Span::ZERO
        };
        let in_use: Vec<&Inspected> = buckets.iter().filter(used).collect();
        // The most used: least left, and longest until it is full.
        let most = in_use.iter().copied().min_by_key(|bucket| {
            (bucket.decision.remaining, std::cmp::Reverse(bucket.decision.reset_after), bucket.charge.key.variant)
        });
        let quota = most.or(buckets.first()).map_or(rule.quota(), |bucket| bucket.charge.quota());
        let limit = quota.limit();
        let by = |bucket: &Inspected| rule.key().keyed_by(bucket.charge.key.variant);
        // If none is in use, the one that the text would resolve to.
        let unused = || rule.key().bucket_of(&key.into()).ok().map(|key| rule.key().keyed_by(key.variant));
        let only = if let [one] = buckets { Some(by(one)) } else { None };
        let meant = most.map(by).or(only).or_else(unused);
        let level = most.map_or(Level { remaining: limit, retry_after_ms: Some(0), reset_after_ms: 0 }, Level::of);
        let variants = if in_use.len() < 2 { Vec::new() } else { in_use };
        KeyAnswer {
            rule: rule.name(),
            scope: rule.scope(),
            key,
            by: meant.as_ref().and_then(shown_by),
            alternatives: rule.key().alternatives().iter().map(ToString::to_string).collect(),
            algorithm: quota.algorithm().name(),
            quota: quota.to_string(),
            limit,
            level,
            variants: variants
                .into_iter()
                .map(|bucket| VariantAnswer {
                    variant: bucket.charge.key.variant,
                    by: by(bucket).to_string(),
                    level: Level::of(bucket),
                })
                .collect(),
        }
    }
}
