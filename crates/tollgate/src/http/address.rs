//! Which address is the client's: the walk past trusted proxies, and the prefix that groups IPv6 clients.
//!
//! An IPv4-mapped IPv6 address is the IPv4 address in it, wherever it comes from: every address passes
//! [`IpAddr::to_canonical`] before it is compared.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::forwarded;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies whose word is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct TrustedProxies(Vec<IpNet>);

impl Extend<IpNet> for TrustedProxies {
    fn extend<T: IntoIterator<Item = IpNet>>(&mut self, proxies: T) {
        self.0.extend(proxies.into_iter().map(canonical));
    }
}

impl TrustedProxies {
    pub(super) fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whose request it is. Why both headers must agree is told at `Identity::client_address`.
    pub(super) fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.contain(peer) {
            return peer;
        }
        match (headers.contains_key(X_FORWARDED_FOR), headers.contains_key(FORWARDED)) {
            (false, false) => peer,
            (true, false) => self.walk(peer, x_forwarded_for(headers)),
            (false, true) => self.walk(peer, forwarded(headers)),
            (true, true) => {
                let both = x_forwarded_for(headers).zip(forwarded(headers));
                self.walk(peer, both.map(|(one, other)| one.filter(|_| one == other)))
            }
        }
    }

    /// Follows hops, nearest first. `None` is a hop that could not be read.
    fn walk(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for hop in hops {
            match hop {
                Some(address) if self.contain(address) => client = address,
                Some(address) => return address,
                // Never look further: what stands beyond was not written by the hop before it.
                None => break,
            }
        }
        client
    }
}

/// A network of IPv4-mapped addresses as the IPv4 network that it is.
fn canonical(network: IpNet) -> IpNet {
    if let IpNet::V6(mapped) = network
        && let (Some(address), Some(bits)) = (mapped.addr().to_ipv4_mapped(), mapped.prefix_len().checked_sub(96))
        && let Ok(unwrapped) = Ipv4Net::new(address, bits)
    {
        return IpNet::V4(unwrapped);
    }
    network
}

/// The hops of all lines of `X-Forwarded-For`, nearest first.
fn x_forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    lines_backwards(headers, X_FORWARDED_FOR)
        .flat_map(|line| line.rsplit(|byte| *byte == b','))
        .map(|element| std::str::from_utf8(element).ok().and_then(|text| node(text.trim())))
}

/// The hops of all lines of `Forwarded`, nearest first.
fn forwarded(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    lines_backwards(headers, FORWARDED)
        .flat_map(forwarded::elements)
        .map(|element| forwarded::node(element).and_then(node))
}

/// Several lines are one list, so the last line holds the nearest hops.
fn lines_backwards(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).into_iter().rev().map(|value| value.as_bytes())
}

/// An address with or without brackets and port. `unknown`, `_hidden` and everything else is none.
fn node(text: &str) -> Option<IpAddr> {
    let address = if let Ok(address) = text.parse::<IpAddr>() {
        address
    } else if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let fine = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        IpAddr::V6(address.parse::<Ipv6Addr>().ok().filter(|_| fine)?)
    } else {
        let (address, port) = text.split_once(':')?;
        IpAddr::V4(address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port))?)
    };
    Some(address.to_canonical())
}

/// A number, or the `_name` that RFC 7239 lets a proxy write instead.
fn is_port(text: &str) -> bool {
    let number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let hidden = text.len() > 1
        && text.starts_with('_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    number || hidden
}

/// The name of a client: an IPv4 address, or the IPv6 network of `prefix` bits, of which one user owns every address.
pub(super) fn group(address: IpAddr, prefix: u8) -> String {
    match address {
        IpAddr::V6(address) if prefix < 128 => {
            Ipv6Net::new(address, prefix).map_or_else(|_| address.to_string(), |network| network.trunc().to_string())
        }
        address => address.to_string(),
    }
}

#[cfg(test)]
mod tests;
