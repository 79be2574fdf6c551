//! The core answers as an independent model does: `vectors/generate.py` wrote these files from the definitions.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use tollkeeper_core::{
    Algorithm, Calendar, CalendarUnit, Descriptor, Enforcement, Key, MatchValue, OneOrMany, Policy, Quota, Row,
    RuleSpec, Scalar, Source, Span, State, Timestamp, Verdict, decide, decide_all,
};

#[derive(Deserialize)]
struct File<Case> {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct QuotaCase {
    algorithm: Algorithm,
    count: u32,
    period_us: u64,
    burst: u32,
    calendar: Option<CalendarCase>,
}

#[derive(Deserialize)]
struct CalendarCase {
    unit: String,
    timezone: String,
    anchor_day: u32,
}

impl QuotaCase {
    fn build(&self) -> Quota {
        let quota = match &self.calendar {
            Some(CalendarCase { unit, timezone, anchor_day }) => {
                let units = [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];
                let unit = units.into_iter().find(|known| known.name() == unit).expect(unit);
                let calendar = Calendar::new(unit).timezone(timezone).expect("a time zone");
                Quota::per_calendar(self.count, calendar.anchor_day(*anchor_day).expect("a day"))
            }
            None => Quota::per(self.count, Span::from_micros(self.period_us)).burst(self.burst),
        };
        quota.algorithm(self.algorithm).build().expect("a quota")
    }
}

/// at, cost, allowed, retry_after (null: never), remaining, reset_after, delay
type Step = (u64, u32, bool, Option<u64>, u32, u64, u64);

#[derive(Deserialize)]
struct DecisionCase {
    name: String,
    quota: QuotaCase,
    steps: Vec<Step>,
}

#[test]
fn decisions_are_those_of_the_model() {
    let file: File<DecisionCase> = serde_json::from_str(include_str!("vectors/decisions.json")).unwrap();
    assert!(file.cases.len() > 50);
    for case in file.cases {
        let quota = case.quota.build();
        let mut state = State::Fresh;
        for (index, expected) in case.steps.into_iter().enumerate() {
            let now = Timestamp::from_micros(expected.0);
            let (decision, change) = decide(&quota, expected.1, &state, now);
            state.apply(change);
            let got: Step = (
                expected.0,
                expected.1,
                decision.is_allowed(),
                decision.retry_after().map(Span::as_micros),
                decision.remaining,
                decision.reset_after.as_micros(),
                decision.delay().as_micros(),
            );
            assert_eq!(got, expected, "{} step {index}", case.name);
        }
    }
}

#[derive(Deserialize)]
struct RuleCase {
    name: String,
    key: String,
    when: BTreeMap<String, String>,
    cost: u64,
    mode: Enforcement,
    quota: QuotaCase,
}

#[derive(Debug, Deserialize, PartialEq)]
struct RowCase {
    rule: String,
    key: String,
    allowed: bool,
    shadow: bool,
    limit: u32,
    retry_after_us: Option<u64>,
    delay_us: u64,
    remaining: u32,
    reset_after_us: u64,
}

#[derive(Deserialize)]
struct Event {
    at_us: u64,
    attributes: BTreeMap<String, String>,
    cost: u32,
    allowed: bool,
    limiting: Option<String>,
    retry_after_us: Option<u64>,
    rules: Vec<RowCase>,
}

#[derive(Deserialize)]
struct VerdictCase {
    name: String,
    rules: Vec<RuleCase>,
    events: Vec<Event>,
}

fn spec(rule: RuleCase) -> RuleSpec {
    let QuotaCase { algorithm, count, period_us, burst, .. } = rule.quota;
    let text = |value| OneOrMany::One(MatchValue::Text(value));
    RuleSpec {
        name: rule.name,
        key: rule.key,
        when: rule.when.into_iter().map(|(attribute, value)| (attribute, text(value))).collect(),
        limit: Scalar::Text(format!("{count}/{}ms", period_us / 1_000)),
        burst: Some(Scalar::Number(burst.into())),
        algorithm,
        cost: rule.cost.into(),
        mode: rule.mode,
        ..RuleSpec::default()
    }
}

#[test]
fn verdicts_are_those_of_the_model() {
    let file: File<VerdictCase> = serde_json::from_str(include_str!("vectors/verdicts.json")).unwrap();
    for case in file.cases {
        let policy = Policy::new(case.rules.into_iter().map(spec)).unwrap();
        let mut states: HashMap<(String, Key), State> = HashMap::new();
        for (index, event) in case.events.into_iter().enumerate() {
            let now = Timestamp::from_micros(event.at_us);
            let charges = policy.charges(&Descriptor::from(event.attributes).with_cost(event.cost)).unwrap();
            let ids: Vec<_> = charges.iter().map(|c| (c.rule.name().to_string(), c.key.clone())).collect();
            let current: Vec<State> = ids.iter().map(|id| states.get(id).cloned().unwrap_or_default()).collect();
            let decided = decide_all(&charges, &current, now);
            let mut rows = Vec::new();
            for (((charge, id), mut state), (decision, change)) in
                charges.into_iter().zip(ids).zip(current).zip(decided)
            {
                state.apply(change);
                states.insert(id, state);
                rows.push(Row { charge, decision, source: Source::Store });
            }
            let verdict = Verdict::new(rows);
            let got: Vec<RowCase> = verdict.rows().iter().map(row_case).collect();
            let place = format!("{} event {index}", case.name);
            assert_eq!(got, event.rules, "{place}");
            assert_eq!(verdict.is_allowed(), event.allowed, "{place}");
            assert_eq!(verdict.retry_after().map(Span::as_micros), event.retry_after_us, "{place}");
            assert_eq!(verdict.limiting().map(|row| row.charge.rule.name().to_string()), event.limiting, "{place}");
        }
    }
}

fn row_case(row: &Row) -> RowCase {
    RowCase {
        rule: row.charge.rule.name().to_string(),
        key: row.charge.key.value.clone(),
        allowed: row.decision.is_allowed(),
        shadow: row.charge.rule.is_shadow(),
        limit: row.decision.limit,
        retry_after_us: row.decision.retry_after().map(Span::as_micros),
        delay_us: row.decision.delay().as_micros(),
        remaining: row.decision.remaining,
        reset_after_us: row.decision.reset_after.as_micros(),
    }
}
