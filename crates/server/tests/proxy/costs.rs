//! Costs that only the upstream knows.

use tollkeeper_testkit::file;

use super::world::{Proxy, SOON, Upstream};

const RULES: &str = "rules:
  - { name: requests, key: '{ip}', limit: 100/day }
  - { name: tokens, key: '{ip}', limit: 1000/day, cost: { from: response.x-tokens-used, estimate: 300 } }
";

fn start(upstream: &Upstream) -> Proxy {
    Proxy::start(upstream.address, &["--config", &file(RULES, "yaml")])
}

/// What is left under both rules, according to the next response, which includes its own estimate.
async fn left(proxy: &Proxy) -> String {
    proxy.get("/", "").await.header("ratelimit").unwrap()
}

/// Settling may finish after the response: eventually only the estimate of the last look is missing.
async fn settles_at_one_estimate(proxy: &Proxy) {
    let until = tokio::time::Instant::now() + SOON;
    loop {
        let shown = left(proxy).await;
        if shown.contains("\"tokens\";r=700") {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "{shown}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_header_of_the_response_corrects_the_estimate() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nx-tokens-used: 0\r\ncontent-length: 2\r\n\r\nok").await;
    let proxy = start(&upstream);
    assert!(left(&proxy).await.contains("\"tokens\";r=700"));
    // Nothing was used, so in the end only one estimate is missing.
    settles_at_one_estimate(&proxy).await;
}

#[tokio::test]
async fn more_than_the_estimate_is_charged_too() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nX-Tokens-Used: 900\r\ncontent-length: 2\r\n\r\nok").await;
    let proxy = start(&upstream);
    assert_eq!(proxy.get("/", "").await.status, 200);
    let until = tokio::time::Instant::now() + SOON;
    loop {
        let reply = proxy.get("/", "").await;
        if reply.status == 429 {
            assert_eq!(reply.problem(429)["violated-policies"][0], "tokens");
            return;
        }
        assert!(tokio::time::Instant::now() < until);
    }
}

#[tokio::test]
async fn a_trailer_corrects_it_where_the_cost_is_known_at_the_end() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-tokens-used\r\n\r\n2\r\nok\r\n0\r\nx-tokens-used: 0\r\n\r\n";
    let upstream = Upstream::answering(answer).await;
    let proxy = start(&upstream);
    assert!(left(&proxy).await.contains("\"tokens\";r=700"));
    settles_at_one_estimate(&proxy).await;
}

#[tokio::test]
async fn without_a_number_the_estimate_stays() {
    for header in ["", "x-tokens-used: some\r\n"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\nok");
        let upstream = Upstream::answering(answer.leak()).await;
        let proxy = start(&upstream);
        for left_over in [700, 400, 100] {
            assert!(left(&proxy).await.contains(&format!("\"tokens\";r={left_over}")));
        }
        assert_eq!(proxy.get("/", "").await.problem(429)["violated-policies"][0], "tokens");
    }
}
