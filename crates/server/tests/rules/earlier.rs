//! What earlier releases left in Postgres and beside it is read: tables are migrated, rules and their history are kept.
//! `earlier/README.md` says what is in the folder of a release.

use std::path::PathBuf;

use tollkeeper_testkit::repository;

use super::world::*;

fn releases() -> Vec<PathBuf> {
    let folder = repository().join("crates/server/tests/rules/earlier");
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let releases: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(!releases.is_empty());
    releases
}

/// A server with a database as a release has left it.
fn restored(dump: &std::path::Path) -> Postgres {
    let postgres = Postgres::start();
    postgres.sql(&std::fs::read_to_string(dump).unwrap());
    postgres
}

#[test]
fn the_database_of_earlier_releases_is_migrated_and_keeps_rules_and_history() {
    for release in releases() {
        let postgres = restored(&release.join("database.sql"));
        let url = postgres.url();
        let before = std::fs::read_to_string(release.join("rules.yaml")).unwrap();
        // Read as they were, before and after the service has brought the tables up to date.
        assert_eq!(rules_fine(&url, &["export"]), before, "{}", release.display());
        let instance = Instance::on(&url);
        assert!(
            instance.greeting.iter().any(|line| line.starts_with("rules: 7, version 2 from")),
            "{:?}",
            instance.greeting
        );
        assert_eq!(rules_fine(&url, &["export"]), before);
        assert_eq!(instance.limit("free-user"), "20/s");
        // Its history goes back to the first version, and goes on.
        assert!(rules_fine(&url, &["history"]).contains("ann  apply: moved from the file"));
        rules_fine(&url, &["rollback", "1"]);
        instance.comes_to("free-user", "10/s");
        assert_eq!(instance.metric("tollkeeper_rules_version"), 3.0);
    }
}

/// Users of the library have the tables of the rules alone. A service on the same database adds its own.
#[test]
fn the_first_schema_is_migrated_by_a_service_and_read_by_commands() {
    for release in releases() {
        let postgres = restored(&release.join("first-schema.sql"));
        let url = postgres.url();
        let instance = Instance::on(&url);
        assert_eq!((instance.limit("free-user"), instance.limit("login")), ("10/s".into(), "6/min".into()));
        assert_eq!(postgres.sql("select min(version), count(*) > 8 from tollkeeper_migration where success"), "1|t");
        postgres.sql("update rate_limit_rule set mode = 'annotate' where name = 'login'");
        instance.comes_to("login", "6/min");
        wait_until("the change is in force", || instance.metric("tollkeeper_rules_version") == 2.0);
    }
}

#[test]
fn the_snapshot_of_earlier_releases_is_read_while_postgres_is_unreachable() {
    for release in releases() {
        let folder = Folder::new();
        let snapshot = folder.join("rules.snapshot").display().to_string();
        std::fs::copy(release.join("rules.snapshot"), &snapshot).unwrap();
        let instance = Instance::with("postgres://tollkeeper@127.0.0.1:1/limits", &["--rules-snapshot", &snapshot]);
        assert_eq!((instance.limit("free-user"), instance.limit("login")), ("20/s".into(), "5/min".into()));
    }
}
