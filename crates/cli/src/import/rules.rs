//! Descriptors as rules: one for each limit in the tree.
//!
//! The reference service looks up a descriptor's entries one after the other: the exact value, otherwise the first
//! matching pattern, otherwise the key alone. It never backtracks, and the number of entries must equal the depth in
//! the tree. Our rules all apply together instead, so each must exclude what others match: `descriptor` requires
//! exactly these entries, and earlier matches are excluded from later ones.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tollkeeper::Quota;

use super::descriptors::{Node, Wanted, hides};
use super::glob;

/// A rule to be written.
#[derive(Debug)]
pub(super) struct ImportedRule {
    name: String,
    scope: String,
    when: Vec<(String, Vec<String>)>,
    key: String,
    limit: String,
    /// The limit is 0: the rule's cost exceeds its limit.
    is_closed: bool,
    /// If it is not enforced.
    mode: Option<&'static str>,
}

/// One step down the tree.
#[derive(Clone, Debug)]
struct Level {
    key: String,
    label: String,
    /// The attribute that this entry becomes.
    attribute: String,
    patterns: Vec<String>,
    /// Each value has its own bucket.
    is_in_bucket: bool,
}

/// The rules of domains, in their order.
pub(super) fn of(domains: &[(&str, Vec<&Node>)]) -> Vec<ImportedRule> {
    let mut rules = Rules { domain: "", names: BTreeSet::new(), rules: Vec::new() };
    for (domain, nodes) in domains {
        rules.domain = domain;
        rules.add_all(nodes, &[]);
    }
    rules.rules
}

struct Rules<'r> {
    domain: &'r str,
    names: BTreeSet<String>,
    rules: Vec<ImportedRule>,
}

impl Rules<'_> {
    fn add_all(&mut self, nodes: &[&Node], above: &[Level]) {
        for (index, node) in nodes.iter().copied().enumerate() {
            let mut levels = above.to_vec();
            levels.push(level(nodes, index, above));
            // A sibling takes every value first, so neither this node nor those below are ever found.
            let is_hidden = nodes[..index].iter().any(|earlier| hides(earlier, node));
            if is_hidden || levels.last().is_some_and(|level| level.patterns.iter().any(|pattern| pattern == "!*")) {
                continue;
            }
            if let Some(limit) = node.rate_limit.as_ref().filter(|limit| !limit.unlimited) {
                let count = limit.requests_per_unit.unwrap_or_default();
                // A limit of 0 is not valid; a cost above the limit means the same.
                let limit_text = format!("{}/{}", count.clamp(1, Quota::MAX_COUNT), limit.period().unwrap_or("s"));
                let name = match limit.name.as_ref().filter(|name| !name.0.is_empty()) {
                    Some(name) => name.0.clone(),
                    None => {
                        let labels = levels.iter().map(|level| level.label.as_str());
                        std::iter::once(self.domain).chain(labels).collect::<Vec<_>>().join(".")
                    }
                };
                let rule = ImportedRule {
                    name: self.free_name(&name),
                    scope: self.domain.to_string(),
                    when: self.when(&levels),
                    key: bucket(&levels),
                    limit: limit_text,
                    is_closed: count == 0,
                    mode: match (node.shadow_mode, node.quota_mode) {
                        (true, _) => Some("shadow"),
                        (false, true) => Some("quota"),
                        (false, false) => None,
                    },
                };
                self.rules.push(rule);
            }
            self.add_all(&node.children().iter().collect::<Vec<_>>(), &levels);
        }
    }

    fn when(&self, levels: &[Level]) -> Vec<(String, Vec<String>)> {
        let shape: Vec<&str> = levels.iter().map(|level| level.key.as_str()).collect();
        let mut when = vec![
            ("domain".to_string(), vec![literal(self.domain)]),
            ("descriptor".to_string(), vec![literal(&shape.join(","))]),
        ];
        let conditions = levels.iter().filter(|level| !level.patterns.is_empty());
        when.extend(conditions.map(|level| (level.attribute.clone(), level.patterns.clone())));
        when
    }

    /// Names are unique, short, and of characters that need no escaping anywhere.
    fn free_name(&mut self, wanted: &str) -> String {
        const LONGEST: usize = 90;
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@');
        let name: String = wanted.chars().map(|c| if fine(c) { c } else { '-' }).take(LONGEST).collect();
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.names.contains(name));
        let free = free.unwrap_or(name);
        self.names.insert(free.clone());
        free
    }
}

fn level(nodes: &[&Node], index: usize, above: &[Level]) -> Level {
    let node = nodes[index];
    let key = node.key.0.clone();
    // As the gRPC front names entries: a repeated name gets a number, and these two names are reserved.
    let taken = usize::from(matches!(key.as_str(), "domain" | "descriptor"));
    let before = taken + above.iter().filter(|level| level.key == key).count();
    let attribute = if before == 0 { key.clone() } else { format!("{key}#{}", before + 1) };
    let siblings = nodes.iter().copied().enumerate().filter(|(_, sibling)| sibling.key == node.key);
    let comes_first = |(place, sibling): &(usize, &Node)| match (node.wanted(), sibling.wanted()) {
        (Wanted::Exactly(_), _) | (_, Wanted::Any) => false,
        (Wanted::Any, _) => true,
        (Wanted::Matching(pattern), Wanted::Exactly(value)) => glob::matches(pattern, value),
        (Wanted::Matching(pattern), Wanted::Matching(other)) => *place < index && glob::may_overlap(pattern, other),
    };
    let excluded = siblings.filter(comes_first).filter_map(|(_, sibling)| pattern(sibling.wanted()));
    let excluded = excluded.map(|pattern| format!("!{pattern}"));
    let is_in_bucket = match node.wanted() {
        Wanted::Exactly(_) => false,
        Wanted::Matching(_) => !node.share_threshold,
        Wanted::Any => true,
    };
    Level {
        key,
        label: node.label(),
        attribute,
        patterns: pattern(node.wanted()).into_iter().chain(excluded).collect(),
        is_in_bucket,
    }
}

fn pattern(wanted: Wanted<'_>) -> Option<String> {
    match wanted {
        Wanted::Exactly(value) => Some(literal(value)),
        Wanted::Matching(pattern) => {
            // Stars in a row are one, and no pattern of a path.
            let mut pieces: Vec<&str> = pattern.split('*').collect();
            let last = pieces.len() - 1;
            let mut place = 0;
            pieces.retain(|piece| {
                let is_end = place == 0 || place == last;
                place += 1;
                is_end || !piece.is_empty()
            });
            Some(pieces.into_iter().map(literal).collect::<Vec<_>>().join("*"))
        }
        Wanted::Any => None,
    }
}

/// One bucket for each combination of the values that are not fixed.
fn bucket(levels: &[Level]) -> String {
    let open = levels.iter().filter(|level| level.is_in_bucket);
    let open: Vec<String> = open.map(|level| format!("{{{}}}", level.attribute)).collect();
    if open.is_empty() { "all".to_string() } else { open.join(":") }
}

/// A pattern that only this text matches.
fn literal(text: &str) -> String {
    let mut escaped = text.replace('\\', r"\\").replace('*', r"\*").replace('{', r"\{").replace('}', r"\}");
    if escaped.split_once('/').is_some_and(|(address, _)| address.parse::<std::net::IpAddr>().is_ok()) {
        // A text to the reference service, and not a network.
        escaped = escaped.replace('/', r"\/");
    }
    match escaped.strip_prefix('!') {
        Some(rest) => format!(r"\!{rest}"),
        None => escaped,
    }
}

/// The rules as a configuration file. Texts are quoted as in JSON, which is YAML too.
pub(super) fn yaml(source: &str, rules: &[ImportedRule]) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut out = format!("# Imported from {} by `tollkeeper import envoy-ratelimit`.\n", source.escape_default());
    out.push_str("listen:\n  http: 127.0.0.1:8080\n  grpc: 127.0.0.1:8081\n");
    out.push_str(if rules.is_empty() { "rules: []\n" } else { "rules:\n" });
    for rule in rules {
        // Writing to a text cannot fail.
        let _ = write!(out, "  - name: {}\n    scope: {}\n    when:\n", quoted(&rule.name), quoted(&rule.scope));
        for (attribute, patterns) in &rule.when {
            let patterns: Vec<String> = patterns.iter().map(|pattern| quoted(pattern)).collect();
            let patterns = if let [one] = &patterns[..] { one.clone() } else { format!("[{}]", patterns.join(", ")) };
            let _ = writeln!(out, "      {}: {patterns}", quoted(attribute));
        }
        let _ = writeln!(out, "    key: {}\n    limit: {}\n    algorithm: fixed_window", quoted(&rule.key), rule.limit);
        if rule.is_closed {
            let _ = writeln!(out, "    cost: 2\n    description: \"requests_per_unit: 0, so nothing passes\"");
        }
        if let Some(mode) = rule.mode {
            let _ = writeln!(out, "    mode: {mode}");
        }
    }
    out
}
