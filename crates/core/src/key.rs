//! Which bucket of a rule a request uses.
//!
//! The template `{tenant}:{user_id}` names one bucket per pair of values, and no two pairs may share one, whatever
//! they contain: with several placeholders, `%` and the separators are percent-encoded inside values. With
//! `{api_key|ip}`, an API key that looks like an address is not that address: which alternative was used is part of
//! the bucket's identity (its `variant`), though not of the text that people see.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use crate::request::Request;

/// Identifies a bucket among those of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Which alternatives the placeholders used; 0 when each used its first.
    pub variant: u16,
    /// The rendered template.
    pub value: String,
}

/// A rule's `key`, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate {
    parts: Vec<Part>,
    /// What separates placeholders and so must be escaped in values; empty with fewer than two placeholders.
    escaped: String,
    variants: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// The first of these attributes that the request has.
    FirstOf(Vec<String>),
}

/// The key whose placeholders all used their first alternative.
impl From<&str> for Key {
    fn from(value: &str) -> Key {
        Key { variant: 0, value: value.into() }
    }
}

/// As written in a rule.
impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Literal(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Part::FirstOf(names) => write!(f, "{{{}}}", names.join("|"))?,
            }
        }
        Ok(())
    }
}

/// Why a text is not a key template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(String);

impl KeyTemplate {
    /// More combinations of alternatives than anyone needs; bounds the work of inspecting a key.
    const MAX_VARIANTS: usize = 64;

    /// Reads a template such as `{user_id}`, `{api_key|ip}`, `{tenant}:{user_id}` or `global`.
    pub fn new(text: &str) -> Result<KeyTemplate, KeyError> {
        let mut parts = parse(text)?;
        if parts.is_empty() {
            return Err(KeyError(
                "the key is empty; write \"global\" for one bucket, or {user_id} for one per user".into(),
            ));
        }
        let placeholders = parts.iter().filter(|part| matches!(part, Part::FirstOf(_))).count();
        let mut escaped = String::new();
        if placeholders > 1 {
            separate(&mut parts);
            escaped.push('%');
            for part in &parts {
                if let Part::Literal(text) = part {
                    if text.contains('%') {
                        return Err(KeyError(format!(
                            "{text:?} contains %, which escapes values when there are several placeholders; use another separator"
                        )));
                    }
                    escaped.push_str(text);
                }
            }
        }
        let variants = parts.iter().fold(1usize, |product, part| match part {
            Part::FirstOf(names) => product.saturating_mul(names.len()),
            Part::Literal(_) => product,
        });
        if variants > Self::MAX_VARIANTS {
            return Err(KeyError(format!(
                "{variants} combinations of alternatives are too many (at most {})",
                Self::MAX_VARIANTS
            )));
        }
        Ok(KeyTemplate { parts, escaped, variants: variants as u16 })
    }

    /// How many variants a key of this template can have.
    pub fn variants(&self) -> u16 {
        self.variants
    }

    /// The attributes that must be present: one of each inner list.
    pub fn needs(&self) -> impl Iterator<Item = &[String]> {
        self.parts.iter().filter_map(|part| match part {
            Part::FirstOf(names) => Some(names.as_slice()),
            Part::Literal(_) => None,
        })
    }

    /// The key of a request, or the alternatives of which it has none. An empty value counts as absent; otherwise all
    /// clients that send an empty header would share one bucket.
    pub fn render(&self, request: &impl Request) -> Result<Key, &[String]> {
        let mut key = Key::default();
        self.render_into(request, &mut key)?;
        Ok(key)
    }

    /// The same into a key that is used again.
    pub(crate) fn render_into(&self, request: &impl Request, key: &mut Key) -> Result<(), &[String]> {
        key.variant = 0;
        key.value.clear();
        for part in &self.parts {
            match part {
                Part::Literal(text) => key.value.push_str(text),
                Part::FirstOf(names) => {
                    let (index, value) = first_present(names, request).ok_or(names.as_slice())?;
                    key.variant = key.variant * names.len() as u16 + index as u16;
                    self.push_value(&mut key.value, &value);
                }
            }
        }
        Ok(())
    }

    /// The values in a rendered key; `None` if the text cannot be a key of this template.
    pub(crate) fn values<'t>(&self, text: &'t str) -> Option<Vec<Cow<'t, str>>> {
        let mut rest = text;
        let mut values = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                Part::Literal(text) => rest = rest.strip_prefix(text.as_str())?,
                Part::FirstOf(_) => {
                    let end = match self.parts.get(index + 1) {
                        None => rest.len(),
                        // With one placeholder, values are not escaped and may contain the literal that follows.
                        Some(Part::Literal(after)) if self.escaped.is_empty() => rest.rfind(after.as_str())?,
                        Some(Part::Literal(after)) => rest.find(after.as_str())?,
                        Some(Part::FirstOf(_)) => return None,
                    };
                    let (value, after) = rest.split_at(end);
                    values.push(if self.escaped.is_empty() { Cow::Borrowed(value) } else { unescaped(value)? });
                    rest = after;
                }
            }
        }
        (rest.is_empty() && values.iter().all(|value| !value.is_empty())).then_some(values)
    }

    fn push_value(&self, out: &mut String, value: &str) {
        if self.escaped.is_empty() {
            out.push_str(value);
            return;
        }
        for c in value.chars() {
            if self.escaped.contains(c) {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "%{byte:02X}");
                }
            } else {
                out.push(c);
            }
        }
    }
}

/// The value that was percent-encoded; `None` if it was not.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn first_present<'r>(names: &[String], request: &'r impl Request) -> Option<(usize, Cow<'r, str>)> {
    names.iter().enumerate().find_map(|(index, name)| {
        let value = request.attribute(name).filter(|value| !value.is_empty() || request.keeps_empty())?;
        Some((index, value))
    })
}

/// Puts a `|` between adjacent placeholders: `{a}{b}` could not distinguish (x, yz) from (xy, z).
fn separate(parts: &mut Vec<Part>) {
    let mut at = 1;
    while at < parts.len() {
        if matches!((&parts[at - 1], &parts[at]), (Part::FirstOf(_), Part::FirstOf(_))) {
            parts.insert(at, Part::Literal("|".into()));
        }
        at += 1;
    }
}

fn parse(text: &str) -> Result<Vec<Part>, KeyError> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let end = after
                .find('}')
                .ok_or_else(|| KeyError(format!("{text:?}: {{ is never closed; write {{{{ for a literal brace")))?;
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(Part::FirstOf(alternatives(text, &after[..end])?));
            rest = &after[end + 1..];
        } else if c == '}' {
            return Err(KeyError(format!("{text:?}: }} closes nothing; write }}}} for a literal brace")));
        } else {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

fn alternatives(text: &str, inside: &str) -> Result<Vec<String>, KeyError> {
    let names: Vec<String> = inside.split('|').map(|name| name.trim().to_string()).collect();
    if names.iter().any(|name| name.is_empty() || name.contains('{')) {
        return Err(KeyError(format!("{text:?}: {{{inside}}} has an empty name; write for example {{api_key|ip}}")));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Descriptor;

    fn key(template: &str, attributes: &[(&str, &str)]) -> Key {
        let request = Descriptor::new(attributes.iter().copied());
        KeyTemplate::new(template).expect("template").render(&request).expect("rendered")
    }

    #[test]
    fn a_single_placeholder_is_the_value_itself() {
        assert_eq!(key("{user_id}", &[("user_id", "a:b%")]).value, "a:b%");
        assert_eq!(key("user:{user_id}", &[("user_id", "42")]).value, "user:42");
        assert_eq!(key("global", &[]).value, "global");
        assert_eq!(key("{{x}}", &[]).value, "{x}");
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        let pair = |template, a, b| key(template, &[("a", a), ("b", b)]).value;
        assert_ne!(pair("{a}:{b}", "x:y", "z"), pair("{a}:{b}", "x", "y:z"));
        assert_ne!(pair("{a}{b}", "x", "yz"), pair("{a}{b}", "xy", "z"));
        assert_ne!(pair("{a}:{b}", "x%3A", "y"), pair("{a}:{b}", "x:", "y"));
        assert_eq!(pair("{a}:{b}", "x", "y"), "x:y");
    }

    #[test]
    fn an_api_key_that_looks_like_an_address_is_not_the_address() {
        let by_key = key("{api_key|ip}", &[("api_key", "10.0.0.1"), ("ip", "10.9.9.9")]);
        let by_ip = key("{api_key|ip}", &[("ip", "10.0.0.1")]);
        assert_eq!(by_key.value, by_ip.value);
        assert_ne!(by_key, by_ip);
    }

    #[test]
    fn an_empty_value_is_absent() {
        assert_eq!(key("{api_key|ip}", &[("api_key", ""), ("ip", "10.0.0.1")]).value, "10.0.0.1");
        let template = KeyTemplate::new("{user_id}").expect("template");
        assert_eq!(template.render(&Descriptor::default()), Err(["user_id".to_string()].as_slice()));
    }

    #[test]
    fn bad_templates_are_refused_with_a_fix() {
        let error = |text| KeyTemplate::new(text).expect_err(text).to_string();
        assert!(error("").contains("\"global\""));
        assert!(error("{user_id").contains("never closed"));
        assert!(error("user_id}").contains("closes nothing"));
        assert!(error("{}").contains("has an empty name"));
        assert!(error("{a|}").contains("has an empty name"));
        assert!(error("{a}%{b}").contains("another separator"));
        assert!(error("{a|b|c|d|e}{a|b|c|d|e}{a|b|c|d|e}").contains("too many"));
    }
}
