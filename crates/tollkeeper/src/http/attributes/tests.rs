use http::HeaderValue;

use super::*;

struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

fn head(uri: &str, lines: &[(&'static str, &str)]) -> Head {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().expect("value"));
    }
    Head { method: Method::POST, uri: uri.parse().expect("uri"), headers }
}

impl Head {
    fn with(&self, identity: &Identity, name: &str) -> Option<String> {
        let peer = Some([203, 0, 113, 7].into());
        let request = identity.describe(&self.method, &self.uri, &self.headers, peer);
        request.attribute(name).map(Cow::into_owned)
    }

    fn get(&self, name: &str) -> Option<String> {
        self.with(&Identity::new(), name)
    }
}

#[test]
fn the_request_line_is_there() {
    let head = head("/a/b%20c?x=1", &[]);
    assert_eq!(head.get("method").as_deref(), Some("POST"));
    assert_eq!(head.get("path").as_deref(), Some("/a/b%20c"));
    assert_eq!(head.get("ip").as_deref(), Some("203.0.113.7"));
    assert_eq!(head.get("nothing"), None);
    assert_eq!(head.get("header."), None);
    assert_eq!(head.get("header.a b"), None);
}

#[test]
fn without_a_peer_there_is_no_ip() {
    let head = head("/", &[("x-forwarded-for", "6.6.6.6")]);
    let identity = Identity::new().trust(["0.0.0.0/0".parse().expect("network")]);
    let request = identity.describe(&head.method, &head.uri, &head.headers, None);
    assert_eq!(request.attribute("ip"), None);
}

#[test]
fn a_host_is_one_host_however_it_is_spelled() {
    for (uri, host) in [
        ("/", "API.Example.com:8443"),
        ("/", "api.example.com."),
        ("http://api.example.com:80/", "other.example"),
        ("http://Api.Example.com./", "other.example"),
    ] {
        assert_eq!(head(uri, &[("host", host)]).get("host").as_deref(), Some("api.example.com"), "{uri} {host}");
    }
    assert_eq!(head("/", &[("host", "[2001:DB8::1]:80")]).get("host").as_deref(), Some("[2001:db8::1]"));
    assert_eq!(head("/", &[("host", "not a host")]).get("host"), None);
    assert_eq!(head("/", &[]).get("host"), None);
}

#[test]
fn header_lines_are_joined_and_names_have_no_case() {
    let head = head("/", &[("x-tag", "a"), ("x-tag", "b"), ("x-same", "a"), ("x-same", "a"), ("x-empty", "")]);
    assert_eq!(head.get("header.x-tag").as_deref(), Some("a, b"));
    assert_eq!(head.get("header.X-Tag").as_deref(), Some("a, b"));
    assert_eq!(head.get("header.x-same").as_deref(), Some("a"));
    assert_eq!(head.get("header.x-empty").as_deref(), Some(""));
}

#[test]
fn a_header_that_is_no_text_is_absent() {
    let mut head = head("/", &[("x-name", "zoë")]);
    assert_eq!(head.get("header.x-name").as_deref(), Some("zoë"));
    head.headers.append("x-name", HeaderValue::from_bytes(b"\xff").expect("opaque byte"));
    assert_eq!(head.get("header.x-name"), None);
}

/// A client added a byte that is not UTF-8 to its credentials, which Node skips in base64, and no rule applied to it any more.
#[test]
fn who_is_named_by_a_header_that_is_no_text_is_refused() {
    let identity = Identity::new().identify("auth", "header.authorization".parse().expect("a place"));
    let mut head = head("/", &[("authorization", "Basic YTpiYw==")]);
    assert_eq!(identity.contradiction(&head.uri, &head.headers), None);
    head.headers.insert("authorization", HeaderValue::from_bytes(b"Basic YTpiYw==\xe9").expect("opaque byte"));
    let place = identity.contradiction(&head.uri, &head.headers).map(ToString::to_string);
    assert_eq!(place.as_deref(), Some("header.authorization"));
    head.headers.insert("x-other", HeaderValue::from_bytes(b"\xe9").expect("opaque byte"));
    head.headers.insert("authorization", HeaderValue::from_static("Basic YTpiYw=="));
    assert_eq!(identity.contradiction(&head.uri, &head.headers), None, "others may be anything");
}

#[test]
fn query_parameters_are_decoded() {
    let head = head("/?a=1&a=2&full+name=Zo%C3%AB+B&%6Bey=x%3D%26&flag&bad=%ff&eq=b=c", &[]);
    assert_eq!(head.get("query.a").as_deref(), Some("1"));
    assert_eq!(head.get("query.full name").as_deref(), Some("Zoë B"));
    assert_eq!(head.get("query.key").as_deref(), Some("x=&"));
    assert_eq!(head.get("query.flag").as_deref(), Some(""));
    assert_eq!(head.get("query.eq").as_deref(), Some("b=c"));
    assert_eq!(head.get("query.bad"), None);
    assert_eq!(head.get("query.b"), None);
}

#[test]
fn the_first_cookie_of_a_name_counts() {
    let head = head("/", &[("cookie", "theme=dark; sid=abc=; Sid=other"), ("cookie", "sid=late;q=\"x y\"")]);
    assert_eq!(head.get("cookie.sid").as_deref(), Some("abc="));
    assert_eq!(head.get("cookie.Sid").as_deref(), Some("other"));
    assert_eq!(head.get("cookie.q").as_deref(), Some("x y"));
    assert_eq!(head.get("cookie.id"), None);
}

/// One session in many spellings had as many buckets, while the application (Express) read the same session in each
/// of them.
#[test]
fn a_cookie_is_one_value_in_every_spelling_or_refused() {
    let identity = Identity::new().identify("session", "cookie.sid".parse().expect("a place"));
    for spelled in [
        "sid=s3cret",
        "sid=%733cret",
        "sid=%73%33%63%72%65%74",
        "sid=\"s3cret\"",
        "sid=\"%733cret\"",
        " sid = s3cret ",
        "\tsid\t=\ts3cret\t",
        "a=b;sid=s3cret",
        "a;sid=s3cret;b",
        "%73id=s3cret",
        "sid=s3cret; sid=%733cret; sid=\"s3cret\"",
        "a=b, c=d e; sid=s3cret",
    ] {
        let head = head("/", &[("cookie", spelled)]);
        assert_eq!(identity.contradiction(&head.uri, &head.headers), None, "{spelled}");
        assert_eq!(head.with(&identity, "session").as_deref(), Some("s3cret"), "{spelled}");
    }
    for (unclear, more) in [
        ("sid=s3cret; sid=other", ""),
        ("sid=; sid=s3cret", ""),
        ("sid=s3cret; sid=", ""),
        ("sid=\"s3cretX", ""),
        ("sid=\"\\1633cret\"", ""),
        ("sid=\"", ""),
        ("sid=s3cret", "sid=another"),
        ("sid=s3cret; sid=\"s3cretX", ""),
        ("a=b,sid=s3cret", ""),
        ("a=b sid=s3cret", ""),
        ("sid=s3cret, sid=other", ""),
    ] {
        let head = head("/", &[("cookie", unclear), ("cookie", more)]);
        let place = identity.contradiction(&head.uri, &head.headers).map(ToString::to_string);
        assert_eq!(place.as_deref(), Some("cookie.sid"), "{unclear} {more}");
    }
    let odd = head("/", &[("cookie", "theme=\u{e9}\u{e9}; sid=s3cret; bad=%ff")]);
    assert_eq!(odd.with(&identity, "session").as_deref(), Some("s3cret"), "an odd cookie beside it changes nothing");
    assert_eq!(odd.with(&identity, "cookie.bad").as_deref(), Some("%ff"));
}

/// `bearer abc` and `Bearer  abc` are the same credentials to every server, and had buckets of their own.
#[test]
fn credentials_are_one_value_in_every_spelling() {
    for spelled in ["Bearer abc", "bearer abc", "BEARER   abc", "Bearer \t abc", "bEaReR abc"] {
        assert_eq!(head("/", &[("authorization", spelled)]).get("header.authorization").as_deref(), Some("Bearer abc"));
    }
    for spelled in ["Basic YTpi", "basic YTpi", "BASIC  YTpi", "basic\tYTpi", "bAsIc \t YTpi", "Basic YTpi "] {
        assert_eq!(head("/", &[("authorization", spelled)]).get("header.authorization").as_deref(), Some("Basic YTpi"));
    }
    // What follows the scheme is case-sensitive.
    assert_eq!(
        head("/", &[("authorization", "basic ytpi")]).get("header.authorization").as_deref(),
        Some("Basic ytpi")
    );
    for kept in ["abc", "Digest username=\"A b\", realm=\"X\"", "Token Abc"] {
        assert_eq!(head("/", &[("authorization", kept)]).get("header.Authorization").as_deref(), Some(kept));
    }
    assert_eq!(head("/", &[("x-api-key", "bearer  Abc")]).get("header.x-api-key").as_deref(), Some("bearer  Abc"));
}

#[test]
fn mapped_attributes_hide_those_of_the_same_name() {
    let source = |text: &str| text.parse::<AttributeSource>().expect(text);
    let identity = Identity::new()
        .identify("user_id", source("header.X-User-Id"))
        .identify("session", source("cookie.sid"))
        .identify("token", source("query.t"))
        .identify("client", source("ip"))
        .identify("path", source("header.x-original-path"));
    let head = head("/real?t=1", &[("x-user-id", "42"), ("cookie", "sid=s")]);
    assert_eq!(head.with(&identity, "user_id").as_deref(), Some("42"));
    assert_eq!(head.with(&identity, "session").as_deref(), Some("s"));
    assert_eq!(head.with(&identity, "token").as_deref(), Some("1"));
    assert_eq!(head.with(&identity, "client").as_deref(), Some("203.0.113.7"));
    assert_eq!(head.with(&identity, "path"), None);
}

/// A client sent one valid API key and a made-up one, a new one with every request, and got a fresh bucket each time:
/// here the two were joined into one name, while a server that reads only the first let each request pass.
#[test]
fn who_says_two_names_is_found_out() {
    let source = |text: &str| text.parse::<AttributeSource>().expect(text);
    let identity = Identity::new()
        .identify("api_key", source("header.x-api-key"))
        .identify("session", source("cookie.sid"))
        .single(source("query.key"));
    let place = |uri: &str, lines: &[(&'static str, &str)]| {
        let head = head(uri, lines);
        identity.contradiction(&head.uri, &head.headers).map(ToString::to_string)
    };
    assert_eq!(place("/?key=a", &[("x-api-key", "a"), ("cookie", "sid=1; other=2; sid=1")]), None);
    assert_eq!(place("/?other=a&other=b", &[("x-api-key", "a"), ("x-api-key", "a"), ("x-tag", "a")]), None);
    assert_eq!(place("/", &[("x-api-key", "a"), ("x-api-key", "b")]).as_deref(), Some("header.x-api-key"));
    assert_eq!(place("/", &[("x-api-key", ""), ("x-api-key", "b")]).as_deref(), Some("header.x-api-key"));
    for query in ["key=a&key=b", "key=a&k%65y=b", "key=a&x&key", "key=a&key=%ff", "key=&key=a"] {
        assert_eq!(place(&format!("/?{query}"), &[]).as_deref(), Some("query.key"), "{query}");
    }
    // What other servers read as a parameter of this name.
    for query in [
        "key[]=b",
        "key=a&key[]=b",
        "key%5B0%5D=b",
        "x=1;key=b",
        "key=a;b",
        "%20key=b",
        "+key=b",
        "KEY=b",
        "key=a&Key=b",
    ] {
        assert_eq!(place(&format!("/?{query}"), &[]).as_deref(), Some("query.key"), "{query}");
    }
    for query in ["key=a&x=1;y=2", "key=a&x[]=1&x[]=2", "key=a&keys[]=1", "key=a&KEY=a", "x=key[]", "key=a%3Bb", ""] {
        assert_eq!(place(&format!("/?{query}"), &[]), None, "{query}");
    }
    assert_eq!(place("/?key=a+b&key=a%20b", &[]), None, "the same in two spellings");
}

#[test]
fn a_source_that_is_none_is_refused_with_what_is_possible() {
    for bad in ["", "header", "header.", "header.a b", "query.", "user", "IP", "body.x", "ip.v4"] {
        let error = bad.parse::<AttributeSource>().expect_err(bad).to_string();
        assert!(error.contains(&format!("{bad:?}")) && error.contains("cookie.NAME"), "{error}");
    }
    assert_eq!("query.a.b".parse(), Ok(AttributeSource::Query("a.b".into())));
}

#[test]
fn cost_is_one_by_default() {
    let (head, identity) = (head("/", &[]), Identity::new());
    let request = identity.describe(&head.method, &head.uri, &head.headers, None);
    assert_eq!(request.cost(), 1);
    assert_eq!(request.with_cost(0).cost(), 0);
}

/// Bytes are looked at eight at a time: what is odd must be found at any place, and its neighbours in the alphabet are not odd.
#[test]
fn an_odd_path_is_odd_wherever_it_is_so() {
    for length in 1..30 {
        let plain: String = (0..length).map(|place| ['/', 'a', '-', '0', '$', ':', 'é'][place % 7]).collect();
        assert!(matches!(super::normal_path(&plain), Cow::Borrowed(_)), "{plain}");
        for (at, _) in plain.char_indices() {
            for odd in ["%6C", ";x", "//", "/."] {
                let path = format!("{}{odd}{}", &plain[..at], &plain[at..]);
                assert!(super::is_odd(path.as_bytes()), "{path}");
            }
        }
    }
}

/// A rule for /login was bypassed by asking for /%6Cogin, which every upstream server reads as /login.
#[test]
fn a_path_is_the_same_however_it_is_spelled() {
    for (spelled, normal) in [
        ("/login", "/login"),
        ("/%6Cogin", "/login"),
        ("/%6cogin", "/login"),
        ("//login", "/login"),
        ("/a/../login", "/login"),
        ("/a/%2e%2e/login", "/login"),
        ("/../../login", "/login"),
        ("/./login", "/login"),
        ("/login/", "/login/"),
        ("/login//", "/login/"),
        ("/a/b/..", "/a/"),
        ("/..", "/"),
        ("/", "/"),
        ("/login;jsessionid=1", "/login"),
        ("/login;", "/login"),
        ("/;x/login", "/login"),
        ("/a;x/b;y=1;z", "/a/b"),
        ("/a/..;/login", "/login"),
        ("/a/%2e%2e;x/login", "/login"),
        ("/a%3Bb", "/a%3Bb"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%20b", "/a%20b"),
        ("/100%", "/100%"),
        ("/%zz%6", "/%zz%6"),
        ("/.well-known/x", "/.well-known/x"),
    ] {
        assert_eq!(super::normal_path(spelled), normal, "{spelled}");
    }
}
