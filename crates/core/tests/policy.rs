//! Matching through the index finds exactly what looking at every rule would find.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollkeeper_core::{Descriptor, Enforcement, MatchValue, OneOrMany, Policy, RuleSpec};

fn text(value: &str) -> MatchValue {
    MatchValue::Text(value.into())
}

fn rule(name: &str, when: &[(&str, OneOrMany)], key: &str) -> RuleSpec {
    let when = when.iter().map(|(attribute, value)| (attribute.to_string(), value.clone())).collect();
    RuleSpec { name: name.into(), key: key.into(), limit: "10/s".into(), when, ..RuleSpec::default() }
}

fn one(value: &str) -> OneOrMany {
    OneOrMany::One(text(value))
}

fn names(policy: &Policy, attributes: &[(&str, &str)]) -> Vec<String> {
    let charges = policy.charges(&Descriptor::new(attributes.iter().copied())).unwrap();
    charges.iter().map(|charge| charge.rule.name().to_string()).collect()
}

#[test]
fn values_can_be_excluded() {
    let many = |values: &[&str]| OneOrMany::Many(values.iter().map(|value| text(value)).collect());
    let policy = Policy::new([
        rule("others", &[("user", many(&["!root", "!bot-*"]))], "{user}"),
        rule("admins", &[("user", many(&["admin*", "!admin-test"]))], "{user}"),
        rule("literal", &[("user", one(r"\!x"))], "{user}"),
    ])
    .unwrap();
    assert_eq!(names(&policy, &[("user", "ann")]), ["others"]);
    assert_eq!(names(&policy, &[("user", "root")]), [""; 0]);
    assert_eq!(names(&policy, &[("user", "bot-7")]), [""; 0]);
    assert_eq!(names(&policy, &[("user", "admin-1")]), ["others", "admins"]);
    assert_eq!(names(&policy, &[("user", "admin-test")]), ["others"]);
    assert_eq!(names(&policy, &[("user", "!x")]), ["others", "literal"]);
    assert_eq!(names(&policy, &[]), [""; 0], "an absent attribute does not match an exclusion");
}

/// `when: {ip: 10.0.0.0/8}` was compared as a text: it never matched, and negated it exempted nobody.
#[test]
fn a_network_holds_its_addresses_and_its_complement_all_others() {
    let policy = Policy::new([
        rule("inside", &[("ip", one("10.0.0.0/8"))], "{ip}"),
        rule("outside", &[("ip", OneOrMany::Many(vec![text("!10.0.0.0/8"), text("!2001:db8::/32")]))], "{ip}"),
        rule("office", &[("ip", OneOrMany::Many(vec![text("10.0.0.0/8"), text("!10.9.0.0/16")]))], "{ip}"),
        rule("v6", &[("ip", one("2001:db8::/32"))], "{ip}"),
    ])
    .unwrap();
    assert_eq!(names(&policy, &[("ip", "10.1.2.3")]), ["inside", "office"]);
    assert_eq!(names(&policy, &[("ip", "10.9.2.3")]), ["inside"]);
    assert_eq!(names(&policy, &[("ip", "192.0.2.1")]), ["outside"]);
    assert_eq!(names(&policy, &[("ip", "2001:DB8::7")]), ["v6"]);
    assert_eq!(names(&policy, &[("ip", "2001:db8:0:1::/64")]), ["v6"], "the prefix that a front fills in");
}

#[test]
fn a_rule_can_ask_that_an_attribute_is_absent_or_present() {
    let absent = || OneOrMany::One(MatchValue::Absent);
    let policy = Policy::new(
        [
            rule("anonymous", &[("api_key", absent())], "{ip}"),
            rule("known", &[("api_key", one("*"))], "{api_key}"),
            rule("free or none", &[("plan", OneOrMany::Many(vec![MatchValue::Absent, text("free")]))], "{ip}"),
        ]
        .map(|spec| RuleSpec { name: spec.name.replace(' ', "-"), ..spec }),
    )
    .unwrap();
    let ip = ("ip", "192.0.2.1");
    assert_eq!(names(&policy, &[ip]), ["anonymous", "free-or-none"]);
    assert_eq!(names(&policy, &[ip, ("api_key", "k"), ("plan", "pro")]), ["known"]);
    assert_eq!(names(&policy, &[ip, ("api_key", "k"), ("plan", "free")]), ["known", "free-or-none"]);
    // An empty header must not escape both.
    assert_eq!(names(&policy, &[ip, ("api_key", ""), ("plan", "pro")]), ["anonymous"]);
    assert_eq!(policy.unmet(&Descriptor::new([ip])).count(), 1, "only `known` lacks something");
    let spec = rule("r", &[("api_key", absent())], "{ip}");
    let json = serde_json::to_value(&spec).unwrap();
    assert_eq!(json["when"], serde_json::json!({ "api_key": null }));
    assert_eq!(serde_json::from_value::<RuleSpec>(json).unwrap(), spec);
}

#[test]
fn a_named_segment_of_the_path_can_be_the_key() {
    let paths = OneOrMany::Many(vec![text("/users/{id}/**"), text("/v2/users/{id}")]);
    let policy = Policy::new([rule("per-user", &[("path", paths)], "{id}")]).unwrap();
    let key = |path: &str| {
        // The client's own `id` is not believed.
        let charges = policy.charges(&Descriptor::new([("path", path), ("id", "mallory")])).unwrap();
        charges.first().map(|charge| charge.key.value.clone())
    };
    assert_eq!(key("/users/42/orders/7").as_deref(), Some("42"));
    assert_eq!(key("/v2/users/43").as_deref(), Some("43"));
    assert_eq!(key("/users/42"), None);
    assert_eq!(policy.unmet(&Descriptor::new([("path", "/users/42/x")])).count(), 0);
}

#[test]
fn rules_apply_in_file_order_when_everything_they_name_matches() {
    let policy = Policy::new([
        rule("everybody", &[], "global"),
        rule("free", &[("plan", one("free"))], "{user_id}"),
        rule("paid", &[("plan", OneOrMany::Many(vec![text("pro"), text("team*")]))], "{user_id}"),
        rule("api", &[("path", one("/api/*")), ("method", one("POST"))], "{ip}"),
    ])
    .unwrap();
    assert_eq!(names(&policy, &[]), ["everybody"]);
    assert_eq!(names(&policy, &[("plan", "free"), ("user_id", "1")]), ["everybody", "free"]);
    assert_eq!(names(&policy, &[("plan", "free")]), ["everybody"]);
    assert_eq!(names(&policy, &[("plan", "teams"), ("user_id", "1")]), ["everybody", "paid"]);
    assert_eq!(names(&policy, &[("path", "/api/x"), ("method", "POST"), ("ip", "::1")]), ["everybody", "api"]);
    assert_eq!(names(&policy, &[("path", "/api/x"), ("method", "GET"), ("ip", "::1")]), ["everybody"]);
}

#[test]
fn what_a_request_lacks_is_reported_per_group_of_rules() {
    let policy = Policy::new([
        rule("free", &[("plan", one("free"))], "{user_id}"),
        rule("paid", &[("plan", one("paid"))], "{user_id}"),
        rule("anyone", &[], "{api_key|ip}"),
        rule("all", &[], "global"),
    ])
    .unwrap();
    let lacking = |attributes: &[(&str, &str)]| {
        let request = Descriptor::new(attributes.iter().copied());
        let unmet: Vec<usize> = policy.unmet(&request).flat_map(|i| policy.requirements()[i].rules.clone()).collect();
        unmet
    };
    assert_eq!(lacking(&[("ip", "1.1.1.1"), ("plan", "free")]), [0, 1]);
    assert_eq!(lacking(&[("api_key", "k"), ("plan", "free"), ("user_id", "1")]), [] as [usize; 0]);
    assert_eq!(lacking(&[]).len(), 3);
}

#[test]
fn a_request_may_ask_for_some_rules_only() {
    let policy = Policy::new([
        rule("all", &[], "global"),
        rule("free", &[("plan", one("free"))], "{user_id}"),
        RuleSpec { cost: "weight".into(), ..rule("weighed", &[], "global") },
    ])
    .unwrap();
    let request = Descriptor::new([("plan", "free"), ("user_id", "1"), ("weight", "heavy")]);
    policy.charges(&request).expect_err("the cost of `weighed` is no number");
    let some = request.clone().with_rules(["free", "all", "nobody"]);
    let names: Vec<String> =
        policy.charges(&some).unwrap().iter().map(|charge| charge.rule.name().to_string()).collect();
    assert_eq!(names, ["all", "free"], "in file order, and a rule that is not selected cannot fail");
    let poor = Descriptor::new([("plan", "free")]);
    assert_eq!(policy.unmet(&poor).count(), 1);
    assert_eq!(policy.unmet(&poor.with_rules(["all"])).count(), 0, "the rule that lacks an attribute was not selected");
    assert_eq!(policy.rule("weighed").map(|rule| rule.name()), Some("weighed"));
    assert!(policy.rule("nobody").is_none());
}

#[test]
fn all_wrong_rules_are_named_at_once() {
    let errors = Policy::new([
        rule("twice", &[], "global"),
        rule("twice", &[], "global"),
        RuleSpec { limit: "ten/s".into(), ..rule("slow", &[], "global") },
        rule("has space", &[], "global"),
    ])
    .unwrap_err();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], "rule `twice`: name: \"twice\" is also the name of rule number 1; names are unique");
    assert!(texts[1].starts_with("rule `slow`: limit: \"ten/s\""), "{}", texts[1]);
    assert!(texts[2].contains("contains ' '"), "{}", texts[2]);
    assert_eq!(errors.to_string().lines().count(), 3);
}

/// A shadow rule answered 400 for a cost that was not a number, and so stopped requests that it should only watch.
#[test]
fn a_shadow_rule_never_stops_a_request_by_its_cost() {
    let by_weight = |mode| RuleSpec { cost: "weight".into(), mode, ..rule("weighed", &[], "global") };
    let request = Descriptor::new([("weight", "heavy")]);
    let charges = |mode| Policy::new([by_weight(mode)]).unwrap().charges(&request);
    assert!(charges(Enforcement::Shadow).unwrap().is_empty());
    assert!(charges(Enforcement::Enforce).unwrap_err().to_string().contains("not \"heavy\""));
}

#[test]
fn a_cost_too_large_to_count_is_a_number_all_the_same() {
    let policy = Policy::new([RuleSpec { cost: "weight".into(), ..rule("weighed", &[], "global") }]).unwrap();
    let charges = policy.charges(&Descriptor::new([("weight", "99999999999999999999999")])).unwrap();
    assert_eq!(charges[0].cost, u32::MAX);
}

fn attribute_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["plan", "path", "user", "method"]).prop_map(String::from)
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,3}", "[ab]{0,2}\\*[ab]{0,2}", "\\*[ab]{0,2}\\*", "![ab]{1,2}", Just("null".to_string())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_a_scan_finds(
        whens in prop::collection::vec(prop::collection::btree_map(attribute_name(), prop::collection::vec(pattern(), 1..4), 0..3), 0..30),
        requests in prop::collection::vec(prop::collection::btree_map(attribute_name(), "[ab]{0,4}", 0..4), 1..20),
    ) {
        let specs = whens.iter().enumerate().map(|(index, when)| RuleSpec {
            name: format!("r{index}"),
            key: "global".into(),
            limit: "1/s".into(),
            active: index % 7 != 6,
            when: when.iter().map(|(attribute, patterns)| {
                let value = |pattern: &String| if pattern == "null" { MatchValue::Absent } else { text(pattern) };
                (attribute.clone(), OneOrMany::Many(patterns.iter().map(value).collect()))
            }).collect::<BTreeMap<_, _>>(),
            ..RuleSpec::default()
        });
        let policy = Policy::new(specs).unwrap();
        for attributes in requests {
            let request = Descriptor::from(attributes);
            let found: Vec<_> = policy.charges(&request).unwrap().into_iter().map(|c| c.rule.shared_name()).collect();
            let scanned: Vec<_> =
                policy.rules().iter().filter(|r| r.is_active() && r.matches(&request)).map(|r| r.shared_name()).collect();
            prop_assert_eq!(found, scanned);
        }
    }
}

#[test]
fn the_first_case_that_matches_says_what_a_request_costs() {
    let text = r#"{"name": "r", "key": "{user}", "limit": "100/s", "cost": [
        {"when": {"method": "POST", "path": "/reports/*"}, "cost": 10},
        {"when": {"path": ["/search", "/find"]}, "cost": "tokens"},
        {"cost": 2}
    ]}"#;
    let spec: RuleSpec = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::from_str::<RuleSpec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    let rule = spec.build().unwrap();
    let cost = |attributes: &[(&str, &str)]| rule.cost_of(&Descriptor::new(attributes.iter().copied()).with_cost(3));
    assert_eq!(cost(&[("method", "POST"), ("path", "/reports/7")]), Ok(30));
    assert_eq!(cost(&[("method", "GET"), ("path", "/reports/7")]), Ok(6));
    assert_eq!(cost(&[("path", "/find"), ("tokens", "5")]), Ok(15));
    assert_eq!(cost(&[("path", "/find")]), Ok(3));
    assert!(cost(&[("path", "/find"), ("tokens", "many")]).is_err());
    assert!(rule.cost().is_carried());
}

#[test]
fn cases_that_cannot_be_meant_are_named() {
    let problems = |cost: &str| {
        let text = format!(r#"{{"name": "r", "key": "k", "limit": "1/s", "cost": {cost}}}"#);
        let errors = serde_json::from_str::<RuleSpec>(&text).unwrap().build().unwrap_err();
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    assert_eq!(problems("[]"), ["cost"]);
    assert_eq!(problems(r#"[{"cost": 1}, {"when": {"a": "b"}, "cost": 2}]"#), ["cost[0]"]);
    assert_eq!(problems(r#"[{"when": {"a": []}, "cost": "-1"}]"#), ["cost[0].when.a", "cost[0].cost"]);
}
