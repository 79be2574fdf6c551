//! Rules and their history as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;
use tollkeeper::Enforcement;

use crate::command::visible::visible;
use crate::rules::{RuleSet, Version};
use tollkeeper_tune::words::counted;

/// A line for each rule.
pub(super) fn list(set: &RuleSet) -> String {
    let rules = set.policy.rules();
    let mut out = format!("version {}, {}\n", set.version, counted(rules.len() as u64, "rule"));
    let widest = rules.iter().map(|rule| rule.name().len()).max().unwrap_or_default();
    for rule in rules {
        let mode = match rule.mode() {
            Enforcement::Shadow => " (shadow)",
            Enforcement::Annotate => " (annotate)",
            Enforcement::Quota => " (quota)",
            _ => "",
        };
        let inactive = if rule.is_active() { "" } else { " (inactive)" };
        // Writing to a text cannot fail.
        let _ = writeln!(out, "  {:<widest$}  {} by {}{mode}{inactive}", rule.name(), rule.quota(), rule.spec().key);
    }
    out
}

/// A paragraph for each version.
pub(super) fn history(versions: &[Version]) -> String {
    let mut out = String::new();
    for version in versions {
        let Version { version, changed_at, changed_by, action, message, changes, left_out } = version;
        let message = message.as_ref().map(|message| format!(": {}", one_line(message))).unwrap_or_default();
        let _ = writeln!(out, "{version}  {changed_at}  {}  {action}{message}", one_line(changed_by));
        for change in changes {
            let mark = match (&change.before, &change.after) {
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            let _ = writeln!(out, "    {mark} {}", one_line(&change.name));
            if let (Some(before), Some(after)) = (&change.before, &change.after) {
                for (column, before, after) in columns(before, after) {
                    let _ = writeln!(out, "        {column}: {before} -> {after}");
                }
            }
        }
        if *left_out > 0 {
            let _ = writeln!(out, "    ... and {left_out} more");
        }
    }
    if out.is_empty() { "no versions yet\n".into() } else { out }
}

/// The columns that differ, except those that always do.
fn columns<'v>(before: &'v Value, after: &'v Value) -> Vec<(&'v String, &'v Value, &'v Value)> {
    const ALWAYS: [&str; 3] = ["created_at", "updated_at", "rule_id"];
    let names: BTreeSet<&String> =
        [before, after].iter().filter_map(|row| row.as_object()).flat_map(|row| row.keys()).collect();
    let differ = names.into_iter().map(|name| (name, &before[name], &after[name]));
    differ.filter(|(name, before, after)| before != after && !ALWAYS.contains(&name.as_str())).collect()
}

/// Texts from other people must not look like lines of ours.
fn one_line(text: &str) -> String {
    visible(&text.replace(char::is_control, " "))
}
