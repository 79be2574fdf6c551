//! Rules as a rules file. Deterministic: the same rules give the same bytes.

use std::fmt::Write as _;

use serde_json::Value;
use tollkeeper_core::RuleSpec;

use super::fields::fields;

/// A rules file with these rules. Default values are left out.
pub fn yaml<'r>(rules: impl IntoIterator<Item = &'r RuleSpec>) -> String {
    let mut out = String::new();
    for spec in rules {
        let mut lead = "  - ";
        for (field, value) in fields(spec) {
            // Writing to a text cannot fail.
            let _ = writeln!(out, "{lead}{field}: {}", flow(&value));
            lead = "    ";
        }
    }
    if out.is_empty() { "rules: []\n".into() } else { format!("rules:\n{out}") }
}

/// A value on one line: JSON, except that simple strings are not quoted.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", flow(&name.as_str().into()), flow(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// Whether every YAML parser reads the text as a string.
fn is_plain(text: &str) -> bool {
    const MEAN_SOMETHING: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
    let limit = text.split_once('/').is_some_and(|(count, period)| {
        let period = period.trim_start_matches(|c: char| c.is_ascii_digit());
        !count.is_empty()
            && count.bytes().all(|byte| byte.is_ascii_digit())
            && !period.is_empty()
            && period.bytes().all(|byte| byte.is_ascii_lowercase())
    });
    (word || limit) && !MEAN_SOMETHING.contains(&text.to_ascii_lowercase().as_str())
}

/// Quoted, with special characters escaped.
fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    json.chars().fold(String::with_capacity(json.len()), |mut out, c| {
        let is_odd = c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
        let _ = if is_odd { write!(out, "\\u{:04x}", u32::from(c)) } else { write!(out, "{c}") };
        out
    })
}
