use super::*;

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

fn forwarded(lines: &[(&'static str, &'static str)], peer: &str) -> HeaderMap {
    forwarded_where("auto", lines, peer)
}

/// Like `forwarded`, where the proxies in front are known to write this header.
fn forwarded_where(address_header: &str, lines: &[(&'static str, &'static str)], peer: &str) -> HeaderMap {
    let identity = Identity::new().trust(["10.0.0.0/8".parse().expect("a network")]);
    let identity = identity.address_from(address_header.parse().expect("a header"));
    let mut headers = headers(lines);
    let origin = Origin::new(peer.parse().expect("an address"), &Scheme::HTTP);
    add_forwarded(&mut headers, &identity, &origin, &HeaderValue::from_static("a.test"));
    headers
}

#[test]
fn what_concerns_one_connection_ends_there() {
    let mut sent = headers(&[
        ("connection", "close, X-Secret,host"),
        ("connection", "content-length, keep-alive"),
        ("keep-alive", "timeout=5"),
        ("proxy-authorization", "Basic x"),
        ("proxy-connection", "keep-alive"),
        ("te", "gzip, trailers"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("x-secret", "1"),
        ("host", "a.test"),
        ("content-length", "3"),
        ("trailer", "x-sum"),
    ]);
    assert_eq!(take_hop(&mut sent), Hop { websocket: false, trailers: true });
    assert_eq!(sent, headers(&[("host", "a.test"), ("content-length", "3"), ("trailer", "x-sum")]));
}

#[test]
fn a_websocket_upgrade_is_requested_again_and_h2c_never() {
    for (protocol, asked) in [("websocket", true), ("WebSocket", true), ("h2c", false), ("h2c, websocket", true)] {
        let mut sent = headers(&[("connection", "Upgrade")]);
        sent.insert(UPGRADE, HeaderValue::from_static(protocol));
        let hop = take_hop(&mut sent);
        assert_eq!(hop.websocket, asked, "{protocol}");
        put_hop(&mut sent, hop);
        assert_eq!(sent.get(UPGRADE).map(|value| value.as_bytes()), asked.then_some(b"websocket".as_slice()));
    }
    let mut unnamed = headers(&[("upgrade", "websocket")]);
    assert!(!take_hop(&mut unnamed).websocket, "`Connection` must name it");
}

#[test]
fn untrusted_peers_do_not_say_where_they_come_from() {
    let claims = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "bank.test"),
        ("x-forwarded-uri", "/admin"),
        ("forwarded", "for=6.6.6.6"),
        ("x-real-ip", "6.6.6.6"),
    ];
    let forwarded_on = forwarded(&claims, "203.0.113.7");
    let expected = [("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "http"), ("x-forwarded-host", "a.test")];
    assert_eq!(forwarded_on, headers(&expected));
}

#[test]
fn trusted_proxies_are_continued() {
    let claims = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "https")];
    let forwarded_on = forwarded(&claims, "::ffff:10.0.0.1");
    assert_eq!(forwarded_on["x-forwarded-for"], "6.6.6.6, 203.0.113.7, 10.0.0.1");
    assert_eq!(
        (&forwarded_on["x-forwarded-proto"], &forwarded_on["x-forwarded-host"]),
        (&"https".parse().expect("text"), &"a.test".parse().expect("text"))
    );
    let forwarded_on = forwarded(&[("forwarded", "for=203.0.113.7")], "10.0.0.1");
    assert_eq!(
        (&forwarded_on["forwarded"], &forwarded_on["x-forwarded-for"]),
        (&"for=203.0.113.7, for=10.0.0.1".parse().expect("text"), &"203.0.113.7, 10.0.0.1".parse().expect("text"))
    );
}

/// The application took a path from X-Original-URL that no rule had seen, and an address from a header that the proxy
/// did not know.
#[test]
fn a_client_shows_the_upstream_nothing_of_where_it_came_from_or_what_else_it_asks() {
    let lies = CLAIMS.map(|name| (name, "6.6.6.6"));
    let sent = forwarded(&lies, "203.0.113.7");
    assert!(CLAIMS.iter().all(|name| !sent.contains_key(*name)), "{sent:?}");
    assert!(
        !forwarded_where("x-shop-client", &[("x-shop-client", "6.6.6.6")], "203.0.113.7").contains_key("x-shop-client")
    );
    let mut hop = headers(&[("proxy", "http://6.6.6.6"), ("x-api-key", "mine")]);
    take_hop(&mut hop);
    assert_eq!(hop, headers(&[("x-api-key", "mine")]), "httpoxy");
    let mut sent = headers(&[("x_forwarded_for", "6.6.6.6"), ("x_api_key", "made-up"), ("x-api-key", "mine")]);
    take_lookalikes(&mut sent);
    assert_eq!(sent, headers(&[("x-api-key", "mine")]));
}

#[test]
fn the_upstream_hears_what_was_trusted_and_nothing_else() {
    let both = [("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=198.51.100.4"), ("x-real-ip", "192.0.2.1")];
    let sent = forwarded_where("x-forwarded-for", &both, "10.0.0.1");
    assert_eq!(
        (&sent["x-forwarded-for"], sent.get("forwarded")),
        (&HeaderValue::from_static("203.0.113.7, 10.0.0.1"), None)
    );
    let sent = forwarded_where("forwarded", &both, "10.0.0.1");
    assert_eq!(
        (&sent["x-forwarded-for"], &sent["forwarded"]),
        (
            &HeaderValue::from_static("198.51.100.4, 10.0.0.1"),
            &HeaderValue::from_static("for=198.51.100.4, for=10.0.0.1"),
        )
    );
    let sent = forwarded_where("x-real-ip", &both, "10.0.0.1");
    assert_eq!(
        (&sent["x-forwarded-for"], sent.get("forwarded")),
        (&HeaderValue::from_static("192.0.2.1, 10.0.0.1"), None)
    );
}
