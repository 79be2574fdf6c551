//! Every instance follows the rules, however they are changed.

use serde_json::json;

use super::world::*;

#[test]
fn all_instances_follow_commands_the_api_and_plain_sql() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(3)]);
    let (one, two) = (Instance::on(&url), Instance::on(&url));
    assert!(one.greeting.iter().any(|line| line.starts_with("rules: 1, version 1 from postgres at 127.0.0.1:")));
    assert_eq!((one.limit("a"), one.passes(5)), ("3/day".into(), 3));

    rules_fine(&url, &["apply", &rule_file(4)]);
    one.comes_to("a", "4/day");
    two.comes_to("a", "4/day");

    let (status, answer) = one.json("PUT /v1/rules/a", "", &json!({"key": "global", "limit": "5/day"}));
    assert_eq!((status, answer), (200, json!({"version": 3, "changed": true})));
    assert_eq!(one.limit("a"), "5/day", "who changes a rule finds it changed");
    two.comes_to("a", "5/day");

    // Each one listens, so that a change arrives at once and not at the next poll.
    postgres.wait_for("select count(*) from pg_stat_activity where query like 'LISTEN \"tollkeeper_rules\"%'", "2");
    postgres.sql("insert into rate_limit_rule (name, key_pattern, rate, period) values ('b', '{ip}', 7, '1 hour')");
    postgres.sql("update rate_limit_rule set rate = 6 where name = 'a'");
    for instance in [&one, &two] {
        instance.comes_to("a", "6/day");
        assert_eq!(instance.limit("b"), "7/h");
        assert_eq!(instance.metric("tollkeeper_rules_version"), 5.0);
        assert_eq!(instance.metric("tollkeeper_rules_loaded"), 2.0);
        assert_eq!(instance.metric("tollkeeper_rules_errors_total{reason=\"database\"}"), 0.0);
    }
    // A file without rules was warned about at every start, as if the database had none either.
    assert!(!one.log().contains("there are none"), "{}", one.log());
    postgres.sql("truncate rate_limit_rule");
    one.comes_to("a", "");
    two.comes_to("a", "");
    assert!(one.log().contains("there are none, so every request passes"), "{}", one.log());
}

/// Notifications may be lost: a connection pooler swallows them, or a network drops the connection silently.
#[test]
fn instances_follow_without_notifications_too() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(3)]);
    let function = "select pg_get_functiondef('rate_limit_rule_new_version'::regproc)";
    let silent: Vec<String> =
        postgres.sql(function).lines().filter(|line| !line.contains("pg_notify")).map(str::to_string).collect();
    postgres.sql(&silent.join("\n"));
    let instance = Instance::on(&url);
    postgres.sql("update rate_limit_rule set rate = 4");
    instance.comes_to("a", "4/day");
}

#[test]
fn a_bad_row_leaves_the_last_good_rules_in_force_for_everybody() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(3)]);
    let instance = Instance::on(&url);
    assert_eq!(instance.get("/readyz"), json!({"status": "ok"}));
    postgres.sql(
        "begin; update rate_limit_rule set rate = 9; insert into rate_limit_rule (name, key_pattern, rate, period)
         values ('bad', '{user', 1, '1 s'); commit",
    );
    wait_until("it is refused", || instance.metric("tollkeeper_rules_refused_version") == 2.0);
    assert_eq!(instance.limit("a"), "3/day", "not half of the change either");
    assert_eq!(instance.metric("tollkeeper_rules_version"), 1.0);
    assert_eq!(instance.metric("tollkeeper_rules_errors_total{reason=\"bad_rule\"}"), 1.0);
    let said = "version 2 of the rules is refused: rule `bad`: key_pattern: \"{user\": { is never closed";
    assert!(instance.log().contains(said), "{}", instance.log());
    assert!(instance.get("/v1/rules")["problem"].as_str().unwrap().contains(said));
    assert_eq!(
        instance.get("/readyz"),
        json!({"status": "ok", "rules": "version 2 is refused; version 1 stays in force"})
    );
    // An instance that starts now decides like the others.
    let late = Instance::on(&url);
    assert_eq!(late.limit("a"), "3/day");
    // Commands report the error too.
    let listed = rules(&url, &["list"]);
    assert_eq!(listed.status.code(), Some(1));
    assert!(stderr(&listed).contains(said), "{}", stderr(&listed));
    // Other rules can still be edited in the meantime.
    let (status, _) = instance.json("PUT /v1/rules/a", "", &json!({"key": "global", "limit": "5/day"}));
    assert_eq!((status, instance.limit("a").as_str()), (200, "3/day"));
    postgres.sql("delete from rate_limit_rule where name = 'bad'");
    instance.comes_to("a", "5/day");
    late.comes_to("a", "5/day");
    assert_eq!(instance.get("/readyz"), json!({"status": "ok"}));
    assert_eq!(instance.metric("tollkeeper_rules_refused_version"), 0.0);
}

#[test]
fn counts_live_on_when_a_limit_changes() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let window =
        |limit: u32| file(&format!("rules: [{{name: a, key: global, limit: {limit}/day, algorithm: fixed_window}}]"));
    rules_fine(&url, &["apply", &window(3)]);
    let instance = Instance::on(&url);
    assert_eq!(instance.passes(5), 3);
    rules_fine(&url, &["apply", &window(5)]);
    instance.comes_to("a", "5/day");
    assert_eq!(instance.passes(5), 2, "three were used before");
}

#[test]
fn sighup_asks_the_database() {
    let postgres = Postgres::start();
    rules_fine(&postgres.url(), &["apply", &rule_file(3)]);
    let instance = Instance::on(&postgres.url());
    instance.signal("-HUP");
    postgres.sql("update rate_limit_rule set rate = 4");
    instance.comes_to("a", "4/day");
    assert!(!instance.log().contains("the file has none"), "{}", instance.log());
}

#[test]
fn the_proxy_follows_too() {
    let postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(3)]);
    let (listen, admin) = ("127.0.0.1:0", "127.0.0.1:0");
    let args = ["proxy", "--upstream", "http://127.0.0.1:9", "--listen", listen, "--admin", admin];
    let instance = Instance::start(&args, &url).unwrap();
    assert_eq!(instance.limit("a"), "3/day");
    postgres.sql("update rate_limit_rule set rate = 4");
    instance.comes_to("a", "4/day");
}
