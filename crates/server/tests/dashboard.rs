//! The dashboard in a real browser: the binary with traffic, Chromium, and an accessibility checker. What the browser does is in
//! `tests/dashboard`; pictures of every state are left in `target/dashboard`.

#![allow(clippy::unwrap_used, missing_docs)]

mod postgres;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the tests of one file, each with its own browser.
fn browse(file: &str, more: &[(&str, &str)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = root.join("target/tools/node_tests_dashboard");
    assert!(packages.join("installed").exists(), "{} is missing: run ./run setup", packages.display());
    let pictures: PathBuf = root.join("target/dashboard");
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec"]).arg(root.join("tests/dashboard").join(file));
    node.env("TOLLKEEPER_BINARY", env!("CARGO_BIN_EXE_tollkeeper"));
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
fn nothing_to_show_nobody_who_may_see_it_and_nobody_who_answers_are_told_apart() {
    browse("states.test.mjs", &[]);
}

#[test]
fn rules_in_postgres_are_made_changed_removed_and_rolled_back() {
    let database = postgres::Postgres::start();
    browse("rules.test.mjs", &[("TOLLKEEPER_POSTGRES", &database.url())]);
}

#[test]
fn exceptions_are_made_and_ended() {
    browse("exceptions.test.mjs", &[]);
}
