//! Warns about attributes that no request is likely to have: a slip in a name, or an address longer than requests show it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tollkeeper_core::{Condition, MatchValue, OneOrMany, Rule, RuleSpec};

use super::settings::Settings;

/// What fronts for HTTP and TLS fill in.
const OF_FRONTS: [&str; 5] = ["ip", "method", "path", "host", "tls.client"];

/// Fronts fill in what begins like this.
const PLACES: [&str; 4] = ["header.", "query.", "cookie.", "response."];

/// Names that are compared with each other; more are generated, not typed.
const MOST_NAMES: usize = 500;

/// A name that one rule uses alone, that nothing supplies, and that is nearly another one. Callers of the API send attributes of
/// their own, so a name that is like no other is none of our business.
pub(super) fn misspelled(settings: &Settings) -> Vec<(String, String)> {
    let rules: Vec<Vec<(String, String)>> = settings.rules.iter().map(used).collect();
    let supplied: BTreeSet<&str> = OF_FRONTS.into_iter().chain(settings.identify.keys().map(String::as_str)).collect();
    // How many rules use each name. With thousands of rules nobody may compare each with every other.
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for own in &rules {
        let own: BTreeSet<&str> = own.iter().map(|(_, name)| name.as_str()).collect();
        own.into_iter().for_each(|name| *uses.entry(name).or_default() += 1);
    }
    let mut warnings = Vec::new();
    if uses.len() > MOST_NAMES {
        return warnings;
    }
    for (index, own) in rules.iter().enumerate().filter(|(index, _)| settings.rules[*index].active) {
        for (field, name) in own {
            let is_known = supplied.contains(name.as_str()) || uses.get(name.as_str()).is_some_and(|rules| *rules > 1);
            if is_known || PLACES.iter().any(|place| name.starts_with(place)) {
                continue;
            }
            let used_here = |known: &str| own.iter().any(|(_, name)| name == known);
            let elsewhere =
                uses.iter().filter(|(known, rules)| **rules > 1 || !used_here(known)).map(|(known, _)| known);
            let Some(meant) = supplied.iter().chain(elsewhere).find(|known| is_nearly(name, known)) else { continue };
            let problem = format!(
                "rule `{}`: nothing supplies `{name}` and no other rule uses it; did you mean `{meant}`?",
                settings.rules[index].name
            );
            warnings.push((format!("rules[{index}].{field}"), problem));
        }
    }
    warnings
}

/// The attributes that a rule uses, and where.
fn used(spec: &RuleSpec) -> Vec<(String, String)> {
    // A rule with errors is reported elsewhere.
    let Ok(rule) = spec.clone().build() else { return Vec::new() };
    let when = rule.when().iter().map(Condition::attribute).map(|name| (format!("when.{name}"), name.to_string()));
    let key = rule.needs().skip(when_needed(&rule)).flatten().map(|name| ("key".to_string(), name));
    let cost = rule.cost().attributes().into_iter().map(|name| ("cost".to_string(), name.to_string()));
    let mut used: Vec<(String, String)> = when.chain(key).chain(cost).collect();
    used.dedup_by(|one, other| one.1 == other.1);
    used
}

/// How many of [`Rule::needs`] are of its conditions.
fn when_needed(rule: &Rule) -> usize {
    rule.when().iter().filter(|condition| !condition.may_lack()).count()
}

/// `userid` and `User-Id` for `user_id`, or one letter off in a longer name.
fn is_nearly(name: &str, known: &str) -> bool {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['_', '-'], "");
    let (name, known) = (plain(name), plain(known));
    // Short names are often near to others by chance, as `plan` and `path` are.
    name == known || (known.len() >= 5 && name.len() <= 60 && strsim::damerau_levenshtein(&name, &known) == 1)
}

/// A condition on `ip` that tells apart IPv6 addresses by more bits than requests show.
pub(super) fn too_long(settings: &Settings) -> Vec<(String, String)> {
    let shown = settings.ipv6_prefix;
    let mut warnings = Vec::new();
    for (index, rule) in settings.rules.iter().enumerate().filter(|(_, rule)| rule.active) {
        let values = match rule.when.get("ip") {
            Some(OneOrMany::One(value)) => std::slice::from_ref(value),
            Some(OneOrMany::Many(values)) => values,
            None => continue,
        };
        for value in values {
            let MatchValue::Text(text) = value else { continue };
            let Some(network) = longer_than(text.trim_start_matches('!'), shown) else { continue };
            let problem = format!(
                "rule `{}`: {text:?} never matches over HTTP, where IPv6 clients are known by their first {shown} bits; write \
                 {network:?}, or set ipv6_prefix: 128",
                rule.name
            );
            warnings.push((format!("rules[{index}].when.ip"), problem));
        }
    }
    warnings
}

/// The network of this many bits around an IPv6 address or network that has more.
fn longer_than(text: &str, bits: u8) -> Option<String> {
    let (address, own) = text.split_once('/').map_or((text, Some(128)), |(address, own)| (address, own.parse().ok()));
    let IpAddr::V6(address) = address.parse::<IpAddr>().ok()?.to_canonical() else { return None };
    let is_longer = own.is_some_and(|own: u8| own > bits);
    let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
    is_longer.then(|| format!("{}/{bits}", std::net::Ipv6Addr::from(address.to_bits() & mask)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn warnings_of(text: &str) -> Vec<String> {
        let loaded = crate::file::parse(Path::new("t.yaml"), text).expect(text);
        loaded.settings.warnings().into_iter().map(|(field, problem)| format!("{field}: {problem}")).collect()
    }

    #[test]
    fn a_name_that_is_nearly_another_is_a_slip() {
        let file = |name: &str| {
            format!(
                "identify: {{user_id: header.x-user-id}}\nrules: [{{name: a, key: '{{user_id}}', limit: 1/s, when: {{plan: free}}}}, \
                 {{name: b, key: '{{{name}}}', limit: 1/s, when: {{plan: pro}}}}]"
            )
        };
        for slip in ["userid", "User-Id", "usr_id"] {
            let warnings = warnings_of(&file(slip));
            let expected = format!(
                "rules[1].key: rule `b`: nothing supplies `{slip}` and no other rule uses it; did you mean `user_id`?"
            );
            assert_eq!(warnings, [expected]);
        }
        for fine in ["user_id", "tenant", "ip", "header.x-user", "plan"] {
            assert!(warnings_of(&file(fine)).is_empty(), "{fine}: {:?}", warnings_of(&file(fine)));
        }
    }

    /// `ip: 2001:db8::1` never matched on `/v1/authorize`, where the client was `2001:db8::/64`, and nobody said so.
    #[test]
    fn an_address_longer_than_requests_show_it_is_named() {
        let file = |ip: &str, prefix: u8| {
            format!("ipv6_prefix: {prefix}\nrules: [{{name: a, key: '{{ip}}', limit: 1/s, when: {{ip: '{ip}'}}}}]")
        };
        let warnings = warnings_of(&file("2001:db8::1", 64));
        assert!(warnings.len() == 1 && warnings[0].contains("write \"2001:db8::/64\""), "{warnings:?}");
        assert!(warnings_of(&file("!2001:db8:0:1:2::/80", 64))[0].contains("write \"2001:db8:0:1::/64\""));
        assert!(warnings_of(&file("2001:db8::/48", 64)).is_empty());
        assert!(warnings_of(&file("192.0.2.7", 64)).is_empty());
        assert!(warnings_of(&file("2001:db8::/64", 48))[0].contains("first 48 bits"));
    }
}
