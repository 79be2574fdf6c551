//! The audit in a real Postgres, and without it: requests continue, nothing is written twice, what is lost is
//! counted.

use serde_json::{Value, json};
use tollkeeper_testkit::{Postgres, Service, file, tollkeeper, wait_until};

/// A service on three a minute for each user, with its audit in this database.
fn service(database: &Postgres, more: &str) -> Service {
    let rules = "rules:\n  - { name: per-user, key: '{user_id}', limit: 3/min }\n  - { name: watch, key: '{user_id}', limit: 2/min, mode: shadow }\n";
    Service::on(&format!("{rules}audit:\n  database: {}\n{more}", database.url()), &[])
}

/// The same, once its tables exist. They are created in the background.
fn service_with_tables(database: &Postgres) -> Service {
    let service = service(database, "");
    database.wait_for(TABLES, "1");
    service
}

const TABLES: &str = "select count(*) from pg_tables where tablename = 'rate_limit_violation'";

/// Sends this many requests as one user; how many were denied.
fn ask(service: &Service, user: &str, times: usize) -> usize {
    let check = json!({"attributes": {"user_id": user, "ip": "203.0.113.9", "method": "POST", "path": "/orders"}});
    let answer = service.check(&json!({"checks": vec![check; times]}));
    answer["results"].as_array().unwrap().iter().filter(|verdict| verdict["allowed"] == false).count()
}

fn violations(service: &Service, query: &str) -> Value {
    service.get(&format!("/v1/violations?{query}")).json()
}

const SUM: &str = "select coalesce(sum(count), 0) from rate_limit_violation where rule = 'per-user'";

#[test]
fn violations_are_written_and_found_there() {
    let database = Postgres::start();
    let service = service_with_tables(&database);
    assert_eq!(ask(&service, "ann", 10), 7);
    assert_eq!(ask(&service, "bob\u{0}", 4), 1);
    database.wait_for(SUM, "8");
    let row = "select concat_ws(' ', bucket_key, user_id, ip, endpoint, cost, tokens_at_time, count,
        retry_after > interval '0' and retry_after <= interval '20 s', instance is not null)
        from rate_limit_violation where rule = 'per-user' order by requested_at, violation_id limit 1";
    assert_eq!(database.sql(row), "ann ann 203.0.113.9 POST /orders 1 0 1 t t");
    assert_eq!(database.sql("select bool_and(shadow) from rate_limit_violation where rule = 'watch'"), "t");
    let found = violations(&service, "user_id=ann&rule=per-user&ip=203.0.113.0/24&since=1h");
    assert_eq!((&found["source"], &found["dropped"]), (&json!("postgres"), &json!(0)));
    let list = found["violations"].as_array().unwrap();
    assert_eq!(list.iter().map(|one| one["count"].as_u64().unwrap()).sum::<u64>(), 7);
    assert_eq!((&list[0]["endpoint"], &list[0]["shadow"]), (&json!("POST /orders"), &json!(false)));
    for (nothing, query) in
        [("another user", "user_id=eve"), ("another network", "ip=10.0.0.0/8"), ("the past", "until=1h")]
    {
        assert_eq!(violations(&service, query)["violations"], json!([]), "{nothing}");
    }
    // Page by page: each record once, the newest first.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = violations(&service, &format!("limit=3{cursor}"));
        seen.extend(
            page["violations"].as_array().unwrap().iter().map(|one| (one["at"].to_string(), one["id"].as_u64())),
        );
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen.len().to_string(), database.sql("select count(*) from rate_limit_violation"));
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
}

#[test]
fn a_database_that_hangs_or_is_gone_keeps_nobody_waiting_and_gets_everything_once() {
    let mut database = Postgres::start();
    let service = service_with_tables(&database);
    ask(&service, "first", 4);
    database.wait_for(SUM, "1");
    database.pause();
    let mut denied = 1;
    for user in 0..50 {
        denied += ask(&service, &format!("user-{user}"), 20);
    }
    assert_eq!(denied, 1 + 50 * 17, "decided as ever");
    wait_until("records wait", || service.metric("tollkeeper_audit_queue") > 0.0);
    database.resume();
    database.wait_for(SUM, &denied.to_string());
    database.kill();
    denied += ask(&service, "later", 20);
    let refused = service.get("/v1/violations");
    assert!(refused.status == 503 && refused.contains("the audit cannot answer"), "{refused}");
    assert!(service.get("/v1/insight").contains("\"later\""), "memory knows the last ones");
    database.restart();
    database.wait_for(SUM, &denied.to_string());
    assert_eq!(service.metric("tollkeeper_violations_dropped_total"), 0.0);
    assert_eq!(service.get("/healthz").status, 200);
}

#[test]
fn a_service_that_starts_before_its_database_writes_when_it_comes() {
    let mut database = Postgres::start();
    database.kill();
    let service = service(&database, "");
    assert_eq!(ask(&service, "early", 9), 6);
    database.restart();
    database.wait_for(TABLES, "1");
    database.wait_for(SUM, "6");
}

#[test]
fn what_is_left_is_written_when_the_service_ends() {
    let database = Postgres::start();
    let service = service_with_tables(&database);
    assert_eq!(ask(&service, "last", 500), 497);
    assert_eq!(service.stop(), Some(0));
    assert_eq!(database.sql(SUM), "497");
}

#[test]
fn old_days_are_dropped_as_the_file_says() {
    let database = Postgres::start();
    let first = service(&database, "  retention: 2d\n");
    database.wait_for("select count(*) > 1 from pg_tables where tablename ~ '^rate_limit_violation_2'", "t");
    assert_eq!(first.stop(), Some(0));
    let old = "insert into rate_limit_violation (requested_at, rule, bucket_key, tokens_at_time) values (now() - interval '3 days', 'old', 'k', 0)";
    database.sql(old);
    let _second = service(&database, "  retention: 2d\n");
    database.wait_for("select count(*) from rate_limit_violation where rule = 'old'", "0");
}

#[test]
fn the_command_shows_who_was_denied() {
    let database = Postgres::start();
    let service = service_with_tables(&database);
    ask(&service, "ann", 4);
    database.wait_for(SUM, "1");
    let url = format!("http://{}", service.http);
    let run = |args: &[&str]| {
        let output = tollkeeper(&[&["violations", "--url", &url], args].concat()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, table, _) = run(&["--rule", "per-user", "--since", "1h"]);
    assert_eq!(code, Some(0));
    assert!(
        table.lines().nth(1).is_some_and(|line| line.contains("per-user  ann  ann   203.0.113.9  POST /orders  1")),
        "{table}"
    );
    let (_, answer, _) = run(&["--user-id", "ann", "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["violations"][0]["user_id"], "ann");
    let (code, _, error) = run(&["--ip", "nowhere"]);
    assert!(code == Some(2) && error.contains("ip: \"nowhere\" is not an address"), "{error}");
    let gone = tollkeeper(&["violations", "--url", "http://127.0.0.1:1"]).output().unwrap();
    let error = String::from_utf8(gone.stderr).unwrap();
    assert!(gone.status.code() == Some(2) && error.contains("is it running?"), "{error}");
}

fn actions(service: &Service, query: &str) -> Value {
    service.get(&format!("/v1/actions?{query}")).json()
}

/// Runs a command that changes a key; it must succeed.
fn act(service: &Service, args: &[&str]) {
    let server = format!("http://{}", service.http);
    let output = tollkeeper(&[args, &["--server", &server, "--as", "ann"]].concat()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

const ACTIONS: &str = "select count(*) from rate_limit_action";

#[test]
fn what_people_did_to_a_key_is_kept_through_absence_and_seen_by_every_instance() {
    let mut database = Postgres::start();
    let first = service_with_tables(&database);
    let second = service(&database, "");
    let key = ["--rule", "per-user", "--key", "ann"];
    act(&first, &[&["block"], &key[..], &["--for", "1h", "--reason", "scraper\u{7}"]].concat());
    act(&first, &[&["lift"], &key[..]].concat());
    act(&first, &[&["grant", "--limit", "9/min", "--burst", "20"], &key[..]].concat());
    database.wait_for(ACTIONS, "3");
    let row = "select concat_ws(' ', action, rule, bucket_key, ends_at > now() + interval '59 min', acted_by, instance is not null)
        from rate_limit_action order by action_id limit 1";
    assert_eq!(database.sql(row), "block per-user ann t ann (admin token) t");
    database.kill();
    act(&first, &[&["reset"], &key[..]].concat());
    assert!(first.get("/v1/actions").contains("the audit cannot answer"));
    database.restart();
    database.wait_for(ACTIONS, "4");

    let all = actions(&second, "rule=per-user&key=ann&since=1h");
    assert_eq!((&all["source"], &all["dropped"]), (&json!("postgres"), &json!(0)));
    let all = all["actions"].as_array().unwrap();
    let kinds: Vec<&str> = all.iter().map(|one| one["action"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reset", "grant", "lift", "block"]);
    assert_eq!((&all[1]["limit"], &all[1]["until"]), (&json!("9/min burst 20"), &Value::Null));
    assert_eq!((&all[3]["reason"], &all[3]["by"]), (&json!("scraper\u{7}"), &json!("ann (admin token)")));
    let until = all[3]["until"].as_str().unwrap();
    assert!(until > all[3]["at"].as_str().unwrap() && until.ends_with('Z'), "{until}");
    for (nothing, query) in [("another key", "key=eve"), ("every rule", "rule=*"), ("the past", "until=1h")] {
        assert_eq!(actions(&second, query)["actions"], json!([]), "{nothing}");
    }
    assert_eq!(actions(&second, "action=lift")["actions"].as_array().unwrap().len(), 1);

    let run = |args: &[&str]| {
        let url = format!("http://{}", second.http);
        let output = tollkeeper(&[&["actions", "--url", &url], args].concat()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, table, _) = run(&["--key", "ann", "--action", "grant"]);
    assert_eq!((code, table.lines().count()), (Some(0), 2), "{table}");
    assert!(table.contains("grant   per-user  ann  -       9/min burst 20  -      ann (admin token)  -"), "{table}");
    let (_, answer, _) = run(&["--limit", "1", "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["actions"][0]["action"], "reset");
    let (code, _, error) = run(&["--action", "blok"]);
    assert!(code == Some(2) && error.contains("action: \"blok\" is not known; did you mean `block`?"), "{error}");
}

/// Denials of a blocked key were missing from the audit.
#[test]
fn denials_of_a_blocked_key_show_by_whom_and_until_when() {
    let database = Postgres::start();
    let service = service_with_tables(&database);
    act(&service, &["block", "--rule", "per-user", "--key", "ann", "--for", "1h"]);
    assert_eq!(ask(&service, "ann", 2), 2);
    act(&service, &["lift", "--rule", "per-user", "--key", "ann"]);
    assert_eq!(ask(&service, "ann", 4), 1);
    database.wait_for("select sum(count) from rate_limit_violation where rule = 'per-user'", "3");
    let rows = "select string_agg(concat_ws(' ', blocked, blocked_until > now() + interval '59 min', blocked_by), ', '
        order by violation_id) from rate_limit_violation where rule = 'per-user'";
    assert_eq!(database.sql(rows), "t t ann (admin token), t t ann (admin token), f");
    let found = violations(&service, "rule=per-user");
    let blocked: Vec<&Value> = found["violations"].as_array().unwrap().iter().map(|one| &one["blocked"]).collect();
    assert!(blocked[0].is_null() && blocked[1]["by"] == "ann (admin token)", "{found}");
    assert!(blocked[2]["until"].as_str().unwrap().ends_with('Z'), "{found}");
}

/// `insight: false` used to turn the audit's database off as well: denials could not be queried, and actions were
/// lost with the process.
#[test]
fn without_insight_the_audit_is_kept_all_the_same() {
    let database = Postgres::start();
    let service = service(&database, "insight: false\n");
    database.wait_for(TABLES, "1");
    assert_eq!(ask(&service, "ann", 10), 7);
    act(&service, &["block", "--rule", "per-user", "--key", "eve"]);
    database.wait_for(SUM, "7");
    database.wait_for(ACTIONS, "1");
    let found = violations(&service, "rule=per-user");
    assert_eq!((&found["source"], &found["dropped"]), (&json!("postgres"), &json!(0)));
    let counts = found["violations"].as_array().unwrap().iter().map(|one| one["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 7);
    assert_eq!(actions(&service, "key=eve")["actions"][0]["action"], "block");

    let answer = service.get("/v1/insight");
    let report: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let rule = &report["rules"][0];
    assert_eq!((&report["observing"], &rule["denied"]), (&json!(false), &json!(7)), "totals are counted anyway");
    assert_eq!(report["violations"][0]["user_id"], "ann", "the last ones are in memory too");
    assert_eq!(rule["hot_by_denials"], json!([]));
    assert_eq!((&rule["finding"], &rule["seconds"]["denied"]), (&Value::Null, &json!([])));
}

#[test]
fn actions_are_kept_as_long_as_violations_and_written_when_the_service_ends() {
    let database = Postgres::start();
    let first = service_with_tables(&database);
    act(&first, &["reset", "--rule", "per-user", "--key", "ann"]);
    assert_eq!(first.stop(), Some(0));
    assert_eq!(database.sql(ACTIONS), "1");
    let old = "insert into rate_limit_action (acted_at, action, rule, bucket_key, acted_by) values (now() - interval '3 days', 'lift', 'old', 'k', 'x')";
    database.sql(old);
    let _second = service(&database, "  retention: 2d\n");
    database.wait_for("select string_agg(rule, ' ') from rate_limit_action", "per-user");
}

#[test]
fn a_bad_setting_is_refused_by_name_and_shows_no_password() {
    for (setting, problem) in [
        ("database: mysql://me:hunter2@here/db", "audit.database: is not a Postgres URL"),
        ("retention: soon", "audit.retention: \"soon\""),
        ("retention: 1s", "audit.retention: 1s is not between 1h and 3653d"),
        ("keep: 2000000", "audit.keep: 2000000 are too many"),
        ("kep: 1", "audit.kep: is not known; did you mean `keep`?"),
    ] {
        let config = file(&format!("audit:\n  {setting}\n"), "yaml");
        let output = tollkeeper(&["serve", "--config", &config]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(problem) && !error.contains("hunter2"), "{setting}: {error}");
    }
}

/// A flood of denials from many keys grew the table without end until the day was over, and the database's disk with it.
#[test]
fn the_table_is_bounded_in_size() {
    let database = Postgres::start();
    let first = service_with_tables(&database);
    assert_eq!(first.stop(), Some(0));
    let fill = |when: &str| {
        database.sql(&format!(
            "insert into rate_limit_violation (requested_at, rule, bucket_key, ip, tokens_at_time)
             select {when}, 'flood', repeat('x', 500) || n, '192.0.2.1', 0 from generate_series(1, 5000) n"
        ))
    };
    fill("now() - interval '1 day'");
    let days = "select count(distinct requested_at::date) from rate_limit_violation";
    // The oldest days go first.
    let trimmed: u64 = database.sql("select rate_limit_violation_trim(2000000)").parse().unwrap();
    assert!(trimmed < 2_000_000 && database.sql(days) == "0", "{trimmed}");
    // When today alone is too much, what comes is counted and not written.
    fill("now()");
    let service = service(&database, "  max_size_mb: 1\n");
    assert_eq!(ask(&service, "ann", 10), 7);
    let lost = "tollkeeper_violations_dropped_total";
    wait_until("the denials are counted as lost", || service.metric(lost) >= 7.0);
    assert_eq!(database.sql("select count(*) from rate_limit_violation where rule <> 'flood'"), "0");
    assert!(service.log().contains("raise audit.max_size_mb"), "{}", service.log());
    // Actions are few, and still written.
    act(&service, &["reset", "--rule", "per-user", "--key", "ann"]);
    database.wait_for("select count(*) from rate_limit_action", "1");
    assert!(database.sql(days) == "1");
}
