//! What answered, and what is visible of it: a table of situations, and for each what clients, metrics, alerts,
//! insight, the audit and `/readyz` show.
//!
//! Blocking one key used to raise the alert that the memory store is full, and made the blocked client vanish from
//! the audit and from insight: an exception looked like a store that cannot answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Service, wait_until};

/// Every request is for this key of this rule.
const RULE: &str = "per-user";
const USER: &str = "42";

/// Why a request gets its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    /// The limit is reached.
    Limit,
    /// The limit of a shadow rule is reached.
    Shadow,
    /// A soft limit is reached.
    Annotate,
    Block,
    /// Without an end.
    BlockForEver,
    /// Of a key of a shadow rule.
    BlockInShadow,
    Allow,
    /// A granted limit, which is used up too.
    Grant,
    /// The store is unreachable, and the rule says `open`.
    FailOpen,
    FailClosed,
    FailLocal,
    /// A shadow rule that fails closed, without its store.
    ShadowFailClosed,
    /// The key was blocked before its store became unreachable.
    BlockWithoutStore,
}

use Situation::*;

/// What is visible of a few requests.
#[derive(Debug, PartialEq)]
struct Seen {
    /// The status of `/v1/authorize`, and its `Retry-After`.
    answer: (u16, &'static str),
    /// What the `RateLimit` header says is left of the rule; empty if it does not name the rule.
    left: &'static str,
    /// Of `/v1/check`.
    allowed: bool,
    source: &'static str,
    /// The only labels that `tollkeeper_decisions_total` counts from then on.
    counted: (&'static str, &'static str),
    /// Whether there is an alert that rules answer without the store.
    alert: bool,
    /// The rule's allowed and denied requests in insight.
    insight: Insight,
    audit: Audit,
    ready: u16,
}

/// How insight counts the requests.
#[derive(Debug, PartialEq, Eq)]
enum Insight {
    Passed,
    Denied,
    /// Denied, and marked as blocked.
    Blocked,
    /// Denied by nobody: a shadow rule would have.
    WouldDeny,
    /// Passed, and marked as over a soft limit.
    Annotated,
    /// A shadow rule would have denied it, and it is marked as blocked.
    WouldBlock,
    /// Counted as neither: no limit was reached.
    Unjudged,
}

#[derive(Debug, PartialEq, Eq)]
enum Audit {
    Nothing,
    Denied,
    WouldDeny,
    Annotated,
    Blocked,
    WouldBlock,
}

#[rustfmt::skip]
const TABLE: [(Situation, Seen); 13] = [
    (Limit,            seen((429, "retry"), "0", false, "store",     ("denied", "store"),            false, Insight::Denied,   Audit::Denied,     200)),
    (Shadow,           seen((200, ""),      "",  true,  "store",     ("shadow_denied", "store"),     false, Insight::WouldDeny,Audit::WouldDeny,  200)),
    (Annotate,         seen((200, ""),      "",  true,  "store",     ("annotated", "store"),         false, Insight::Annotated,Audit::Annotated,  200)),
    (Block,            seen((429, "retry"), "0", false, "exception", ("denied", "exception"),        false, Insight::Blocked,  Audit::Blocked,    200)),
    (BlockForEver,     seen((429, ""),      "0", false, "exception", ("denied", "exception"),        false, Insight::Blocked,  Audit::Blocked,    200)),
    (BlockInShadow,    seen((200, ""),      "",  true,  "exception", ("shadow_denied", "exception"), false, Insight::WouldBlock,Audit::WouldBlock, 200)),
    (Allow,            seen((200, ""),      "2", true,  "exception", ("allowed", "exception"),       false, Insight::Passed,   Audit::Nothing,    200)),
    (Grant,            seen((429, "retry"), "0", false, "exception", ("denied", "exception"),        false, Insight::Denied,   Audit::Denied,     200)),
    (FailOpen,         seen((200, ""),      "2", true,  "policy",    ("allowed", "policy"),          true,  Insight::Passed,   Audit::Nothing,    503)),
    (FailClosed,       seen((503, "retry"), "0", false, "policy",    ("denied", "policy"),           true,  Insight::Unjudged, Audit::Nothing,    503)),
    (FailLocal,        seen((429, "retry"), "0", false, "local",     ("denied", "local"),            true,  Insight::Denied,   Audit::Denied,     503)),
    (ShadowFailClosed, seen((200, ""),      "",  true,  "policy",    ("shadow_denied", "policy"),    true,  Insight::Unjudged, Audit::Nothing,    503)),
    (BlockWithoutStore, seen((429, "retry"), "0", false, "exception", ("denied", "exception"),        true,  Insight::Blocked,  Audit::Blocked,    503)),
];

#[allow(clippy::too_many_arguments)] // A row of the table.
const fn seen(
    answer: (u16, &'static str),
    left: &'static str,
    allowed: bool,
    source: &'static str,
    counted: (&'static str, &'static str),
    alert: bool,
    insight: Insight,
    audit: Audit,
    ready: u16,
) -> Seen {
    Seen { answer, left, allowed, source, counted, alert, insight, audit, ready }
}

#[test]
fn who_answered_is_seen_alike_everywhere() {
    let rows: Vec<_> =
        TABLE.iter().map(|(situation, _)| std::thread::spawn(|| World::in_(*situation).look())).collect();
    let looked = TABLE.iter().zip(rows).map(|((situation, expected), row)| (situation, expected, row.join().unwrap()));
    let wrong: Vec<_> = looked.filter(|(_, expected, seen)| *expected != seen).collect();
    assert!(wrong.is_empty(), "situation, expected, seen: {wrong:#?}");
}

/// A service in a situation.
struct World {
    situation: Situation,
    service: Service,
    /// What was counted and recorded before.
    before: Before,
    _redis: Option<Server>,
}

struct Before {
    insight: [u64; 4],
}

impl World {
    fn in_(situation: Situation) -> World {
        let needs_redis = matches!(situation, FailOpen | FailClosed | FailLocal | ShadowFailClosed | BlockWithoutStore);
        let mut redis = needs_redis.then(|| Server::start(Kind::Redis7));
        let store = redis.as_ref().map_or("memory:".into(), Server::url);
        let mode = match situation {
            Shadow | BlockInShadow | ShadowFailClosed => "shadow",
            Annotate => "annotate",
            _ => "enforce",
        };
        let failure = match situation {
            FailOpen => "open",
            FailClosed | ShadowFailClosed => "closed",
            _ => "local",
        };
        let service = Service::on(
            &format!(
                "store: {{ url: '{store}', timeout: 1s }}
rules:
  - {{ name: {RULE}, key: '{{header.x-user}}', limit: 2/day, mode: {mode}, on_store_failure: {failure} }}
  - {{ name: beside, key: '{{header.x-user}}', limit: 1000/day, mode: shadow, on_store_failure: {failure} }}"
            ),
            &[],
        );
        let exception = |body: Value| {
            let mut body = body;
            (body["rule"], body["key"]) = (json!(RULE), json!(USER));
            let made = service.client().send("PUT", "/v1/exceptions?as=ann", &body.to_string());
            assert_eq!(made.status, 200, "{made}");
        };
        match situation {
            Block | BlockInShadow | BlockWithoutStore => exception(json!({ "kind": "block", "for_ms": 3_600_000 })),
            BlockForEver => exception(json!({ "kind": "block" })),
            Allow => exception(json!({ "kind": "allow" })),
            Grant => exception(json!({ "kind": "grant", "limit": "3/day" })),
            _ => {}
        }
        if let Some(redis) = &mut redis {
            redis.kill();
            // Until the circuit breaker is open, requests still try the store.
            wait_until("the store is known to be gone", || {
                check(&service, "somebody else");
                service.get("/readyz").status == 503
            });
        }
        let uses_up = match situation {
            Limit | Shadow | Annotate | FailLocal => 2,
            Grant => 3,
            _ => 0,
        };
        (0..uses_up).for_each(|_| _ = check(&service, USER));
        let before = Before { insight: insight(&service).0 };
        World { situation, service, before, _redis: redis }
    }

    fn look(&self) -> Seen {
        let service = &self.service;
        let counted_before = decisions(service);
        let checked = check(service, USER);
        let answer = service.client().with("x-user", USER).get("/v1/authorize");
        let retry = answer.header("retry-after");
        if self.situation == Block {
            let seconds: u64 = retry.as_deref().unwrap().parse().unwrap();
            assert!((3_500..=3_600).contains(&seconds), "until the block ends: {seconds}");
            assert!(answer.contains("blocks this key"), "{answer}");
        }
        let counted: Vec<_> = decisions(service)
            .into_iter()
            .filter(|(labels, count)| counted_before.iter().all(|(old, before)| old != labels || before < count))
            .map(|(labels, _)| labels)
            .collect();
        let [counted] = &*counted else { panic!("{:?}: {counted:?}", self.situation) };
        let source = checked["source"].as_str().unwrap();
        Seen {
            answer: (answer.status, if retry.is_some() { "retry" } else { "" }),
            left: left(&answer.header("ratelimit").unwrap_or_default()),
            allowed: checked["allowed"].as_bool().unwrap(),
            source: known(source, &["store", "exception", "policy", "local"]),
            counted: (
                known(&counted.0, &["allowed", "denied", "shadow_denied", "annotated"]),
                known(&counted.1, &["store", "exception", "policy", "local"]),
            ),
            alert: self.is_alerted(),
            insight: self.insight(),
            audit: self.audit(),
            ready: service.get("/readyz").status,
        }
    }

    /// Alerts check the counters about once a second.
    fn is_alerted(&self) -> bool {
        let raised = || {
            let of = |kind: &str| format!("tollkeeper_alerts_total{{kind=\"{kind}\",status=\"started\"}}");
            ["store_full", "without_store"].iter().any(|kind| self.service.metric(&of(kind)) > 0.0)
        };
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline {
            if raised() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!self.service.log().contains("the memory store is full"), "{}", self.service.log());
        false
    }

    fn insight(&self) -> Insight {
        let (counts, rule) = insight(&self.service);
        let grown: Vec<u64> = counts.iter().zip(self.before.insight).map(|(now, before)| now - before).collect();
        let blocked: Vec<&Value> =
            rule["hot_by_denials"].as_array().unwrap().iter().filter(|one| one["blocked"] == true).collect();
        let sentence = rule["finding"]["sentence"].as_str().unwrap_or_default();
        match grown[..] {
            [2, 0, 0, 0] => Insight::Passed,
            [0, 0, 0, 0] => Insight::Unjudged,
            [0, 2, 0, 0] if blocked.is_empty() => Insight::Denied,
            [0, 0, 2, 0] if blocked.is_empty() => Insight::WouldDeny,
            [0, 0, 0, 2] if blocked.is_empty() => Insight::Annotated,
            [0, denied @ (0 | 2), _, 0] => {
                assert_eq!((&blocked[0]["key"], &blocked[0]["count"]), (&json!(USER), &json!(2)));
                assert!(sentence.contains("2 requests of blocked keys"), "{sentence}");
                assert!(!sentence.contains("nobody was denied"), "{sentence}");
                if denied == 0 { Insight::WouldBlock } else { Insight::Blocked }
            }
            _ => panic!("{:?}: {grown:?} {rule}", self.situation),
        }
    }

    fn audit(&self) -> Audit {
        let found = self.service.get(&format!("/v1/violations?rule={RULE}&key={USER}")).json();
        let records = found["violations"].as_array().unwrap();
        let Some(newest) = records.first() else { return Audit::Nothing };
        assert_eq!(records.len(), 2, "one for each request: {found}");
        let (shadow, blocked) = (newest["shadow"] == true, &newest["blocked"]);
        let mode = match self.situation {
            Shadow | BlockInShadow => "shadow",
            Annotate => "annotate",
            _ => "enforce",
        };
        assert_eq!((&newest["mode"], shadow), (&json!(mode), mode == "shadow"), "{newest}");
        if blocked.is_null() {
            return match mode {
                "shadow" => Audit::WouldDeny,
                "annotate" => Audit::Annotated,
                _ => Audit::Denied,
            };
        }
        assert_eq!(blocked["by"], "ann (admin token)");
        assert_eq!(blocked["until"].is_null(), self.situation == BlockForEver, "{blocked}");
        if shadow { Audit::WouldBlock } else { Audit::Blocked }
    }
}

/// What a `RateLimit` header says is left of the rule.
fn left(header: &str) -> &'static str {
    let Some((_, policy)) = header.split_once(&format!("\"{RULE}\";r=")) else { return "" };
    known(policy.split([';', ',']).next().unwrap_or_default(), &["0", "1", "2"])
}

fn check(service: &Service, user: &str) -> Value {
    service.check(&json!({ "attributes": { "header.x-user": user } }))
}

/// The rule's decisions so far by outcome and source, those above 0.
fn decisions(service: &Service) -> Vec<((String, String), f64)> {
    let page = service.get("/metrics");
    let of_rule = page
        .lines()
        .filter_map(|line| line.strip_prefix(&format!("tollkeeper_decisions_total{{rule=\"{RULE}\",outcome=\"")));
    let found = of_rule.map(|rest| {
        let (outcome, rest) = rest.split_once("\",source=\"").unwrap();
        let (source, count) = rest.split_once("\"} ").unwrap();
        ((outcome.to_string(), source.to_string()), count.trim().parse().unwrap())
    });
    found.filter(|(_, count): &(_, f64)| *count > 0.0).collect()
}

/// What was allowed, denied, would have been denied, and was annotated; and all that insight says about the rule.
fn insight(service: &Service) -> ([u64; 4], Value) {
    let report = service.get("/v1/insight").json();
    let rule = report["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == RULE).cloned().unwrap();
    let count = |name: &str| rule[name].as_u64().unwrap();
    (["allowed", "denied", "shadow_denied", "annotated"].map(count), rule)
}

fn known(text: &str, names: &[&'static str]) -> &'static str {
    names.iter().copied().find(|name| *name == text).unwrap_or_else(|| panic!("{text:?} is none of {names:?}"))
}

/// Rules per-ip and login; the attacker is blocked on per-ip and keeps asking. Insight said `denied 0`, `login
/// allowed 100` and "nobody was denied", the audit was empty, and the card of the login rule turned blue.
#[test]
fn a_blocked_attacker_is_seen_and_other_rules_have_not_decided_anything() {
    let rules = "
trusted_proxies: [127.0.0.1]
client_address: x-forwarded-for
rules:
  - { name: per-ip, key: '{ip}', limit: 50/s }
  - { name: login, key: '{ip}', limit: 5/min }";
    let service = Service::on(rules, &[]);
    let block = json!({ "rule": "per-ip", "key": "203.0.113.9", "kind": "block", "for_ms": 3_600_000 });
    assert_eq!(service.client().send("PUT", "/v1/exceptions", &block.to_string()).status, 200);
    let client = service.client().with("x-forwarded-for", "203.0.113.9");
    let answer = client.get("/v1/authorize");
    let headers = answer.header("ratelimit").unwrap();
    assert!(answer.status == 429 && headers.starts_with("\"per-ip\";r=0;t=3"), "{answer}");
    assert!(!headers.contains("login"), "a rule that was not asked has nothing to tell: {answer}");
    for _ in 0..99 {
        let answer = service.check(&json!({ "attributes": { "ip": "203.0.113.9" } }));
        assert_eq!((&answer["allowed"], &answer["limiting"]), (&json!(false), &json!("per-ip")));
        assert_eq!(answer["source"], "exception");
        let rows = answer["rules"].as_array().unwrap();
        assert_eq!((&rows[0]["exception"], &rows[1]["unasked"]), (&json!("block"), &json!(true)), "{answer}");
    }
    let report = service.get("/v1/insight").json();
    assert_eq!((&report["totals"]["decisions"], &report["totals"]["denied"]), (&json!(100), &json!(100)));
    let [per_ip, login] = [0, 1].map(|index| report["rules"][index].clone());
    assert_eq!((&per_ip["denied"], &per_ip["allowed"]), (&json!(100), &json!(0)));
    assert_eq!((&login["denied"], &login["allowed"]), (&json!(0), &json!(0)), "it was not evaluated");
    assert_eq!(per_ip["hot_by_denials"][0]["key"], "203.0.113.9");
    assert_eq!(per_ip["finding"]["evidence"]["blocked"], 100);
    assert!(login["finding"].is_null(), "{login}");
    let violations = service.get("/v1/violations?ip=203.0.113.9").json();
    assert!(
        violations["violations"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["rule"] == "per-ip" && !one["blocked"].is_null())
    );
    let page = service.get("/metrics");
    assert!(
        page.contains("tollkeeper_decisions_total{rule=\"per-ip\",outcome=\"denied\",source=\"exception\"} 100"),
        "{page}"
    );
    assert!(
        page.contains("tollkeeper_decisions_total{rule=\"login\",outcome=\"allowed\",source=\"store\"} 0"),
        "{page}"
    );
}
