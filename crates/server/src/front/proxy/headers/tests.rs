use super::*;

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

fn forwarded(lines: &[(&'static str, &'static str)], peer: &str) -> HeaderMap {
    let identity = Identity::new().trust(["10.0.0.0/8".parse().expect("a network")]);
    let mut headers = headers(lines);
    add_forwarded(
        &mut headers,
        &identity,
        peer.parse().expect("an address"),
        &Scheme::HTTP,
        &HeaderValue::from_static("a.test"),
    );
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
fn a_websocket_is_asked_for_anew_and_h2c_never() {
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
fn strangers_do_not_say_where_they_come_from() {
    let claims = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "bank.test"),
        ("x-forwarded-uri", "/admin"),
        ("forwarded", "for=6.6.6.6"),
        ("x-real-ip", "6.6.6.6"),
    ];
    let told = forwarded(&claims, "203.0.113.7");
    let expected = [("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "http"), ("x-forwarded-host", "a.test")];
    assert_eq!(told, headers(&expected));
}

#[test]
fn trusted_proxies_are_continued() {
    let claims = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "https")];
    let told = forwarded(&claims, "::ffff:10.0.0.1");
    assert_eq!(told["x-forwarded-for"], "6.6.6.6, 203.0.113.7, 10.0.0.1");
    assert_eq!(
        (&told["x-forwarded-proto"], &told["x-forwarded-host"]),
        (&"https".parse().expect("text"), &"a.test".parse().expect("text"))
    );
    let told = forwarded(&[("forwarded", "for=203.0.113.7")], "10.0.0.1");
    assert_eq!(
        (&told["forwarded"], &told["x-forwarded-for"]),
        (&"for=203.0.113.7, for=10.0.0.1".parse().expect("text"), &"203.0.113.7, 10.0.0.1".parse().expect("text"))
    );
}
