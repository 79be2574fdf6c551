//! The attacks.

/// A request that tries to spoof something.
#[derive(Debug)]
pub(super) struct Attack {
    #[allow(dead_code, reason = "shown by Debug")]
    pub(super) story: &'static str,
    pub(super) target: String,
    pub(super) host: &'static str,
    /// The host that the application would see.
    pub(super) lands_at: &'static str,
    pub(super) headers: Vec<(&'static str, String)>,
    /// Whether the application would read it as a request for /login.
    pub(super) login: bool,
    /// The API key that an application would find in it.
    pub(super) key: Option<&'static str>,
}

impl Attack {
    pub(super) fn new(story: &'static str) -> Attack {
        let (target, host) = ("/".into(), "shop.example");
        Attack { story, target, host, lands_at: host, headers: Vec::new(), login: false, key: None }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Attack {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn target(self, target: &str) -> Attack {
        Attack { target: target.into(), ..self }
    }

    pub(super) fn login(self) -> Attack {
        Attack { login: true, ..self }
    }

    pub(super) fn key(self, key: &'static str) -> Attack {
        Attack { key: Some(key), ..self }.with("x-api-key", key)
    }

    fn host(self, host: &'static str) -> Attack {
        Attack { host, ..self }
    }
}

pub(super) fn attacks() -> Vec<Attack> {
    [addresses(), keys(), paths(), hosts()].into_iter().flatten().collect()
}

/// Spoofed addresses: 6.6.6.6 and 6.6.6.7 are unused here, 127.0.0.1 is the proxy's and trusted.
fn addresses() -> Vec<Attack> {
    let forwarded = |value: &str| Attack::new("an address in Forwarded").with("forwarded", value);
    let hops = |value: &str| Attack::new("an address in X-Forwarded-For").with("x-forwarded-for", value);
    let mut attacks = vec![
        hops("6.6.6.6"),
        hops("6.6.6.6, 6.6.6.7"),
        hops("6.6.6.6").with("X-Forwarded-For", "6.6.6.7"),
        hops("6.6.6.6, 127.0.0.1"),
        hops("6.6.6.6,, ,127.0.0.1,"),
        hops("  6.6.6.6  ,\t6.6.6.7\t"),
        hops("::ffff:6.6.6.6"),
        hops("[::ffff:6.6.6.6]:80"),
        hops("6.6.6.6:4711"),
        hops("unknown, _hidden, 6.6.6.6"),
        hops("\"6.6.6.6\""),
        hops("é, \u{7f}6.6.6.6"),
        forwarded("for=6.6.6.6"),
        forwarded("for=\"[2001:db8::17]:4711\";proto=https;by=127.0.0.1"),
        forwarded("for=\"[::ffff:6.6.6.6]\""),
        forwarded("for=_hidden, for=6.6.6.6"),
        forwarded("for=6.6.6.6;for=6.6.6.7"),
        forwarded("for=\"6.6.6.6"),
        forwarded("For = 6.6.6.6 ; x=\", for=6.6.6.7"),
        forwarded("for=6.6.6.6").with("forwarded", "for=127.0.0.1"),
        Attack::new("headers that disagree").with("forwarded", "for=6.6.6.6").with("x-forwarded-for", "6.6.6.7"),
        Attack::new("headers that agree on a lie").with("forwarded", "for=6.6.6.6").with("x-forwarded-for", "6.6.6.6"),
        Attack::new("underscores instead of dashes").with("x_forwarded_for", "6.6.6.6").with("X_Real_IP", "6.6.6.6"),
        Attack::new("a long list").with("x-forwarded-for", "6.6.6.6, ".repeat(300) + "127.0.0.1"),
    ];
    attacks.push(Attack::new("a very long list").with("x-forwarded-for", "6.6.6.6, ".repeat(10_000)));
    for name in ["x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip", "x-cluster-client-ip", "via"] {
        attacks.push(Attack::new("an address in a header that proxies use").with(name, "6.6.6.6"));
    }
    attacks
}

/// The key that counts is the one that the application finds.
fn keys() -> Vec<Attack> {
    vec![
        Attack::new("a key with capital letters in its name").with("X-API-KEY", "capital").named("capital"),
        Attack::new("a key twice").key("twice").with("x-api-key", "twice"),
        Attack::new("a made-up key behind the own one").key("own-first").with("X-Api-Key", "made-up-1"),
        Attack::new("a made-up key before the own one").with("x-api-key", "made-up-2").key("own-last"),
        Attack::new("an empty key before the own one").with("x-api-key", "").key("own-after-none"),
        Attack::new("a key with space around it").with("x-api-key", " \t spaced  ").named("spaced"),
        Attack::new("a key under a name with underscores").key("dashed").with("x_api_key", "made-up-3"),
        Attack::new("a key that Connection asks to drop").key("dropped").with("Connection", "close, x-api-key"),
        Attack::new("two keys in the query").target("/?key=made-up&key=own"),
        Attack::new("two keys in the query, one encoded").target("/?k%65y=made-up&key=own"),
        Attack::new("a very long key beside the own one").key("short").with("x-api-key", "long".repeat(20_000)),
        Attack::new("two cookies").with("cookie", "sid=made-up; sid=own").with("cookie", "sid=another"),
    ]
}

impl Attack {
    fn named(self, key: &'static str) -> Attack {
        Attack { key: Some(key), ..self }
    }
}

/// All spellings that lead to the application's /login.
fn paths() -> Vec<Attack> {
    let spelled = |target: &str| Attack::new("/login in other letters").target(target).login();
    let mut attacks: Vec<Attack> = [
        "/%6Cogin",
        "/%6c%6f%67%69%6e",
        "//login",
        "/./login",
        "/x/../login",
        "/x/%2e%2e/login",
        "/x/%2E./login",
        "/../../login",
        "/login;v=1",
        "/login;",
        "/x/..;/login",
        "/login?x=/other",
        "/login?",
        "http://shop.example/login",
        "http://shop.example//login",
    ]
    .into_iter()
    .map(spelled)
    .collect();
    // A different path for every server, which must not be confused with it.
    attacks.extend(
        ["/login%2Fx", "/login%00", "/x/login", "/login%3Fx"].map(|target| Attack::new("almost /login").target(target)),
    );
    for name in [
        "x-forwarded-uri",
        "x-original-uri",
        "x-original-url",
        "x-rewrite-url",
        "x-forwarded-path",
        "x-forwarded-prefix",
    ] {
        attacks.push(Attack::new("another path in a header").target("/login").with(name, "/other").login());
    }
    for name in ["x-forwarded-method", "x-original-method"] {
        attacks.push(Attack::new("another method in a header").target("/login").with(name, "PUT").login());
    }
    attacks
}

fn hosts() -> Vec<Attack> {
    vec![
        Attack::new("a host with a final dot").host("shop.example."),
        Attack::new("a host in capital letters").host("SHOP.example"),
        Attack::new("a host with a port").host("shop.example:80"),
        Attack::new("another host in a header").with("x-forwarded-host", "other.example"),
        Attack::new("another host in X-Host")
            .with("x-host", "other.example")
            .with("x-forwarded-server", "other.example"),
        Attack { lands_at: "other.example", ..Attack::new("a target of another host").target("http://other.example/") },
    ]
}
