//! Traffic of many kinds against a real limiter in virtual time, and the findings.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tollkeeper::{Descriptor, Exception, ExceptionKind, ManualClock, MemoryStore, Policy, RuleSpec, Span};

use super::*;
use crate::metrics::Front;
use crate::privacy::{MAX_KEY, fingerprint};

const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A client that sends a request every `every_ms`, from `from_ms` until it has sent `requests`.
#[derive(Clone)]
struct Client {
    attributes: Vec<(&'static str, String)>,
    from_ms: u64,
    every_ms: u64,
    requests: u32,
    /// Whether it obeys Retry-After, or keeps to its own pace.
    waits: bool,
}

impl Client {
    fn new(key: impl ToString) -> Client {
        let attributes = vec![("ip", key.to_string())];
        Client { attributes, from_ms: 0, every_ms: 1_000, requests: 60, waits: true }
    }

    fn from(self, from_ms: u64) -> Client {
        Client { from_ms, ..self }
    }

    fn every(self, every_ms: u64, requests: u32) -> Client {
        Client { every_ms, requests, ..self }
    }

    fn hammers(self) -> Client {
        Client { waits: false, ..self }
    }

    fn with(mut self, name: &'static str, value: &str) -> Client {
        self.attributes.push((name, value.into()));
        self
    }
}

struct World {
    limiter: Limiter,
    metrics: Metrics,
    observer: Observer,
    clock: ManualClock,
}

impl World {
    fn new(rules: impl IntoIterator<Item = Value>) -> World {
        World::with(Settings::default(), rules)
    }

    fn with(settings: Settings, rules: impl IntoIterator<Item = Value>) -> World {
        let rules = rules.into_iter().map(|rule| serde_json::from_value::<RuleSpec>(rule).expect("a rule"));
        let clock = ManualClock::at(BEGIN);
        let store = MemoryStore::with(100_000, clock.clone());
        let limiter = Limiter::new(Policy::new(rules).expect("valid rules"), store);
        World { limiter, metrics: crate::front::metrics(), observer: Observer::new(settings, BEGIN), clock }
    }

    /// Runs the clients until they are done; notes are read as often as the service does.
    async fn run(&self, clients: impl IntoIterator<Item = Client>) {
        let mut clients: Vec<Client> = clients.into_iter().collect();
        let start = self.clock.now().as_micros();
        let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        next.extend(clients.iter().enumerate().map(|(index, client)| Reverse((start + client.from_ms * 1_000, index))));
        let mut read_at = start;
        while let Some(Reverse((at, index))) = next.pop() {
            self.clock.set(Timestamp::from_micros(at));
            if at >= read_at {
                drop(self.observer.refresh(&self.limiter, &self.metrics));
                read_at = at + 200_000;
            }
            let client = &mut clients[index];
            let verdict = self.check(client.attributes.clone()).await;
            client.requests -= 1;
            let pause = client.every_ms * 1_000;
            let wait = verdict.retry_after().map_or(0, Span::as_micros);
            let pause = if client.waits { pause.max(wait) } else { pause };
            if client.requests > 0 {
                next.push(Reverse((at + pause, index)));
            }
        }
    }

    async fn check(&self, attributes: Vec<(&str, String)>) -> tollkeeper::Verdict {
        let request = Descriptor::new(attributes);
        let verdict = self.limiter.check(&request).await.expect("decided");
        self.metrics.count_outcome(Front::Http, &verdict);
        self.metrics.record(&self.limiter, verdict.rows(), 1, Duration::from_micros(3));
        self.observer.observe(&self.limiter, verdict.rows(), &request);
        verdict
    }

    fn report(&self) -> Value {
        serde_json::to_value(self.observer.report(&self.limiter, &self.metrics)).expect("JSON")
    }

    async fn violations(&self, query: &Query) -> Page {
        self.observer.violations(&self.limiter, &self.metrics, query).await.expect("an answer").0
    }

    fn found(&self) -> (String, String) {
        let report = self.report();
        assert_eq!(report["dropped"], json!({"decisions": 0, "violations": 0}));
        let finding = &report["rules"][0]["finding"];
        let text = |field: &str| finding[field].as_str().expect("text").to_string();
        (text("kind"), text("sentence"))
    }
}

fn per_ip(limit: &str) -> Value {
    json!({"name": "per-ip", "key": "{ip}", "limit": limit})
}

/// Each scenario: its story, the rule, the clients, and the expected finding.
#[tokio::test]
async fn what_is_found_in_traffic() {
    let calm = |count: usize| (0..count).map(|ip| Client::new(ip).from(ip as u64 * 37 % 5_000).every(5_000, 12));
    let needy = |count: usize| (0..count).map(|ip| Client::new(ip).from(ip as u64 * 37 % 5_000).every(640, 600));
    let scrapers = || (0..1_000).map(|ip| Client::new(format!("bot-{ip}")).every(50, 400).hammers());
    let scenarios: Vec<(&str, Value, Vec<Client>, &str, &str)> = vec![
        (
            "everybody is within the limit",
            per_ip("60/min"),
            calm(30).collect(),
            "quiet",
            "seconds: 360 requests by 30 keys",
        ),
        (
            "a handful of denials",
            per_ip("10/min"),
            vec![Client::new("a").every(10, 17)],
            "not_enough_data",
            "4 denials in the last 18 seconds: too few to tell",
        ),
        (
            "one who guesses passwords",
            json!({"name": "login", "key": "{ip}", "limit": "5/min", "algorithm": "sliding_window_log"}),
            (0..200)
                .map(|ip| Client::new(ip).from(ip * 400).every(20_000, 2))
                .chain([Client::new("guesser").every(100, 3_000).hammers()])
                .collect(),
            "abuse",
            "100 % of denials come from 1 key that retries without waiting: looks like abuse",
        ),
        (
            "two of whom nobody waits, and some who were just unlucky",
            per_ip("30/min"),
            calm(98)
                .chain([Client::new("x").every(50, 1_200).hammers(), Client::new("y").every(60, 1_000).hammers()])
                .chain((0..3).map(|ip| Client::new(format!("unlucky-{ip}")).every(1_000, 50)))
                .collect(),
            "abuse",
            "of denials come from 2 keys that retry without waiting: looks like abuse",
        ),
        (
            "a scraper with a thousand addresses",
            per_ip("60/min"),
            scrapers().chain(calm(300)).collect(),
            "abuse",
            "of all keys were denied in the last 59 seconds, and over 99 % of those retry without waiting: looks like abuse from many keys at once",
        ),
        (
            "a limit that is too low for everybody",
            per_ip("60/min"),
            needy(40).collect(),
            "too_low",
            "of those wait before retrying: the limit looks too low; 100/min would have denied nobody",
        ),
        (
            "a crowd that comes all at once",
            per_ip("10/min"),
            (0..500).map(|ip| Client::new(ip).from(ip * 60).every(2_000, 15)).collect(),
            "too_low",
            "the limit looks too low; 12/min would have denied nobody",
        ),
        (
            "one busy client that waits before retrying",
            per_ip("60/min"),
            calm(100).chain([Client::new("busy").every(200, 300)]).collect(),
            "mixed",
            "100 % of denials come from 1 key that waits before retrying: a client in need of a higher limit rather than abuse",
        ),
        (
            "a shadow rule that is being tuned",
            json!({"name": "tuned", "key": "{ip}", "limit": "60/min", "mode": "shadow"}),
            needy(40).collect(),
            "too_low",
            "100 % of all keys would have been denied in the last",
        ),
        (
            "a limit for all together",
            json!({"name": "everybody", "key": "global", "limit": "10/s"}),
            scrapers().collect(),
            "mixed",
            "and all share one key: a rule with a key per client would show who",
        ),
    ];
    let mut wrong = Vec::new();
    for (story, rule, clients, kind, part) in scenarios {
        let world = World::new([rule]);
        world.run(clients).await;
        let (found, sentence) = world.found();
        if found != kind || !sentence.contains(part) {
            wrong.push(format!("{story}: {found}: {sentence}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn yesterdays_attack_fades() {
    let world = World::new([per_ip("10/min")]);
    world.run([Client::new("attacker").every(100, 600).hammers()]).await;
    assert_eq!(world.found().0, "abuse");
    world.clock.advance(Span::from_secs(1_800));
    assert_eq!(world.found().0, "abuse", "half an hour later it is still reported");
    world.clock.advance(Span::from_secs(1_800));
    assert_eq!(world.found(), ("not_enough_data".into(), "no request in the last 31 minutes".into()));
}

#[tokio::test]
async fn hot_keys_series_and_totals_agree() {
    let world = World::new([per_ip("60/min")]);
    let clients =
        (0..200u64).map(|ip| Client::new(ip).every(1_000, 10)).chain([Client::new("hot").every(100, 600).hammers()]);
    world.run(clients).await;
    let report = world.report();
    let rule = &report["rules"][0];
    let sum = |series: &Value| series.as_array().expect("a list").iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(report["totals"]["decisions"], 2_600);
    for series in ["seconds", "minutes"] {
        assert_eq!(rule["allowed"], sum(&rule[series]["allowed"]), "{series}");
        assert_eq!(rule["denied"], sum(&rule[series]["denied"]), "{series}");
    }
    assert_eq!(
        (&rule["hot_by_denials"][0]["key"], &rule["hot_by_denials"][0]["count"]),
        (&json!("hot"), &rule["denied"])
    );
    assert_eq!(rule["hot_by_denials"][0]["error"], 0);
    let (count, error) = (&rule["hot_by_traffic"][0]["count"], &rule["hot_by_traffic"][0]["error"]);
    assert_eq!(rule["hot_by_traffic"][0]["key"], "hot");
    let (count, error) = (count.as_u64().expect("a count"), error.as_u64().expect("an error"));
    assert!((count - error..=count).contains(&600) && error <= 2_600 / 64, "{count} {error}");
    assert_eq!(report["latency"]["p99_us"], 5.0, "the bucket that three microseconds fall into");
}

#[tokio::test]
async fn every_denial_is_in_the_audit_once() {
    let world = World::new([per_ip("5/min"), json!({"name": "s", "key": "{ip}", "limit": "2/min", "mode": "shadow"})]);
    let clients = (0..30u64).map(|ip| Client::new(ip).every(100 + 40 * ip, 100).hammers());
    world.run(clients).await;
    world.clock.advance(Span::from_secs(2));
    let report = world.report();
    let query = Query { limit: 100_000, ..Query::default() };
    let page = world.violations(&query).await;
    for (index, name) in ["per-ip", "s"].into_iter().enumerate() {
        let records = page.violations.iter().filter(|violation| &*violation.rule == name);
        let rule = &report["rules"][index];
        let denied = if name == "s" { &rule["shadow_denied"] } else { &rule["denied"] };
        assert_eq!(records.map(|violation| violation.count).sum::<u64>(), *denied, "{name}");
    }
}

#[tokio::test]
async fn secrets_are_neither_reported_nor_recorded() {
    let rule = json!({"name": "keys", "key": "{api_key|ip}", "limit": "1/min"});
    let world = World::new([rule]);
    world.run([Client::new("203.0.113.9").with("api_key", "hunter2"), Client::new("203.0.113.10")]).await;
    let page = world.violations(&Query::default()).await;
    let said = format!("{} {:?}", world.report(), page);
    assert!(!said.contains("hunter2"), "{said}");
    assert!(said.contains(&fingerprint("hunter2")) && said.contains("203.0.113.10"), "{said}");
    assert_eq!(page.violations[0].ip.as_deref(), Some("203.0.113.10"));
}

/// Rules change while traffic continues: what was learned about the old limit says nothing about the new one.
#[tokio::test]
async fn a_changed_limit_is_judged_from_the_start() {
    let world = World::new([per_ip("10/min")]);
    world.run([Client::new("attacker").every(100, 600).hammers()]).await;
    let spec: RuleSpec = serde_json::from_value(per_ip("1,000/min")).expect("a rule");
    world.limiter.replace_policy(Policy::new([spec]).expect("valid"));
    assert_eq!(world.found().0, "not_enough_data");
    assert!(world.report()["rules"][0]["denied"].as_u64() > Some(500), "the totals are kept");
    world.limiter.replace_policy(Policy::default());
    assert_eq!(world.report()["rules"], json!([]));
}

/// No reader: the lists fill up, and everything beyond is counted.
#[tokio::test]
async fn what_finds_no_room_is_counted() {
    let world = World::new([per_ip("5/min")]);
    for _ in 0..100_000 {
        world.check(vec![("ip", "x".repeat(5_000))]).await;
    }
    let report = world.report();
    let dropped = report["dropped"]["violations"].as_u64().expect("a number");
    world.clock.advance(Span::from_secs(2));
    let page = world.violations(&Query::default()).await;
    let recorded: u64 = page.violations.iter().map(|violation| violation.count).sum();
    assert!(dropped > 0);
    assert_eq!(recorded + dropped, 100_000 - 5);
    assert!(page.violations.iter().all(|violation| violation.key.len() <= MAX_KEY));
}

/// Allowed requests are not even noted, and denials are recorded as always.
#[tokio::test]
async fn without_analysis_there_are_totals_and_the_audit() {
    let settings = Settings { analysis: Analysis::Off, ..Settings::default() };
    let world = World::with(settings, [per_ip("5/min")]);
    world.run([Client::new("a").every(100, 20).hammers(), Client::new("b").every(100, 3)]).await;
    world.clock.advance(Span::from_secs(2));
    let (report, page) = (world.report(), world.violations(&Query::default()).await);
    let recorded: u64 = page.violations.iter().map(|violation| violation.count).sum();
    assert_eq!((recorded, page.violations[0].key.as_str()), (15, "a"));
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["allowed"], &rule["denied"], &report["totals"]["decisions"]),
        (&json!(8), &json!(15), &json!(23))
    );
    assert_eq!(
        (&report["observing"], &rule["finding"], &rule["hot_by_traffic"]),
        (&json!(false), &Value::Null, &json!([]))
    );
    assert_eq!(report["latency"]["p99_us"], Value::Null);
    assert_eq!(report["dropped"], json!({"decisions": 0, "violations": 0}));
}

/// 10 requests, 9 of them denied, under five rules of which one is in shadow mode: it said "36 % denied, 18 of 50",
/// which counted decisions, and among them what the shadow rule would have denied.
#[tokio::test]
async fn a_request_is_counted_once_whatever_the_number_of_its_rules() {
    let generous = ["a", "b", "c"].map(|name| json!({"name": name, "key": "{ip}", "limit": "1000/min"}));
    let shadow = json!({"name": "s", "key": "{ip}", "limit": "1/min", "mode": "shadow"});
    let world = World::new(generous.into_iter().chain([per_ip("1/min"), shadow]));
    world.run([Client::new("x").every(10, 10).hammers()]).await;
    let report = world.report();
    let totals = &report["totals"];
    assert_eq!((&totals["requests"], &totals["allowed"], &totals["denied"]), (&json!(10), &json!(1), &json!(9)));
    assert_eq!((&totals["share_denied"], &totals["decisions"]), (&json!(0.9), &json!(50)));
    assert_eq!(totals["shadow_denied"], 9, "apart, and never among the denied");
    let rule =
        |name: &str| report["rules"].as_array().expect("a list").iter().find(|rule| rule["name"] == name).cloned();
    let (enforced, shadow) = (rule("per-ip").expect("a rule"), rule("s").expect("a rule"));
    assert_eq!((&enforced["denied"], &enforced["shadow_denied"]), (&json!(9), &json!(0)));
    assert_eq!((&shadow["denied"], &shadow["shadow_denied"]), (&json!(0), &json!(9)));
    assert_eq!(report["requests"]["seconds"]["denied"].as_array().map(Vec::len), Some(1));
}

/// 50 requests that matched no rule were "no traffic yet".
#[tokio::test]
async fn traffic_without_a_rule_is_seen_with_what_it_lacks() {
    let rule =
        |name: &str, plan: &str| json!({"name": name, "key": "{user_id}", "limit": "9/s", "when": {"plan": plan}});
    let world = World::new([rule("free", "free"), rule("pro", "pro")]);
    assert_eq!(world.report()["findings"], json!([]));
    world.run((0..31).map(|ip| Client::new(ip).with("user_id", "1").every(10, 1))).await;
    world.run((0..7).map(|ip| Client::new(ip).with("user_id", "1").with("plan", "trial").every(10, 1))).await;
    world.run((0..62).map(|ip| Client::new(ip).with("user_id", "1").with("plan", "free").every(500, 1))).await;
    let report = world.report();
    assert_eq!((&report["totals"]["requests"], &report["totals"]["no_rule"]), (&json!(100), &json!(38)));
    let finding = &report["findings"][0];
    assert_eq!(finding["kind"], "no_rule");
    assert_eq!(finding["sentence"], "38 % of requests matched no rule in the last second; most of these lack `plan`");
    assert_eq!(finding["evidence"]["lacking"], json!([{"attribute": "plan", "requests": 31}]));
    // New rules are judged by what comes after them.
    let spec: RuleSpec = serde_json::from_value(per_ip("9/s")).expect("a rule");
    world.limiter.replace_policy(Policy::new([spec]).expect("valid"));
    assert_eq!(world.report()["findings"], json!([]));
}

/// "25/min would have denied nobody" was said of a rule of 12/min with burst 3. Set to 30/min it still denied 89 % of
/// the keys and asked for 60/min: the advice meant a larger burst as well, and did not see that clients had waited.
#[tokio::test]
async fn advice_works_when_it_is_followed() {
    for (limit, burst, algorithm) in [
        ("12/min", 3, "token_bucket"),
        ("40/min", 40, "token_bucket"),
        ("20/min", 20, "fixed_window"),
        ("20/min", 20, "sliding_window_counter"),
    ] {
        let needy = || (0..40).map(|ip| Client::new(ip).from(ip as u64 * 137 % 5_000).every(900, 300));
        let mut rule = json!({"name": "per-ip", "key": "{ip}", "limit": limit, "algorithm": algorithm});
        if algorithm == "token_bucket" {
            rule["burst"] = json!(burst);
        }
        let world = World::new([rule.clone()]);
        world.run(needy()).await;
        let report = world.report();
        let (finding, advice) = (&report["rules"][0]["finding"], &report["rules"][0]["advice"]);
        assert_eq!((&finding["kind"], &advice["action"]), (&json!("too_low"), &json!("set_limit")), "{finding}");
        let sentence = finding["sentence"].as_str().expect("text");
        let written = finding["evidence"]["enough"]["written"].as_str().expect("text");
        assert!(sentence.contains(&format!("{written} would have denied nobody")), "{sentence}");
        rule["limit"] = advice["limit"].clone();
        if algorithm == "token_bucket" {
            rule["burst"] = advice["burst"].clone();
            assert_eq!(written.contains("with burst"), burst == 3, "{written}");
        }
        let followed = World::new([rule]);
        followed.run(needy()).await;
        assert_eq!(followed.report()["rules"][0]["denied"], 0, "{algorithm} {limit}: {sentence}");
    }
}

/// Every tenant "looked like abuse", in turns with other verdicts: a wait means nothing where slots are released by
/// others, and a rate is no advice.
#[tokio::test]
async fn slots_are_judged_by_how_many_are_in_use() {
    let world =
        World::new([json!({"name": "jobs", "key": "{ip}", "algorithm": "concurrency", "limit": 3, "hold": "1min"})]);
    world.run((0..20).map(|ip| Client::new(ip).from(ip * 7).every(100, 60).hammers())).await;
    let (kind, sentence) = world.found();
    assert_eq!(kind, "too_low", "{sentence}");
    assert!(sentence.contains("with all slots in use: the limit looks too low, or slots are released too late"));
    assert_eq!(world.report()["rules"][0]["advice"], Value::Null);
}

/// The operator blocks the attacker, and sees that the attack is over.
#[tokio::test]
async fn a_blocked_attacker_is_no_finding_any_more() {
    let world = World::new([per_ip("10/min")]);
    let others = || (0..30).map(|ip| Client::new(ip).from(ip * 37).every(10_000, 5));
    world.run(others().chain([Client::new("attacker").every(100, 600).hammers()])).await;
    let report = world.report();
    assert_eq!(report["rules"][0]["finding"]["kind"], "abuse");
    let advice = json!({"action": "block", "keys": [{"key": "attacker", "by": null}], "for_ms": 3_600_000});
    assert_eq!(report["rules"][0]["advice"], advice);
    let until = world.clock.now() + Span::from_secs(3_600);
    let block = Exception::new("per-ip", "attacker", ExceptionKind::Block).until(until);
    world.limiter.except(block).await.expect("made");
    world.run(others().chain([Client::new("attacker").every(100, 100).hammers()])).await;
    let (kind, sentence) = world.found();
    assert_eq!(kind, "quiet", "{sentence}");
    assert!(
        sentence.contains("the limit denied nobody") && sentence.contains("100 requests of blocked keys"),
        "{sentence}"
    );
}

/// The share of keys that are denied stays around the threshold, now above and now below it.
#[tokio::test]
async fn a_verdict_is_kept_until_more_than_a_little_has_changed() {
    let world = World::new([per_ip("10/min")]);
    let mut kinds = Vec::new();
    for turn in 0..40u64 {
        // 20 of 100 keys are denied, then 20 of 105, 21 of 105, and so on.
        let denied = if turn == 0 { 0..20 } else { 20 + turn / 2..21 + turn / 2 };
        let calm = if turn == 0 { 0..80 } else { 80 + turn * 3..83 + turn * 3 };
        let needy = denied.map(|ip| Client::new(format!("needy-{ip}")).every(400, 30));
        world.run(needy.chain(calm.map(|ip| Client::new(format!("calm-{ip}")).every(400, 1)))).await;
        kinds.push(world.found().0);
    }
    let changes = kinds.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(changes <= 1, "{kinds:?}");
}

/// An idle service read its lists and counters five times a second, for nothing.
#[tokio::test]
async fn a_reader_without_notes_waits_for_the_first() {
    let world = World::new([per_ip("10/min")]);
    let is_idle = || world.observer.refresh(&world.limiter, &world.metrics).is_idle;
    assert!(is_idle(), "nothing has happened");
    let mut begun = std::pin::pin!(world.observer.capture.begun.notified());
    assert_eq!(begun.as_mut().now_or_never(), None);
    world.check(vec![("ip", "a".into())]).await;
    assert_eq!(begun.as_mut().now_or_never(), Some(()), "the first note wakes it");
    assert!(!is_idle(), "there was a note");
    assert!(!is_idle(), "a decision is counted after it is timed, so the counters are read once more");
    assert!(is_idle());
    // No rule applies: it is counted, but leaves no note.
    world.check(vec![("user_id", "a".into())]).await;
    assert!(!is_idle(), "a request was counted");
}
