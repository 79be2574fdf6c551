//! Warns about configurations in which a client can choose its identity, or in which many clients share one.
//!
//! Only what is wrong whatever the traffic is reported here. A proxy that is missing in `trusted_proxies` is noticed
//! when it sends requests ([`Identity::forwarding_issue`](crate::http::Identity::forwarding_issue)): a file cannot
//! distinguish it from callers of `/v1/check`, which send the address themselves.

use tollkeeper_core::{KeyTemplate, RuleSpec};

use super::attributes;
use super::proxy::parse_proxy;
use super::settings::Settings;
use crate::strict::nearest;

/// Headers in which proxies pass on the client's address, and which any client can send.
const ADDRESSES: [&str; 13] = [
    "forwarded",
    "x-forwarded-for",
    "x-real-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-azure-clientip",
    "x-envoy-external-address",
    "x-appengine-user-ip",
];

/// Headers that describe a client's software, not its identity: thousands send the same.
const MANNERS: [&str; 11] = [
    "user-agent",
    "accept",
    "accept-language",
    "accept-encoding",
    "accept-charset",
    "cache-control",
    "connection",
    "content-type",
    "origin",
    "referer",
    "sec-ch-ua",
];

/// Words in a rule's scope that promise one bucket per client.
const CLIENTS: [&str; 10] =
    ["user", "ip", "client", "tenant", "account", "customer", "session", "key", "api_key", "address"];

impl Settings {
    /// Settings that are valid but probably mistakes, by field: what a client can spoof, and what puts all clients into
    /// one bucket.
    pub fn warnings(&self) -> Vec<(String, String)> {
        let mut warnings = Vec::new();
        for (index, proxy) in self.trusted_proxies.iter().enumerate() {
            warnings.extend(of_proxy(proxy).map(|problem| (format!("trusted_proxies[{index}]"), problem)));
        }
        warnings.extend(of_client_address(self).map(|problem| ("client_address".into(), problem)));
        warnings.extend(of_prefix(self.ipv6_prefix).map(|problem| ("ipv6_prefix".into(), problem)));
        for (attribute, source) in &self.identify {
            let problem = match attribute.as_str() {
                "ip" => Some(format!(
                    "{source} is chosen by the client; set trusted_proxies to find the client's real address"
                )),
                _ => of_header(source),
            };
            warnings.extend(problem.map(|problem| (format!("identify.{attribute}"), problem)));
        }
        for (index, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.active) {
            let problem = of_key(rule).map(|problem| format!("rule `{}`: {problem}", rule.name));
            warnings.extend(problem.map(|problem| (format!("rules[{index}].key"), problem)));
        }
        warnings.extend(attributes::misspelled(self));
        warnings.extend(attributes::too_long(self));
        warnings
    }
}

fn of_proxy(proxy: &str) -> Option<String> {
    let network = parse_proxy(proxy).ok()?;
    // Private networks are as large as 10.0.0.0/8 and fc00::/7.
    let least = if network.addr().is_ipv4() { 8 } else { 7 };
    match network.prefix_len() {
        0 => Some("trusts everybody, so every client can choose its address; list only your proxies".into()),
        bits if bits < least => Some(format!(
            "{proxy} is a very large network, and anyone in it can choose its address; list only your proxies"
        )),
        _ => None,
    }
}

fn of_client_address(settings: &Settings) -> Option<String> {
    let header = settings.client_address.to_ascii_lowercase();
    if header == "auto" {
        return None;
    }
    if settings.trusted_proxies.is_empty() {
        return Some(format!(
            "{header} is ignored, because trusted_proxies is empty, so all clients behind a proxy share one `ip`; add \
             the proxy to trusted_proxies, or remove this setting"
        ));
    }
    let meant = nearest(&header, &ADDRESSES).filter(|meant| *meant != header)?;
    Some(format!("few proxies send the header {header}; did you mean `{meant}`?"))
}

fn of_prefix(bits: u8) -> Option<String> {
    match bits {
        0..32 => Some(format!(
            "{bits} bits cover a whole provider, so its customers would share one bucket; 64 is one subscriber, 48 a \
             company"
        )),
        32..=64 => None,
        _ => Some(format!(
            "with {bits} bits one subscriber, who owns a /64, can use any number of buckets; use 64 or less"
        )),
    }
}

fn of_key(rule: &RuleSpec) -> Option<String> {
    let key = KeyTemplate::new(&rule.key).ok()?;
    let places: Vec<&[String]> = key.needs().collect();
    if let Some(problem) = places.iter().copied().flatten().find_map(|place| of_header(place)) {
        return Some(problem);
    }
    // Beside an attribute that identifies a client, it only splits that client's own bucket.
    let manner = |place: &&String| place.strip_prefix("header.").is_some_and(|name| is_in(&MANNERS, name));
    if let [alternatives] = places[..]
        && let Some(place) = alternatives.iter().find(manner)
    {
        return Some(format!(
            "`{place}` is the same for everyone who uses the same program, and clients can change it; identify \
             clients by {{ip}} or by a key that you gave them"
        ));
    }
    let scope = rule.scope.as_deref()?;
    (places.is_empty() && is_in(&CLIENTS, scope)).then(|| {
        format!(
            "the scope is {scope}, but {:?} is one bucket for everybody; write a key such as \"{{ip}}\" or \
             \"{{user_id}}\" for one bucket each, or set the scope to global",
            rule.key
        )
    })
}

/// A header with an address, taken at face value.
fn of_header(place: &str) -> Option<String> {
    let header = place.strip_prefix("header.").filter(|name| is_in(&ADDRESSES, name))?;
    Some(format!(
        "`{place}` is chosen by the client; use {{ip}}, list your proxies in trusted_proxies and set \
         client_address: {}",
        header.to_ascii_lowercase()
    ))
}

fn is_in(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn warnings_of(text: &str) -> Vec<String> {
        let loaded = crate::file::parse(Path::new("t.yaml"), text).expect(text);
        loaded.settings.warnings().into_iter().map(|(field, problem)| format!("{field}: {problem}")).collect()
    }

    #[track_caller]
    fn warns(text: &str, of: &str) {
        let warnings = warnings_of(text);
        assert!(warnings.len() == 1 && warnings[0].starts_with(of), "{text}: {warnings:?}");
    }

    fn key(key: &str, more: &str) -> String {
        format!("rules: [{{name: a, key: '{key}', limit: 1/s{more}}}]")
    }

    #[test]
    fn warns_of_what_a_client_can_choose() {
        warns("trusted_proxies: ['::/0']", "trusted_proxies[0]: trusts everybody");
        warns("trusted_proxies: [128.0.0.0/1]", "trusted_proxies[0]: 128.0.0.0/1 is a very large network");
        warns("ipv6_prefix: 128", "ipv6_prefix: with 128 bits one subscriber");
        warns("identify: {ip: header.x-real-ip}", "identify.ip: header.x-real-ip is chosen by the client");
        warns(
            "identify: {client: header.X-Forwarded-For}",
            "identify.client: `header.X-Forwarded-For` is chosen by the client",
        );
        warns(
            &key("{header.cf-connecting-ip|ip}", ""),
            "rules[0].key: rule `a`: `header.cf-connecting-ip` is chosen by the client",
        );
        warns(&key("{header.forwarded}", ""), "rules[0].key: rule `a`: `header.forwarded` is chosen by the client");
    }

    #[test]
    fn warns_of_one_bucket_for_everybody() {
        warns("ipv6_prefix: 24", "ipv6_prefix: 24 bits cover a whole provider");
        warns("client_address: x-real-ip", "client_address: x-real-ip is ignored, because trusted_proxies is empty");
        warns(
            "{client_address: x-forwarded-fro, trusted_proxies: [10.0.0.1]}",
            "client_address: few proxies send the header x-forwarded-fro; did you mean `x-forwarded-for`?",
        );
        warns(&key("global", ", scope: user"), "rules[0].key: rule `a`: the scope is user, but \"global\" is one");
        warns(&key("everyone", ", scope: ip"), "rules[0].key: rule `a`: the scope is ip");
        warns(&key("{header.User-Agent}", ""), "rules[0].key: rule `a`: `header.User-Agent` is the same for everyone");
    }

    #[test]
    fn what_is_in_order_is_not_mentioned() {
        for text in [
            "{trusted_proxies: [10.0.0.0/8, 'fc00::/7', 127.0.0.1], client_address: x-forwarded-for}",
            "{trusted_proxies: [10.0.0.1], client_address: X-Real-IP}",
            "{trusted_proxies: [10.0.0.1], client_address: x-shop-client}",
            "ipv6_prefix: 48",
            &key("{ip}:{header.user-agent}", ""),
            &key("{header.x-api-key|ip}", ""),
            &key("global", ", scope: endpoint"),
            &key("global", ", scope: ip, active: false"),
            include_str!("../../../../examples/tollkeeper.yaml"),
            include_str!("../../../../examples/envoy/tollkeeper.yaml"),
        ] {
            assert!(warnings_of(text).is_empty(), "{text}: {:?}", warnings_of(text));
        }
    }
}
