//! Random rules on random logs: one thread and several give the same report to the byte, and its decisions are those of a limiter that is asked
//! one request after the other. Rules have different keys, so requests take from buckets all over the table, or from none.

use proptest::prelude::*;
use tollkeeper::{Algorithm, Enforcement};
use tollkeeper_core::Request as _;

use super::*;
use crate::generator::Chance;
use crate::run::each_request;

/// More than there are of anything, so that threads overtake each other.
const WORKERS: [usize; 3] = [2, 3, 9];

fn one_of<T: Copy>(chance: &mut Chance, of: &[T]) -> T {
    of[chance.below(of.len() as u64) as usize]
}

fn random_rules(chance: &mut Chance) -> Vec<RuleSpec> {
    const KEYS: [&str; 7] = ["{ip}", "{ip}", "global", "{method}", "{path}", "{method}:{ip}", "{header.user-agent|ip}"];
    let algorithms = Algorithm::ALL.iter().copied().filter(|one| *one != Algorithm::Concurrency).collect::<Vec<_>>();
    let rules = chance.below(6);
    let one = |number: u64| {
        let count = 1 + chance.below(60);
        let unit = one_of(chance, &["s", "10s", "min", "h"]);
        let algorithm = one_of(chance, &algorithms);
        let mut rule = Rule::new(format!("rule-{number}"))
            .key(one_of(chance, &KEYS))
            .limit(format!("{count}/{unit}"))
            .algorithm(algorithm)
            .cost(1 + chance.below(2));
        if algorithm.has_burst() {
            rule = rule.burst(1 + chance.below(40));
        }
        rule = match chance.below(6) {
            0 => rule.mode(Enforcement::Shadow),
            1 => rule.mode(Enforcement::Annotate),
            2 => rule.mode(Enforcement::Quota),
            _ => rule,
        };
        match chance.below(6) {
            0 => rule.when("path", "/login"),
            1 => rule.when("method", "POST"),
            2 => rule.when("ip", "10.0.0.0/8"),
            3 => rule.when("path", "/users/*"),
            _ => rule,
        }
    };
    (0..=rules).map(one).collect()
}

/// Lines in about the order of their times: some are a little late, few very late, and some are not requests.
fn random_log(chance: &mut Chance, lines: u64) -> String {
    let is_json = chance.below(2) == 0;
    let mut text = String::new();
    let mut now = 1_767_225_700_000 + chance.below(200_000);
    for _ in 0..lines {
        now += match chance.below(500) {
            0 => 200_000,
            _ => chance.below(400),
        };
        let late = match chance.below(200) {
            0 => 90_000,
            1..20 => chance.below(25_000),
            _ => 0,
        };
        let at = now - late;
        let ip = match chance.below(8) {
            0 => format!("2001:db8:0:{}::1", chance.below(5)),
            1..5 => format!("10.0.0.{}", chance.below(6)),
            _ => format!("198.51.{}.{}", chance.below(3), chance.below(250)),
        };
        let method = one_of(chance, &["GET", "GET", "GET", "POST", "PUT"]);
        let letter = |chance: &mut Chance| char::from(b'a' + chance.below(26) as u8);
        let path = match chance.below(7) {
            0 => "/login".to_owned(),
            1 => "/.env".to_owned(),
            2 => format!("/users/{}", chance.below(1_000)),
            3 => format!("/users/{}{}", letter(chance), letter(chance)),
            4 => format!("/files/{}-{}", one_of(chance, &["auth", "notes"]), 100_000 + chance.below(900_000)),
            5 => format!("/{}{}/x", letter(chance), letter(chance)),
            _ => "/".to_owned(),
        };
        let agent = one_of(chance, &["curl/8", "Mozilla/5.0 Firefox", "Examplebot/2.1", "-"]);
        let status = one_of(chance, &[200, 200, 200, 404, 401, 500]);
        let line = if chance.below(300) == 0 {
            "not a request".to_owned()
        } else if is_json {
            let seconds = at as f64 / 1e3;
            format!(
                r#"{{"ts":{seconds:.3},"remote_ip":"{ip}","method":"{method}","uri":"{path}","status":{status},"user_agent":"{agent}"}}"#
            )
        } else {
            let second = at / 1_000 - 1_767_225_600;
            let clock = format!("{:02}:{:02}:{:02}", second / 3_600 % 24, second / 60 % 60, second % 60);
            format!(r#"{ip} - - [01/Jan/2026:{clock} +0000] "{method} {path} HTTP/1.1" {status} 5 "-" "{agent}""#)
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn told(files: &[String], rules: [&[RuleSpec]; 2], max_keys: usize, workers: usize) -> Report {
    let policy = |specs: &[RuleSpec]| Policy::new(specs.to_vec()).expect("rules");
    let [own, other] = rules;
    let logs = Log::open(Source::named(files).expect("files"), None, 0).expect("logs");
    let options = Options {
        naming: Naming::default(),
        policy: (!own.is_empty()).then(|| policy(own)),
        compared: (!other.is_empty()).then(|| (policy(other), Naming::default())),
        workers,
        max_keys,
    };
    Report::of(logs, options, &Progress::default(), &plain)
}

/// What a limiter denies in all, and by each rule.
fn asked_one_by_one(files: &[String], rules: &[RuleSpec]) -> (u64, Vec<u64>) {
    let clock = ManualClock::default();
    let policy = Policy::new(rules.to_vec()).expect("rules");
    let limiter = Limiter::new(policy, MemoryStore::with(200_000, Clock::from(clock.clone())));
    let logs = Log::open(Source::named(files).expect("files"), None, 0).expect("logs");
    let (mut denied, mut by_rule) = (0, vec![0; rules.len()]);
    let look = |request: &LogRequest<'_, '_>| {
        let names = ["ip", "method", "path", "header.user-agent"];
        let attributes = names.into_iter().filter_map(|name| Some((name, request.attribute(name)?.into_owned())));
        Ok(Descriptor::new(attributes))
    };
    each_request(logs, &Naming::default(), 1, &Progress::default(), look, |at_us, request: Descriptor| {
        clock.set(Timestamp::from_micros(at_us));
        let verdict = limiter.try_check(&request).expect("decided");
        denied += u64::from(!verdict.is_allowed());
        for row in verdict.rows().iter().filter(|row| !row.decision.is_allowed()) {
            by_rule[rules.iter().position(|rule| rule.name == row.charge.rule.name()).expect("known")] += 1;
        }
    });
    (denied, by_rule)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn one_thread_several_and_a_limiter_agree(seed: u64) {
        let mut chance = Chance::new(seed);
        let folder = Folder::new();
        let files: Vec<String> = (0..=chance.below(3))
            .map(|number| {
                let lines = 200 + chance.below(1_500);
                folder.file(&format!("{number}.log"), random_log(&mut chance, lines).as_bytes())
            })
            .collect();
        let (mut own, mut other) = (random_rules(&mut chance), Vec::new());
        // Now and then none, others to compare with, or far too little room.
        match chance.below(6) {
            0 => own.clear(),
            1 | 2 => other = random_rules(&mut chance),
            _ => {}
        }
        let max_keys = one_of(&mut chance, &[200_000, 200_000, 200_000, 20]);
        let rules = [own.as_slice(), other.as_slice()];
        let report = told(&files, rules, max_keys, 1);
        let one = serde_json::to_string(&report).expect("JSON");
        for workers in WORKERS {
            let several = serde_json::to_string(&told(&files, rules, max_keys, workers)).expect("JSON");
            prop_assert!(several == one, "{workers} workers:\n{several}\none:\n{one}");
        }
        if !own.is_empty() && max_keys > 20 {
            let by_rule: Vec<u64> = report.rules.iter().map(|rule| rule.denied).collect();
            prop_assert_eq!((report.denied.expect("rules"), by_rule), asked_one_by_one(&files, &own));
        }
    }
}
