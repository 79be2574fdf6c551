//! Small things that people reach for: completions and manual pages, health by a base URL, a port without a host, client
//! certificates for every command, metrics in other formats, and a start without a store.

use std::process::{Command, Output};

use serde_json::json;
use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Authority, Folder, Service, file, pinned, run, tollkeeper, wait_until};

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ask(args: &[&str]) -> (Option<i32>, String) {
    let output = tollkeeper(args).output().unwrap();
    (output.status.code(), said(&output))
}

#[test]
fn completions_are_scripts_that_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, script) = ask(&["completions", shell]);
        assert_eq!(code, Some(0), "{script}");
        for word in ["serve", "completions", "store-required"] {
            assert!(script.contains(word), "no {word} for {shell}");
        }
    }
    let (_, script) = ask(&["completions", "bash"]);
    let asked = format!(
        "{script}\nCOMP_WORDS=(tollkeeper vali); COMP_CWORD=1; _tollkeeper tollkeeper vali; echo ${{COMPREPLY[@]}}"
    );
    let output = run("bash", &["-c", &asked]);
    assert_eq!(said(&output).trim(), "validate");
    assert_eq!(ask(&["completions", "tcsh"]).0, Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let (code, page) = ask(&["man"]);
    assert!(code == Some(0) && page.contains(".TH tollkeeper 1") && page.contains("tollkeeper\\-serve(1)"), "{page}");
    let (code, page) = ask(&["man", "rules", "diff"]);
    assert!(code == Some(0) && page.contains(".TH tollkeeper-rules-diff 1"), "{page}");
    let (code, problem) = ask(&["man", "srve"]);
    assert!(code == Some(2) && problem.contains("`srve`") && problem.contains("serve"), "{problem}");
    let folder = Folder::new();
    let (code, problem) = ask(&["man", "--output", &folder.path().display().to_string()]);
    assert_eq!(code, Some(0), "{problem}");
    for page in ["tollkeeper.1", "tollkeeper-serve.1", "tollkeeper-rules-diff.1"] {
        assert!(folder.path().join(page).is_file(), "no {page}");
    }
}

/// `tollkeeper health http://127.0.0.1:8080` asked for the dashboard and said "length limit exceeded".
#[test]
fn health_takes_the_address_of_a_service() {
    let service = Service::on("rules: []", &[]);
    for path in ["", "/", "/healthz", "/readyz"] {
        let (code, answer) = ask(&["health", &format!("http://{}{path}", service.http)]);
        assert_eq!(code, Some(0), "{path:?}: {answer}");
    }
    let (code, answer) = ask(&["health", &format!("http://{}/nowhere", service.http)]);
    assert!(code == Some(1) && answer.contains("404"), "{answer}");
}

#[test]
fn a_port_without_a_host_is_every_address() {
    let config = file("rules: []", "yaml");
    let service = Service::start(&["serve", "--config", &config, "--http", ":0", "--grpc", ":0"]);
    let port = service.http.rsplit(':').next().unwrap().to_string();
    let (code, answer) = ask(&["health", &format!("http://127.0.0.1:{port}")]);
    assert_eq!(code, Some(0), "{answer}");
    assert!(service.greeting.iter().any(|line| line.starts_with("admin: off")), "{:?}", service.greeting);
    let (code, problem) = ask(&["serve", "--config", &config, "--http", "8080"]);
    assert!(code == Some(2) && problem.contains("127.0.0.1:8080, or :8080"), "{problem}");
}

/// With `client_ca` no client command could connect: there was no flag for a certificate.
#[test]
fn every_client_command_can_show_a_certificate() {
    let authority = Authority::new();
    let (server, client) = (authority.server(), authority.client("ann"));
    let token = "a-token-that-is-long-enough-for-this";
    let rules = "rules: [{ name: per-user, key: '{user}', limit: 1/h }]";
    let service = Service::on(rules, &[&server.flags_for(&authority)[..], &["--admin-token", token]].concat());
    let url = format!("https://{}", service.http);
    let trust = ["--ca", authority.pem.as_str()];
    let shown = ["--client-cert", client.cert.as_str(), "--client-key", client.key.as_str()];
    let (code, answer) = ask(&[&["health", &url], &trust[..]].concat());
    assert_eq!(code, Some(1), "no certificate: {answer}");
    let (code, answer) = ask(&[&["health", &url], &trust[..], &shown[..]].concat());
    assert_eq!(code, Some(0), "{answer}");
    let asked = ["--server", url.as_str(), "--admin-token", token];
    let commands: [&[&str]; 6] = [
        &["block", "--rule", "per-user", "--key", "42", "--for", "1h"],
        &["exceptions"],
        &["lift", "--rule", "per-user", "--key", "42"],
        &["violations"],
        &["actions"],
        &["reset", "--rule", "per-user", "--key", "42"],
    ];
    for command in commands {
        let (code, answer) = ask(&[command, &asked[..], &trust[..], &shown[..]].concat());
        assert_eq!(code, Some(0), "{command:?}: {answer}");
    }
    let (code, answer) = ask(&[&["exceptions"], &asked[..], &trust[..]].concat());
    assert_eq!(code, Some(2), "no certificate: {answer}");
    let (code, answer) = ask(&[&["exceptions"], &asked[..], &["--client-cert", client.cert.as_str()][..]].concat());
    assert!(code == Some(2) && answer.contains("--client-key"), "{answer}");
}

#[test]
fn metrics_come_as_openmetrics_and_compressed_for_those_who_ask() {
    let service = Service::on("rules: [{ name: a, key: '{user}', limit: 2/h }]", &[]);
    service.check(&json!({ "attributes": { "user": "42" } }));
    let url = format!("http://{}/metrics", service.http);
    let plain = said(&run("curl", &["-si", &url]));
    assert!(plain.contains("content-type: text/plain; version=0.0.4") && !plain.contains("# EOF"), "{plain}");
    assert!(plain.contains("vary: accept, accept-encoding"), "{plain}");
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let open = said(&run("curl", &["-si", "-H", accept, &url]));
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{open}");
    let packed = said(&run("curl", &["-si", "--compressed", "-H", accept, &url]));
    assert!(packed.contains("content-encoding: gzip") && packed.ends_with("# EOF\n"), "{packed}");
    assert!(!said(&run("curl", &["-si", "-H", "accept-encoding: gzip;q=0", &url])).contains("content-encoding"));
    // Read by the reference parser, which is strict about names, types, units and the end.
    let page = file(open.split_once("\r\n\r\n").unwrap().1, "txt");
    let read = "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as read; \
                families = {family.name: family for family in read(open(sys.argv[1]).read())}; \
                print(families['tollkeeper_decisions'].type, families['tollkeeper_check_duration_seconds'].unit)";
    let output = Command::new(pinned("python")).args(["-c", read, &page]).output().unwrap();
    assert_eq!(said(&output), "counter seconds\n");
}

/// A service whose Redis restarts at the same time as itself used to be down until somebody started it again.
#[test]
fn a_store_that_is_not_required_may_be_unreachable_at_the_start() {
    let mut redis = Server::start(Kind::Redis7);
    redis.kill();
    let rules = |required: bool| {
        format!(
            "store: {{ url: '{}', required: {required}, timeout: 2s }}\nrules: [{{ name: a, key: '{{user}}', limit: 2/h }}]",
            redis.url()
        )
    };
    let refused =
        tollkeeper(&["serve", "--http", "127.0.0.1:0", "--config", &file(&rules(true), "yaml")]).output().unwrap();
    assert!(refused.status.code() == Some(2) && said(&refused).contains("cannot connect"), "{}", said(&refused));
    assert!(said(&refused).contains("or set store.required to false"), "{}", said(&refused));
    let service = Service::on(&rules(false), &[]);
    assert!(service.greeting.iter().any(|line| line.contains("UNREACHABLE")), "{:?}", service.greeting);
    assert!(service.log().contains("starting without it, because store.required is false"), "{}", service.log());
    assert_eq!(service.get("/healthz").status, 200);
    assert_eq!(service.get("/readyz").status, 503);
    assert_eq!(service.metric("tollkeeper_breaker_state"), 2.0);
    let check = || service.check(&json!({ "attributes": { "user": "42" } }));
    assert_eq!((check()["source"].clone(), check()["allowed"].clone()), (json!("local"), json!(true)));
    assert_eq!(check()["allowed"], false, "the local store limits meanwhile");
    redis.restart();
    service.until_logged("is reachable now and in use");
    wait_until("it is ready", || service.get("/readyz").status == 200);
    assert_eq!((check()["source"].clone(), check()["allowed"].clone()), (json!("store"), json!(true)));
    assert_eq!(check()["allowed"], false);
    assert_eq!(service.metric("tollkeeper_breaker_state"), 0.0);
    assert_eq!(
        service.log().matches("still unreachable").count(),
        0,
        "the same reason is logged once: {}",
        service.log()
    );
    // Rules that change are known to the store that came later, and it is left when the service stops.
    assert_eq!(service.stop(), Some(0));
}
