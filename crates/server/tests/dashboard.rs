//! The dashboard in a real browser: the binary with traffic, Chromium, and an accessibility checker. The browser's
//! steps are in `tests/dashboard`; screenshots of every state are left in `target/dashboard`.

use std::process::Command;

use tollkeeper_testkit::{Postgres, binary, repository, runtime_folder, tools};

/// Runs the tests of one file, each with its own browser.
fn browse(file: &str, more: &[(&str, &str)]) {
    let packages = tools().join("node_tests_dashboard");
    assert!(packages.join("installed").exists(), "{} is missing: run ./run setup", packages.display());
    let pictures = repository().join("target/dashboard");
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec"]).arg(repository().join("tests/dashboard").join(file));
    node.env("TOLLKEEPER_BINARY", binary()).env("XDG_RUNTIME_DIR", runtime_folder());
    node.env("TOLLKEEPER_PACKAGES", packages.canonicalize().unwrap()).env("TOLLKEEPER_PICTURES", pictures);
    node.envs(more.iter().copied());
    let done = node.output().expect("node is there: ./run setup installs it");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn traffic_is_shown_and_judged_and_hostile_texts_stay_texts() {
    browse("traffic.test.mjs", &[]);
}

#[test]
fn a_key_is_inspected_and_reset_and_violations_are_found() {
    browse("keys.test.mjs", &[]);
}

#[test]
fn nothing_to_show_nobody_who_may_see_it_and_nobody_who_answers_are_distinguished() {
    browse("states.test.mjs", &[]);
}

#[test]
fn rules_in_postgres_are_made_changed_removed_and_rolled_back() {
    let database = Postgres::start();
    browse("rules.test.mjs", &[("TOLLKEEPER_POSTGRES", &database.url())]);
}

/// Requests over a soft limit were shown as those of shadow rules, and those over a quota not at all.
#[test]
fn what_passes_over_a_limit_is_marked_by_the_rule_s_mode() {
    browse("modes.test.mjs", &[]);
}

#[test]
fn exceptions_are_made_and_ended() {
    browse("exceptions.test.mjs", &[]);
}

#[test]
fn the_report_of_tune_is_one_page_that_shows_and_sorts() {
    browse("report.test.mjs", &[]);
}
