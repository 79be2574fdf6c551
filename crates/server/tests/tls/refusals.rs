//! Which clients are refused, and which settings.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tollkeeper_testkit::{Authority, Pair, Service, curl, file, run, tollkeeper};

#[test]
fn only_certificates_of_the_named_authority_pass_and_only_while_they_are_valid() {
    let (authority, unknown) = (Authority::new(), Authority::new());
    let server = authority.server();
    let service = Service::on("rules: []", &server.flags_for(&authority));
    let url = format!("https://{}/healthz", service.http);
    let ask = |pair: Option<Pair>| curl(&authority, pair.as_ref(), &[&url]);
    let refused = [
        (None, "certificate required"),
        (Some(unknown.client("eve")), "unknown ca"),
        (Some(authority.expired_client()), "certificate expired"),
        // A server certificate is not valid as a client certificate.
        (Some(authority.server()), "unsupported certificate"),
    ];
    for (pair, expected) in refused {
        let said = ask(pair).unwrap_err();
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(ask(Some(authority.client("ann"))).unwrap(), "{\"status\":\"ok\"}");
}

#[test]
fn old_versions_of_tls_are_refused() {
    let authority = Authority::new();
    let server = authority.server();
    let service = Service::on("rules: []", &server.flags());
    let begin = |version: &str| {
        let args = ["s_client", "-connect", &service.http, "-CAfile", &authority.pem, version];
        // OpenSSL uses the old versions only at security level 0.
        let output = run("openssl", &[&args[..], &["-cipher", "DEFAULT:@SECLEVEL=0", "-verify_return_error"]].concat());
        (output.status.success(), String::from_utf8_lossy(&output.stderr).to_string())
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let (fine, said) = begin(version);
        assert!(fine, "{version}: {said}");
    }
    for version in ["-tls1", "-tls1_1"] {
        let (fine, said) = begin(version);
        assert!(!fine && said.contains("alert"), "the service refused, and not the client: {version}: {said}");
    }
}

#[test]
fn plain_text_is_answered_and_those_who_say_nothing_hold_nobody_up() {
    let authority = Authority::new();
    let server = authority.server();
    let service = Service::on("rules: []", &server.flags());
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&service.http).unwrap()).collect();
    let mut begun: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&service.http).unwrap()).collect();
    // The start of a handshake whose rest never comes.
    begun.iter_mut().for_each(|stream| stream.write_all(&[0x16, 3, 1, 0x40, 0]).unwrap());
    let answer = service.get("/healthz");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.ends_with("begin with https:\n"), "{answer}");
    let mut preface = TcpStream::connect(service.grpc.as_ref().unwrap()).unwrap();
    preface.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(preface.read_to_end(&mut Vec::new()).unwrap(), 0);
    let mut noise = TcpStream::connect(&service.http).unwrap();
    noise.write_all(&[0x16; 70_000]).unwrap();
    // The connection ends in any case, possibly by a reset.
    let _ = noise.read_to_end(&mut Vec::new());
    let fine = curl(&authority, None, &[&format!("https://{}/healthz", service.http)]);
    assert_eq!(fine.unwrap(), "{\"status\":\"ok\"}");
    drop((silent, begun));
    assert_eq!(service.stop(), Some(0), "unfinished handshakes do not keep it from stopping");
}

#[test]
fn what_cannot_work_is_refused_at_the_start_with_the_setting_the_file_and_what_to_do() {
    let authority = Authority::new();
    let (server, other) = (authority.server(), authority.server());
    let (empty, encrypted) = (file("", "pem"), file("", "key"));
    let args = ["genpkey", "-algorithm", "RSA", "-aes256", "-pass", "pass:secret", "-out", &encrypted];
    assert!(run("openssl", &args).status.success());
    let refusal = |flags: &[&str]| {
        let output = tollkeeper(&[&["serve", "--http", "127.0.0.1:0"], flags].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let both = |cert: &str, key: &str| refusal(&["--tls-cert", cert, "--tls-key", key]);
    let cases = [
        (both("no.pem", &server.key), "listen.tls.cert: cannot read no.pem: No such file"),
        (both(&server.cert, "no.key"), "listen.tls.key: cannot read no.key: No such file"),
        (both(&empty, &server.key), "contains no certificate; one begins with"),
        (both(&server.cert, &server.cert), "contains no private key; one begins with"),
        (both(&server.cert, &other.key), "is not the key of the first certificate in"),
        (both(&server.cert, &encrypted), "the key is encrypted; store it without a password"),
        (refusal(&[&server.flags()[..], &["--tls-client-ca", &empty]].concat()), "listen.tls.client_ca: "),
        (refusal(&["--tls-cert", &server.cert]), "listen.tls.key: is missing; TLS needs a certificate and its key"),
        (refusal(&["--tls-client-ca", &authority.pem]), "listen.tls.cert: is missing"),
    ];
    for (said, expected) in cases {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let rules = file("identify: { tls.client: header.x-client }\nrules: []", "yaml");
    assert!(refusal(&["--config", &rules]).contains("identify.tls.client: comes only from the client's certificate"));
}
