//! Addresses of proxies.

use std::net::IpAddr;

use ipnet::IpNet;

/// An address or a network.
pub fn parse_proxy(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{text:?} is not an address or a CIDR; write for example 10.0.0.0/8"))
}
