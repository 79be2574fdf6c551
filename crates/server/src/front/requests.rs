//! Requests of the HTTP and gRPC fronts, on the connections that they accept: plain ones without hyper, all others by hyper.

mod at_once;
mod held;
mod joined;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tracing::info;

use super::connections::{
    self, Accepted, Connected, Limits, Listener, Peer, Reader, Stream, Visitors, for_http1, for_one, log_broken,
};
use super::plain::{After, Next, Plain, Rewound};
pub(super) use at_once::AtOnce;
use held::Held;
use joined::Joined;

/// Answers some plain requests by itself, without the framework; see [`super::plain`].
pub(super) trait AnswersPlain: Send + Sync + 'static {
    type Body: Body<Data = Bytes> + Send + Unpin;
    /// What is known of a request that it answers.
    type Route: Send;

    /// Whether it answers this request.
    fn route<B>(&self, request: &Request<B>) -> Option<Self::Route>;

    /// May take from the request what it needs.
    fn answer(
        &self,
        route: Self::Route,
        request: &mut Request<Bytes>,
        from: &Connected,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// For protocols that have no plain requests.
pub(super) enum NeverPlain {}

impl AnswersPlain for NeverPlain {
    type Body = Full<Bytes>;
    type Route = Infallible;

    fn route<B>(&self, _request: &Request<B>) -> Option<Infallible> {
        None
    }

    async fn answer(&self, never: Infallible, _: &mut Request<Bytes>, _: &Connected) -> Response<Full<Bytes>> {
        match never {}
    }
}

/// Answers plain requests until there is one that it does not answer. Returns the connection then, unless it has ended.
async fn serve_plain(
    stream: Stream,
    front: &impl AnswersPlain,
    from: &Connected,
    peer: SocketAddr,
) -> Option<Rewound<Stream>> {
    let mut plain = Plain::new(stream, from.stopping.watch());
    loop {
        let after = match plain.next().await {
            Ok(Next::Request(mut taken)) => match front.route(&taken.request) {
                Some(route) => {
                    let response = front.answer(route, &mut taken.request, from).await;
                    plain.reuse(std::mem::take(taken.request.headers_mut()));
                    drop(taken);
                    plain.respond(for_http1(response, Version::HTTP_11, &from.visitors)).await
                }
                None => return Some(plain.hand_over_with(&taken.bytes)),
            },
            Ok(Next::Other) => return Some(plain.hand_over()),
            Ok(Next::End) => Ok(After::Close),
            Err(error) => Err(error),
        };
        match after {
            Ok(After::Continue) => {}
            Ok(After::Close) => return None,
            Err(error) => {
                log_broken(&from.visitors, peer, &error);
                return None;
            }
        }
    }
}

/// Answers requests until `shutdown`, then finishes those in flight. `front` is its name in the log, `refuse` the answer to a
/// client with too many requests in flight.
#[expect(clippy::too_many_arguments, reason = "each is a part of a front, and named where it is called")]
pub(super) async fn serve<F, B>(
    front: &str,
    limits: Limits,
    visitors: Arc<Visitors>,
    protocol: impl Fn(AtOnce) -> auto::Builder<AtOnce> + Send + Sync + 'static,
    listener: Listener,
    shutdown: impl Future<Output = ()> + Send,
    answer: impl Fn(Request<Incoming>, &Arc<Connected>) -> F + Clone + Send + Sync + 'static,
    refuse: impl Fn() -> Response<B> + Clone + Send + Sync + 'static,
    plain: Option<Arc<impl AnswersPlain>>,
) where
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let here = visitors.clone();
    let serve_one = move |Accepted { stream, peer, certified, busy, requests, watcher, stopping, .. }| {
        let executor = AtOnce::new(limits.at_once);
        let builder = for_one(&protocol(executor.clone()));
        let (answer, visitors) = (answer.clone(), visitors.clone());
        let (refuse, plain) = (refuse.clone(), plain.clone());
        async move {
            let reader = Reader::new(requests.clone(), busy);
            let here = visitors.clone();
            let connected =
                Arc::new(Connected { peer: Peer { ip: peer.ip(), certified }, reader, stopping, visitors: here });
            let stream = match plain {
                Some(plain) => serve_plain(stream, &*plain, &connected, peer).await,
                None => Some(Rewound::new(stream)),
            };
            let Some(stream) = stream else { return };
            let builder = if stream.is_http1() { builder.http1_only() } else { builder };
            let shared = Arc::new((answer, refuse, connected));
            let serving = service_fn(move |request: Request<Incoming>| {
                let (version, shared) = (request.version(), shared.clone());
                // On HTTP/1 there is one at a time, so that the number of connections limits them.
                let begun = (version == Version::HTTP_2).then(|| requests.begin());
                async move {
                    let (answer, refuse, connected) = &*shared;
                    let (response, in_flight) = match begun {
                        Some(None) => (refuse(), None),
                        // Made here, where it stays: it is large, and what is made outside is moved.
                        begun => (answer(request, connected).await, begun.flatten()),
                    };
                    let response = for_http1(response, version, &connected.visitors);
                    Ok::<_, Infallible>(response.map(|body| Held::new(body, in_flight)))
                }
            });
            let io = TokioIo::new(Joined(stream));
            let connection = builder.serve_connection(io, serving).into_owned();
            if let Err(error) = executor.serve(watcher.watch(connection)).await {
                log_broken(&visitors, peer, &*error);
            }
        }
    };
    connections::serve(limits, here, listener, shutdown, serve_one).await;
    info!("the {front} front has stopped");
}
