//! The file format of envoyproxy/ratelimit: a tree of descriptors, the errors in it, and what rules cannot express.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollkeeper::Quota;

use super::glob;

/// One domain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Root {
    pub(super) domain: Text,
    #[serde(default)]
    pub(super) descriptors: Option<Vec<Node>>,
}

/// One descriptor, with its children.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub(super) key: Text,
    #[serde(default)]
    value: Option<Text>,
    #[serde(default)]
    pub(super) rate_limit: Option<RateLimit>,
    #[serde(default)]
    pub(super) shadow_mode: bool,
    #[serde(default)]
    pub(super) quota_mode: bool,
    #[serde(default)]
    detailed_metric: bool,
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    pub(super) share_threshold: bool,
    #[serde(default)]
    metadata: Option<Value>,
    #[serde(default)]
    pub(super) descriptors: Option<Vec<Node>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    #[serde(default)]
    pub(super) unit: Option<String>,
    #[serde(default)]
    pub(super) requests_per_unit: Option<u32>,
    #[serde(default)]
    pub(super) unlimited: bool,
    #[serde(default)]
    pub(super) name: Option<Text>,
    #[serde(default)]
    replaces: Option<Vec<Replaced>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    name: Text,
}

/// A text, even where YAML reads `404` or `true`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Text(pub(super) String);

/// The value of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted<'n> {
    /// This value.
    Exactly(&'n str),
    /// Any value that matches this pattern with stars.
    Matching(&'n str),
    /// Any value that no other descriptor matches.
    Any,
}

/// Units and their names in a limit. A month is 30 days there and a year 365, and weeks start on Thursday.
const UNITS: [(&str, &str); 7] = [
    ("second", "s"),
    ("minute", "min"),
    ("hour", "h"),
    ("day", "day"),
    ("week", "7day"),
    ("month", "30day"),
    ("year", "365d"),
];

impl RateLimit {
    /// The unit as it is written in a limit.
    pub(super) fn period(&self) -> Option<&'static str> {
        let unit = self.unit.as_ref()?.to_ascii_lowercase();
        UNITS.iter().find(|(name, _)| *name == unit).map(|(_, period)| *period)
    }
}

impl Node {
    /// A star is a wildcard wherever it is.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        match self.value.as_ref().map(|value| value.0.as_str()) {
            None | Some("") => Wanted::Any,
            Some(value) if value.contains('*') => Wanted::Matching(value),
            Some(value) => Wanted::Exactly(value),
        }
    }

    /// `key_value`, or the key alone: what the reference service looks up.
    pub(super) fn label(&self) -> String {
        match self.value.as_ref().filter(|value| !value.0.is_empty()) {
            Some(value) => format!("{}_{}", self.key.0, value.0),
            None => self.key.0.clone(),
        }
    }

    pub(super) fn children(&self) -> &[Node] {
        self.descriptors.as_deref().unwrap_or_default()
    }
}

/// A field and a note about it.
type Notes = Vec<(String, String)>;

impl Root {
    pub(super) fn nodes(&self) -> &[Node] {
        self.descriptors.as_deref().unwrap_or_default()
    }

    /// The keys of all levels.
    pub(super) fn keys(&self) -> BTreeSet<&str> {
        let mut keys = BTreeSet::new();
        keys_of(self.nodes(), &mut keys);
        keys
    }

    /// What the reference service refuses too, and what cannot be named in a rule.
    pub(super) fn problems(&self) -> Notes {
        let mut notes = Notes::new();
        if self.domain.0.is_empty() {
            notes.push(("domain".into(), "is empty; name the domain that Envoy sends".into()));
        }
        problems_of(self.nodes(), "descriptors", &mut notes);
        notes
    }

    /// What rules do differently, or not at all.
    pub(super) fn differences(&self) -> Notes {
        let mut notes = Notes::new();
        differences_of(self.nodes(), "descriptors", &self.keys(), &mut notes);
        notes
    }
}

fn keys_of<'n>(nodes: &'n [Node], keys: &mut BTreeSet<&'n str>) {
    for node in nodes {
        keys.insert(&node.key.0);
        keys_of(node.children(), keys);
    }
}

fn problems_of(nodes: &[Node], path: &str, notes: &mut Notes) {
    let mut labels = BTreeSet::new();
    for (index, node) in nodes.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut note = |field: &str, problem: String| notes.push((format!("{path}.{field}"), problem));
        if node.key.0.is_empty() {
            note("key", "is empty; every descriptor has a key".into());
        }
        if let Some(bad) = node.key.0.chars().find(|c| matches!(c, '{' | '}' | '|' | ',')) {
            note("key", format!("contains {bad:?}, which no rule can name; rename it here and in Envoy"));
        }
        if node.share_threshold && !node.label().contains('*') {
            note("share_threshold", "needs a value with a star; remove it, or add the star".into());
        }
        if !labels.insert(node.label()) {
            note("key", format!("there is a second `{}` on this level; keep one", node.label()));
        }
        if let Some(limit) = &node.rate_limit {
            match (&limit.unit, limit.unlimited) {
                (Some(_), true) => note("rate_limit.unit", "has no meaning beside `unlimited`; remove one".into()),
                (Some(unit), false) if limit.period().is_none() => {
                    let known = UNITS.map(|(name, _)| name);
                    note(
                        "rate_limit.unit",
                        format!("`{unit}` is not a unit{}", crate::strict::suggestion(unit, &known)),
                    );
                }
                (None, false) => note("rate_limit", "the field `unit` is missing".into()),
                _ => {}
            }
            for (index, replaced) in limit.replaces.iter().flatten().enumerate() {
                if replaced.name.0.is_empty() || Some(&replaced.name) == limit.name.as_ref() {
                    note(&format!("rate_limit.replaces[{index}].name"), "names no other limit".into());
                }
            }
        }
        problems_of(node.children(), &format!("{path}.descriptors"), notes);
    }
}

fn differences_of(nodes: &[Node], path: &str, keys: &BTreeSet<&str>, notes: &mut Notes) {
    for (index, node) in nodes.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut note = |field: &str, problem: &str| notes.push((format!("{path}.{field}"), problem.to_string()));
        if let Some(limit) = &node.rate_limit {
            for (index, replaced) in limit.replaces.iter().flatten().enumerate() {
                let problem =
                    format!("`{}` stays in force beside this one: rules cannot replace each other", replaced.name.0);
                note(&format!("rate_limit.replaces[{index}]"), &problem);
            }
            match limit.requests_per_unit {
                None if !limit.unlimited => {
                    note("rate_limit", "has no requests_per_unit, which counts as 0: nothing passes")
                }
                Some(_) if limit.unlimited => note("rate_limit.requests_per_unit", "has no effect beside `unlimited`"),
                Some(count) if count > Quota::MAX_COUNT => {
                    note("rate_limit.requests_per_unit", &format!("becomes {}, the largest limit", Quota::MAX_COUNT));
                }
                _ => {}
            }
        }
        if node.shadow_mode && node.quota_mode {
            note("quota_mode", "is dropped: shadow_mode beside it never denies");
        }
        if node.share_threshold {
            let problem = "a limit that Envoy sends with a descriptor counts in the shared bucket; in the reference service each \
                           value then has a bucket of its own";
            note("share_threshold", problem);
        }
        if node.shadow_mode && node.rate_limit.is_none() {
            note("shadow_mode", "has no effect without a rate_limit beside it");
        }
        if node.key.0.contains('*') {
            note("key", "has a star, which is literal here: only an entry with exactly this key matches");
        }
        if let Some(other) = keys.iter().find(|other| ***other != node.key.0 && may_meet(node, other)) {
            note(
                "key",
                &format!(
                    "entries of `{other}` can match this in the reference service, which compares `{}` as one text; here only \
                 entries of `{}` do",
                    node.label(),
                    node.key.0
                ),
            );
        }
        if let Some(earlier) = nodes[..index].iter().find(|earlier| hides(earlier, node)) {
            note("value", &format!("never matches: `{}` before it matches every value", earlier.label()));
        }
        if node.detailed_metric || node.value_to_metric {
            let field = if node.detailed_metric { "detailed_metric" } else { "value_to_metric" };
            note(field, "is dropped: metrics are counted by rule, never by what clients send");
        }
        if node.metadata.is_some() {
            note("metadata", "is dropped: no metadata is sent to Envoy, as if RESPONSE_DYNAMIC_METADATA were not set");
        }
        differences_of(node.children(), &format!("{path}.descriptors"), keys, notes);
    }
}

/// Whether an entry of another key can be found under this node's text, `key_value`.
fn may_meet(node: &Node, other: &str) -> bool {
    let label = node.label();
    match node.wanted() {
        Wanted::Any => false,
        Wanted::Exactly(_) => label.strip_prefix(other).is_some_and(|rest| rest.starts_with('_')),
        Wanted::Matching(_) => glob::may_overlap(&label, &format!("{other}_*")),
    }
}

/// Whether every value that this sibling looks for is taken by an earlier one.
pub(super) fn hides(earlier: &Node, node: &Node) -> bool {
    match (earlier.wanted(), node.wanted()) {
        (Wanted::Matching(earlier_value), Wanted::Matching(value)) => {
            earlier.key == node.key && glob::matches(earlier_value, value)
        }
        _ => false,
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}
