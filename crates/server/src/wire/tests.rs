use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollkeeper::http::AnswerStyle;
use tollkeeper::{
    Descriptor, Hold, Limiter, ManualClock, MemoryStore, Policy, Request as _, RuleSpec, Timestamp, Verdict,
};

use super::hold::{HoldName, HoldTokenError};
use super::*;
use crate::seal::Seal;

fn rule(text: Value) -> RuleSpec {
    serde_json::from_value(text).expect("a rule")
}

async fn verdict(rules: &[Value], attributes: &[(&str, &str)], cost: u32) -> Verdict {
    let policy = Policy::new(rules.iter().cloned().map(rule)).expect("valid rules");
    let clock = ManualClock::at(Timestamp::from_micros(3_000_000));
    let limiter = Limiter::new(policy, MemoryStore::with(100, clock));
    let request = Descriptor::new(attributes.iter().copied()).with_cost(cost);
    limiter.check(&request).await.expect("costs are numbers")
}

fn replay_line(at_us: u64, verdict: &Verdict) -> String {
    let mut line = Vec::new();
    write_replay_line(&mut line, at_us, verdict);
    String::from_utf8(line).expect("JSON is text")
}

fn free_user() -> Value {
    json!({"name": "free-user", "scope": "user", "key": "{user_id}", "limit": "10/s", "burst": 50})
}

#[tokio::test]
async fn a_replayed_line_is_the_one_of_the_documentation() {
    let verdict = verdict(&[free_user()], &[("user_id", "42")], 1).await;
    let expected = r#"{"at_us":3000000,"allowed":true,"limiting":null,"retry_after_us":0,"rules":[{"rule":"free-user","scope":"user","key":"42","allowed":true,"shadow":false,"limit":50,"remaining":49,"retry_after_us":0,"reset_after_us":100000}]}"#;
    assert_eq!(replay_line(3_000_000, &verdict), expected);
}

#[tokio::test]
async fn never_is_null_and_rows_of_queues_and_slots_show_more() {
    let queue = json!({"name": "q", "key": "all", "limit": "4/s", "burst": 2, "algorithm": "leaky_bucket"});
    let slots = json!({"name": "c", "key": "all", "limit": 2, "algorithm": "concurrency"});
    let line = replay_line(3_000_000, &verdict(&[queue.clone(), slots], &[], 1).await);
    assert!(line.contains(r#""rule":"q","scope":null,"#), "{line}");
    assert!(line.contains(r#""reset_after_us":250000,"delay_us":0}"#), "{line}");
    assert!(line.contains(r#""hold":"0.3000000.0"}"#), "{line}");
    let line = replay_line(3_000_000, &verdict(&[queue], &[], 3).await);
    assert!(line.starts_with(r#"{"at_us":3000000,"allowed":false,"limiting":"q","retry_after_us":null,"#), "{line}");
}

/// What the fields are, and in which order; their values are those of the verdict.
#[derive(serde::Serialize)]
struct Line<'v> {
    at_us: u64,
    allowed: bool,
    limiting: Option<&'v str>,
    retry_after_us: Option<u64>,
    rules: Vec<LineRule<'v>>,
}

#[derive(serde::Serialize)]
struct LineRule<'v> {
    rule: &'v str,
    scope: Option<&'v str>,
    key: &'v str,
    allowed: bool,
    shadow: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    limit: u32,
    remaining: u32,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<HoldName>,
}

#[tokio::test]
async fn a_replayed_line_is_what_serde_would_write() {
    let rules = [
        json!({"name": "plain", "scope": "s \"q\"", "key": "{text}", "limit": "3/min"}),
        json!({"name": "queue", "key": "all", "limit": "4/s", "burst": 2, "algorithm": "leaky_bucket"}),
        json!({"name": "slots", "key": "{text}", "limit": 2, "algorithm": "concurrency"}),
        json!({"name": "soft", "scope": "x", "key": "{text}", "limit": "1/day", "mode": "annotate"}),
        json!({"name": "shadow", "key": "{text}", "limit": "1/h", "mode": "shadow"}),
    ];
    let texts = ["plain", "", "a\"b\\c", "line\nend\u{0}\u{1f}", "\u{7f}\u{80}é😀\u{2028}", "/path?q=1&r=<2>"];
    for (text, cost) in texts.iter().flat_map(|text| [(text, 1), (text, 2), (text, 9)]) {
        let verdict = verdict(&rules, &[("text", text)], cost).await;
        let rules = verdict.rows().iter().map(|one| LineRule {
            rule: one.charge.rule.name(),
            scope: one.charge.rule.scope(),
            key: &one.charge.key.value,
            allowed: one.decision.is_allowed(),
            shadow: one.charge.rule.is_shadow(),
            mode: (one.charge.rule.name() == "soft").then_some("annotate"),
            limit: one.decision.limit,
            remaining: one.decision.remaining,
            retry_after_us: one.decision.retry_after().map(|wait| wait.as_micros()),
            reset_after_us: one.decision.reset_after.as_micros(),
            delay_us: (one.charge.rule.name() == "queue").then(|| one.decision.delay().as_micros()),
            hold: HoldName::of(one),
        });
        let line = Line {
            at_us: u64::MAX,
            allowed: verdict.is_allowed(),
            limiting: verdict.limiting().map(|row| row.charge.rule.name()),
            retry_after_us: verdict.retry_after().map(|wait| wait.as_micros()),
            rules: rules.collect(),
        };
        assert_eq!(replay_line(u64::MAX, &verdict), serde_json::to_string(&line).expect("JSON"));
    }
}

/// A check is answered with a text that was put together by hand; batches and reservations are not.
#[tokio::test]
async fn the_answer_to_a_check_is_the_same_in_a_batch() {
    let slots = json!({"name": "c", "key": "all", "limit": 2, "algorithm": "concurrency"});
    let queue = json!({"name": "q", "scope": "a \"queue\"", "key": "{user_id}", "limit": "4/s", "burst": 2, "algorithm": "leaky_bucket"});
    let soft = json!({"name": "s", "key": "all", "limit": "1/min", "mode": "annotate"});
    let shadow = json!({"name": "t", "key": "all", "limit": "1/min", "mode": "shadow"});
    let seal = Seal::random().expect("chance");
    for (rules, cost) in [
        (vec![], 1),
        (vec![free_user()], 1),
        (vec![free_user()], 51),
        (vec![free_user(), slots, queue, soft, shadow], 2),
    ] {
        let verdict = verdict(&rules, &[("user_id", "a \"b\" \n é")], cost).await;
        let headers =
            || (cost == 2).then(|| HeadersAnswer(AnswerStyle::default().headers_for(&verdict, Timestamp::default())));
        let mut text = Vec::new();
        let answer = CheckAnswer::new(&verdict, headers(), &seal);
        answer.write(&mut text);
        assert_eq!(String::from_utf8_lossy(&text), serde_json::to_string(&answer).expect("JSON"));
    }
}

#[test]
fn an_event_is_read() {
    let event = parse_event(r#" {"cost": 2, "at_us": 7, "attributes": {"b": "2", "a": "\u00e9"}} "#).expect("an event");
    assert_eq!((event.at_us, event.request.cost()), (7, 2));
    let values = ["a", "b", "c"].map(|name| event.request.attribute(name));
    assert_eq!(values, [Some("é".into()), Some("2".into()), None]);
    let event = parse_event(r#"{"at_us": 0}"#).expect("attributes and cost may be left out");
    assert_eq!((event.at_us, event.request.cost(), event.request.attribute("a")), (0, 1, None));
}

#[test]
fn what_is_wrong_with_an_event_is_named() {
    let error = |line| parse_event(line).expect_err(line);
    assert!(error("{}").starts_with(r#"at_us: is missing; send for example {"at_us": 3000000"#));
    assert!(
        error(r#"{"at_us": 4503599627370496}"#).starts_with("at_us: must be a whole number from 0 to 4503599627370495")
    );
    assert!(error(r#"{"at_us": 1, "checks": []}"#).starts_with("checks: is not known"));
    assert!(error("").starts_with("there is nothing here"));
    assert!(error("3").contains("not 3"));
}

#[test]
fn every_mistake_in_a_check_is_named_with_its_place() {
    let long = format!(r#"{{"checks": [{}]}}"#, vec!["{}"; 1_001].join(","));
    let names = format!(r#"{{"rules": [{}]}}"#, vec![r#""a""#; 101].join(","));
    let cases: [(&str, &str, &str); 34] = [
        ("", "", "there is nothing here"),
        (" \n", "", "there is nothing here"),
        ("{", "", "this is not JSON: EOF"),
        ("{}}", "", "this is not JSON: trailing characters"),
        ("[]", "", "not a list"),
        ("null", "", "not null"),
        ("\"x\"", "", "not \"x\""),
        (r#"{"atributes": {}}"#, "atributes", "did you mean `attributes`?"),
        (r#"{"Cost": 1}"#, "Cost", "did you mean `cost`?"),
        (r#"{"user_id": "42"}"#, "user_id", "use one of attributes, cost, rules, headers, checks"),
        (r#"{"cost": 1, "cost": 2}"#, "cost", "is given twice"),
        (r#"{"cost": -1}"#, "cost", "not -1"),
        (r#"{"cost": 1.5}"#, "cost", "not 1.5"),
        (r#"{"cost": 4294967296}"#, "cost", "not 4294967296"),
        (r#"{"cost": 99999999999999999999}"#, "cost", "not 100000000000000000000"),
        (r#"{"cost": 1e400}"#, "", "number out of range"),
        (r#"{"cost": "1"}"#, "cost", "not \"1\""),
        (r#"{"cost": null}"#, "cost", "not null"),
        (r#"{"attributes": []}"#, "attributes", "not a list"),
        (r#"{"attributes": {"user_id": 42}}"#, "attributes.user_id", "quote it: \"42\""),
        (r#"{"attributes": {"on": true}}"#, "attributes.on", "quote it: \"true\""),
        (r#"{"attributes": {"a": null}}"#, "attributes.a", "leave the attribute out"),
        (r#"{"attributes": {"a": {"b": "c"}}}"#, "attributes.a", "flat map"),
        (r#"{"attributes": {"a": "1", "b": "2", "a": "3"}}"#, "attributes.a", "is given twice"),
        (r#"{"checks": [], "attributes": {}}"#, "checks", "cannot be combined with other fields"),
        (r#"{"checks": [{}], "headers": true}"#, "checks", "cannot be combined with other fields"),
        (r#"{"headers": "yes"}"#, "headers", "must be true or false, not \"yes\""),
        (r#"{"headers": null}"#, "headers", "not null"),
        (r#"{"rules": "login"}"#, "rules", "must be a list of rules, such as [\"login\"], not \"login\""),
        (r#"{"rules": []}"#, "rules", "is empty; name a rule, or leave it out for all rules"),
        (r#"{"checks": [{"rules": ["a", 1]}]}"#, "checks[0].rules[1]", "must be a string, not 1"),
        (&names, "rules", "more than 100 items"),
        (r#"{"checks": [{}, {}, {}, {"cost": -2}]}"#, "checks[3].cost", "not -2"),
        (&long, "checks", "more than 1000 items"),
    ];
    for (body, field, problem) in cases {
        let invalid = parse_check(body.as_bytes()).expect_err(body);
        assert_eq!(invalid.field, field, "{body}");
        assert!(invalid.problem.contains(problem), "{body}: {invalid}");
    }
}

#[test]
fn bytes_that_are_no_text_and_nesting_without_end_are_refused() {
    parse_check(b"{\"attributes\": {\"a\": \"\xff\"}}").expect_err("no UTF-8");
    parse_check(b"\xff\xfe{\0}\0").expect_err("UTF-16");
    parse_check(br#"{"attributes": {"a": "\ud800"}}"#).expect_err("half a character");
    parse_check(&[b'['; 60_000]).expect_err("a deep list");
    parse_check("{\"checks\":[".repeat(6_000).as_bytes()).expect_err("deep batches");
}

#[test]
fn names_from_outside_are_repeated_only_in_part() {
    let body = format!(r#"{{"{}": 1}}"#, "é".repeat(30_000));
    let invalid = parse_check(body.as_bytes()).expect_err("unknown");
    assert_eq!(invalid.field, format!("{}…", "é".repeat(60)));
    assert!(invalid.problem.len() < 200);
}

#[test]
fn attributes_are_found_in_whatever_order_they_came() {
    let names: Vec<String> = (0..100).map(|n| format!("n{}", n * 37 % 100)).collect();
    let pairs: Vec<String> = names.iter().map(|name| format!(r#""{name}": "v{name}""#)).collect();
    let body = format!(r#"{{"attributes": {{{}}}, "cost": 3.0}}"#, pairs.join(","));
    let Ok(CheckBody::One(check)) = parse_check(body.as_bytes()) else { panic!("one check") };
    assert_eq!(check.cost(), 3, "a whole number is one however it is written");
    for name in names {
        assert_eq!(check.attribute(&name).as_deref(), Some(format!("v{name}").as_str()));
    }
    assert_eq!(check.attribute("n"), None);
}

#[test]
fn a_hold_is_read_as_it_was_written_and_nothing_else_is_one() {
    const SEAL: &str = "000102030405060708090a0b0c0d0e0f";
    let name = HoldName { variant: 3, hold: Hold { at: Timestamp::from_micros(1_767_225_600_000_000), nth: 7 } };
    let token = HoldToken { name, seal: std::array::from_fn(|byte| byte as u8) };
    assert_eq!(token.to_string(), format!("3.1767225600000000.7.{SEAL}"));
    assert_eq!(token.to_string().parse(), Ok(token));
    for bad in
        ["", ".", "1.2", "1.2.3.4", "1.2.", "+1.2.3", "1.-2.3", "a.b.c", " 1.2.3", "123456.1.1", "1.2.12345678901"]
    {
        for bad in [bad.to_string(), format!("{bad}.{SEAL}")] {
            assert_eq!(bad.parse::<HoldToken>(), Err(HoldTokenError), "{bad}");
        }
    }
    for seal in ["", "00", &SEAL[1..], &SEAL.to_uppercase(), &format!("{SEAL}00")] {
        assert_eq!(format!("1.2.3.{seal}").parse::<HoldToken>(), Err(HoldTokenError), "{seal}");
    }
    let none = format!("99999.9999999999999999.9999999999.{SEAL}");
    none.parse::<HoldToken>().expect("of the right form, though there is no such slot");
}

#[test]
fn what_is_wrong_with_a_release_is_named() {
    let error = |body: &str| parse_release(body.as_bytes()).expect_err(body).to_string();
    assert!(error("{}").starts_with("rule: is missing"));
    let sealed = format!("0.1.0.{}", "0".repeat(32));
    assert!(error(&format!(r#"{{"rule": "r", "hold": "{sealed}"}}"#)).starts_with("key: is missing"));
    assert!(error(r#"{"rule": "r", "key": "k", "hold": "mine"}"#).starts_with("hold: \"mine\" is not a hold"));
    assert!(error(r#"{"rule": 1}"#).starts_with("rule: must be a string, not 1"));
    assert!(error(r#"{"rules": "r"}"#).contains("did you mean `rule`?"));
}

/// A check and a batch are described as two types, but parsed as one.
#[test]
fn what_is_described_is_what_is_read() {
    let schema = schemars::schema_for!(CheckBody<'_>);
    let mut described = BTreeSet::new();
    let one = &schema.as_value()["$defs"]["Check"]["properties"];
    let many = &schema.as_value()["anyOf"][1]["properties"];
    for properties in [one, many] {
        described.extend(properties.as_object().expect("properties").keys().map(String::as_str));
    }
    let said = parse_check(br#"{"nothing of the kind": 1}"#).expect_err("unknown").problem;
    let read = said.strip_prefix("is not known; use one of ").expect("all that is known");
    assert_eq!(described, read.split(", ").collect());
}

#[tokio::test]
async fn problems_have_the_members_that_are_described() {
    let names = |fields: &Value| fields.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
    let described = |schema: schemars::Schema| names(&schema.as_value()["properties"]);
    let written = |body: &[u8]| names(&serde_json::from_slice(body).expect("JSON"));
    let verdict = verdict(&[free_user()], &[("user_id", "42")], 51).await;
    let denial = AnswerStyle::default().deny(&verdict, Timestamp::default());
    assert_eq!(written(&denial.body), described(schemars::schema_for!(DenialAnswer)));
    let problem: tollkeeper::http::Answer = tollkeeper::http::Problem::invalid("cost", "is wrong").into();
    assert_eq!(written(&problem.body), described(schemars::schema_for!(ProblemAnswer)));
}
