//! Tokens as users see them: generated at start, found by commands, refused if weak, and required behind a proxy.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tollkeeper_testkit::http::Client;
use tollkeeper_testkit::{Folder, Process, Service, file, free_port, runtime_folder, system, tollkeeper, wait_until};
use tonic::{Code, Request};

use crate::envoy_client::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};

const RULES: &str = "rules: [{ name: a, key: '{user}', limit: 2/h }]";

/// The file of a service's generated token.
fn kept(service: &Service) -> PathBuf {
    runtime_folder().join("tollkeeper").join(format!("{}.token", service.http.replace(':', "-")))
}

fn commanded(service: &Service, args: &[&str]) -> (Option<i32>, String) {
    let url = format!("http://{}", service.http);
    let output = tollkeeper(&[args, &["--server", &url]].concat()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The admin part of a service on loopback was open to everything on the machine, including pages in a browser.
#[test]
fn a_token_is_made_at_start_and_found_by_the_commands_of_this_user() {
    let (one, other) = (Service::on(RULES, &[]), Service::on(RULES, &[]));
    let tokens = [&one, &other].map(|service| service.token.clone().expect("printed with the dashboard's address"));
    assert!(tokens[0] != tokens[1] && tokens.iter().all(|token| token.len() >= 32), "{tokens:?}");
    for (service, token) in [&one, &other].into_iter().zip(&tokens) {
        let path = kept(service);
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim_end(), token);
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(service.greeting.iter().any(|line| line.contains(path.to_str().unwrap())), "{:?}", service.greeting);
        // Each command finds the token of its own service.
        assert_eq!(commanded(service, &["block", "--key", "eve"]), (Some(0), String::new()));
        assert_eq!(commanded(service, &["exceptions"]).0, Some(0));
        assert!(!service.log().contains(token.as_str()), "{}", service.log());
    }
    let client = Client::to(&one.http);
    for wrong in ["", "Bearer", "Bearer x", &format!("Bearer {}", tokens[1]), &format!("Basic {}", tokens[0])] {
        client.clone().with("authorization", wrong).get("/v1/rules").problem(401);
    }
    let path = kept(&one);
    assert_eq!(one.stop(), Some(0));
    assert!(!path.exists(), "it ends with the service");
    assert!(kept(&other).exists());
}

/// A killed service leaves its token file. The token is no longer valid, and another service on that port does not
/// accept it. In a folder of its own: every start in the usual one removes what others left there, in other tests too.
#[test]
fn a_token_left_behind_opens_nothing_and_is_explained() {
    let folder = Folder::new();
    let here = |args: &[&str]| {
        let mut command = tollkeeper(args);
        command.env("XDG_RUNTIME_DIR", folder.path());
        command
    };
    let mut crashed = Service::spawn(here(&["serve", "--http", "127.0.0.1:0", "--config", &file(RULES, "yaml")]));
    let path = folder.path().join("tollkeeper").join(format!("{}.token", crashed.http.replace(':', "-")));
    crashed.kill();
    assert!(path.exists());
    let url = format!("http://{}", crashed.http);
    let commanded = |args: &[&str]| {
        let output = here(&[args, &["--server", &url]].concat()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let config = file(&format!("admin: {{ token: open-sesame-open-sesame }}\n{RULES}"), "yaml");
    let next = Service::spawn(here(&["serve", "--http", &crashed.http, "--config", &config]));
    assert_eq!(next.token, None, "a configured token is not shown");
    let (code, said) = commanded(&["exceptions"]);
    assert!(code == Some(2) && said.contains("401") && said.contains(path.to_str().unwrap()), "{said}");
    assert_eq!(commanded(&["exceptions", "--admin-token", "open-sesame-open-sesame"]).0, Some(0));
    assert_eq!(next.stop(), Some(0));
    let again = Service::spawn(here(&["serve", "--http", &crashed.http, "--config", &file(RULES, "yaml")]));
    assert_eq!(commanded(&["exceptions"]).0, Some(0), "replaced");
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn a_service_that_can_keep_its_token_nowhere_says_so_and_runs() {
    let mut command = tollkeeper(&["serve", "--http", "127.0.0.1:0", "--config", &file(RULES, "yaml")]);
    // A file where there should be a folder.
    let no_folder = file("", "txt");
    command.env("XDG_RUNTIME_DIR", &no_folder).env("XDG_STATE_HOME", &no_folder).env("HOME", &no_folder);
    command.env("RUNTIME_DIRECTORY", &no_folder);
    let service = Service::spawn(command);
    // As root there is /run/tollkeeper.
    let is_kept = service.greeting.iter().any(|line| line.contains("stored in /run/tollkeeper/"));
    assert!(is_kept || service.log().contains("commands need --admin-token"), "{}", service.log());
    assert_eq!(service.get("/v1/rules").status, 200);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn weak_tokens_are_refused_at_start_with_the_fix() {
    let yaml = |text: &str| file(&format!("{text}\n{RULES}"), "yaml");
    for (field, setting) in [
        ("admin.token", "admin: { token: sesame }"),
        ("admin.read_token", "admin: { read_token: aaaaaaaaaaaaaaaaaaaaaa }"),
        ("decisions.token", "decisions: { token: changeme-changeme-changeme }"),
        ("admin.read_token", "admin: { token: open-sesame-open-sesame, read_token: open-sesame-open-sesame }"),
    ] {
        let config = yaml(setting);
        for args in [&["validate", &config][..], &["serve", "--http", "127.0.0.1:0", "--config", &config]] {
            let output = tollkeeper(args).output().unwrap();
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(matches!(output.status.code(), Some(1 | 2)) && said.contains(field), "{args:?}: {said}");
            assert!(said.contains("openssl rand -hex 16") || said.contains("choose a different token"), "{said}");
        }
    }
    let output = tollkeeper(&["serve", "--http", "127.0.0.1:0", "--admin-token", "short"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("has 5 characters and can be guessed"), "{said}");
}

/// By default nginx sends `Host: 127.0.0.1:8080` for all clients, and so a service without a token let anyone change
/// its rules.
#[test]
fn a_proxy_that_rewrites_host_opens_nothing() {
    let service = Service::on(RULES, &[]);
    let (port, folder) = (free_port(), Folder::new());
    let config = format!(
        "daemon off; pid nginx.pid; events {{}} http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy; \
         fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi; \
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{}; }} }} }}",
        service.http
    );
    std::fs::write(folder.path().join("nginx.conf"), config).unwrap();
    let mut nginx = Command::new(system("nginx"));
    nginx.arg("-p").arg(folder.path()).args(["-e", "stderr", "-c"]).arg(folder.path().join("nginx.conf"));
    let nginx = Process::spawn(&mut nginx, folder.path().join("log"));
    let world = Client::to(&format!("127.0.0.1:{port}")).host("limits.example");
    wait_until("nginx answers", || world.try_send("GET", "/healthz", "").is_ok_and(|answer| answer.status == 200));
    let rule = r#"{"name": "b", "key": "global", "limit": "1/s"}"#;
    for (method, target, body) in [
        ("GET", "/v1/rules", ""),
        ("GET", "/v1/insight", ""),
        ("GET", "/v1/violations", ""),
        ("POST", "/v1/rules", rule),
        ("PUT", "/v1/exceptions", r#"{"key": "1", "kind": "allow"}"#),
        ("DELETE", "/v1/keys?rule=a&key=1", ""),
    ] {
        world.send(method, target, body).problem(401);
        world.clone().with("x-forwarded-for", "127.0.0.1").send(method, target, body).problem(401);
        let evil = world.clone().with("origin", "https://evil.example");
        assert!(matches!(evil.send(method, target, body).status, 401 | 403), "{target}");
    }
    let token = format!("Bearer {}", service.token.as_ref().unwrap());
    assert_eq!(world.clone().with("authorization", &token).get("/v1/rules").status, 200);
    // nginx stops its workers only on a graceful signal.
    nginx.signal("-TERM");
}

/// gRPC decides like HTTP, so it needs the same token.
#[test]
fn the_token_of_decisions_is_asked_for_over_grpc_too() {
    let rules = format!("decisions: {{ token: for-my-proxies-only }}\n{RULES}");
    let service = Service::on(&rules, &[]);
    service.client().post("/v1/check", "{}").problem(401);
    let with = service.client().with("x-tollkeeper-token", "for-my-proxies-only");
    assert_eq!(with.post("/v1/check", "{}").status, 200);
    let grpc = service.grpc.clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |token: Option<&'static str>| {
        runtime.block_on(async {
            let entry = Entry { key: "user".into(), value: "x".into() };
            let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
            let descriptors = vec![descriptor];
            let mut request = Request::new(RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 });
            if let Some(token) = token {
                request.metadata_mut().insert("authorization", token.parse().unwrap());
            }
            let mut client = RateLimitServiceClient::connect(&grpc).await;
            client.should_rate_limit(request).await.map_or_else(|status| status.code(), |_| Code::Ok)
        })
    };
    assert_eq!(ask(None), Code::Unauthenticated);
    assert_eq!(ask(Some("Bearer wrong")), Code::Unauthenticated);
    assert_eq!(ask(Some("Bearer for-my-proxies-only")), Code::Ok);
}
