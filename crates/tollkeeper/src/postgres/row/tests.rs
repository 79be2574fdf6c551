use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use serde_json::json;
use tollkeeper_core::{CalendarUnit, CostCase, CostSpec, DenySpec, Enforcement, FailurePolicy, Limit};

use super::*;
use crate::postgres::policy::policy;
#[cfg(feature = "file")]
use crate::postgres::yaml::yaml;

fn text() -> impl Strategy<Value = String> {
    // Including texts that YAML, JSON or SQL interpret.
    prop_oneof!["[a-z]{1,8}", "[ -~]{0,12}", "\\PC{0,6}", Just("NO".into()), Just("1.10".into()), Just("null".into())]
}

fn value() -> impl Strategy<Value = MatchValue> {
    let texts = text().prop_map(MatchValue::Text);
    prop_oneof![4 => texts, 1 => any::<bool>().prop_map(MatchValue::Bool), 1 => any::<i64>().prop_map(MatchValue::Number)]
}

fn conditions() -> impl Strategy<Value = BTreeMap<String, OneOrMany>> {
    let one_or_many = prop_oneof![value().prop_map(OneOrMany::One), vec(value(), 1..4).prop_map(OneOrMany::Many)];
    let name = prop_oneof![2 => Just("plan".to_string()), 3 => "[a-z.]{1,8}", 1 => text()];
    btree_map(name, one_or_many, 0..3)
}

fn cost() -> impl Strategy<Value = CostSpec> {
    let one = || prop_oneof![(0u64..1_000).prop_map(Scalar::Number), "[a-z]{1,6}".prop_map(Scalar::Text)];
    let case = (conditions(), one()).prop_map(|(when, cost)| CostCase { when, cost });
    prop_oneof![one().prop_map(CostSpec::One), vec(case, 1..3).prop_map(CostSpec::Cases)]
}

fn limit() -> impl Strategy<Value = Scalar> {
    let unit = prop_oneof!["ms", "s", "min", "m", "h", "day", "d", "week", "month", "year"];
    let count =
        prop_oneof![Just("6,000".to_string()), Just("6_000".into()), (1u32..100_000).prop_map(|n| n.to_string())];
    let rate = (count, of(1u32..200), unit)
        .prop_map(|(count, number, unit)| format!("{count}/{}{unit}", number.map_or(String::new(), |n| n.to_string())));
    prop_oneof![4 => rate.prop_map(Scalar::Text), 1 => (1u64..50).prop_map(Scalar::Number)]
}

fn deny() -> impl Strategy<Value = DenySpec> {
    (of(400u16..600), of(Just("text/html".to_string())), of(text())).prop_map(|(status, content_type, body)| DenySpec {
        status,
        content_type,
        body,
    })
}

/// Rules that use every field; invalid combinations are left out.
fn rule() -> impl Strategy<Value = Rule> {
    let who =
        ("[a-z][a-z0-9:/@._-]{0,12}", of(text()), conditions(), prop_oneof![Just("global"), Just("{api_key|ip}")]);
    let how = (limit(), of(1u64..500), proptest::sample::select(&Algorithm::ALL[..]), cost());
    let odd = (
        of(Just("10 min".to_string())),
        of(prop_oneof![Just(Scalar::Text("auto".into())), Just(Scalar::Number(5))]),
        of(deny()),
    );
    let modes = (0..3usize, 0..3usize, any::<bool>(), of(text()), of(1u32..=7), any::<bool>());
    (who, how, odd, modes).prop_filter_map("no rule", |(who, how, odd, modes)| {
        let (name, scope, when, key) = who;
        let (limit, burst, algorithm, cost) = how;
        let (hold, lease, deny) = odd;
        let (mode, failure, active, description, day, headers) = modes;
        // Only where it means something, or few rules would be valid.
        let calendar = match &limit {
            Scalar::Text(limit) => limit.parse::<Limit>().ok().and_then(|limit| limit.calendar),
            Scalar::Number(_) => None,
        };
        let calendar = calendar.filter(|_| algorithm == Algorithm::FixedWindow);
        let timezone = calendar.and(day).map(|_| "Europe/Berlin".to_string());
        let anchor_day = calendar.filter(|unit| *unit != CalendarUnit::Day).and(day);
        let mode = [Enforcement::Enforce, Enforcement::Shadow, Enforcement::Annotate][mode];
        let on_store_failure = [FailurePolicy::Local, FailurePolicy::Open, FailurePolicy::Closed][failure];
        let burst = burst.map(Scalar::Number);
        let key = key.into();
        // All fields, without a default: a new field does not compile here until it is tested too.
        RuleSpec {
            name,
            scope,
            when,
            key,
            limit,
            burst,
            algorithm,
            timezone,
            anchor_day,
            hold,
            lease,
            cost,
            mode,
            headers,
            on_store_failure,
            deny,
            active,
            description,
        }
        .build()
        .ok()
    })
}

proptest! {
    /// A rule survives the conversion to a row and back, and to a file and back, unchanged.
    #[test]
    fn a_rule_survives_the_table_and_the_file(rule in rule()) {
        let row = Row::of(&rule, 3);
        let spec = row.spec().expect("a row of a rule is one");
        let again = spec.clone().build().expect("the same rule");
        let meaning = |rule: &Rule| {
            let who = (rule.name().to_string(), rule.scope().map(str::to_string), rule.when().to_vec(), rule.key().clone());
            let how = (*rule.quota(), rule.cost().clone(), rule.lease(), rule.deny().cloned());
            (who, how, rule.mode(), rule.on_store_failure(), rule.is_active())
        };
        prop_assert_eq!(meaning(&again), meaning(&rule));
        prop_assert_eq!(Row::of(&again, 3), row);
        #[cfg(feature = "file")]
        {
            let file = yaml([&spec]);
            let read = crate::file::parse(std::path::Path::new("t.yaml"), &file).map_err(|error| TestCaseError::fail(format!("{error}\n{file}")))?;
            prop_assert_eq!(meaning(&read.policy.rules()[0]), meaning(&rule), "{}", &file);
            prop_assert_eq!(yaml([&Row::of(&read.policy.rules()[0], 0).spec().expect("a rule")]), file);
        }
    }
}

fn row(change: impl FnOnce(&mut Row)) -> Vec<Row> {
    let spec = RuleSpec { name: "a".into(), key: "{ip}".into(), limit: "10/s".into(), ..RuleSpec::default() };
    let mut row = Row::of(&spec.build().expect("a rule"), 1);
    change(&mut row);
    vec![row]
}

#[test]
fn a_bad_row_names_rule_column_problem_and_fix() {
    let said = |change: fn(&mut Row)| policy(&row(change)).expect_err("bad")[0].to_string();
    assert_eq!(
        said(|row| row.key_pattern = "{ip".into()),
        "rule `a`: key_pattern: \"{ip\": { is never closed; write {{ for a literal brace"
    );
    type Spoil = fn(&mut Row);
    let cases: [(Spoil, &str); 13] = [
        (|row| row.rate = 0, "rule `a`: rate: limit 0 would admit nothing"),
        (|row| row.rate = 99_999_999_999, "rule `a`: rate: "),
        (|row| row.period = None, "rule `a`: period: is missing; write a period such as '1 minute'"),
        (
            |row| row.period = Some(Span::from_micros(1_500)),
            "rule `a`: period: 1500us is not a whole number of milliseconds",
        ),
        (|row| row.burst_capacity = Some(-1), "rule `a`: burst_capacity: "),
        (
            |row| row.algorithm = "token_buket".into(),
            "rule `a`: algorithm: \"token_buket\" is not known; did you mean `token_bucket`?",
        ),
        (
            |row| row.match_conditions = json!({"path": []}),
            "rule `a`: match_conditions.path: an empty list matches nothing",
        ),
        (
            |row| row.match_conditions = json!({"path": 1.5}),
            "rule `a`: match_conditions.path: 1.5 could be written in several ways",
        ),
        (|row| row.options = json!({"leese": "auto"}), "rule `a`: options.leese: is not known; did you mean `lease`?"),
        (|row| row.options = json!({"mode": "shadow"}), "rule `a`: options.mode: belongs in the column mode"),
        (
            |row| row.options = json!({"deny": {"status": 200}}),
            "rule `a`: options.deny.status: 200 is not an error status",
        ),
        (|row| row.cost = json!([{"when": {}}]), "rule `a`: cost[0].cost: is missing"),
        (
            |row| (row.plan, row.match_conditions) = (Some("free".into()), json!({"plan": "paid"})),
            "rule `a`: plan: is also in match_conditions; keep one of them",
        ),
    ];
    for (change, start) in cases {
        let said = said(change);
        assert!(said.starts_with(start), "{said}");
    }
}

#[test]
fn every_bad_row_is_reported() {
    let mut rows = row(|row| row.key_pattern = "{ip".into());
    rows.extend(row(|row| (row.name, row.cost) = ("b".into(), json!("3x"))));
    rows.extend(row(|row| (row.name, row.options) = ("c".into(), json!({"hold": 3}))));
    let mut rules: Vec<String> = policy(&rows).expect_err("bad").into_iter().map(|bad| bad.rule).collect();
    rules.sort();
    assert_eq!(rules, ["a", "b", "c"]);
}
