//! Real proxies in front of an application, each with its configuration from `examples/`, ask a real Tollkeeper.
//!
//! Only ports are changed in the configurations, so what people copy is what is tested.

use serde_json::{Value, json};
use tollkeeper_testkit::http::Client;
use tollkeeper_testkit::proxy::Kind;
use tollkeeper_testkit::wait_until;

use super::site::Site;

/// What a proxy cannot do as Tollkeeper would like; the examples and the guide say so.
struct Manners {
    kind: Kind,
    /// Where the limit headers of an allowed request end up.
    limits_go_to: LimitsGoTo,
    /// Which side writes the body of a refusal.
    problem_by: ProblemBy,
    status_while_unreachable: u16,
}

#[derive(PartialEq)]
enum LimitsGoTo {
    Client,
    Application,
}

enum ProblemBy {
    Tollkeeper,
    Proxy,
}

#[test]
fn nginx_asks_before_it_forwards() {
    Manners {
        kind: Kind::Nginx,
        limits_go_to: LimitsGoTo::Client,
        problem_by: ProblemBy::Proxy,
        status_while_unreachable: 503,
    }
    .hold();
}

#[test]
fn traefik_asks_before_it_forwards() {
    Manners {
        kind: Kind::Traefik,
        limits_go_to: LimitsGoTo::Application,
        problem_by: ProblemBy::Tollkeeper,
        status_while_unreachable: 500,
    }
    .hold();
}

#[test]
fn caddy_asks_before_it_forwards() {
    Manners {
        kind: Kind::Caddy,
        limits_go_to: LimitsGoTo::Client,
        problem_by: ProblemBy::Tollkeeper,
        status_while_unreachable: 502,
    }
    .hold();
}

#[test]
fn haproxy_asks_before_it_forwards() {
    Manners {
        kind: Kind::Haproxy,
        limits_go_to: LimitsGoTo::Client,
        problem_by: ProblemBy::Tollkeeper,
        status_while_unreachable: 503,
    }
    .hold();
}

#[test]
fn envoy_asks_before_it_forwards() {
    Manners {
        kind: Kind::Envoy,
        limits_go_to: LimitsGoTo::Client,
        problem_by: ProblemBy::Tollkeeper,
        status_while_unreachable: 503,
    }
    .hold();
}

impl Manners {
    fn hold(&self) {
        let mut site = Site::start(self.kind, &[]);
        self.what_is_allowed_reaches_the_application(&site);
        self.what_is_refused_does_not(&site);
        self.forged_headers_gain_nothing(&site);
        self.connections_to_tollkeeper_stay_open(&site);
        self.nobody_passes_while_tollkeeper_is_unreachable(&mut site);
    }

    fn what_is_allowed_reaches_the_application(&self, site: &Site) {
        let alice = site.client(2).with("x-api-key", "alice");
        let answer = alice.send("POST", "/orders?page=2", "three apples");
        assert_eq!(answer.status, 200, "{answer:?}");

        let received = site.application.last();
        assert!(received.head.starts_with("POST /orders?page=2 HTTP/1.1\r\n"), "{received:?}");
        assert_eq!(received.body, "three apples");
        assert_eq!(received.header("x-forwarded-for").as_deref(), Some("127.0.0.2"));
        let (limits, policies) = match self.limits_go_to {
            LimitsGoTo::Client => (answer.header("ratelimit"), answer.header("ratelimit-policy")),
            LimitsGoTo::Application => (received.header("ratelimit"), received.header("ratelimit-policy")),
        };
        assert!(limits.is_some_and(|limits| limits.contains("\"per-key\";r=4;t=")), "{answer:?} {received:?}");
        assert!(policies.is_some_and(|policies| policies.contains("\"per-key\";q=5;w=180")), "{answer:?}");

        // An error of the application is not mistaken for one of Tollkeeper's.
        let answer = site.client(2).get("/broken");
        assert_eq!((answer.status, answer.body.as_str()), (500, "mine"), "{answer:?}");
    }

    fn what_is_refused_does_not(&self, site: &Site) {
        let alice = site.client(2).with("x-api-key", "alice");
        for _ in 0..4 {
            assert_eq!(alice.get("/orders").status, 200);
        }
        let reached = site.application.count();
        let answer = alice.send("POST", "/orders", "one apple too many");
        assert_eq!(answer.status, 429, "{answer:?}");
        assert_eq!(site.application.count(), reached, "a refused request reached the application");

        let retry_after: u32 = answer.header("retry-after").expect("a denial has Retry-After").parse().unwrap();
        assert!((1..=36).contains(&retry_after), "{answer:?}");
        assert!(answer.header("ratelimit").is_some_and(|limits| limits.contains("\"per-key\";r=0;t=")), "{answer:?}");
        assert!(answer.header("ratelimit-policy").is_some_and(|policies| policies.contains("\"per-key\";q=5")));
        assert_eq!(answer.header("content-type").as_deref(), Some("application/problem+json"));
        assert_eq!(answer.header("cache-control").as_deref(), Some("no-store"));
        let problem = answer.json();
        assert_eq!(problem["status"], json!(429));
        assert_eq!(problem["title"], json!("Quota exceeded"));
        let violated = match self.problem_by {
            ProblemBy::Tollkeeper => json!(["per-key"]),
            ProblemBy::Proxy => Value::Null,
        };
        assert_eq!(problem["violated-policies"], violated);

        let answer = alice.send("HEAD", "/orders", "");
        assert_eq!((answer.status, answer.body.as_str()), (429, ""), "{answer:?}");

        // Another key has its own bucket, and so have requests without a key.
        let bob = site.client(2).with("x-api-key", "bob");
        assert_eq!(bob.get("/orders").status, 200);
        assert_eq!(site.client(2).get("/orders").status, 200);
    }

    fn forged_headers_gain_nothing(&self, site: &Site) {
        let mallory = site.client(3);
        for _ in 0..3 {
            assert_eq!(mallory.send("POST", "/login", "guess").status, 200);
        }
        let reached = site.application.count();
        let refused = |client: &Client| {
            let answer = client.send("POST", "/login", "guess");
            assert_eq!(answer.status, 429, "{client:?} {answer:?}");
        };
        refused(&mallory);
        let lies = [
            ("X-Forwarded-For", "6.6.6.6"),
            ("Forwarded", "for=6.6.6.6"),
            ("X-Real-IP", "6.6.6.6"),
            ("X-Client-Address", "6.6.6.6"),
            ("X-Forwarded-Uri", "/"),
            ("X-Original-URI", "/"),
            ("X-Forwarded-Method", "PUT"),
            ("X-Original-Method", "PUT"),
            ("X-Forwarded-Host", "example.org"),
        ];
        let mut liar = site.client(3);
        for (name, value) in lies {
            refused(&site.client(3).with(name, value));
            liar = liar.with(name, value);
        }
        refused(&liar);
        // Some proxies refuse these requests themselves, or redirect to the normal spelling.
        for path in ["/%6Cogin", "//login", "/x/../login", "http://example.org/login"] {
            let answer = mallory.send("POST", path, "guess");
            assert_ne!(answer.status, 200, "{path} {answer:?}");
        }
        // Asks the proxy to drop headers that it adds itself.
        let dropping = "close, X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method, X-Original-URI, X-Original-Method";
        let answer = site.client(3).with("Connection", dropping).send("POST", "/login", "guess");
        assert_ne!(answer.status, 200, "{answer:?}");
        let answer = talkative(site.client(3)).send("POST", "/login", "guess");
        assert_ne!(answer.status, 200, "{answer:?}");
        assert_eq!(site.application.count(), reached, "a refused request reached the application");

        // The client's address and method are passed on correctly: another address, or another method, has another
        // bucket.
        assert_eq!(site.client(4).send("POST", "/login", "mine").status, 200);
        assert_eq!(mallory.get("/login").status, 200);
        // Nor does the application see the client's headers as if they were the proxy's.
        assert_eq!(liar.get("/").status, 200);
        let received = site.application.last();
        assert_eq!(received.header("x-forwarded-for").as_deref(), Some("127.0.0.3"), "{received:?}");
        assert_eq!(received.header("forwarded"), None, "{received:?}");
        assert_eq!(received.header("x-original-uri"), None, "{received:?}");
        assert_ne!(received.header("x-forwarded-method").as_deref(), Some("PUT"), "{received:?}");
    }

    fn connections_to_tollkeeper_stay_open(&self, site: &Site) {
        let before = site.connections_to_tollkeeper();
        let client = site.client(6);
        for _ in 0..20 {
            assert_eq!(client.get("/orders").status, 200);
        }
        // A few for several threads and health checks, but not one per request.
        let opened = site.connections_to_tollkeeper().saturating_sub(before);
        assert!(opened < 10, "{opened} new connections for 20 requests");
    }

    fn nobody_passes_while_tollkeeper_is_unreachable(&self, site: &mut Site) {
        let reached = site.application.count();
        site.tollkeeper.kill();
        let answer = site.client(5).get("/orders");
        assert_eq!(answer.status, self.status_while_unreachable, "{answer:?}");
        assert_eq!(answer.header("retry-after"), None, "{answer:?}");
        assert_eq!(site.application.count(), reached, "a request that was not allowed reached the application");

        site.tollkeeper.restart();
        wait_until("the proxy finds it again", || site.client(5).get("/orders").status == 200);
    }
}

#[test]
fn nginx_lets_everybody_pass_while_tollkeeper_is_unreachable_if_configured() {
    passes_while_tollkeeper_is_unreachable(
        Kind::Nginx,
        &[("# error_page 502 504", "error_page 502 504"), ("# location @pass", "location @pass")],
    );
}

#[test]
fn haproxy_lets_everybody_pass_while_tollkeeper_is_unreachable_if_configured() {
    passes_while_tollkeeper_is_unreachable(Kind::Haproxy, &[("http-request return status 503", "# ")]);
}

#[test]
fn envoy_lets_everybody_pass_while_tollkeeper_is_unreachable_if_configured() {
    passes_while_tollkeeper_is_unreachable(Kind::Envoy, &[("failure_mode_allow: false", "failure_mode_allow: true")]);
}

/// As many headers as most proxies accept, in many lines and under many names. HAProxy 2.6 crashed when its Lua
/// client was given them all.
fn talkative(client: Client) -> Client {
    (0..49).fold(client, |client, number| client.with(&format!("x-{number}"), "bla").with("cookie", "bla=bla"))
}

/// `changes` are the changes that the example suggests.
fn passes_while_tollkeeper_is_unreachable(kind: Kind, changes: &[(&str, &str)]) {
    let mut site = Site::start(kind, changes);
    // A refusal to read that many headers does not count as unreachable.
    let talker = talkative(site.client(3));
    let statuses: Vec<u16> = (0..4).map(|_| talker.send("POST", "/login", "guess").status).collect();
    assert_ne!(statuses[3], 200, "{statuses:?}");

    site.tollkeeper.kill();
    for _ in 0..6 {
        let answer = site.client(2).with("x-api-key", "alice").get("/orders");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
