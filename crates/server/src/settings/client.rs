//! How the client of an HTTP request is identified.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context;
use ipnet::IpNet;
use tollkeeper::http::Identity;
use tollkeeper_core::KeyTemplate;

use crate::config::Config;

/// How HTTP requests become attributes. The configuration has been checked.
pub(crate) fn identity(config: &Config) -> anyhow::Result<Identity> {
    let proxies = config.trusted_proxies.iter().map(|proxy| parse_proxy(proxy)).collect::<Result<Vec<_>, _>>()?;
    let mut identity = Identity::new()
        .trust(proxies)
        .address_from(config.client_address.parse().context("client_address")?)
        .ipv6_prefix(config.ipv6_prefix);
    for (attribute, source) in &config.identify {
        identity = identity.identify(attribute, source.parse().map_err(|error| anyhow::anyhow!("{error}"))?);
    }
    // A place that a key names directly also identifies clients.
    let keys = config.rules.iter().filter_map(|rule| KeyTemplate::new(&rule.key).ok());
    let named: BTreeSet<String> = keys.flat_map(|key| key.needs().flatten().cloned().collect::<Vec<_>>()).collect();
    let places = named.iter().filter(|name| !config.identify.contains_key(*name)).filter_map(|name| name.parse().ok());
    Ok(places.fold(identity, Identity::single))
}

/// An address or a network.
pub(super) fn parse_proxy(text: &str) -> anyhow::Result<IpNet> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| anyhow::anyhow!("{text:?} is not an address or a CIDR; write for example 10.0.0.0/8"))
}
