//! Which addresses belong to one client.

use std::net::{IpAddr, Ipv6Addr};

/// The owner of one IPv6 address owns all 2^64 of its network.
pub fn of_client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let client = |text: &str| of_client(text.parse().expect("an address"));
        assert_eq!(client("2001:db8:1:2::17"), client("2001:db8:1:2:ffff::1"));
        assert_ne!(client("2001:db8:1:2::17"), client("2001:db8:1:3::17"));
        assert_eq!(client("::ffff:192.0.2.7"), client("192.0.2.7"));
        assert_ne!(client("192.0.2.7"), client("192.0.2.8"));
    }
}
