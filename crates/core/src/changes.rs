//! What differs between two sets of rules: the line that operators look for after a change.

use std::collections::HashMap;
use std::fmt;

use crate::policy::Policy;
use crate::rule::Rule;

/// The rules that a change affects, by name, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New ones.
    pub added: Vec<String>,
    /// Removed ones.
    pub removed: Vec<String>,
    /// Those with different content.
    pub changed: Vec<String>,
    /// The changed ones whose buckets start over, and why.
    pub restarted: Vec<String>,
}

impl Changes {
    /// What differs in `policy` from `former`.
    pub fn between(former: &Policy, policy: &Policy) -> Changes {
        fn by_name(policy: &Policy) -> HashMap<&str, &Rule> {
            policy.rules().iter().map(|rule| (rule.name(), &**rule)).collect()
        }
        let (before, after) = (by_name(former), by_name(policy));
        let mut changes = Changes::default();
        for rule in policy.rules() {
            match before.get(rule.name()) {
                None => changes.added.push(rule.name().to_string()),
                Some(before) if before.spec() != rule.spec() => {
                    changes.changed.push(rule.name().to_string());
                    changes.restarted.extend(restart(before, rule));
                }
                Some(_) => {}
            }
        }
        let is_gone = |name: &&str| !after.contains_key(name);
        changes.removed = former.rules().iter().map(|rule| rule.name()).filter(is_gone).map(str::to_string).collect();
        changes
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Why a rule's buckets do not survive its change, if they do not.
fn restart(before: &Rule, rule: &Rule) -> Option<String> {
    let (was, is) = (before.quota().algorithm(), rule.quota().algorithm());
    if before.key() != rule.key() {
        return Some(format!("rule `{}` has a different key, so its buckets start full", rule.name()));
    }
    let is_kept = was == is || (was.has_burst() && is.has_burst()) || (was.keeps_log() && is.keeps_log());
    (!is_kept).then(|| {
        format!(
            "rule `{}` changed from {was} to {is}, which cannot read the old state: buckets start full",
            rule.name()
        )
    })
}

/// `added a, b; changed c`; `nothing` when nothing differs.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (what, names) in [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)] {
            if !names.is_empty() {
                write!(f, "{separator}{what} {}", names.join(", "))?;
                separator = "; ";
            }
        }
        if self.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Algorithm;
    use crate::rule_spec::RuleSpec;

    fn policy(rules: &[(&str, &str, Algorithm)]) -> Policy {
        let spec = |(name, limit, algorithm): &(&str, &str, Algorithm)| RuleSpec {
            name: (*name).into(),
            key: "{user}".into(),
            limit: (*limit).into(),
            algorithm: *algorithm,
            ..RuleSpec::default()
        };
        Policy::new(rules.iter().map(spec)).expect("valid")
    }

    #[test]
    fn one_line_names_what_changed() {
        use Algorithm::{FixedWindow, Gcra, TokenBucket};
        let before = policy(&[("a", "1/s", TokenBucket), ("b", "1/s", TokenBucket), ("c", "1/s", TokenBucket)]);
        let after = policy(&[("a", "2/s", Gcra), ("b", "1/s", TokenBucket), ("d", "1/s", TokenBucket)]);
        let changes = Changes::between(&before, &after);
        assert_eq!(changes.to_string(), "added d; removed c; changed a");
        assert!(changes.restarted.is_empty(), "one state serves both");
        assert_eq!(Changes::between(&before, &before).to_string(), "nothing");
        let window = policy(&[("a", "1/s", FixedWindow)]);
        assert!(Changes::between(&before, &window).restarted[0].contains("changed from token_bucket to fixed_window"));
    }
}
