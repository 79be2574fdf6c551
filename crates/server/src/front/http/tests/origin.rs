use super::*;

const CHANGES: [(&str, &str); 6] = [
    ("POST /v1/check", "{}"),
    ("POST /v1/reserve", "{}"),
    ("POST /v1/release", "{}"),
    ("POST /v1/rules", "{}"),
    ("PUT /v1/exceptions", r#"{"key": "1", "kind": "block"}"#),
    ("DELETE /v1/keys?rule=per-user&key=1", ""),
];

/// A page of another origin created rules on a service without a token, by `fetch(url, {mode: "no-cors"})` in a
/// browser on the machine: such a request needs no preflight, and takes effect although its response cannot be read.
#[tokio::test]
async fn pages_of_other_origins_change_nothing() {
    let gate = Plan::new([per_user()]).open().await;
    for (request, body) in CHANGES {
        for foreign in [
            "origin: https://evil.example\r\n",
            "origin: null\r\n",
            "origin: http://gate.localhost:9999\r\n",
            "origin: http://gate.localhost.evil.example\r\n",
            "sec-fetch-site: cross-site\r\n",
            "sec-fetch-site: same-site\r\norigin: http://localhost:3000\r\n",
            "sec-fetch-site: cross-site\r\norigin: http://gate.localhost\r\n",
            "sec-fetch-site: same-origin\r\nsec-fetch-site: cross-site\r\n",
            // The forwarded host of an untrusted peer is ignored.
            "origin: https://evil.example\r\nx-forwarded-host: evil.example\r\n",
        ] {
            let detail = gate.ask(request, foreign, body).await.problem(403);
            assert!(detail.contains("this cross-origin request from"), "{request} with {foreign:?}: {detail}");
        }
        for own in [
            "",
            "origin: http://gate.localhost\r\n",
            "origin: http://GATE.localhost:80\r\n",
            "sec-fetch-site: same-origin\r\norigin: http://gate.localhost\r\n",
            "sec-fetch-site: none\r\n",
        ] {
            let status = gate.ask(request, own, body).await.status;
            assert!(status != 403 && status != 401, "{request} with {own:?}: {status}");
        }
    }
    // The refused requests charged nothing: of 3, these are the first.
    let answer = gate.check(json!({"attributes": {"user_id": "fresh"}})).await;
    assert_eq!(answer["rules"][0]["remaining"], 2);
}

/// `curl -d` sends the content type of a form, as pages do, but no origin.
#[tokio::test]
async fn a_plain_curl_is_served() {
    let gate = Plan::new([per_user()]).open().await;
    let curl = "user-agent: curl/8\r\naccept: */*\r\ncontent-type: application/x-www-form-urlencoded\r\n";
    assert_eq!(gate.ask("POST /v1/check", curl, r#"{"attributes": {"user_id": "1"}}"#).await.status, 200);
}

/// nginx sends its own name for the service as `Host` by default, so the dashboard behind it has another host name.
#[tokio::test]
async fn behind_a_trusted_proxy_its_word_for_the_host_counts() {
    let gate = Plan::new([per_user()]).trust("127.0.0.1/32").open().await;
    let (request, body) = CHANGES[5];
    for (headers, status) in [
        ("origin: https://limits.example\r\nx-forwarded-host: limits.example\r\n", 200),
        ("origin: https://limits.example:443\r\nx-forwarded-host: limits.example\r\n", 200),
        ("origin: https://evil.example\r\nx-forwarded-host: limits.example\r\n", 403),
        ("origin: https://limits.example\r\n", 403),
    ] {
        assert_eq!(gate.ask(request, headers, body).await.status, status, "{headers}");
    }
}

/// A proxy asks about a request with that request's own headers, and most requests of a site come from its own pages.
#[tokio::test]
async fn proxies_pass_on_what_browsers_say_of_their_own_site() {
    let gate = Plan::new([per_ip()]).open().await;
    let headers = "origin: https://shop.example\r\nsec-fetch-site: cross-site\r\nx-original-uri: /cart\r\n";
    assert_eq!(gate.ask("POST /v1/authorize", headers, "").await.status, 200);
}
