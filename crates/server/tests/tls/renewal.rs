//! Certificates that change while the service runs.

use tollkeeper_testkit::{Authority, Service, curl, file, run};

use super::peer::{ask, chain, connect, shown};

#[tokio::test]
async fn a_new_certificate_is_shown_after_sighup_and_connections_live_on() {
    let authority = Authority::new();
    let (files, second) = (authority.server(), authority.server());
    let service = Service::on("rules: []", &files.flags());
    let mut old = connect(&service.http, &authority, None).await;
    assert_eq!(ask(&mut old, "/healthz").await, "200");
    assert_eq!(shown(&old), chain(&files.cert)[0]);
    files.replace(&second);
    service.signal("-HUP");
    service.wait_for_log("certificates were reloaded", 1);
    let mut new = connect(&service.http, &authority, None).await;
    assert_eq!(shown(&new), chain(&second.cert)[0]);
    assert_eq!((ask(&mut new, "/healthz").await, ask(&mut old, "/healthz").await), ("200".into(), "200".into()));
}

#[tokio::test]
async fn a_bad_renewal_changes_nothing_and_says_why() {
    let authority = Authority::new();
    let (files, second) = (authority.server(), authority.server());
    let before = chain(&files.cert)[0].clone();
    let service = Service::on("rules: []", &files.flags());
    // Half of a renewal, as a signal between the two writes sees it.
    std::fs::copy(&second.cert, &files.cert).unwrap();
    service.signal("-HUP");
    service.wait_for_log("certificates were not reloaded, and the old ones stay in use: listen.tls.key: ", 1);
    assert_eq!(shown(&connect(&service.http, &authority, None).await), before);
    std::fs::remove_file(&files.key).unwrap();
    service.signal("-HUP");
    service
        .wait_for_log("certificates were not reloaded, and the old ones stay in use: listen.tls.key: cannot read ", 1);
    assert_eq!(shown(&connect(&service.http, &authority, None).await), before);
    std::fs::copy(&second.key, &files.key).unwrap();
    service.signal("-HUP");
    service.wait_for_log("certificates were reloaded", 1);
    assert_eq!(shown(&connect(&service.http, &authority, None).await), chain(&second.cert)[0]);
}

/// A TLS session from before must not be resumed.
#[tokio::test]
async fn clients_of_an_authority_that_was_replaced_are_refused_from_then_on() {
    let (authority, next) = (Authority::new(), Authority::new());
    let clients = file(&std::fs::read_to_string(&authority.pem).unwrap(), "pem");
    let server = authority.server();
    let flags = [server.flags(), vec!["--tls-client-ca", &clients]].concat();
    let service = Service::on("rules: []", &flags);
    let url = format!("https://{}/healthz", service.http);
    let (ann, bob) = (authority.client("ann"), next.client("bob"));
    let ask = |pair| curl(&authority, Some(pair), &[&url]).is_ok();
    assert_eq!((ask(&ann), ask(&bob)), (true, false));
    std::fs::copy(&next.pem, &clients).unwrap();
    service.signal("-HUP");
    service.wait_for_log("certificates were reloaded", 1);
    assert_eq!((ask(&ann), ask(&bob)), (false, true));
}

/// A resumed session is not verified again, so a certificate that has expired since would still be accepted.
#[test]
fn sessions_are_resumed_only_where_no_certificate_is_asked_for() {
    let authority = Authority::new();
    let (server, client) = (authority.server(), authority.client("ann"));
    for (flags, is_resumed) in [(server.flags(), true), (server.flags_for(&authority), false)] {
        let service = Service::on("rules: []", &flags);
        let args = ["s_client", "-tls1_2", "-reconnect", "-connect", &service.http, "-CAfile", &authority.pem];
        let output = run("openssl", &[&args[..], &["-cert", &client.cert, "-key", &client.key]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!((said.contains("New, TLSv1.2"), said.contains("Reused, TLSv1.2")), (true, is_resumed), "{said}");
        let session = file("", "session");
        let args = ["s_client", "-tls1_3", "-connect", &service.http, "-sess_out", &session, "-ign_eof"];
        let ask = format!(
            "printf 'GET /healthz HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n' | openssl {} -cert {} -key {}",
            args.join(" "),
            client.cert,
            client.key
        );
        assert!(run("sh", &["-c", &ask]).status.success());
        let has_ticket = std::fs::metadata(&session).is_ok_and(|session| session.len() > 0);
        assert_eq!(has_ticket, is_resumed, "with TLS 1.3 a ticket is what a session is resumed with");
    }
}
