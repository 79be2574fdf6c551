#![allow(clippy::unwrap_used)]

use super::*;

fn problems(text: &str) -> Vec<String> {
    let error = parse(Path::new("t.yaml"), text).expect_err("refused");
    error.problems.iter().map(|problem| problem.to_string().lines().next().unwrap().to_string()).collect()
}

fn first(text: &str) -> String {
    problems(text).remove(0)
}

#[test]
fn the_default_is_valid_and_warns_of_nothing() {
    let loaded = load_embedded().unwrap();
    assert_eq!(loaded.policy.rules().len(), 4);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn an_empty_file_is_all_defaults() {
    let loaded = parse(Path::new("t.yaml"), "").unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.warnings.len(), 1);
}

#[test]
fn errors_name_file_line_column_field_and_fix() {
    let text = "rules:\n  - name: a\n    key: global\n    limit: ten/s\n";
    assert_eq!(
        first(text),
        "t.yaml:4:12: rules[0].limit: rule `a`: \"ten/s\": \"ten\" is not a whole number; write for example 10/s or 6,000/min"
    );
    let text = "rules:\n  - name: a\n    key: global\n    limt: 10/s\n";
    let problem = first(text);
    assert!(problem.starts_with("t.yaml:4:5: rules[0].limt: "), "{problem}");
    assert!(problem.contains("is not known; did you mean `limit`?"), "{problem}");
    let text = "rules:\n  - name: a\n    key: global\n    limit: 10/s\n    algorithm: token_buket\n";
    let problem = first(text);
    assert!(problem.starts_with("t.yaml:5:16: rules[0].algorithm: "), "{problem}");
    assert!(problem.contains("did you mean `token_bucket`?"), "{problem}");
}

#[test]
fn the_mark_stands_under_the_value() {
    let error = parse(Path::new("t.yaml"), "deny_status: 200\n").unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[1], "  1 | deny_status: 200");
    assert_eq!(lines[2], "    |              ^");
}

#[test]
fn of_a_very_long_line_the_part_around_the_place_is_shown() {
    let rules = (0..50).map(|i| format!("{{name: r{i}, key: global, limit: 1/s}}")).collect::<Vec<_>>().join(", ");
    let text = format!("rules: [{rules}, {{name: x, key: global, limit: nine/s}}]");
    let error = parse(Path::new("t.yaml"), &text).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[1].len() < 130, "{error}");
    assert_eq!(lines[1].find("nine/s"), lines[2].find('^'), "{error}");
}

/// What could not be read hid everything else that was wrong with the file, until it was fixed; and a port alone got no
/// hint.
#[test]
fn what_cannot_be_read_hides_nothing() {
    let text = "
listen: { http: 8080, grpc: 8081, https: 8443 }
stoer: { url: 'kafka://x' }
rules:
  - { name: a, key: '{user}', limt: ten/s }
  - { name: b, key: '{user}', limit: 1/s, algorithm: tokn, brust: 5 }
  - { name: c, key: global, limit: 5 }
  - just text
  - { name: d, limit: 1/s, headers: maybe }
  - { name: e, key: global, limit: 1/month, algorithm: fixed_window, timezone: Mars, anchor_day: 40 }
  - { name: f, key: global, limit: [1/s], zeal: 3 }
deny_status: 200
";
    let problems = problems(text);
    let found: Vec<&str> = problems.iter().map(|problem| problem.split(": ").nth(1).unwrap()).collect();
    let expected = [
        "listen.http",
        "listen.grpc",
        "listen.https",
        "stoer",
        "store.url",
        "rules[0].limt",
        "rules[0].limit",
        "rules[1].algorithm",
        "rules[1].brust",
        "rules[2].limit",
        "rules[3]",
        "rules[4].key",
        "rules[4].headers",
        "rules[5].timezone",
        "rules[5].anchor_day",
        "rules[6].limit",
        "rules[6].zeal",
        "deny_status",
    ];
    assert_eq!(found, expected, "{problems:#?}");
    assert!(
        problems[0].ends_with("8080 is a port without a host; write 127.0.0.1:8080, or \":8080\" for all addresses")
    );
}

#[test]
fn of_very_many_problems_the_first_are_reported() {
    let rules: String =
        (0..1_000).map(|i| format!("  - {{ name: r{i}, key: global, limit: 1/s, odd: 1 }}\n")).collect();
    assert_eq!(problems(&format!("rules:\n{rules}")).len(), 50);
}

#[test]
fn every_bad_value_is_reported_at_once() {
    let text = "
listen: { http: nowhere, resp: '127.0.0.1:99999', resp_password: '' }
store: { url: 'postgres://x' }
trusted_proxies: [10.0.0.0/8, everywhere]
identify: { user_id: headers.x }
rules:
  - { name: a, key: '{user', limit: 1/s }
  - { name: b, key: global, limit: 5 }
  - { name: b, key: global, limit: 5/s }
";
    let problems = problems(text);
    let fields = [
        "listen.http",
        "listen.resp",
        "listen.resp_password",
        "store.url",
        "trusted_proxies[1]",
        "identify.user_id",
        "rules[0].key",
        "rules[1].limit",
        "rules[2].name",
    ];
    assert_eq!(problems.len(), fields.len(), "{problems:#?}");
    for (problem, field) in problems.iter().zip(fields) {
        assert!(problem.contains(&format!(": {field}: ")), "{problem} should be about {field}");
    }
}

#[test]
fn broken_yaml_has_a_place_too() {
    for text in ["rules: [", "rules:\n\t- x", "rules: {a: 1, a: 2}", "- a\n- b", "rules: 3", "'"] {
        let problem = first(text);
        assert!(problem.starts_with("t.yaml"), "{text:?}: {problem}");
        assert!(problem.len() > "t.yaml: ".len(), "{text:?}: {problem}");
    }
    assert!(first("rules: {a: 1, a: 2}").contains('a'));
}

#[test]
fn json_is_yaml() {
    let text = r#"{"rules": [{"name": "a", "key": "{user_id}", "limit": "6,000/min", "cost": "tokens"}]}"#;
    let loaded = parse(Path::new("t.json"), text).unwrap();
    assert_eq!(loaded.policy.rules()[0].quota().to_string(), "6,000/min token_bucket");
}

#[test]
fn numbers_and_booleans_match_as_text() {
    let text = "rules: [{name: a, key: global, limit: 1/s, when: {beta: true, tier: [1, 2, 'three']}}]";
    let loaded = parse(Path::new("t.yaml"), text).unwrap();
    let request = tollkeeper::Descriptor::new([("beta", "true"), ("tier", "2")]);
    assert_eq!(loaded.policy.charges(&request).unwrap().len(), 1);
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let text = "listen: {resp_password: guards}\nrules: [{name: a, key: global, limit: 1/s, burst: 4, algorithm: fixed_window}]";
    let loaded = parse(Path::new("t.yaml"), text).unwrap();
    let warnings: Vec<&str> = loaded.warnings.iter().map(|warning| warning.field.as_str()).collect();
    assert_eq!(warnings, ["rules[0].burst", "listen.resp_password"]);
}

/// The country `NO` was read as `false`, so its rule matched no request and the file was called valid.
#[test]
fn values_match_as_they_are_written() {
    for written in ["NO", "no", "on", "y", "True", "0x10", "1_000", "+5", "007", "1.10", "1e3", "true", "42"] {
        let text = format!("rules: [{{name: a, key: global, limit: 1/s, when: {{x: {written}}}}}]");
        let loaded = parse(Path::new("t.yaml"), &text).unwrap();
        let request = tollkeeper::Descriptor::new([("x", written)]);
        assert_eq!(loaded.policy.charges(&request).unwrap().len(), 1, "{written}");
    }
}

#[test]
fn odd_numbers_are_refused_as_they_were_written() {
    let burst = |written: &str| first(&format!("rules: [{{name: a, key: global, limit: 1/s, burst: {written}}}]"));
    assert!(burst("99999999999999999999999").contains("99999999999999999999999 is too large"));
    assert!(burst("1e3").contains("\"1e3\" is not a whole number"));
    assert!(burst("1.5").contains("1.5 is not a whole number"));
    assert!(burst("-1").contains("\"-1\" is not a whole number"));
    assert!(first("deny_status: 0x1ad").contains("a whole number"));
}

#[test]
fn several_problems_of_one_rule_are_reported_together() {
    let text = "rules:\n  - name: 'a b'\n    key: '{x'\n    limit: 10/parsec\n    burst: -1\n    cost: -3\n";
    let fields: Vec<String> =
        parse(Path::new("t.yaml"), text).unwrap_err().problems.into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["rules[0].name", "rules[0].key", "rules[0].limit", "rules[0].burst", "rules[0].cost"]);
}

#[test]
fn what_cannot_work_or_be_trusted_is_a_warning() {
    let text = "trusted_proxies: [0.0.0.0/0]\nidentify: {ip: header.x-real-ip}\nrules: [{name: a, key: global, limit: 1/s, cost: 5}]";
    let loaded = parse(Path::new("t.yaml"), text).unwrap();
    let warnings: Vec<&str> = loaded.warnings.iter().map(|warning| warning.field.as_str()).collect();
    assert_eq!(warnings, ["rules[0].cost", "trusted_proxies[0]", "identify.ip"]);
}

/// The line with the store's password was quoted in the error about the timeout beside it.
#[test]
fn secrets_are_not_repeated_in_errors() {
    for text in [
        "store: {url: \"redis://:hunter2@127.0.0.1:7699\", timeout: 1us}",
        "store: {url: \"redis+cluster://:hunter2@a,b/3\"}",
        "store: {url: \"redis+ring://:hunter2@a,b\"}",
        "store: \"redis://u:hunter2@a\"",
        "store: {url: \"redis:u:hunter2@a\"}",
        "store: {url: \"rediss://a/n?password=hunter2\"}",
        "store: {url: \"redis://a?sentinal=u:hunter2\"}",
        "store: {url: \"redis+sentinel://:hunter2@a,b?sentinel=hunter2:hunter2\"}",
        "store: {url: \"redis://:hunter2@127.0.0.1\", tls: {ca: x}}",
        "admin: {token: hunter2, tokn: x}",
        "listen: {resp_password: hunter2, resq: x}",
        "store: {url: \"redis://:hunter2@127.0.0.1\", timeout: 0ms}",
    ] {
        let error = parse(Path::new("t.yaml"), text).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn limits_that_a_client_can_walk_around_are_a_warning() {
    let warnings = |rules: &str| {
        let text = format!("identify: {{api_key: header.x-api-key}}\nrules: {rules}");
        let loaded = parse(Path::new("t.yaml"), &text).unwrap();
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let keyed = "{name: keyed, key: '{api_key|ip}', limit: 1/s}";
    assert!(warnings(&format!("[{keyed}]")).contains("`keyed` identifies clients by `api_key`"));
    let when = "{name: posts, key: '{ip}', when: {method: POST}, limit: 1/s}";
    assert!(warnings(&format!("[{keyed}, {when}]")).contains("no other rule limits it then"));
    assert_eq!(warnings(&format!("[{keyed}, {{name: all, key: '{{ip}}', limit: 9/s}}]")), "");
    assert_eq!(
        warnings("[{name: user, key: '{user_id}', limit: 1/s}]"),
        "",
        "what a caller sends to /v1/check is its own"
    );
}
