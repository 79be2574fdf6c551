//! The database is unreachable, hangs, refuses or starts slowly; many instances start at once.

use serde_json::json;
use tollkeeper_testkit::{Authority, repository};

use super::world::*;

#[test]
fn rules_stay_while_the_database_is_unreachable_and_are_followed_when_it_is_back() {
    let mut postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(3)]);
    let instance = Instance::on(&url);
    for hang in [false, true] {
        if hang {
            postgres.pause()
        } else {
            postgres.kill()
        }
        wait_until("it is noticed", || instance.metric("tollkeeper_rules_database_up") == 0.0);
        assert_eq!(instance.json("POST /v1/check", "", &json!({"cost": 0})).1["allowed"], true);
        assert_eq!(
            instance.get("/readyz")["rules"].as_str().unwrap().split(';').next(),
            Some("the database is unreachable")
        );
        let (status, problem) = instance.json("DELETE /v1/rules/a", "", &json!(null));
        assert_eq!(status, 503, "{problem}");
        assert!(!problem.to_string().contains("sesame"), "{problem}");
        if hang {
            postgres.resume()
        } else {
            postgres.restart()
        }
        let limit = if hang { "5" } else { "4" };
        postgres.sql(&format!("update rate_limit_rule set rate = {limit} where name = 'a'"));
        instance.comes_to("a", &format!("{limit}/day"));
        wait_until("it is well again", || instance.get("/readyz") == json!({"status": "ok"}));
    }
    assert_eq!(instance.log().matches("answers again").count(), 2, "{}", instance.log());
    assert!(!instance.log().contains("sesame"), "{}", instance.log());
}

#[test]
fn a_service_starts_on_the_snapshot_while_the_database_is_unreachable() {
    let mut postgres = Postgres::start();
    let url = postgres.url();
    rules_fine(&url, &["apply", &rule_file(3)]);
    let folder = Folder::new();
    let snapshot = folder.join("snapshot");
    let with = ["--rules-snapshot", snapshot.to_str().unwrap()];
    let instance = Instance::with(&url, &with);
    rules_fine(&url, &["apply", &rule_file(4)]);
    instance.comes_to("a", "4/day");
    // The snapshot is written after the rules are in force.
    let kept = |limit: &str| {
        wait_until("the snapshot is written", || {
            std::fs::read_to_string(&snapshot).is_ok_and(|text| text.contains(limit))
        });
    };
    kept("4/day");
    drop(instance);
    postgres.kill();

    let said = Instance::try_with(&url, &[]).err().expect("no rules, no service");
    assert!(said.starts_with("exit Some(2): "), "{said}");
    assert!(said.contains("rules_from: postgres at 127.0.0.1:") && said.contains("with rules_snapshot"), "{said}");

    let instance = Instance::with(&url, &with);
    assert_eq!((instance.limit("a").as_str(), instance.passes(9)), ("4/day", 4), "the last good rules");
    assert!(instance.log().contains("starting with version 2 of the rules, from"), "{}", instance.log());
    assert_eq!(instance.metric("tollkeeper_rules_database_up"), 0.0);
    postgres.restart();
    postgres.sql("update rate_limit_rule set rate = 5");
    instance.comes_to("a", "5/day");
    kept("5/day");
    drop(instance);
    postgres.kill();

    let text = std::fs::read_to_string(&snapshot).unwrap();
    std::fs::write(&snapshot, text.replace("5/day", "500/day")).unwrap();
    let said = Instance::try_with(&url, &with).err().expect("damaged");
    assert!(said.contains("is damaged: its checksum does not match; remove it"), "{said}");
    std::fs::remove_file(&snapshot).unwrap();
    let said = Instance::try_with(&url, &with).err().expect("absent");
    assert!(said.contains("does not exist yet"), "{said}");
}

#[test]
fn a_database_that_hangs_at_the_start_is_one_that_is_unreachable() {
    let postgres = Postgres::start();
    rules_fine(&postgres.url(), &["apply", &rule_file(3)]);
    postgres.pause();
    let said = Instance::try_with(&postgres.url(), &[]).err().expect("no rules, no service");
    assert!(said.contains("no answer within"), "{said}");
    let output = rules(&postgres.url(), &["list"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no answer within 5s"), "{}", stderr(&output));
}

#[test]
fn many_instances_make_the_tables_together() {
    let postgres = Postgres::start();
    let url = postgres.url();
    let started: Vec<_> = (0..20)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || Instance::try_with(&url, &[]))
        })
        .collect();
    let instances: Vec<Instance> = started.into_iter().map(|one| one.join().unwrap().unwrap()).collect();
    let count = |folder: &str| std::fs::read_dir(repository().join(folder)).unwrap().count();
    let files = count("crates/tollkeeper/migrations") + count("crates/server/migrations");
    assert_eq!(postgres.sql("select count(*) from tollkeeper_migration where success"), files.to_string(), "each once");
    rules_fine(&url, &["apply", &rule_file(3)]);
    for instance in &instances {
        instance.comes_to("a", "3/day");
    }
}

#[test]
fn passwords_are_never_reported() {
    let postgres = Postgres::start();
    postgres.require_passwords();
    let wrong = postgres.url_as("tollkeeper:hunter2");
    let said = Instance::try_with(&wrong, &["--log", "debug"]).err().expect("wrong");
    assert!(said.contains("password authentication failed") && !said.contains("hunter2"), "{said}");
    for args in [&["list"][..], &["history"], &["apply", &rule_file(1)]] {
        let output = rules(&wrong, args);
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains("password authentication failed") && !said.contains("hunter2"), "{said}");
    }
    let help = tollkeeper(&["rules", "--help"]).env("TOLLKEEPER_RULES_FROM", &wrong).output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("hunter2"));
    let output = rules("postgres://u:hunter2@127.0.0.1:x/d", &["list"]);
    assert!(output.status.code() == Some(2) && !stderr(&output).contains("hunter2"), "{}", stderr(&output));

    // The password is right at first, and changed while it runs: the service continues, and its log shows neither
    // password.
    rules_fine(&postgres.url(), &["apply", &rule_file(3)]);
    let instance = Instance::with(&postgres.url(), &["--log", "debug"]);
    postgres.sql_as("postgres", "limits", "alter role tollkeeper password 'hunter3'");
    // Repeatedly: a connection that is just being made is not in the list yet.
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'tollkeeper'";
    wait_until("it is noticed", || {
        postgres.sql_as("postgres", "limits", end);
        instance.log().contains("password authentication failed")
    });
    assert_eq!(instance.limit("a"), "3/day");
    let log = instance.log();
    assert!(!log.contains("sesame") && !log.contains("hunter3"), "{log}");
}

/// A service that only follows needs read access only; what it may not do is reported with Postgres' message.
#[test]
fn a_service_may_have_the_right_to_read_only() {
    let postgres = Postgres::start();
    rules_fine(&postgres.url(), &["apply", &rule_file(3)]);
    postgres.sql_as("postgres", "limits", "create role reader login password 'r'");
    postgres.sql_as("postgres", "limits", "revoke create on schema public from public");
    let url = postgres.url_as("reader:r");
    let said = Instance::try_with(&url, &[]).err().expect("it may nothing");
    assert!(said.contains("permission denied for table tollkeeper_migration (SQLSTATE 42501)"), "{said}");
    postgres.sql(
        "grant select on tollkeeper_migration, rate_limit_rule, rate_limit_rule_head, rate_limit_rule_change to reader",
    );
    let instance = Instance::on(&url);
    postgres.sql("update rate_limit_rule set rate = 4");
    instance.comes_to("a", "4/day");
    let (status, problem) = instance.json("DELETE /v1/rules/a", "", &json!(null));
    assert_eq!(status, 503);
    assert!(problem["detail"].as_str().unwrap().contains("permission denied for table rate_limit_rule"), "{problem}");
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused() {
    let both = file("rules_from: postgres://u:hunter2@127.0.0.1/d\nrules: [{name: a, key: global, limit: 1/s}]");
    let output = tollkeeper(&["validate", &both]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("rules: rules_from takes them from Postgres; put these there with `tollkeeper rules apply`"),
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");
    let bad = file("rules_from: mysql://u:hunter2@127.0.0.1/d");
    let said = stderr(&tollkeeper(&["validate", &bad]).output().unwrap());
    assert!(said.contains("rules_from: is not a Postgres URL") && !said.contains("hunter2"), "{said}");
}

#[test]
fn the_database_can_be_distinguished_from_an_impostor() {
    let (own, other) = (Authority::new(), Authority::new());
    let postgres = Postgres::start_tls(&own.server());
    let url = postgres.url().replace("127.0.0.1", "localhost");
    let trusting = |authority: &Authority| format!("{url}?sslmode=verify-full&sslrootcert={}", authority.pem);
    rules_fine(&trusting(&own), &["apply", &rule_file(3)]);
    let instance = Instance::on(&trusting(&own));
    assert_eq!(instance.limit("a"), "3/day");
    postgres.wait_for(
        "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'tollkeeper'",
        "t",
    );
    let output = rules(&trusting(&other), &["list"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("certificate"), "{}", stderr(&output));
}
