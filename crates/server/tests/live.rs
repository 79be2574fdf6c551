//! Rules that change while the real binary runs on them: edited in place, replaced, swapped behind a link, broken.

#![allow(missing_docs, clippy::unwrap_used)]

mod running;

use std::path::PathBuf;

use running::{Running, file};

/// One rule, by user.
fn rules(limit: &str) -> String {
    format!("rules:\n  - {{ name: per-user, key: \"{{user_id}}\", {limit} }}\n")
}

fn serve(config: &str) -> Running {
    Running::start(&["serve", "--http", "127.0.0.1:0", "--config", config])
}

/// Whether a request of this user passes, and what is left then.
fn check(service: &Running, user: &str) -> (bool, u64) {
    let answer = service.ask("POST", "/v1/check", &format!(r#"{{"attributes": {{"user_id": "{user}"}}}}"#));
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    (body["allowed"].as_bool().unwrap(), body["rules"][0]["remaining"].as_u64().unwrap())
}

/// A folder of its own.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("live-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn an_edited_file_lets_the_waiting_client_pass_and_gives_nobody_a_fresh_burst() {
    let config = file(&rules("limit: 5/day"), "yaml");
    let service = serve(&config);
    for left in (0..5).rev() {
        assert_eq!(check(&service, "a"), (true, left));
    }
    assert_eq!(check(&service, "b"), (true, 4));
    assert!(!check(&service, "a").0);

    std::fs::write(&config, rules("limit: 8/day")).unwrap();
    let log = service.until_logged("1 rules are in force now");
    assert!(log.contains("(changed per-user)"), "{log}");
    assert_eq!(check(&service, "a"), (true, 2), "the three that were added, and five are still missing");

    std::fs::write(&config, rules("limit: 4/day")).unwrap();
    let lowered = || service.logged().matches("rules are in force now").count() == 2;
    while !lowered() {
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    assert_eq!(check(&service, "a"), (false, 0));
    assert_eq!(check(&service, "b"), (true, 2), "one was missing");
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_file_that_is_renamed_over_is_seen() {
    let folder = folder("rename");
    let config = folder.join("tollgate.yaml");
    std::fs::write(&config, rules("limit: 1/day")).unwrap();
    let service = serve(config.to_str().unwrap());
    assert!(check(&service, "a").0 && !check(&service, "a").0);
    let new = folder.join(".tollgate.yaml.swp");
    std::fs::write(&new, rules("limit: 2/day")).unwrap();
    std::fs::rename(&new, &config).unwrap();
    service.until_logged("(changed per-user)");
    assert!(check(&service, "a").0);
}

/// As Kubernetes does it: the file is a link to a link to a folder, and that one is swapped.
#[test]
fn a_link_that_is_swapped_is_seen() {
    use std::os::unix::fs::symlink;
    let folder = folder("swap");
    for (version, limit) in [("..1", "limit: 1/day"), ("..2", "limit: 2/day")] {
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("tollgate.yaml"), rules(limit)).unwrap();
    }
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/tollgate.yaml", folder.join("tollgate.yaml")).unwrap();
    let service = serve(folder.join("tollgate.yaml").to_str().unwrap());
    assert!(check(&service, "a").0 && !check(&service, "a").0);
    symlink("..2", folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    service.until_logged("(changed per-user)");
    assert!(check(&service, "a").0);
}

#[test]
fn a_bad_an_empty_or_a_missing_file_changes_nothing() {
    let config = file(&rules("limit: 1/day"), "yaml");
    let service = serve(&config);
    assert!(check(&service, "a").0);
    std::fs::write(&config, rules("limit: lots")).unwrap();
    let log = service.until_logged("the rules stay as they were");
    assert!(log.contains("limit") && log.contains("lots"), "{log}");
    std::fs::write(&config, "rules: []\n").unwrap();
    service.until_logged("the file has none");
    std::fs::remove_file(&config).unwrap();
    service.until_logged("there is no such file");
    assert!(!check(&service, "a").0);
    std::fs::write(
        &config,
        rules("limit: 1/day, algorithm: fixed_window") + "  - { name: more, key: global, limit: 9/s }\n",
    )
    .unwrap();
    let log = service.until_logged("fixed_window instead of token_bucket");
    assert!(log.contains("2 rules are in force now (added more; changed per-user)"), "{log}");
}

#[test]
fn a_file_is_left_alone_when_told() {
    let config = file(&rules("limit: 1/day"), "yaml");
    let service = Running::start(&["serve", "--http", "127.0.0.1:0", "--config", &config, "--watch", "false"]);
    assert!(check(&service, "a").0);
    std::fs::write(&config, rules("limit: 2/day")).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(!check(&service, "a").0);
    assert!(!service.logged().contains("in force now"));
}
