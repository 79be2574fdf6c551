//! A key as people name it, resolved to a bucket.
//!
//! On a rule keyed `{api_key|ip}`, `198.51.100.7` is either an address or an API key that looks like one: two
//! buckets. A caller who makes an exception or resets a bucket can name the attribute. Otherwise it is inferred: an
//! address is an `ip`, and a text that is not an address is the only other alternative. If several remain, the key is
//! refused as unclear.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use crate::key::{Key, KeyTemplate};

/// A key's text, and which attributes it is for.
///
/// ```
/// use tollkeeper_core::NamedKey;
/// let address = NamedKey::from("198.51.100.7").by("ip");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// The text, as in the row of a verdict.
    pub text: String,
    /// Which attributes.
    pub by: KeyedBy,
}

/// The attributes a key is for: one for each placeholder that has alternatives, or one for each placeholder. Empty if
/// not given, or if there is nothing to choose. Written `ip`, or `tenant,ip`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyedBy(Vec<String>);

/// Why it is unclear which bucket is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct UnclearKey {
    /// `by`, or `key` if the text cannot be a key of the rule.
    pub field: &'static str,
    /// What is wrong and what to do.
    pub problem: String,
}

impl NamedKey {
    /// The same key, for these attributes.
    #[must_use]
    pub fn by(self, by: impl Into<KeyedBy>) -> NamedKey {
        NamedKey { by: by.into(), ..self }
    }
}

impl<T: Into<String>> From<T> for NamedKey {
    fn from(text: T) -> NamedKey {
        NamedKey { text: text.into(), by: KeyedBy::default() }
    }
}

impl KeyedBy {
    /// Whether no attribute is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for KeyedBy {
    fn from(text: &str) -> KeyedBy {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        KeyedBy(names.map(str::to_string).collect())
    }
}

/// `tenant,ip`.
impl fmt::Display for KeyedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl KeyTemplate {
    /// The bucket that a text means: by the given attributes, otherwise by the only alternative possible.
    pub fn bucket_of(&self, key: &NamedKey) -> Result<Key, UnclearKey> {
        let variant = if key.by.is_empty() { self.only_variant(&key.text)? } else { self.variant_by(&key.by)? };
        Ok(Key { variant, value: key.text.clone() })
    }

    /// The attributes that a variant used, of the placeholders with alternatives.
    pub fn keyed_by(&self, variant: u16) -> KeyedBy {
        let mut rest = usize::from(variant);
        let mut names: Vec<String> = Vec::new();
        let placeholders: Vec<&[String]> = self.needs().collect();
        for alternatives in placeholders.into_iter().rev() {
            let taken = rest % alternatives.len();
            rest /= alternatives.len();
            if alternatives.len() > 1 {
                names.push(alternatives[taken].clone());
            }
        }
        names.reverse();
        KeyedBy(names)
    }

    /// Every choice of attributes; empty when there is nothing to choose.
    pub fn alternatives(&self) -> Vec<KeyedBy> {
        let all = if self.variants() > 1 { self.variants() } else { 0 };
        (0..all).map(|variant| self.keyed_by(variant)).collect()
    }

    fn variant_by(&self, by: &KeyedBy) -> Result<u16, UnclearKey> {
        let all = self.needs().count();
        let choices = self.needs().filter(|alternatives| alternatives.len() > 1).count();
        let mut names = by.0.iter();
        let names_all = by.0.len() == all;
        let mut variant = 0;
        for alternatives in self.needs() {
            let place = match alternatives {
                [_] if !names_all => Some(0),
                _ => names.next().and_then(|name| alternatives.iter().position(|one| one == name)),
            };
            let place = place.ok_or_else(|| self.not_by(by))?;
            variant = variant * alternatives.len() as u16 + place as u16;
        }
        if by.0.len() == all || by.0.len() == choices { Ok(variant) } else { Err(self.not_by(by)) }
    }

    fn not_by(&self, by: &KeyedBy) -> UnclearKey {
        let problem = match self.alternatives().as_slice() {
            [] => format!("the rule's key is {self}, which has no alternative {by}; leave it out"),
            choices => format!("the rule's key is {self}, which has no alternative {by}; use {}", listed(choices)),
        };
        UnclearKey { field: "by", problem }
    }

    fn only_variant(&self, text: &str) -> Result<u16, UnclearKey> {
        if self.variants() == 1 {
            return Ok(0);
        }
        let values = self.values(text).ok_or_else(|| {
            let problem = format!("{text:?} cannot be a key of the rule, whose key is {self}");
            UnclearKey { field: "key", problem }
        })?;
        let mut variant = 0;
        for (alternatives, value) in self.needs().zip(values) {
            let place = only_alternative(alternatives, &value).ok_or_else(|| {
                let choices = listed(&self.alternatives());
                let problem = format!("the rule's key is {self}, and {text:?} could be any of them; use {choices}");
                UnclearKey { field: "by", problem }
            })?;
            variant = variant * alternatives.len() as u16 + place as u16;
        }
        Ok(variant)
    }
}

/// Which alternative a value is: an address is an `ip`, and any other text is not.
fn only_alternative(alternatives: &[String], value: &str) -> Option<usize> {
    let ip = alternatives.iter().position(|name| name == "ip");
    match ip {
        Some(ip) if is_address(value) => Some(ip),
        _ => {
            let mut others = (0..alternatives.len()).filter(|place| Some(*place) != ip);
            others.next().filter(|_| others.next().is_none())
        }
    }
}

/// An address, or an IPv6 network, as IPv6 clients are grouped.
fn is_address(text: &str) -> bool {
    match text.split_once('/') {
        None => text.parse::<IpAddr>().is_ok(),
        Some((address, prefix)) => match (address.parse::<IpAddr>(), prefix.parse::<u8>()) {
            (Ok(address), Ok(prefix)) => prefix <= if address.is_ipv4() { 32 } else { 128 },
            _ => false,
        },
    }
}

/// `api_key or ip`.
fn listed(choices: &[KeyedBy]) -> String {
    let names: Vec<Cow<'_, str>> = choices.iter().map(|choice| choice.to_string().into()).collect();
    names.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Descriptor;

    fn template(text: &str) -> KeyTemplate {
        KeyTemplate::new(text).expect("a template")
    }

    /// Which attributes a key is resolved to, or why that is unclear.
    fn meant(key: &str, text: &str, by: &str) -> Result<String, String> {
        let template = template(key);
        let found = template.bucket_of(&NamedKey::from(text).by(by)).map_err(|unclear| unclear.to_string())?;
        assert_eq!(found.value, text);
        Ok(template.keyed_by(found.variant).to_string())
    }

    #[test]
    fn an_address_is_an_ip_and_anything_else_the_only_other() {
        for (key, text, by) in [
            ("{api_key|ip}", "198.51.100.7", "ip"),
            ("{ip|api_key}", "198.51.100.7", "ip"),
            ("{api_key|ip}", "2001:db8:1:2::/64", "ip"),
            ("{api_key|ip}", "k-123", "api_key"),
            ("{api_key|ip}", "198.51.100.7/99", "api_key"),
            ("{api_key|user_id|ip}", "198.51.100.7", "ip"),
            ("key:{api_key|ip}", "key:198.51.100.7", "ip"),
            ("{tenant}:{api_key|ip}", "acme:198.51.100.7", "ip"),
            ("{tenant}:{api_key|ip}", "acme:2001%3Adb8%3A%3A1", "ip"),
            ("{tenant}:{api_key|ip}", "198.51.100.7:k", "api_key"),
            ("{user_id}", "198.51.100.7", ""),
            ("global", "global", ""),
        ] {
            assert_eq!(meant(key, text, "").as_deref(), Ok(by), "{key} {text}");
        }
    }

    #[test]
    fn what_is_said_counts_whatever_the_text_looks_like() {
        assert_eq!(meant("{api_key|ip}", "198.51.100.7", "api_key").as_deref(), Ok("api_key"));
        assert_eq!(meant("{api_key|user_id|ip}", "42", "user_id").as_deref(), Ok("user_id"));
        assert_eq!(meant("{tenant}:{api_key|ip}", "a:b", "ip").as_deref(), Ok("ip"));
        assert_eq!(meant("{tenant}:{api_key|ip}", "a:b", "tenant, ip").as_deref(), Ok("ip"));
        assert_eq!(meant("{a|b}:{c|d}", "x:y", "b,c").as_deref(), Ok("b,c"));
        assert_eq!(meant("{user_id}", "42", "user_id").as_deref(), Ok(""));
    }

    #[test]
    fn nothing_is_guessed_and_the_choices_are_named() {
        for (key, text, by, problem) in [
            ("{api_key|user_id|ip}", "42", "", "could be any of them; use api_key or user_id or ip"),
            ("{api_key|user_id}", "198.51.100.7", "", "use api_key or user_id"),
            ("{api_key|ip}", "42", "user_id", "is {api_key|ip}, which has no alternative user_id; use api_key or ip"),
            ("{user_id}", "42", "ip", "is {user_id}, which has no alternative ip; leave it out"),
            ("{a|b}:{c|d}", "x:y", "b", "which has no alternative b; use a,c or a,d or b,c or b,d"),
            ("{tenant}:{api_key|ip}", "acme", "", "cannot be a key of the rule, whose key is {tenant}:{api_key|ip}"),
        ] {
            let said = meant(key, text, by).expect_err(key);
            assert!(said.contains(problem), "{key} {text} {by}: {said}");
        }
    }

    /// What a request renders is the bucket found by its text and attribute.
    #[test]
    fn every_variant_is_found_again_by_its_attributes() {
        let template = template("{a|b}-{c}-{d|e|f}");
        let names = |request: &Descriptor| {
            let key = template.render(request).expect("a key");
            let by = template.keyed_by(key.variant);
            let named = NamedKey { text: key.value.clone(), by };
            assert_eq!(template.bucket_of(&named), Ok(key));
        };
        for first in ["a", "b"] {
            for last in ["d", "e", "f"] {
                names(&Descriptor::new([(first, "x-y"), ("c", "%"), (last, "z")]));
            }
        }
        assert_eq!(template.alternatives().len(), 6);
    }
}
