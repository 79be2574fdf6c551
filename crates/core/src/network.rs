//! An address or a network of addresses, as in `10.0.0.0/8` or `2001:db8::/32`.

use std::net::IpAddr;

/// Addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads a network. `None` if the text is something else, an error if it is nearly one.
    pub(crate) fn read(text: &str) -> Option<Result<Network, String>> {
        let (address, bits) = text.split_once('/').filter(|_| !text.contains('*'))?;
        let address: IpAddr = address.parse().ok()?;
        let whole = width(address);
        let Some(bits) = bits.parse().ok().filter(|bits| *bits <= whole) else {
            return Some(Err(format!("{text:?}: the prefix length after the slash must be between 0 and {whole}")));
        };
        // An IPv4 network written as IPv6.
        let (address, bits, whole) = match address.to_canonical() {
            v4 @ IpAddr::V4(_) if address.is_ipv6() && bits >= 96 => (v4, bits - 96, 32),
            _ => (address, bits, whole),
        };
        let first = Network { address, bits }.first();
        if first != address {
            return Some(Err(format!(
                "{text:?} has host bits set; write {first}/{bits} for the network, or {address}/{whole} for the address"
            )));
        }
        Some(Ok(Network { address, bits }))
    }

    /// Whether the text is an address, or itself a network, within this one. An IPv4 address may be written as IPv6.
    pub(crate) fn contains(&self, text: &str) -> bool {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let Ok(address) = address.parse::<IpAddr>() else { return false };
        let Some(bits) = bits.map_or(Some(width(address)), |bits| bits.parse().ok()) else { return false };
        let inner = match address.to_canonical() {
            v4 @ IpAddr::V4(_) if address.is_ipv6() => Network { address: v4, bits: bits.saturating_sub(96) },
            address => Network { address, bits },
        };
        inner.address.is_ipv4() == self.address.is_ipv4()
            && inner.bits >= self.bits
            && Network { bits: self.bits, ..inner }.first() == self.address
    }

    /// The first address.
    fn first(&self) -> IpAddr {
        let mask = |width: u32| u128::MAX.checked_shl(width - u32::from(self.bits)).unwrap_or(0);
        match self.address {
            IpAddr::V4(address) => IpAddr::V4((address.to_bits() & mask(32) as u32).into()),
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & mask(128)).into()),
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn an_address_is_in_its_network_however_it_is_written() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "10.2.0.0/16", true),
            ("10.0.0.0/8", "8.0.0.0/5", false),
            ("10.0.0.0/8", "::", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:DB8:0:0::1", true),
            ("2001:db8::/32", "2001:db8:1::/64", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("192.0.2.1/32", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.2", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("10.0.0.0/8", "", false),
            ("10.0.0.0/8", "10.0.0.1/x", false),
            ("10.0.0.0/8", "10.0.0.1, 10.0.0.2", false),
        ];
        for (network, address, expected) in cases {
            let network_read = Network::read(network).expect("a network").expect("a valid one");
            assert_eq!(network_read.contains(address), expected, "{address} in {network}");
        }
    }

    #[test]
    fn what_is_nearly_a_network_is_an_error_and_the_rest_is_text() {
        assert_eq!(Network::read("/api/v1"), None);
        assert_eq!(Network::read("10.0.0.1"), None);
        assert_eq!(Network::read("10.0.0.0/*"), None);
        assert_eq!(Network::read("text/html"), None);
        let error = |text| Network::read(text).expect("nearly").expect_err(text);
        assert!(error("10.0.0.0/33").contains("between 0 and 32"));
        assert!(error("10.0.0.1/8").contains("write 10.0.0.0/8"));
        assert!(
            error("2001:db8::1/64").contains("write 2001:db8::/64 for the network, or 2001:db8::1/128 for the address")
        );
    }
}
