use serde_json::Value;
use tollkeeper_core::{DenySpec, Descriptor, Enforcement, Outcome, Policy, Row, RuleSpec, Source, State, decide_all};

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn rule(name: &str, limit: &str) -> RuleSpec {
    RuleSpec { name: name.into(), key: "{header.authorization}".into(), limit: limit.into(), ..RuleSpec::default() }
}

/// The verdict on the `nth` request of this cost.
fn verdict(rules: Vec<RuleSpec>, cost: u32, nth: usize) -> Verdict {
    let policy = Policy::new(rules).expect("valid rules");
    let request = Descriptor::new([("header.authorization", "secret-token")]).with_cost(cost);
    let charges = policy.charges(&request).expect("charges");
    let mut states = vec![State::default(); charges.len()];
    let mut decisions = Vec::new();
    for _ in 0..nth {
        let decided = decide_all(&charges, &states, NOW);
        decisions = decided.iter().map(|(decision, _)| *decision).collect();
        for (state, (_, change)) in states.iter_mut().zip(decided) {
            state.apply(change);
        }
    }
    let rows = charges.into_iter().zip(decisions);
    Verdict::new(rows.map(|(charge, decision)| Row { charge, decision, source: Source::Store }).collect())
}

fn problem(answer: &Answer) -> Value {
    assert_eq!(answer.headers[CONTENT_TYPE], "application/problem+json");
    assert_eq!(answer.headers[CACHE_CONTROL], "no-store");
    serde_json::from_slice(&answer.body).expect("json")
}

#[test]
fn a_denial_says_when_to_come_back_and_whose_limit_it_is() {
    let shadow = RuleSpec { mode: Enforcement::Shadow, ..rule("trial", "1/h") };
    let denied = verdict(vec![rule("burst", "1/2s"), rule("roomy", "9/s"), rule("daily", "1/min"), shadow], 1, 2);
    let answer = AnswerStyle::default().deny(&denied, NOW);
    assert_eq!(answer.status, 429);
    assert_eq!(answer.headers[RETRY_AFTER], "60");
    assert_eq!(answer.headers["ratelimit-policy"], r#""burst";q=1;w=2,"roomy";q=9;w=1,"daily";q=1;w=60"#);
    let problem = problem(&answer);
    assert_eq!(problem["type"], QUOTA_EXCEEDED);
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["detail"], "The limit of rule `daily` is reached; retry in 60 seconds.");
    assert_eq!(problem["violated-policies"], json!(["burst", "daily"]));
    assert_eq!(problem["retry_after_ms"], 60_000);
}

#[test]
fn a_short_wait_is_shown_in_full_and_never_as_zero() {
    let answer = AnswerStyle::default().deny(&verdict(vec![rule("fast", "3/s")], 3, 2), NOW);
    assert_eq!(answer.headers[RETRY_AFTER], "1");
    let short = AnswerStyle::default().deny(&verdict(vec![rule("fast", "1000000/s")], 1_000_000, 2), NOW);
    assert_eq!(problem(&short)["retry_after_ms"], 1_000);
    let answer = AnswerStyle::default().deny(&verdict(vec![rule("fast", "3/100ms")], 1, 4), NOW);
    assert_eq!(answer.headers[RETRY_AFTER], "1");
    assert_eq!(problem(&answer)["retry_after_ms"], 34);
    assert_eq!(problem(&answer)["detail"], "The limit of rule `fast` is reached; retry in 34 milliseconds.");
}

#[test]
fn what_can_never_pass_is_not_asked_to_retry() {
    let answer = AnswerStyle::default().deny(&verdict(vec![rule("small", "5/s")], 6, 1), NOW);
    assert_eq!(answer.status, 429);
    assert!(!answer.headers.contains_key(RETRY_AFTER));
    let problem = problem(&answer);
    assert_eq!(problem["retry_after_ms"], Value::Null);
    let detail = problem["detail"].as_str().expect("text");
    assert!(detail.contains("the cost exceeds the limit") && detail.contains("costs 6"), "{detail}");
}

#[test]
fn a_store_that_is_unreachable_is_503() {
    let charge = verdict(vec![rule("strict", "5/s")], 1, 1).rows()[0].charge.clone();
    let outcome = Outcome::Denied { retry_after: Some(Span::SECOND) };
    let unreachable = Verdict::new(vec![Row::without_store(charge, outcome)]);
    let style = AnswerStyle { deny_status: StatusCode::FORBIDDEN, ..AnswerStyle::default() };
    let answer = style.deny(&unreachable, NOW);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers[RETRY_AFTER], "1");
    assert_eq!(problem(&answer)["type"], REDUCED_CAPACITY);
    assert_eq!(problem(&answer)["violated-policies"], json!(["strict"]));
}

#[test]
fn no_answer_repeats_a_key() {
    let answer = AnswerStyle::default().deny(&verdict(vec![rule("r", "1/s")], 1, 2), NOW);
    let text = format!("{:?} {}", answer.headers, String::from_utf8_lossy(&answer.body));
    assert!(!text.contains("secret"), "{text}");
    let error = CostError { rule: "r".into(), attribute: "header.x".into(), value: "secret".into() };
    let answer = Answer::bad_cost(&error);
    assert_eq!(answer.status, 400);
    assert!(problem(&answer)["detail"].as_str().is_some_and(|text| text.contains("`header.x`")));
    assert!(!String::from_utf8_lossy(&answer.body).contains("secret"));
}

#[test]
fn the_style_is_followed() {
    let style = AnswerStyle { headers: HeaderStyle::XRateLimitEpoch, deny_status: StatusCode::FORBIDDEN, deny: None };
    let denied = verdict(vec![rule("r", "1/10s")], 1, 2);
    let answer = style.deny(&denied, NOW);
    assert_eq!(
        (answer.status, &answer.headers["x-ratelimit-reset"]),
        (StatusCode::FORBIDDEN, &"1700000010".parse().expect("value"))
    );
    assert_eq!(problem(&answer)["status"], 403);
    let bare = AnswerStyle { headers: HeaderStyle::None, ..AnswerStyle::default() }.deny(&denied, NOW);
    assert_eq!(bare.headers.len(), 3, "{:?}", bare.headers);
    assert_eq!(bare.headers[RETRY_AFTER], "10");
    let allowed = AnswerStyle::default().headers_for(&verdict(vec![rule("r", "2/s")], 1, 1), NOW);
    assert_eq!(allowed["ratelimit"], r#""r";r=1;t=1"#);
}

#[test]
fn a_rule_may_deny_in_its_own_words_and_the_standard_headers_stay() {
    let deny = DenySpec {
        status: Some(403),
        content_type: Some("application/json".into()),
        body: Some(r#"{"error": "${rule} allows ${limit}", "wait": ${retry_after}, "ms": ${retry_after_ms}}"#.into()),
    };
    let own = |deny| RuleSpec { deny: Some(deny), ..rule("logins", "1/90s") };
    let answer = AnswerStyle::default().deny(&verdict(vec![own(deny.clone())], 1, 2), NOW);
    assert_eq!(
        (answer.status.as_u16(), &answer.headers[CONTENT_TYPE]),
        (403, &"application/json".parse().expect("one"))
    );
    assert_eq!(answer.headers[RETRY_AFTER], "90");
    assert!(answer.headers.contains_key("ratelimit"));
    let body: Value = serde_json::from_slice(&answer.body).expect("json");
    assert_eq!(body, json!({"error": "logins allows 1", "wait": 90, "ms": 90_000}));

    // With only a status set, the problem document stays.
    let answer = AnswerStyle::default()
        .deny(&verdict(vec![own(DenySpec { body: None, content_type: None, ..deny })], 1, 2), NOW);
    assert_eq!((answer.status.as_u16(), problem(&answer)["status"].as_u64()), (403, Some(403)));
}

/// A request that only its quotas deny was answered with an empty list.
#[test]
fn quotas_that_deny_together_are_named() {
    let quotas = || vec![rule("north", "1/h").mode(Enforcement::Quota), rule("south", "2/h").mode(Enforcement::Quota)];
    let answer = AnswerStyle::default().deny(&verdict(quotas(), 1, 3), NOW);
    assert_eq!(problem(&answer)["violated-policies"], serde_json::json!(["north", "south"]));
}

#[test]
fn all_rules_may_deny_in_the_same_words_and_a_rule_in_its_own() {
    let spec = |status, body: &str| DenySpec { status: Some(status), body: Some(body.into()), content_type: None };
    let all = Denial::new(&spec(418, "${rule} says no")).expect("valid");
    let style = AnswerStyle { deny: Some(Arc::new(all)), ..AnswerStyle::default() };
    let said = |rule| {
        let answer = style.deny(&verdict(vec![rule], 1, 2), NOW);
        (answer.status.as_u16(), String::from_utf8(answer.body).expect("text"))
    };
    assert_eq!(said(rule("logins", "1/90s")), (418, "logins says no".to_string()));
    let own = RuleSpec { deny: Some(spec(403, "mine")), ..rule("logins", "1/90s") };
    assert_eq!(said(own), (403, "mine".to_string()));
}

/// Denials are written by hand, everything else by serde: both are the same document.
#[test]
fn the_document_is_that_of_a_problem() {
    for (rules, cost, nth) in [
        (vec![rule("fast", "3/s")], 1, 5),
        (vec![rule("a:b/c@d.e-f_g", "1/2s"), rule("daily", "1/day")], 1, 2),
        (vec![rule("small", "3/s")], 4, 1),
    ] {
        let verdict = verdict(rules, cost, nth);
        let names: Vec<&str> = verdict.rows().iter().map(|row| row.charge.rule.name()).collect();
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, denial_detail(&verdict))
            .of_type(QUOTA_EXCEEDED, "Quota exceeded")
            .member("violated-policies", &names)
            .member("retry_after_ms", &verdict.retry_after().map(Span::as_millis_ceil));
        assert_eq!(AnswerStyle::default().deny_plainly(&verdict, NOW).body, problem.document());
    }
}

/// Three ways write a denial, for hosts with three types for headers. One that is changed without the others would be noticed by clients first.
#[test]
fn a_denial_is_the_same_in_a_map_as_texts_and_in_pieces() {
    let own = DenySpec { status: Some(403), body: Some("no".into()), content_type: Some("text/html".into()) };
    let answers_itself = RuleSpec { deny: Some(own), ..rule("logins", "1/90s") };
    for (headers, name) in HeaderStyle::ALL {
        let style = AnswerStyle { headers, ..AnswerStyle::default() };
        for (rules, cost) in [
            (vec![rule("burst", "1/2s"), rule("daily", "1/day")], 1),
            (vec![answers_itself.clone()], 1),
            (vec![rule("small", "3/s")], 4),
        ] {
            let verdict = verdict(rules, cost, 2);
            let (map, texts) = (style.deny(&verdict, NOW), style.deny_plainly(&verdict, NOW));
            let mut pieces = Vec::new();
            let (status, body) =
                style.deny_in_pieces(&verdict, NOW, |name, value| pieces.push((name, value.to_string())));
            assert_eq!((map.status, &map.body), (status, &body.clone().into_bytes()), "{name}");
            assert_eq!((texts.status, &texts.body), (status, &body), "{name}");
            let plain: Vec<_> = texts.headers.iter().map(|(name, value)| (*name, value.to_string())).collect();
            assert_eq!(plain, pieces, "{name}");
            let mapped: Vec<_> = map
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.to_str().expect("text").to_string()))
                .collect();
            assert_eq!(mapped, pieces, "{name}");
        }
    }
}
