use super::*;

/// Routes that show clients.
const SHOWN: [&str; 6] = [
    "GET /v1/keys?rule=per-user&key=1",
    "GET /v1/rules",
    "GET /v1/insight",
    "GET /v1/violations",
    "GET /v1/actions",
    "GET /v1/exceptions",
];
/// Routes that change something, and their status with access.
const CHANGED: [(&str, u16); 3] = [
    ("DELETE /v1/keys?rule=per-user&key=1", 200),
    ("DELETE /v1/exceptions?rule=*&key=1", 200),
    ("POST /v1/rules", 409),
];
const MEASURED: [&str; 2] = ["GET /metrics", "GET /openapi.json"];
const DECIDED: [&str; 3] = ["GET /v1/authorize", "POST /v1/check", "POST /v1/reserve"];
const HEALTH: [&str; 2] = ["GET /healthz", "GET /readyz"];

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// An admin part without a token was open to anyone who could reach it: to pages in a browser on the machine, and to
/// the whole network if a proxy rewrote `Host` (nginx does by default). There is always a token now.
#[tokio::test]
async fn what_shows_clients_or_changes_something_always_needs_the_token() {
    let gate = Plan::new([per_user()]).open().await;
    for request in SHOWN.into_iter().chain(CHANGED.map(|(request, _)| request)) {
        for wrong in [
            "",
            "authorization: Basic open-sesame-open-sesame\r\n",
            "authorization: Bearer\r\n",
            "authorization: \r\n",
            "x-token: open-sesame-open-sesame\r\n",
            "x-forwarded-for: 127.0.0.1\r\nx-real-ip: 127.0.0.1\r\n",
        ] {
            let reply = gate.send(request, wrong, "").await;
            let detail = reply.problem(401);
            assert!(detail.contains("needs the admin token"), "{detail}");
            assert_eq!(reply.header("www-authenticate"), "Bearer", "{request} with {wrong:?}");
        }
    }
    for wrong in ["open-sesame-open-sesam", "open-sesame-open-sesamee", "Open-Sesame-Open-Sesame", "x"] {
        gate.send("GET /v1/rules", &bearer(wrong), "").await.problem(401);
    }
    let twice = format!("{}{}", bearer(TOKEN), bearer("another"));
    gate.send("GET /v1/rules", &twice, "").await.problem(401);
    for request in SHOWN {
        for right in
            [bearer(TOKEN), format!("authorization: bearer  {TOKEN}\r\n"), format!("x-tollkeeper-token: {TOKEN}\r\n")]
        {
            assert_eq!(gate.send(request, &right, "").await.status, 200, "{request}");
        }
    }
    for (request, status) in CHANGED {
        let reply = gate.send(request, &bearer(TOKEN), per_user().to_string()).await;
        assert_eq!(reply.status, status, "{request}: {}", reply.body);
    }
    for request in DECIDED.into_iter().chain(HEALTH) {
        assert_eq!(gate.send(request, "", "{}").await.status, 200, "{request}");
    }
}

#[tokio::test]
async fn the_read_only_token_shows_everything_and_changes_nothing() {
    let tokens = Tokens { admin: token(TOKEN), read: token("only-looking-here"), ..Tokens::default() };
    let gate = Plan::new([per_user()]).tokens(tokens).open().await;
    let read = bearer("only-looking-here");
    for request in SHOWN.into_iter().chain(MEASURED) {
        gate.send(request, "", "").await.problem(401);
        assert_eq!(gate.send(request, &read, "").await.status, 200, "{request}");
    }
    for (request, _) in CHANGED {
        let detail = gate.send(request, &read, "").await.problem(403);
        assert_eq!(detail, "this token is not sufficient; this needs the admin token");
    }
}

#[tokio::test]
async fn decisions_need_a_token_where_one_is_set_and_health_never_does() {
    let tokens = Tokens { admin: token(TOKEN), decisions: token("for-my-proxies-only"), ..Tokens::default() };
    let gate = Plan::new([per_user()]).tokens(tokens).open().await;
    for request in DECIDED {
        gate.send(request, "", "{}").await.problem(401);
        // A proxy that passes its client's Authorization on has another header for its own token.
        let apart = "authorization: Bearer of-the-client\r\nx-tollkeeper-token: for-my-proxies-only\r\n".to_string();
        for right in [bearer("for-my-proxies-only"), bearer(TOKEN), apart] {
            assert_eq!(gate.send(request, &right, "{}").await.status, 200, "{request}");
        }
    }
    gate.send("GET /v1/rules", &bearer("for-my-proxies-only"), "").await.problem(403);
    for request in HEALTH {
        assert_eq!(gate.send(request, "", "").await.status, 200);
    }
}

#[tokio::test]
async fn without_a_token_on_an_open_address_nobody_gets_in() {
    let gate = Plan::new([per_user()]).tokens(Tokens::default()).open().await;
    for request in SHOWN.into_iter().chain(CHANGED.map(|(request, _)| request)).chain(MEASURED).chain(["GET /"]) {
        let detail = gate.send(request, &bearer(TOKEN), "").await.problem(403);
        assert!(detail.contains("set admin.token or listen on loopback"), "{detail}");
    }
    for request in DECIDED.into_iter().chain(HEALTH) {
        assert_eq!(gate.send(request, "", "{}").await.status, 200, "{request}");
    }
    let open = Tokens { measured: Measured::Everybody, ..Tokens::default() };
    let gate = Plan::new([per_user()]).tokens(open).open().await;
    assert_eq!(gate.send("GET /metrics", "", "").await.status, 200);
    gate.send("GET /v1/insight", "", "").await.problem(403);
}

/// The page contains no data; a user who opens it has the token after the `#`, which browsers do not send.
#[tokio::test]
async fn the_page_comes_without_a_token_and_without_data() {
    let browser = "accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    for (tokens, status) in [(Tokens { admin: token(TOKEN), ..Tokens::default() }, 200), (Tokens::default(), 403)] {
        let gate = Plan::new([per_user()]).tokens(tokens).open().await;
        let page = gate.send("GET /", browser, "").await;
        assert_eq!((page.status, page.header("content-type")), (status, "text/html; charset=utf-8"));
        assert!(page.body.contains("Admin token") && !page.body.contains("per-user") && !page.body.contains(TOKEN));
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        for data in SHOWN {
            gate.send(data, browser, "").await.problem(if status == 200 { 401 } else { 403 });
        }
    }
}

/// A web page can have its own host name point to 127.0.0.1 and then read what a browser on this machine may read.
#[tokio::test]
async fn metrics_of_this_machine_are_asked_for_by_a_local_name() {
    let gate = Plan::new([]).open().await;
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("attacker.example", 401),
        ("127.0.0.1.attacker.example", 401),
        ("192.0.2.1", 401),
    ] {
        for (header, status) in [("", status), (&*bearer(TOKEN), 200)] {
            let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{header}\r\n");
            let mut stream = gate.connect().await;
            stream.write_all(request.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("answered");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {answer}");
        }
    }
}

/// Tokens could be tried as fast as a machine answers: 20,000 a second.
#[tokio::test]
async fn guessing_is_slowed_down_and_the_right_token_still_works() {
    let gate = Plan::new([]).open().await;
    for guess in 0..25 {
        gate.send("GET /v1/rules", &bearer(&format!("guess-{guess}")), "").await.problem(401);
    }
    let begun = std::time::Instant::now();
    gate.send("GET /v1/rules", &bearer("one-more"), "").await.problem(401);
    assert!(begun.elapsed() >= Duration::from_millis(100), "late by now");
    assert_eq!(gate.ask("GET /v1/rules", "", "").await.status, 200);
    let many = (0..12).map(|guess| gate_status(&gate, guess));
    let mut answered = futures_util::future::join_all(many).await;
    answered.sort_unstable();
    assert!(answered.contains(&401) && answered.contains(&429), "a few at a time: {answered:?}");
    let page = gate.get("/metrics").await.body;
    let line = page.lines().find(|line| line.starts_with("tollkeeper_wrong_tokens_total")).expect("counted");
    assert!(line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok()) >= Some(26), "{line}");
}

async fn gate_status(gate: &Gate, guess: usize) -> u16 {
    gate.send("GET /v1/rules", &bearer(&format!("again-{guess}")), "").await.status
}
