//! Which address is the client's: the walk past trusted proxies, and the prefix that groups IPv6 clients.
//!
//! An IPv4-mapped IPv6 address counts as its IPv4 address, wherever it comes from: every address goes through
//! [`IpAddr::to_canonical`] before it is compared.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::forwarded;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The header in which trusted proxies pass on the client's address.
///
/// ```
/// use tollkeeper::http::AddressSource;
///
/// assert_eq!("X-Forwarded-For".parse(), Ok(AddressSource::XForwardedFor));
/// let of_cloudflare = "cf-connecting-ip".parse::<AddressSource>()?;
/// assert_eq!(of_cloudflare.to_string(), "cf-connecting-ip");
/// assert!("x real ip".parse::<AddressSource>().is_err());
/// # Ok::<(), tollkeeper::http::AddressSourceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressSource {
    /// `Forwarded` or `X-Forwarded-For`, whichever is present; if both are, the hops on which they agree.
    #[default]
    Auto,
    /// The hops of `Forwarded` (RFC 7239).
    Forwarded,
    /// The hops of `X-Forwarded-For`.
    XForwardedFor,
    /// A header that holds only the client's address, such as `X-Real-IP` or `CF-Connecting-IP`.
    Header(HeaderName),
}

/// A text that is not the name of a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a header name; write auto, forwarded, x-forwarded-for, or a header that contains only the client's \
     address, such as x-real-ip or cf-connecting-ip"
)]
pub struct AddressSourceError(String);

impl FromStr for AddressSource {
    type Err = AddressSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.parse::<HeaderName>().map_err(|_| AddressSourceError(text.into()))?;
        Ok(match name.as_str() {
            "auto" => AddressSource::Auto,
            "forwarded" => AddressSource::Forwarded,
            "x-forwarded-for" => AddressSource::XForwardedFor,
            _ => AddressSource::Header(name),
        })
    }
}

impl fmt::Display for AddressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressSource::Auto => "auto",
            AddressSource::Forwarded => "forwarded",
            AddressSource::XForwardedFor => "x-forwarded-for",
            AddressSource::Header(name) => name.as_str(),
        })
    }
}

impl AddressSource {
    /// Whether the address is read from this header.
    pub(super) fn reads(&self, name: &HeaderName) -> bool {
        match self {
            AddressSource::Auto => *name == FORWARDED || *name == X_FORWARDED_FOR,
            AddressSource::Forwarded => *name == FORWARDED,
            AddressSource::XForwardedFor => *name == X_FORWARDED_FOR,
            AddressSource::Header(read) => name == read,
        }
    }
}

/// The proxies whose forwarding headers are trusted.
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

    /// The client's address. `Identity::client_address` says why both headers must agree.
    pub(super) fn client_address(&self, source: &AddressSource, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.contain(peer) {
            return peer;
        }
        let is_read = |header: AddressSource, name: HeaderName| {
            *source == header || (*source == AddressSource::Auto && headers.contains_key(name))
        };
        let hops = is_read(AddressSource::XForwardedFor, X_FORWARDED_FOR);
        let elements = is_read(AddressSource::Forwarded, FORWARDED);
        match (source, hops, elements) {
            (AddressSource::Header(name), ..) => single(headers, name).unwrap_or(peer),
            (_, false, false) => peer,
            (_, true, false) => self.walk(peer, x_forwarded_for(headers)),
            (_, false, true) => self.walk(peer, forwarded(headers)),
            (_, true, true) => {
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
                // Stop here: the hop before did not write what lies beyond.
                None => break,
            }
        }
        client
    }
}

/// A network of IPv4-mapped addresses, as an IPv4 network.
fn canonical(network: IpNet) -> IpNet {
    if let IpNet::V6(mapped) = network
        && let (Some(address), Some(bits)) = (mapped.addr().to_ipv4_mapped(), mapped.prefix_len().checked_sub(96))
        && let Ok(unwrapped) = Ipv4Net::new(address, bits)
    {
        return IpNet::V4(unwrapped);
    }
    network
}

/// The address in a header that holds nothing else. Two lines count as none: the client may have sent one of them.
fn single(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).into_iter();
    let line = lines.next().filter(|_| lines.next().is_none())?;
    node(line.to_str().ok()?.trim())
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

/// An address with or without brackets and port. `unknown`, `_hidden` and everything else are not addresses.
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

/// The `ip` attribute of a client's address: an IPv4 address, or the IPv6 network of `prefix` bits, all of which one user owns.
pub fn group(address: IpAddr, prefix: u8) -> String {
    match address {
        IpAddr::V6(address) if prefix < 128 => {
            Ipv6Net::new(address, prefix).map_or_else(|_| address.to_string(), |network| network.trunc().to_string())
        }
        IpAddr::V6(address) => address.to_string(),
        IpAddr::V4(address) => dotted(address),
    }
}

/// By hand: nearly every request asks for it, and formatting costs ten times as much.
fn dotted(address: Ipv4Addr) -> String {
    let mut text = String::with_capacity("255.255.255.255".len());
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        if octet >= 100 {
            text.push(char::from(b'0' + octet / 100));
        }
        if octet >= 10 {
            text.push(char::from(b'0' + octet / 10 % 10));
        }
        text.push(char::from(b'0' + octet % 10));
    }
    text
}

#[cfg(test)]
mod tests;
