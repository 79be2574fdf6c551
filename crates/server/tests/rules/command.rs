//! `tollkeeper rules`: its output and its exit codes.

use serde_json::{Value, json};

use super::world::*;

const RULES: &str = r#"
rules:
  - { name: everybody, key: global, limit: "5,000/s", burst: 9_000, lease: auto }
  - name: free-user
    scope: user
    when: { plan: free, country: [NO, "007", 1.10], beta: true, "odd name": "a: b # c" }
    key: "{user_id|ip}"
    limit: 10/s
    cost: [{ when: { method: POST }, cost: 10 }, { cost: units }]
    mode: shadow
    on_store_failure: closed
    deny: { status: 403, content_type: text/html, body: "<b>${rule}</b>\n\ttab 'quotes' \"double\" \\ é ☃" }
    active: false
    description: "yes"
  - { name: paid-user, when: { plan: [pro, "team*", "!team-x"] }, key: "{user_id}", limit: 100/90s, algorithm: sliding_window_counter }
  - { name: exports, key: "{tenant}", limit: 3, hold: 10min, algorithm: concurrency }
  - { name: month, key: "{tenant}", limit: 1/month, algorithm: fixed_window, cost: 0 }
  - { name: fine, key: "{tenant}", limit: 7/1500ms, algorithm: leaky_bucket, burst: 3 }
"#;

#[test]
fn what_is_exported_is_taken_back_byte_for_byte() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let original = file(RULES);
    rules_fine(&url, &["apply", &original]);
    assert_eq!(rules_fine(&url, &["diff", &original]), "no differences\n", "however limits are written");
    let exported = rules_fine(&url, &["export"]);
    let copy = file(&exported);
    assert_eq!(rules_fine(&url, &["diff", &copy]), "no differences\n");
    postgres.sql_as("postgres", "postgres", "create database other owner tollkeeper");
    let other = url.replace("/limits", "/other");
    rules_fine(&other, &["apply", &copy]);
    assert_eq!(rules_fine(&other, &["export"]), exported);
    let json = file(&rules_fine(&url, &["export", "--json"]));
    assert_eq!(rules_fine(&other, &["diff", &json]), "no differences\n", "JSON is a rules file too");
    // The file and the table decide the same.
    let events = "{\"at_us\":1,\"attributes\":{\"user_id\":\"1\",\"plan\":\"pro\",\"tenant\":\"t\"}}\n".repeat(5);
    let replay = |config: &str, url: Option<&str>| {
        let config = url.map_or(config.to_string(), |url| file(&format!("rules_from: {url}")));
        let input = file(&events);
        let output = tollkeeper(&["replay", "--config", &config, "--input", &input]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(replay(&original, None), replay("", Some(&url)));
    assert_eq!(replay(&original, None).lines().count(), 5);
}

#[test]
fn a_difference_is_readable_and_an_answer_of_no() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(
        &url,
        &[
            "apply",
            &file(
                "rules: [{name: a, key: global, limit: 1/s}, {name: b, key: global, limit: 2/s, burst: 5}, {name: c, key: '{ip}', limit: 3/s}]",
            ),
        ],
    );
    let wanted = file(
        "rules: [{name: c, key: '{ip}', limit: 3/s}, {name: b, key: global, limit: 4/s, when: {plan: free}}, {name: d, key: '{ip}', limit: 5/min}]",
    );
    let output = rules(&url, &["diff", &wanted]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "- a
+ d
    key: {ip}
    limit: 5/min
~ b
    limit: 2/s -> 4/s
    burst: 5 -> (default)
    when: (default) -> {\"plan\":\"free\"}
~ the order of rules
4 differences
";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let output = rules(&url, &["diff", "--json", &wanted]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        answer["difference"]["changed"][0]["fields"][0],
        json!({"field": "limit", "before": "2/s", "after": "4/s"})
    );
    assert_eq!(
        rules_fine(&url, &["apply", "--dry-run", &wanted]),
        format!("{expected}nothing was changed: version 1 stays in force\n")
    );
    assert_eq!(postgres.sql("select version from rate_limit_rule_head"), "1");
    assert_eq!(rules_fine(&url, &["apply", &wanted]), format!("{expected}version 2\n"));
    let again = rules_fine(&url, &["apply", &wanted]);
    assert_eq!(again, "no differences\nnothing to do: version 2 is the same\n");
    assert_eq!(
        rules_fine(&url, &["list"]),
        "version 2, 3 rules
  c  3/s token_bucket by {ip}
  b  4/s token_bucket by global
  d  5/min token_bucket by {ip}
"
    );
}

#[test]
fn history_shows_who_when_what_and_why_and_any_version_can_be_restored() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(1), "--as", "ann", "-m", "the first"]);
    rules_fine(&url, &["apply", &rule_file(2), "--as", "bob", "--message", "twice\nas much"]);
    postgres.sql("update rate_limit_rule set name = 'renamed', rate = 3");
    postgres.sql("delete from rate_limit_rule");
    let exported = |version: &str| {
        rules_fine(&url, &["rollback", version]);
        rules_fine(&url, &["export"])
    };
    let file_of =
        |name: &str, limit: u32| format!("rules:\n  - name: {name}\n    key: global\n    limit: {limit}/day\n");
    assert_eq!(exported("1"), file_of("a", 1));
    assert_eq!(exported("3"), file_of("renamed", 3));
    assert_eq!(exported("2"), file_of("a", 2));
    assert_eq!(exported("4"), "rules: []\n");
    let refused = rules(&url, &["rollback", "77"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("there is no version 77 of the rules; the newest is 8"), "{}", stderr(&refused));
    let text = rules_fine(&url, &["history", "--before", "4"]);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split("  ").filter(|part| !part.contains("Z")).collect::<Vec<_>>().join("  "))
        .collect();
    assert_eq!(
        lines,
        [
            "3  tollkeeper  sql",
            "    ~ renamed",
            "        name: \"a\" -> \"renamed\"",
            "        rate: 2 -> 3",
            "2  bob  apply: twice as much",
            "    ~ a",
            "        rate: 1 -> 2",
            "1  ann  apply: the first",
            "    + a",
        ]
    );
    let answer: Value = serde_json::from_str(&rules_fine(&url, &["history", "--json", "--limit", "1"])).unwrap();
    assert_eq!((&answer["versions"][0]["version"], &answer["versions"][0]["action"]), (&json!(8), &json!("rollback")));
    // A version that was never in force cannot be restored.
    postgres.sql("insert into rate_limit_rule (name, key_pattern, rate, period) values ('bad', '{x', 1, '1 s')");
    postgres.sql("delete from rate_limit_rule");
    let refused = rules(&url, &["rollback", "9"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("rule `bad`: key_pattern"), "{}", stderr(&refused));
}

#[test]
fn exit_codes_distinguish_fine_no_and_trouble() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let code = |args: &[&str]| rules(&url, args).status.code().unwrap();
    assert_eq!(code(&["list"]), 2, "no tables yet");
    assert_eq!(code(&["apply", "no-such-file.yaml"]), 2);
    assert_eq!(code(&["apply", &file("rules: [{name: a, key: global, limit: ten/s}]")]), 1);
    assert_eq!(code(&["apply", &file("rules: []")]), 1, "an empty file lets everything pass");
    assert_eq!(postgres.sql("select count(*) from pg_tables where tablename = 'rate_limit_rule'"), "0");
    assert_eq!(code(&["apply", &rule_file(1)]), 0);
    assert_eq!(code(&["apply", "--expect", "7", &rule_file(2)]), 1);
    assert_eq!(code(&["apply", "--expect", "1", &rule_file(2)]), 0);
    assert_eq!(code(&["diff", &rule_file(2)]), 0);
    assert_eq!(code(&["diff", &rule_file(3)]), 1);
    assert_eq!(code(&["apply", "--allow-empty", &file("rules: []")]), 0);
    assert_eq!(code(&["history", "--limit", "0"]), 2);
    assert_eq!(code(&["rolback", "1"]), 2);
    let nowhere = tollkeeper(&["rules", "list"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("--database URL, or TOLLKEEPER_RULES_FROM"), "{}", stderr(&nowhere));
    let help = tollkeeper(&["rules", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("tollkeeper rules rollback 12"));
    // A file that also names the database is used for its rules.
    let both = file(&format!("rules_from: {url}\nrules: [{{name: a, key: global, limit: 5/day}}]"));
    assert_eq!(code(&["apply", &both]), 0);
}

#[test]
fn ten_thousand_rules_are_one_version() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let rule = |number: u32| {
        format!("  - {{name: r{number}, key: '{{ip}}', limit: {}/s, when: {{path: /p/{number}}}}}\n", 1 + number % 9)
    };
    let all: String = (0..10_000).map(rule).collect();
    let service = Instance::on(&url);
    rules_fine(&url, &["apply", &file(&format!("rules:\n{all}"))]);
    assert_eq!(postgres.sql("select version from rate_limit_rule_head"), "1");
    wait_until("all are in force", || service.metric("tollkeeper_rules_loaded") == 10_000.0);
    assert_eq!(service.limit("r9999"), "1/s");
    // The history is cut: it need not be read or held in memory as a whole.
    let history = &service.get("/v1/rules/history")["versions"][0];
    assert_eq!((history["changes"].as_array().unwrap().len(), &history["left_out"]), (5_000, &json!(5_000)));
    assert!(rules_fine(&url, &["history"]).ends_with("    ... and 5000 more\n"));
}

/// Positions are numbers that anyone may write to the table; after the largest one there was no room, and adding to
/// it overflowed.
#[test]
fn a_rule_comes_after_one_at_the_very_end() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(1)]);
    postgres.sql("update rate_limit_rule set position = 9223372036854775807");
    let two = "rules: [{name: a, key: global, limit: 1/day}, {name: b, key: global, limit: 2/day}]";
    rules_fine(&url, &["apply", &file(two)]);
    assert_eq!(
        postgres.sql("select string_agg(name || position, ' ' order by position) from rate_limit_rule"),
        "a1 b2"
    );
}

/// Rights on the rules make an editor; triggers write the history.
#[test]
fn an_editor_needs_few_rights() {
    let postgres = Postgres::start();
    rules_fine(&postgres.url(), &["apply", &rule_file(1)]);
    postgres.sql_as("postgres", "limits", "create role editor login");
    postgres.sql("grant select, insert, update, delete on rate_limit_rule to editor");
    let url = postgres.url_as("editor");
    let refused = rules(&url, &["apply", &rule_file(2)]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("permission denied for table tollkeeper_migration"), "{}", stderr(&refused));
    let others = "tollkeeper_migration, rate_limit_rule_head, rate_limit_rule_version, rate_limit_rule_change";
    postgres.sql(&format!("grant select on {others} to editor"));
    rules_fine(&url, &["apply", &rule_file(2), "--as", "ann"]);
    rules_fine(&url, &["rollback", "1"]);
    assert_eq!(rules_fine(&url, &["history"]).lines().filter(|line| line.contains("Z  ")).count(), 3);
    assert_eq!(postgres.sql("select changed_by from rate_limit_rule_version where version = 2"), "ann");
}

/// Passwords may come from wherever Postgres clients find them.
#[test]
fn the_password_may_be_elsewhere() {
    let postgres = Postgres::start();
    postgres.require_passwords();
    let apply = |name: &str, value: &str| {
        let mut command = tollkeeper(&["rules", "apply", &rule_file(1)]);
        command.env("TOLLKEEPER_RULES_FROM", postgres.url_as("tollkeeper")).env(name, value);
        command.output().unwrap().status.code()
    };
    let folder = Folder::new();
    let passwords = folder.join("pgpass");
    std::fs::write(&passwords, format!("127.0.0.1:{}:limits:tollkeeper:sesame\n", postgres.port())).unwrap();
    std::fs::set_permissions(&passwords, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(apply("PGPASSWORD", "wrong"), Some(2));
    assert_eq!(apply("PGPASSWORD", "sesame"), Some(0));
    assert_eq!(apply("PGPASSFILE", passwords.to_str().unwrap()), Some(0));
}

/// Whatever characters and numbers rules contain, JSON, SQL and YAML preserve them. `TOLLKEEPER_SEED` replays a
/// failing run.
#[test]
fn odd_texts_survive_the_table() {
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use proptest::{collection::vec, prelude::*, strategy::ValueTree as _};
    let seed = std::env::var("TOLLKEEPER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand_seed);
    println!("TOLLKEEPER_SEED={seed}");
    let mut bytes = [0u8; 32];
    bytes[..8].copy_from_slice(&u64::to_le_bytes(seed));
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let any_text =
        || prop_oneof!["\\PC{1,12}", "[ -~]{1,12}", "[\\x01-\\x1f\"'\\\\:#{}$%]{1,6}", Just("NO".to_string())];
    // After a slash, braces name a segment of a path, and must be well formed.
    let without_braces = |text: String| match text.trim_start_matches('!').starts_with('/') {
        true => text.replace(['{', '}'], ""),
        false => text,
    };
    let text = || any_text().prop_map(without_braces);
    let value = prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from)
    ];
    let rule = (text(), text(), text(), vec(value, 1..4), text(), 1u32..100_000).prop_map(
        |(scope, attribute, plan, values, text, limit)| {
            json!({
                "scope": scope, "when": { attribute: values, "plan": plan }, "key": "{user}", "limit": format!("{limit}/h"),
                "cost": [{"when": {"x": text}, "cost": 2}], "deny": {"body": text.replace('$', "")}, "description": text,
            })
        },
    );
    let mut rules_of = |count: usize| -> Vec<Value> {
        let numbered = |number: usize| {
            let mut one = rule.new_tree(&mut runner).unwrap().current();
            one["name"] = format!("r{number}").into();
            one
        };
        (0..count).map(numbered).collect()
    };
    let postgres = Postgres::start();
    let url = postgres.url();
    let given = file(&json!({ "rules": rules_of(300) }).to_string());
    rules_fine(&url, &["apply", &given]);
    assert_eq!(rules_fine(&url, &["diff", &given]), "no differences\n");
    let exported = file(&rules_fine(&url, &["export"]));
    assert_eq!(rules_fine(&url, &["diff", &exported]), "no differences\n");
}

fn rand_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}
