//! The tables in a real Postgres: what they refuse, and what their triggers do, whatever writes to them.

use tollkeeper_testkit::{Postgres, repository};

/// A server with our tables, created by the service.
fn with_tables() -> Postgres {
    let server = Postgres::start();
    for file in [
        "tollkeeper/migrations/0001_rules.sql",
        "server/migrations/0002_violations.sql",
        "server/migrations/0003_actions.sql",
        "server/migrations/0007_annotate.sql",
        "server/migrations/0008_quota.sql",
        "server/migrations/0009_violation_mode.sql",
    ] {
        let path = repository().join("crates").join(file);
        server.sql(&std::fs::read_to_string(path).unwrap());
    }
    server
}

fn refused(server: &Postgres, text: &str) -> String {
    let output = server.try_sql_as("tollkeeper", "limits", text);
    assert!(!output.status.success(), "{text} was taken");
    String::from_utf8(output.stderr).unwrap()
}

const INSERT: &str = "insert into rate_limit_rule (name, key_pattern, rate, period) values";

#[test]
fn what_can_never_be_right_is_refused_by_the_table() {
    let server = with_tables();
    server.sql(&format!("{INSERT} ('a', 'global', 10, '1 second')"));
    for (change, constraint) in [
        ("name = null", "null value"),
        ("rate = 0", "rate_is_positive"),
        ("period = '-1 second'", "period_is_positive"),
        ("burst_capacity = 0", "burst_is_positive"),
        ("algorithm = 'token_buket'", "algorithm_is_known"),
        ("mode = 'shadows'", "mode_is_known"),
        ("on_store_failure = 'ask'", "on_store_failure_is_known"),
        ("match_conditions = '[]'", "match_conditions_is_object"),
        ("options = '7'", "options_is_object"),
    ] {
        let said = refused(&server, &format!("update rate_limit_rule set {change}"));
        assert!(said.contains(constraint), "{change}: {said}");
    }
    assert!(refused(&server, &format!("{INSERT} ('a', 'global', 1, '1 day')")).contains("name_is_unique"));
    assert_eq!(server.sql("select version from rate_limit_rule_head"), "1");
}

#[test]
fn a_transaction_that_changes_rules_is_one_version_and_shows_who_what_and_when() {
    let server = with_tables();
    server.sql(&format!("begin; {INSERT} ('a', 'global', 10, '1 s'); {INSERT} ('b', '{{ip}}', 5, '1 min'); commit"));
    server.sql("update rate_limit_rule set rate = 6 where name = 'b'");
    server
        .sql("update rate_limit_rule set rate = 6 where name = 'b'; delete from rate_limit_rule where name = 'nobody'");
    server.sql("begin; delete from rate_limit_rule; rollback");
    let said =
        "set tollkeeper.changed_by = 'ann'; set tollkeeper.action = 'delete'; set tollkeeper.message = 'not needed'";
    server.sql(&format!("{said}; delete from rate_limit_rule where name = 'a'"));
    server.sql("truncate rate_limit_rule");
    let versions = "select string_agg(concat_ws(' ', version, changed_by, action, message), '; ' order by version)
        from rate_limit_rule_version";
    assert_eq!(server.sql(versions), "1 tollkeeper sql; 2 tollkeeper sql; 3 ann delete not needed; 4 tollkeeper sql");
    let changes = "select string_agg(concat_ws(' ', version, name, coalesce(before->>'rate', '-'),
        coalesce(after->>'rate', '-')), '; ' order by change_id) from rate_limit_rule_change";
    assert_eq!(server.sql(changes), "1 a - 10; 1 b - 5; 2 b 5 6; 3 a 10 -; 4 b 6 -");
    assert_eq!(server.sql("select count(*) from rate_limit_rule_version where changed_at > now()"), "0");
}

#[test]
fn rules_written_by_hand_come_last_by_default() {
    let server = with_tables();
    for name in ["one", "two", "three"] {
        server.sql(&format!("{INSERT} ('{name}', 'global', 1, '1 s')"));
    }
    server.sql("update rate_limit_rule set position = 0 where name = 'three'");
    let order = "select string_agg(name, ' ' order by position, rule_id) from rate_limit_rule";
    assert_eq!(server.sql(order), "three one two");
    assert_eq!(server.sql("select count(*) from rate_limit_rule where updated_at > created_at"), "1");
}

/// An editor needs rights on the rules alone: triggers write the history, and an editor cannot.
#[test]
fn an_editor_makes_history_and_cannot_change_it() {
    let server = with_tables();
    server.sql_as("postgres", "limits", "create role editor login");
    server.sql("grant select, insert, update, delete on rate_limit_rule to editor");
    server.sql_as("editor", "limits", &format!("{INSERT} ('a', 'global', 1, '1 s')"));
    assert_eq!(server.sql("select changed_by from rate_limit_rule_version"), "editor");
    for forbidden in [
        "delete from rate_limit_rule_change",
        "update rate_limit_rule_version set changed_by = 'ann'",
        "update rate_limit_rule_head set version = 0",
        "select rate_limit_rule_new_version()",
    ] {
        let output = server.try_sql_as("editor", "limits", forbidden);
        assert!(String::from_utf8_lossy(&output.stderr).contains("permission denied"), "{forbidden}: {output:?}");
    }
    // A table of the same name earlier in the editor's search path has no effect.
    let trick = "create temp table rate_limit_rule_head as select true only_row, 99::bigint \"version\", '0'::xid8 transaction_id";
    server.sql_as("editor", "limits", &format!("{trick}; update rate_limit_rule set rate = 2"));
    assert_eq!(server.sql("select version from rate_limit_rule_head"), "2");
}

#[test]
fn violations_are_kept_by_day_and_for_as_long_as_wanted() {
    let server = with_tables();
    let insert = |when: &str| {
        server.sql(&format!(
            "insert into rate_limit_violation (requested_at, rule, bucket_key, ip, tokens_at_time) values ({when}, 'a', 'k', '192.0.2.1', 0)"
        ));
    };
    // Written before its daily partition exists: accepted, and no obstacle for the partitions around it.
    insert("now()");
    let keep = |span: &str| server.sql(&format!("select rate_limit_violation_partitions('{span}')"));
    assert_eq!(keep("30 days"), "0");
    assert_eq!(keep("30 days"), "0", "once is enough");
    insert("now() - interval '1 day'");
    insert("now() - interval '40 days'");
    let places =
        "select string_agg(place, ' ' order by place) from (select case when tableoid::regclass::text ~ 'other$'
        then 'other' else 'day' end as place from rate_limit_violation) places";
    assert_eq!(server.sql(places), "day other other");
    assert_eq!(keep("30 days"), "0");
    assert_eq!(server.sql("select count(*) from rate_limit_violation"), "2", "the one of 40 days ago is gone");
    assert_eq!(keep("0 days"), "1", "yesterday");
    assert!(refused(&server, "select rate_limit_violation_partitions('-1 day')").contains("such as 30 days"));
    let plan = server.sql(
        "set enable_seqscan = off; explain select * from rate_limit_violation
        where ip = '192.0.2.1' and requested_at > now() - interval '1 day'",
    );
    assert!(plan.contains("ip_requested_at_idx"), "{plan}");
}
