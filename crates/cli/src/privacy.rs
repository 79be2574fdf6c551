//! What is remembered about a client: bounded in length, and secrets only as fingerprints.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use data_encoding::HEXLOWER;
use ipnet::IpNet;
use ring::digest::{SHA256, digest};
use tollkeeper::Rule;

/// The longest key that is remembered in full.
pub const MAX_KEY: usize = 128;

/// Which attributes are secrets.
#[derive(Clone, Debug, Default)]
pub struct Privacy {
    /// Attributes that `identify` takes from a place that holds secrets.
    mapped: BTreeSet<String>,
}

/// Words in names of secrets. Values from a cookie or a query are always treated as secrets.
const SECRETS: [&str; 20] = [
    "access_key",
    "access-key",
    "api_key",
    "api-key",
    "apikey",
    "authorization",
    "x-auth",
    "bearer",
    "cookie.",
    "credential",
    "jwt",
    "otp",
    "passw",
    "pwd",
    "query.",
    "secret",
    "sess",
    "sid",
    "signature",
    "token",
];

impl Privacy {
    /// From the mapping of attributes.
    pub fn new<'i>(identify: impl IntoIterator<Item = (&'i String, &'i String)>) -> Privacy {
        let secret = identify.into_iter().filter(|(_, source)| sounds_secret(source));
        Privacy { mapped: secret.map(|(attribute, _)| attribute.clone()).collect() }
    }

    /// Whether an attribute may hold a secret.
    pub fn is_secret(&self, attribute: &str) -> bool {
        self.mapped.contains(attribute) || sounds_secret(attribute)
    }

    /// Whether a rule's key contains a secret: for `{api_key|ip}` only the keys that are not addresses.
    pub fn is_key_secret(&self, rule: &Rule, variant: u16) -> bool {
        let placeholders: Vec<&[String]> = rule.key().needs().collect();
        let mut rest = usize::from(variant);
        // The last placeholder is the lowest digit.
        placeholders.into_iter().rev().any(|names| {
            let taken = rest % names.len();
            rest /= names.len();
            self.is_secret(&names[taken])
        })
    }

    /// A key as it may be shown and stored.
    pub fn shown_key<'k>(&self, rule: &Rule, variant: u16, key: &'k str) -> Cow<'k, str> {
        if self.is_key_secret(rule, variant) { fingerprint(key).into() } else { key.into() }
    }

    /// A key as it may be shown if only its text is known, and the rules that may have it. If it can be a secret it
    /// is treated as one, unless it is an address and can be one by some rule. Without a rule it is treated as a
    /// secret.
    pub fn shown_text<'k>(&self, rules: &[&Rule], key: &'k str) -> Cow<'k, str> {
        let variants = rules.iter().flat_map(|rule| (0..rule.key().variants()).map(move |variant| (*rule, variant)));
        let (mut secret, mut plain) = (false, false);
        for (rule, variant) in variants {
            match self.is_key_secret(rule, variant) {
                true => secret = true,
                false => plain = true,
            }
        }
        let is_address = key.parse::<IpAddr>().is_ok() || key.parse::<IpNet>().is_ok();
        if plain && (is_address || !secret) { key.into() } else { fingerprint(key).into() }
    }
}

fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|word| name.contains(word))
}

/// Identifies a secret without revealing it. The same everywhere, so that it can be searched for.
pub fn fingerprint(secret: &str) -> String {
    let digest = digest(&SHA256, secret.as_bytes());
    format!("sha256:{}", HEXLOWER.encode(&digest.as_ref()[..8]))
}

/// A text of at most this many bytes: a longer one is cut, and ends with a hash of the whole.
#[inline]
pub fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    const HASH: usize = "~0123456789abcdef".len();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let end = text.floor_char_boundary(most - HASH);
    format!("{}~{:016x}", &text[..end], hasher.finish()).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tollkeeper::RuleSpec;

    use super::*;

    fn shown(identify: &[(&str, &str)], key: &str, variant: u16) -> String {
        let identify: BTreeMap<String, String> =
            identify.iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
        let spec = RuleSpec { name: "r".into(), key: key.into(), limit: "1/s".into(), ..RuleSpec::default() };
        let rule = spec.build().expect("a rule");
        Privacy::new(&identify).shown_key(&rule, variant, "the value").into_owned()
    }

    #[test]
    fn secrets_are_shown_by_their_fingerprint() {
        let hidden = fingerprint("the value");
        assert!(hidden.starts_with("sha256:") && hidden.len() == 23, "{hidden}");
        for key in
            ["{header.Authorization}", "{header.x-api-key}", "{cookie.theme}", "{api_key}", "{ip}:{access_token}"]
        {
            assert_eq!(shown(&[], key, 0), hidden, "{key}");
        }
        for key in ["{ip}", "{user_id}", "{header.x-user-id}", "{path}", "global"] {
            assert_eq!(shown(&[], key, 0), "the value", "{key}");
        }
    }

    #[test]
    fn what_identify_takes_from_a_secret_place_is_one() {
        let (cookie, header) = ([("user_id", "cookie.sid")], [("user_id", "header.x-user-id")]);
        assert_eq!(shown(&cookie, "{user_id}", 0), fingerprint("the value"));
        assert_eq!(shown(&header, "{user_id}", 0), "the value");
    }

    #[test]
    fn of_alternatives_the_one_that_was_taken_counts() {
        assert_eq!(shown(&[], "{api_key|ip}", 0), fingerprint("the value"));
        assert_eq!(shown(&[], "{api_key|ip}", 1), "the value");
        // Two placeholders: api_key and path, ip and path.
        assert_eq!(shown(&[], "{api_key|ip}/{path|host}", 1), fingerprint("the value"));
        assert_eq!(shown(&[], "{api_key|ip}/{path|host}", 3), "the value");
    }

    #[test]
    fn a_text_that_can_be_a_secret_of_some_rule_is_taken_for_one() {
        let rule = |key: &str| {
            let spec = RuleSpec { name: "r".into(), key: key.into(), limit: "1/s".into(), ..RuleSpec::default() };
            spec.build().expect("a rule")
        };
        let shown = |keys: &[&str], text: &str| {
            let rules: Vec<Rule> = keys.iter().map(|key| rule(key)).collect();
            let rules: Vec<&Rule> = rules.iter().collect();
            Privacy::default().shown_text(&rules, text) == text
        };
        for (keys, text, is_plain) in [
            (&["{user_id}"][..], "42", true),
            (&["{api_key}"], "42", false),
            (&["{api_key}"], "203.0.113.9", false),
            (&["{api_key|ip}"], "k-123", false),
            (&["{api_key|ip}"], "203.0.113.9", true),
            (&["{ip}", "{api_key}"], "2001:db8::/64", true),
            (&["{user_id}", "{api_key}"], "k-123", false),
            (&[], "203.0.113.9", false),
        ] {
            assert_eq!(shown(keys, text), is_plain, "{keys:?} {text}");
        }
    }

    #[test]
    fn long_texts_are_cut_and_stay_different() {
        let (one, other) =
            (bounded(&"é".repeat(100), 64).into_owned(), bounded(&format!("{}x", "é".repeat(100)), 64).into_owned());
        assert!(one.len() <= 64 && other.len() <= 64 && one != other, "{one} {other}");
        assert_eq!(bounded("short", 64), "short");
    }
}
