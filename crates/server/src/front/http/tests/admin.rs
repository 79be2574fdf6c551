use super::*;

const GUARDED: [&str; 9] = [
    "GET /",
    "GET /metrics",
    "GET /openapi.json",
    "GET /v1/keys?rule=per-user&key=1",
    "DELETE /v1/keys?rule=per-user&key=1",
    "GET /v1/rules",
    "GET /v1/insight",
    "GET /v1/violations",
    "GET /v1/actions",
];

const PUBLIC: [&str; 4] = ["GET /healthz", "GET /readyz", "GET /v1/authorize", "POST /v1/check"];

#[tokio::test]
async fn with_a_token_only_those_who_send_it_get_in() {
    let gate = Plan::new([per_user()]).admin(Admin::Token("sesame".into())).open().await;
    for request in GUARDED {
        for wrong in [
            "",
            "authorization: Bearer sesam\r\n",
            "authorization: Bearer sesamee\r\n",
            "authorization: Basic sesame\r\n",
            "authorization: Bearer\r\n",
            "authorization: \r\n",
            "x-token: sesame\r\n",
        ] {
            let reply = gate.ask(request, wrong, "").await;
            reply.problem(401);
            assert_eq!(reply.header("www-authenticate"), "Bearer", "{request} with {wrong:?}");
        }
        for right in ["authorization: Bearer sesame\r\n", "authorization: bearer  sesame\r\n"] {
            assert_eq!(gate.ask(request, right, "").await.status, 200, "{request}");
        }
    }
    for request in PUBLIC {
        assert_eq!(gate.ask(request, "", "{}").await.status, 200, "{request}");
    }
}

#[tokio::test]
async fn without_a_token_on_an_open_address_nobody_gets_in() {
    let gate = Plan::new([per_user()]).admin(Admin::Off).open().await;
    for request in GUARDED {
        let detail = gate.ask(request, "authorization: Bearer sesame\r\n", "").await.problem(403);
        assert!(detail.contains("set admin.token or listen on loopback"), "{detail}");
    }
    for request in PUBLIC {
        assert_eq!(gate.ask(request, "", "{}").await.status, 200, "{request}");
    }
}

/// A user with a browser needs a page to enter the token; its status is still a refusal.
#[tokio::test]
async fn a_browser_is_refused_with_the_page_that_asks_for_the_token() {
    let browser = "accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    for (admin, status) in [(Admin::Token("sesame".into()), 401), (Admin::Off, 403)] {
        let gate = Plan::new([per_user()]).admin(admin).open().await;
        let page = gate.ask("GET /", browser, "").await;
        assert_eq!((page.status, page.header("content-type")), (status, "text/html; charset=utf-8"));
        assert!(page.body.contains("Admin token") && !page.body.contains("per-user"));
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        assert_eq!(page.header("www-authenticate"), if status == 401 { "Bearer" } else { "" });
        for data in GUARDED.iter().filter(|request| **request != "GET /") {
            gate.ask(data, browser, "").await.problem(status);
        }
    }
}

#[test]
fn the_token_is_not_printed() {
    assert_eq!(format!("{:?}", Admin::Token("sesame".into())), "Token(..)");
}

/// A web page can have its own host name point to 127.0.0.1 and then read what a browser on this machine may read.
#[tokio::test]
async fn without_a_token_only_local_names_open_the_admin_part() {
    let gate = Plan::new([]).open().await;
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("attacker.example", 403),
        ("127.0.0.1.attacker.example", 403),
        ("192.0.2.1", 403),
    ] {
        let request = format!("GET /v1/rules HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let mut stream = gate.connect().await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {answer}");
    }
}
