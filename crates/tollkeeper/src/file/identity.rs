//! How the client of an HTTP request is identified.

use std::collections::BTreeSet;

use tollkeeper_core::{KeyTemplate, RuleSpec};

use super::proxy::parse_proxy;
use super::settings::Settings;
use crate::http::{AddressSource, AttributeSource, Identity};
use crate::strict::Invalid;

impl Settings {
    /// How HTTP requests become attributes, for these rules. A place that a key names directly also identifies
    /// clients, so a request may have it only once.
    pub fn identity_for<'r>(&self, rules: impl IntoIterator<Item = &'r RuleSpec>) -> Result<Identity, Invalid> {
        let mut proxies = Vec::new();
        for (index, proxy) in self.trusted_proxies.iter().enumerate() {
            let wrong = |problem| Invalid::new(format!("trusted_proxies[{index}]"), problem);
            proxies.push(parse_proxy(proxy).map_err(wrong)?);
        }
        let source: AddressSource =
            self.client_address.parse().map_err(|error| Invalid::new("client_address", format!("{error}")))?;
        let mut identity = Identity::new().trust(proxies).address_from(source).ipv6_prefix(self.ipv6_prefix);
        for (attribute, source) in &self.identify {
            let wrong = |error| Invalid::new(format!("identify.{attribute}"), format!("{error}"));
            identity = identity.identify(attribute, source.parse::<AttributeSource>().map_err(wrong)?);
        }
        let keys = rules.into_iter().filter_map(|rule| KeyTemplate::new(&rule.key).ok());
        let named: BTreeSet<String> = keys.flat_map(|key| key.needs().flatten().cloned().collect::<Vec<_>>()).collect();
        let places =
            named.iter().filter(|name| !self.identify.contains_key(*name)).filter_map(|name| name.parse().ok());
        Ok(places.fold(identity, Identity::single))
    }
}
