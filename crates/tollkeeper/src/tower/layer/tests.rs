use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollkeeper_core::Policy;
use tower::{ServiceExt, service_fn};

use super::*;

/// The status of a request from this address with this API key, either of which may be absent.
async fn status(layer: &TollkeeperLayer, address: Option<[u8; 4]>, api_key: Option<&str>) -> StatusCode {
    let service = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))));
    let mut request = Request::new(());
    if let Some(address) = address {
        request.extensions_mut().insert(IpAddr::from(address));
    }
    if let Some(api_key) = api_key {
        request.headers_mut().insert("x-api-key", api_key.parse().expect("a value"));
    }
    layer.layer(service).oneshot(request).await.expect("infallible").status()
}

const ANN: Option<[u8; 4]> = Some([203, 0, 113, 1]);
const BOB: Option<[u8; 4]> = Some([203, 0, 113, 2]);

#[tokio::test]
async fn per_ip_limits_each_address() {
    let layer = TollkeeperLayer::per_ip("1/h").expect("a limit");
    assert_eq!(status(&layer, ANN, None).await, 200);
    assert_eq!(status(&layer, ANN, Some("other")).await, 429);
    assert_eq!(status(&layer, BOB, None).await, 200);
    TollkeeperLayer::per_ip("1 per hour").expect_err("not a limit");
}

#[tokio::test]
async fn per_header_limits_each_value_and_others_by_address() {
    let layer = TollkeeperLayer::per_header("x-api-key", Quota::per_hour(1)).expect("a limit");
    assert_eq!(status(&layer, ANN, Some("k1")).await, 200);
    assert_eq!(status(&layer, BOB, Some("k1")).await, 429);
    assert_eq!(status(&layer, ANN, None).await, 200);
    assert_eq!(status(&layer, ANN, None).await, 429);
    assert_eq!(
        status(&layer, BOB, Some("203.0.113.1")).await,
        200,
        "a key that looks like an address is not that address"
    );
}

/// A layer without `.peer(...)` in a server that provides no address: a rule by `{ip}` never applied, and every
/// request passed.
#[tokio::test]
async fn a_rule_by_address_fails_loudly_without_one() {
    let layer = TollkeeperLayer::per_ip("100/h").expect("a limit");
    assert_eq!(status(&layer, None, None).await, 500);
    let either = TollkeeperLayer::per_header("x-api-key", "1/h").expect("a limit");
    assert_eq!(status(&either, None, None).await, 500);
    assert_eq!(status(&either, None, Some("k1")).await, 200, "the header is enough");
    let provided = layer.clone().peer(|_| Some([203, 0, 113, 9].into()));
    assert_eq!(status(&provided, None, None).await, 200);
    let named = layer.attribute("ip", |_| Some("unix socket".into()));
    assert_eq!(status(&named, None, None).await, 200);
    let other = TollkeeperLayer::new(Limiter::new(Policy::default(), MemoryStore::new()));
    assert_eq!(status(&other, None, None).await, 200, "no rule needs an address");
}

#[cfg(feature = "axum")]
#[test]
fn finds_the_address_where_axum_leaves_it() {
    let mut extensions = Extensions::new();
    extensions.insert(axum::extract::ConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4711))));
    assert_eq!(address_in(&extensions), Some([203, 0, 113, 7].into()));
}
