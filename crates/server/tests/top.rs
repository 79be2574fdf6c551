//! `tollkeeper top` as people and scripts run it: against the real service, in a real terminal.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper_testkit::{Service, binary, runtime_folder, tollkeeper};

const RULES: &str = "rules:
  - { name: everybody, key: global, limit: 100_000/s }
  - { name: login, key: '{ip}', limit: 5/min, when: { path: /login } }
";

/// One address ignores the limit, another has a text that would harm terminals.
fn attacked() -> Service {
    let service = Service::on(RULES, &[]);
    let login = |ip: &str| json!({"attributes": {"path": "/login", "ip": ip, "method": "POST"}});
    service.check(&json!({ "checks": vec![login("203.0.113.66"); 50] }));
    // An immediate retry might count as in flight; this one does not.
    std::thread::sleep(Duration::from_millis(300));
    service.check(&json!({ "checks": vec![login("203.0.113.66"); 50] }));
    service.check(&json!({ "checks": vec![login("\u{1b}[2J\u{202e}evil\u{7}"); 7] }));
    service
}

fn top(service: &str, more: &[&str]) -> Output {
    tollkeeper(&["top", "--server", &format!("http://{service}")]).args(more).output().unwrap()
}

#[test]
fn once_shows_everything_as_plain_text() {
    let service = attacked();
    for more in [&["--once"][..], &[]] {
        let output = top(&service.http, more);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        for part in [
            "store    memory answers",
            "abuse",
            "of denials come from 1 key that retries without waiting: looks like abuse",
            "login  5/min token_bucket by {ip}",
            "203.0.113.66",
            "\u{fffd}[2J\u{fffd}evil\u{fffd}",
            "DENIED AT",
            "POST /login",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    }
}

#[test]
fn json_is_the_answer_of_the_api() {
    let service = attacked();
    let output = top(&service.http, &["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["totals"]["decisions"], 214);
    assert_eq!(answer["rules"][1]["finding"]["kind"], "abuse");
}

#[test]
fn trouble_is_explained() {
    let service = Service::on(&format!("admin: {{ token: open-sesame-open-sesame }}\n{RULES}"), &[]);
    let refused = top(&service.http, &["--once"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("401") && said.contains("admin token"), "{said}");
    assert_eq!(top(&service.http, &["--once", "--admin-token", "open-sesame-open-sesame"]).status.code(), Some(0));
    let odd = top(&service.http, &["--interval", "1ms"]);
    assert!(String::from_utf8_lossy(&odd.stderr).contains("between 200ms and 1h"));
    let http = service.http.clone();
    drop(service);
    let gone = String::from_utf8_lossy(&top(&http, &["--once"]).stderr).into_owned();
    assert!(gone.contains("is it running?"), "{gone}");
}

/// Drawn, used by keys, resized, and the terminal restored after `q`, Ctrl-C and SIGTERM.
#[test]
fn it_lives_in_a_terminal_and_gives_it_back() {
    let service = attacked();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top/terminal.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(binary()).arg(format!("http://{}", service.http));
    // Where the command finds the token of the service.
    python.env("XDG_RUNTIME_DIR", runtime_folder());
    let output = python.output().expect("python3 is there");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "top: fine\n", "{}", String::from_utf8_lossy(&output.stderr));
}
