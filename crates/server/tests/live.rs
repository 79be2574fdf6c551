//! Rules that change while the real binary uses them: edited in place, replaced, swapped behind a symlink, broken.

use serde_json::json;
use tollkeeper_testkit::{Folder, Service, file, tollkeeper};

/// One rule, by user.
fn rules(limit: &str) -> String {
    format!("rules:\n  - {{ name: per-user, key: \"{{user_id}}\", {limit} }}\n")
}

fn serve(config: &str) -> Service {
    Service::start(&["serve", "--http", "127.0.0.1:0", "--config", config])
}

/// Whether a request of this user passes, and what is left.
fn check(service: &Service, user: &str) -> (bool, u64) {
    let body = service.check(&json!({"attributes": {"user_id": user}}));
    (body["allowed"].as_bool().unwrap(), body["rules"][0]["remaining"].as_u64().unwrap())
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
    let log = service.until_logged("rules in force: 1 ");
    assert!(log.contains("(changed per-user)"), "{log}");
    assert_eq!(check(&service, "a"), (true, 2), "the three that were added, and five are still missing");

    std::fs::write(&config, rules("limit: 4/day")).unwrap();
    let lowered = || service.log().matches("rules in force:").count() == 2;
    while !lowered() {
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    assert_eq!(check(&service, "a"), (false, 0));
    assert_eq!(check(&service, "b"), (true, 2), "one was missing");
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_file_that_is_renamed_over_is_seen() {
    let folder = Folder::new();
    let config = folder.join("tollkeeper.yaml");
    std::fs::write(&config, rules("limit: 1/day")).unwrap();
    let service = serve(config.to_str().unwrap());
    assert!(check(&service, "a").0 && !check(&service, "a").0);
    let new = folder.join(".tollkeeper.yaml.swp");
    std::fs::write(&new, rules("limit: 2/day")).unwrap();
    std::fs::rename(&new, &config).unwrap();
    service.until_logged("(changed per-user)");
    assert!(check(&service, "a").0);
}

/// As Kubernetes does it: the file is a symlink to a symlink to a folder, which is swapped.
#[test]
fn a_link_that_is_swapped_is_seen() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new();
    for (version, limit) in [("..1", "limit: 1/day"), ("..2", "limit: 2/day")] {
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("tollkeeper.yaml"), rules(limit)).unwrap();
    }
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/tollkeeper.yaml", folder.join("tollkeeper.yaml")).unwrap();
    let service = serve(folder.join("tollkeeper.yaml").to_str().unwrap());
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
    let log = service.until_logged("the rules were not reloaded");
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
    let log = service.until_logged("changed from token_bucket to fixed_window");
    assert!(log.contains("rules in force: 2 (added more; changed per-user)"), "{log}");
}

#[test]
fn a_file_is_left_alone_when_configured() {
    let config = file(&rules("limit: 1/day"), "yaml");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &config, "--watch", "false"]);
    assert!(check(&service, "a").0);
    std::fs::write(&config, rules("limit: 2/day")).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(!check(&service, "a").0);
    assert!(!service.log().contains("in force now"));
}

/// A command's output, errors and exit code.
fn run(service: &Service, args: &[&str]) -> (i32, String, String) {
    let server = format!("http://{}", service.http);
    let output = tollkeeper(&[args, &["--server", &server]].concat()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn commands_make_show_and_lift_exceptions() {
    let service = serve(&file(&rules("limit: 5/day"), "yaml"));
    let key = ["--rule", "per-user", "--key", "a b/ü"];
    let block = [&["block"], &key[..], &["--for", "1h", "--reason", "scraper"]].concat();
    let (code, said, _) = run(&service, &block);
    assert!(code == 0 && said.starts_with("block per-user a b/ü until 20") && said.ends_with("(scraper)\n"), "{said}");
    assert!(!check(&service, "a b/ü").0 && check(&service, "b").0);
    let log = service.until_logged("an exception was created");
    assert!(log.contains(r#"action="block""#) && log.contains(r#"reason="scraper""#), "{log}");

    let (code, said, _) = run(&service, &["exceptions", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &listed["exceptions"][0]["key"]), (0, &"a b/ü".into()));

    let lift = [&["lift"], &key[..]].concat();
    assert_eq!(run(&service, &lift), (0, "lifted: per-user a b/ü\n".into(), String::new()));
    assert_eq!(run(&service, &lift).0, 1, "there is none any more");
    assert_eq!(run(&service, &["exceptions"]).1, "there are none\n");
    assert_eq!(check(&service, "a b/ü"), (true, 4), "what was blocked was not charged");

    assert_eq!(run(&service, &["allow", "--key", "c"]).1, "allow * c until it is lifted\n");
    assert!((0..20).all(|_| check(&service, "c").0));
    let (code, said, _) =
        run(&service, &["grant", "--rule", "per-user", "--key", "b", "--limit", "9/day", "--for", "1d"]);
    assert!(code == 0 && said.starts_with("grant per-user b 9/day until "), "{said}");
    assert_eq!(check(&service, "b"), (true, 7));
    assert_eq!(run(&service, &["reset", "--rule", "per-user", "--key", "b"]).1, "reset: per-user b\n");
    assert_eq!(check(&service, "b"), (true, 8));
}

/// The log contained the key of every exception as given, even if it was an API key.
#[test]
fn a_secret_key_is_in_the_audit_and_in_the_log_by_its_fingerprint() {
    // Also without insight: actions are not traffic.
    let config = "insight: false\nrules:\n  - { name: per-key, key: \"{api_key}\", limit: 5/day }\n";
    let service = serve(&file(config, "yaml"));
    for verb in ["block", "lift", "reset"] {
        assert_eq!(run(&service, &[verb, "--rule", "per-key", "--key", "k-very-secret", "--as", "ann"]).0, 0, "{verb}");
    }
    let log = service.until_logged("a bucket was reset");
    assert!(log.contains("key=\"sha256:") && log.contains("by=\"ann (admin token)\""), "{log}");
    let url = format!("http://{}", service.http);
    let shown = tollkeeper(&["actions", "--url", &url, "--key", "k-very-secret"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.matches("sha256:").count(), 3, "{shown}");
    assert!(!log.contains("k-very-secret") && !shown.contains("k-very-secret"), "{log}{shown}");
}

#[test]
fn commands_say_what_is_wrong() {
    let service = serve(&file(&rules("limit: 5/day"), "yaml"));
    let (code, said, error) = run(&service, &["block", "--rule", "per-usr", "--key", "a"]);
    assert!(code == 1 && said.is_empty() && error.contains("did you mean `per-user`?"), "{error}");
    let (code, _, error) = run(&service, &["grant", "--key", "a", "--limit", "lots"]);
    assert!(code == 1 && error.contains("limit: ") && error.contains("lots"), "{error}");
    assert_eq!(run(&service, &["block", "--key", "a", "--for", "long"]).0, 2);
    assert_eq!(run(&service, &["block"]).0, 2, "without a key");
    let nowhere = tollkeeper(&["exceptions", "--server", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8(nowhere.stderr).unwrap().contains("is it running?"));
}

#[test]
fn a_service_with_a_token_asks_for_it() {
    const TOKEN: &str = "open-sesame-open-sesame";
    let config = file(&rules("limit: 5/day"), "yaml");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &config, "--admin-token", TOKEN]);
    let (code, _, error) = run(&service, &["block", "--key", "a"]);
    assert!(code == 2 && error.contains("needs the admin token"), "{error}");
    assert_eq!(run(&service, &["block", "--key", "a", "--admin-token", TOKEN]).0, 0);
    assert!(!check(&service, "a").0);
    assert!(!service.log().contains("sesame"));
}
