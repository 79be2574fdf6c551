use proptest::prelude::*;

use super::*;

fn proxies(networks: &[&str]) -> TrustedProxies {
    let mut proxies = TrustedProxies::default();
    proxies.extend(networks.iter().map(|network| network.parse().expect("network")));
    proxies
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().expect("value"));
    }
    headers
}

/// The client of a request from 10.0.0.1, where 10.0.0.0/8 and 2001:db8:aaaa::/48 are trusted.
fn client(lines: &[(&'static str, &str)]) -> String {
    let trusted = proxies(&["10.0.0.0/8", "2001:db8:aaaa::/48"]);
    trusted.client_address(&AddressSource::Auto, &headers(lines), [10, 0, 0, 1].into()).to_string()
}

#[test]
fn without_trusted_proxies_no_header_is_trusted() {
    let lines = [("x-forwarded-for", "6.6.6.6"), ("forwarded", "for=6.6.6.6"), ("x-real-ip", "6.6.6.6")];
    let peer = [10, 0, 0, 1].into();
    assert_eq!(TrustedProxies::default().client_address(&AddressSource::Auto, &headers(&lines), peer), peer);
    assert_eq!(TrustedProxies::default().client_address(&AddressSource::Auto, &headers(&lines[..1]), peer), peer);
}

#[test]
fn a_peer_that_is_no_trusted_proxy_is_not_trusted() {
    let peer = [198, 51, 100, 4].into();
    let lines = headers(&[("x-forwarded-for", "6.6.6.6")]);
    assert_eq!(proxies(&["10.0.0.0/8"]).client_address(&AddressSource::Auto, &lines, peer), peer);
}

#[test]
fn the_first_hop_that_is_not_trusted_is_the_client() {
    assert_eq!(client(&[]), "10.0.0.1");
    assert_eq!(client(&[("x-forwarded-for", "203.0.113.7")]), "203.0.113.7");
    assert_eq!(client(&[("x-forwarded-for", "6.6.6.6, 203.0.113.7,10.0.0.9 , 10.1.1.1")]), "203.0.113.7");
    assert_eq!(client(&[("forwarded", "for=6.6.6.6, for=203.0.113.7;proto=https, for=10.0.0.9")]), "203.0.113.7");
    assert_eq!(client(&[("forwarded", r#"for="[2001:db8::17]:4711", for="[2001:db8:aaaa::1]""#)]), "2001:db8::17");
}

#[test]
fn when_every_hop_is_trusted_the_farthest_is_the_client() {
    assert_eq!(client(&[("x-forwarded-for", "10.0.0.3, 10.0.0.2")]), "10.0.0.3");
}

#[test]
fn several_lines_are_one_list() {
    let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7"), ("x-forwarded-for", "10.0.0.9")];
    assert_eq!(client(&lines), "203.0.113.7");
    let lines = [("forwarded", "for=6.6.6.6"), ("forwarded", "for=203.0.113.7, for=10.0.0.9")];
    assert_eq!(client(&lines), "203.0.113.7");
}

#[test]
fn nothing_beyond_a_hop_that_cannot_be_read_is_trusted() {
    for bad in
        ["unknown", "_hidden", "", "203.0.113", "010.0.0.9", "1.2.3.4:", "1.2.3.4:x", "[::1", "fe80::1%eth0", "é"]
    {
        assert_eq!(client(&[("x-forwarded-for", &format!("6.6.6.6, {bad}, 10.0.0.9"))]), "10.0.0.9", "{bad:?}");
        assert_eq!(client(&[("x-forwarded-for", &format!("6.6.6.6, {bad}"))]), "10.0.0.1", "{bad:?}");
        assert_eq!(client(&[("forwarded", &format!("for=6.6.6.6, for={bad}, for=10.0.0.9"))]), "10.0.0.9", "{bad:?}");
    }
    assert_eq!(client(&[("forwarded", "for=6.6.6.6, proto=https, for=10.0.0.9")]), "10.0.0.9");
    assert_eq!(client(&[("forwarded", "for=6.6.6.6, for=10.0.0.8;for=6.6.6.6, for=10.0.0.9")]), "10.0.0.9");
}

#[test]
fn a_client_cannot_choose_its_address_with_the_header_that_the_proxy_does_not_write() {
    // The proxy appends to X-Forwarded-For and passes Forwarded on, or the other way round. Whatever the client
    // sends, it cannot choose its address.
    for fake in ["6.6.6.6", "7.7.7.7", "10.0.0.7", "unknown", ""] {
        let forwarded = format!("for={fake}");
        let spoofed = client(&[("x-forwarded-for", "203.0.113.7"), ("forwarded", &forwarded)]);
        assert_eq!(spoofed, "10.0.0.1", "Forwarded: {forwarded}");
        let spoofed = client(&[("x-forwarded-for", fake), ("forwarded", "for=203.0.113.7")]);
        assert_eq!(spoofed, "10.0.0.1", "X-Forwarded-For: {fake}");
    }
}

#[test]
fn headers_that_agree_are_both_right() {
    let both = [("x-forwarded-for", "6.6.6.6, 203.0.113.7, 10.0.0.9"), ("forwarded", "for=203.0.113.7, for=10.0.0.9")];
    assert_eq!(client(&both), "203.0.113.7");
    let nearest_only = [("x-forwarded-for", "203.0.113.7, 10.0.0.9"), ("forwarded", "for=10.0.0.9")];
    assert_eq!(client(&nearest_only), "10.0.0.9");
}

/// Like `client`, where the proxies are known to write this header.
fn client_from(source: &str, lines: &[(&'static str, &str)]) -> String {
    let source = source.parse().expect(source);
    proxies(&["10.0.0.0/8"]).client_address(&source, &headers(lines), [10, 0, 0, 1].into()).to_string()
}

#[test]
fn a_header_that_the_proxies_do_not_write_is_not_read() {
    let both = [("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=198.51.100.4"), ("x-real-ip", "192.0.2.1")];
    assert_eq!(client_from("x-forwarded-for", &both), "203.0.113.7");
    assert_eq!(client_from("forwarded", &both), "198.51.100.4");
    assert_eq!(client_from("x-real-ip", &both), "192.0.2.1");
    assert_eq!(client_from("cf-connecting-ip", &both), "10.0.0.1");
    assert_eq!(client_from("forwarded", &both[..1]), "10.0.0.1");
    assert_eq!(client_from("x-forwarded-for", &both[1..]), "10.0.0.1");
}

#[test]
fn a_header_of_one_address_holds_one() {
    for (value, client) in [
        ("203.0.113.7", "203.0.113.7"),
        (" 203.0.113.7:4711 ", "203.0.113.7"),
        ("[2001:db8::17]:4711", "2001:db8::17"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("10.0.0.9", "10.0.0.9"),
        ("6.6.6.6, 203.0.113.7", "10.0.0.1"),
        ("for=6.6.6.6", "10.0.0.1"),
        ("unknown", "10.0.0.1"),
        ("", "10.0.0.1"),
    ] {
        assert_eq!(client_from("x-real-ip", &[("x-real-ip", value)]), client, "{value:?}");
    }
    assert_eq!(client_from("x-real-ip", &[("x-real-ip", "6.6.6.6"), ("x-real-ip", "203.0.113.7")]), "10.0.0.1");
    let untrusted = [198, 51, 100, 4].into();
    let source = "x-real-ip".parse().expect("a name");
    let lines = headers(&[("x-real-ip", "6.6.6.6")]);
    assert_eq!(proxies(&["10.0.0.0/8"]).client_address(&source, &lines, untrusted), untrusted);
}

#[test]
fn quotes_of_the_client_do_not_hide_what_the_proxy_wrote() {
    assert_eq!(client(&[("forwarded", r#"for="6.6.6.6, for=203.0.113.7"#)]), "203.0.113.7");
    assert_eq!(client(&[("forwarded", r#"for=6.6.6.6;x=", for="203.0.113.7:99""#)]), "203.0.113.7");
    assert_eq!(client(&[("forwarded", r#"for=6.6.6.6;x="\"#), ("forwarded", "for=203.0.113.7")]), "203.0.113.7");
}

#[test]
fn bytes_that_are_no_text_end_the_walk() {
    let mut lines = headers(&[("x-forwarded-for", "6.6.6.6")]);
    lines.append("x-forwarded-for", http::HeaderValue::from_bytes(b"\xff\xfe, 10.0.0.9").expect("opaque bytes"));
    let trusted = proxies(&["10.0.0.0/8"]);
    assert_eq!(trusted.client_address(&AddressSource::Auto, &lines, [10, 0, 0, 1].into()).to_string(), "10.0.0.9");
}

#[test]
fn mapped_addresses_are_unwrapped_by_bits() {
    // CVE-2026-30827 of express-rate-limit: every IPv4 client of a dual-stack socket shared one /64.
    let unwrapped = |text: &str| {
        proxies(&["10.0.0.0/8"]).client_address(&AddressSource::Auto, &HeaderMap::new(), text.parse().expect(text))
    };
    assert_eq!(unwrapped("::ffff:203.0.113.7").to_string(), "203.0.113.7");
    assert_eq!(unwrapped("0:0:0:0:0:ffff:cb00:7107").to_string(), "203.0.113.7");

    let lines = headers(&[("x-forwarded-for", "::ffff:cb00:7107, ::ffff:10.0.0.9")]);
    let peer: IpAddr = "::ffff:10.0.0.1".parse().expect("mapped");
    assert_eq!(proxies(&["10.0.0.0/8"]).client_address(&AddressSource::Auto, &lines, peer).to_string(), "203.0.113.7");
    assert_eq!(
        proxies(&["::ffff:10.0.0.0/104"]).client_address(&AddressSource::Auto, &lines, peer).to_string(),
        "203.0.113.7"
    );
    // All of IPv6 is not all of IPv4.
    assert_eq!(proxies(&["::/0"]).client_address(&AddressSource::Auto, &lines, peer).to_string(), "10.0.0.1");
}

#[test]
fn nodes_come_with_and_without_ports() {
    let read = |text| node(text).map(|address| address.to_string());
    assert_eq!(read("203.0.113.7:443").as_deref(), Some("203.0.113.7"));
    assert_eq!(read("203.0.113.7:_port").as_deref(), Some("203.0.113.7"));
    assert_eq!(read("2001:db8::1").as_deref(), Some("2001:db8::1"));
    assert_eq!(read("[2001:db8::1]").as_deref(), Some("2001:db8::1"));
    assert_eq!(read("[::ffff:1.2.3.4]:80").as_deref(), Some("1.2.3.4"));
    assert_eq!(read("[1.2.3.4]"), None);
    assert_eq!(read("[2001:db8::1]80"), None);
    assert_eq!(read("203.0.113.7:123456"), None);
}

#[test]
fn ipv6_clients_are_grouped_by_prefix() {
    let grouped = |text: &str, prefix| group(text.parse().expect(text), prefix);
    assert_eq!(grouped("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::/64");
    assert_eq!(grouped("2001:db8:1:2ff:3:4:5:6", 56), "2001:db8:1:200::/56");
    assert_eq!(grouped("2001:db8:1:2::5", 128), "2001:db8:1:2::5");
    assert_eq!(grouped("2001:db8::1", 0), "::/0");
    assert_eq!(grouped("203.0.113.7", 64), "203.0.113.7");
}

#[test]
fn a_very_long_header_takes_one_pass() {
    // A million hops or quotes; anything worse than linear would hang here.
    let hops = "10.0.0.9,".repeat(1_000_000) + "10.0.0.9";
    assert_eq!(client(&[("x-forwarded-for", &hops)]), "10.0.0.9");
    assert_eq!(client(&[("forwarded", &"\"".repeat(1_000_000))]), "10.0.0.1");
    assert_eq!(client(&[("forwarded", &"\\\"".repeat(1_000_000))]), "10.0.0.1");
    assert_eq!(client(&[("forwarded", &"for=10.0.0.9;x=\"\\\\\",".repeat(200_000))]), "10.0.0.1");
}

proptest! {
    /// Whatever a client sends, the address that the trusted proxy appends is the one that counts.
    #[test]
    fn no_prefix_changes_the_client(junk in "[ -~]{0,60}", quoted in any::<bool>()) {
        let appended = if quoted { "for=\"203.0.113.7:4711\"" } else { "for=203.0.113.7" };
        prop_assert_eq!(client(&[("forwarded", &format!("{junk}, {appended}"))]), "203.0.113.7");
        prop_assert_eq!(client(&[("x-forwarded-for", &format!("{junk}, 203.0.113.7"))]), "203.0.113.7");
    }

    /// With both headers, the result is either the true client or the proxy, and nothing else.
    #[test]
    fn a_second_header_wins_nothing(junk in "(for=)?[ -~]{0,40}") {
        let true_or_proxy = |address: String| address == "203.0.113.7" || address == "10.0.0.1";
        let lines = [("x-forwarded-for", "203.0.113.7"), ("forwarded", junk.as_str())];
        prop_assert!(true_or_proxy(client(&lines)));
        let lines = [("x-forwarded-for", junk.as_str()), ("forwarded", "for=203.0.113.7")];
        prop_assert!(true_or_proxy(client(&lines)));
    }
}
