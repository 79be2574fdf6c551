//! Every front with third-party clients.

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};

use tollkeeper_testkit::{Authority, Pair, Service, curl, run, tollkeeper};

use crate::envoy_client::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};

const ONE_EACH: &str = "rules: [{ name: each, key: '{user}', limit: 1/h }]";

#[test]
fn http_1_and_2_are_spoken_by_choice_of_the_client() {
    let authority = Authority::new();
    let server = authority.server();
    let service = Service::on("rules: []", &server.flags());
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let url = format!("https://{}/healthz", service.http);
        let answer = curl(&authority, None, &[flag, "--write-out", " %{http_version}", &url]);
        assert_eq!(answer.unwrap(), format!("{{\"status\":\"ok\"}} {version}"));
    }
    let refused = curl(&Authority::new(), None, &[&format!("https://{}/healthz", service.http)]).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
}

#[test]
fn clients_are_distinguished_by_their_certificates_and_cannot_say_otherwise() {
    let authority = Authority::new();
    let server = authority.server();
    let rules = "rules: [{ name: each, key: '{tls.client}', limit: 1/h }]";
    let service = Service::on(rules, &server.flags_for(&authority));
    let url = format!("https://{}/v1/authorize?tls.client=x", service.http);
    let ask = |pair: &Pair, header: &str| {
        let args = ["--output", "/dev/null", "--write-out", "%{http_code}", "--header", header, &url];
        curl(&authority, Some(pair), &args).unwrap()
    };
    let (ann, bob) = (authority.client("ann"), authority.client_for("ann", "bob.internal"));
    assert_eq!(ask(&ann, "x-a: b"), "200");
    for lie in ["tls.client: eve", "x-forwarded-tls-client: eve", "x-forwarded-uri: /?tls.client=eve"] {
        assert_eq!(ask(&ann, lie), "429", "{lie}");
    }
    assert_eq!(ask(&bob, "x-a: b"), "200", "the alternative name counts before the common one");
    let url = format!("https://{}/v1/keys?rule=each&key=", service.http);
    for (name, remaining) in [("ann", 0), ("bob.internal", 0), ("eve", 1)] {
        let token = format!("authorization: Bearer {}", service.token.as_ref().unwrap());
        let shown = curl(&authority, Some(&ann), &["--header", &token, &format!("{url}{name}")]).unwrap();
        assert!(shown.contains(&format!("\"remaining\":{remaining}")), "{name}: {shown}");
    }
}

#[test]
fn commands_that_ask_a_service_trust_its_certificate_or_do_not() {
    let authority = Authority::new();
    let service = Service::on(ONE_EACH, &authority.server().flags());
    let url = format!("https://{}", service.http);
    let ask = |authority: &Authority| {
        let args = ["block", "--server", &url, "--ca", &authority.pem, "--rule", "each", "--key", "ann"];
        tollkeeper(&args).output().unwrap()
    };
    let untrusting = ask(&Authority::new());
    let said = String::from_utf8_lossy(&untrusting.stderr).into_owned();
    assert!(untrusting.status.code() == Some(2) && said.contains("certificate"), "{said}");
    assert_eq!(ask(&authority).status.code(), Some(0));
    let body = r#"{"attributes": {"user": "ann"}}"#;
    let denied = curl(&authority, None, &["--data", body, &format!("{url}/v1/check")]).unwrap();
    assert!(denied.contains(r#""allowed":false"#), "{denied}");
}

async fn channel(address: &str, authority: &Authority, shown: Option<&Pair>) -> Result<Channel, Error> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&authority.pem)));
    if let Some(pair) = shown {
        tls = tls.identity(Identity::from_pem(read(&pair.cert), read(&pair.key)));
    }
    Endpoint::from_shared(format!("https://{address}")).unwrap().tls_config(tls)?.connect().await
}

async fn decide(channel: Channel) -> Result<Code, tonic::Status> {
    let entries = vec![Entry { key: "user".into(), value: "ann".into() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
    let request = RateLimitRequest { domain: "shop".into(), descriptors, ..Default::default() };
    Ok(RateLimitServiceClient::new(channel).should_rate_limit(request).await?.into_inner().overall_code())
}

#[tokio::test]
async fn grpc_is_decided_for_clients_with_a_certificate_alone() {
    let authority = Authority::new();
    let (server, client) = (authority.server(), authority.client("envoy"));
    let service = Service::on(ONE_EACH, &server.flags_for(&authority));
    let grpc = service.grpc.as_ref().unwrap();
    // In TLS 1.3 a client without a certificate finishes its handshake before it is refused, so the first call may be
    // what fails.
    let refused = match channel(grpc, &authority, None).await {
        Ok(channel) => decide(channel).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    let channel = channel(grpc, &authority, Some(&client)).await.unwrap();
    assert_eq!(decide(channel.clone()).await.unwrap(), Code::Ok, "a refused client was not charged");
    assert_eq!(decide(channel).await.unwrap(), Code::OverLimit);
}

#[test]
fn the_redis_protocol_is_spoken_with_tls_too() {
    let authority = Authority::new();
    let (server, client) = (authority.server(), authority.client("redis"));
    let service = Service::on("rules: []", &[&server.flags_for(&authority)[..], &["--resp", "127.0.0.1:0"]].concat());
    let resp = service.resp.as_ref().unwrap();
    let (host, port) = resp.split_once(':').unwrap();
    let ask = |tls: &[&str]| {
        let command = ["CL.THROTTLE", "user:42", "15", "30", "60"];
        let output = run("redis-cli", &[&["-h", host, "-p", port], tls, &command].concat());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let mine = ["--tls", "--cacert", &authority.pem, "--cert", &client.cert, "--key", &client.key];
    assert_eq!(ask(&mine), "0\n16\n15\n-1\n2\n");
    let nameless = ask(&["--tls", "--cacert", &authority.pem]);
    assert!(!nameless.starts_with('0'), "{nameless}");
    assert!(ask(&[]).contains("this port speaks TLS; connect with TLS, as redis-cli --tls does"));

    let read = |path: &str| std::fs::read(path).unwrap();
    let client_tls = redis::ClientTlsConfig { client_cert: read(&client.cert), client_key: read(&client.key) };
    let certificates = redis::TlsCertificates { client_tls: Some(client_tls), root_cert: Some(read(&authority.pem)) };
    let client = redis::Client::build_with_tls(format!("rediss://{resp}"), certificates).unwrap();
    let mut connection = client.get_connection().unwrap();
    // More than one record, and more than goes out at once.
    let long = "x".repeat(8_000);
    let mut pipeline = redis::pipe();
    (0..500).for_each(|_| _ = pipeline.cmd("ECHO").arg(&long));
    let echoed: Vec<String> = pipeline.query(&mut connection).unwrap();
    assert!(echoed.len() == 500 && echoed.iter().all(|echo| *echo == long));
}
