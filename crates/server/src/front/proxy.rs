//! The reverse proxy: requests are decided and, if they may pass, forwarded to one upstream.
//!
//! Nothing is buffered: bodies are streamed in both directions, as fast as the slower side reads them. Rules see a
//! request as the upstream will, without hop-by-hop headers.

mod download;
mod estimate;
mod framing;
mod headers;
mod paced;
mod reply;
mod short;
mod target;
mod untaken;
mod upload;
mod upstream;
mod waiting;
mod websocket;

#[cfg(any(test, fuzzing))]
pub(crate) use framing::fuzz as fuzz_framing;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT, HOST, RETRY_AFTER, TRAILER, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tollkeeper::http::{Answer, OVER_LIMIT, Problem, over_limit};
use tollkeeper::{Charge, CheckError, Permit, Verdict};
use tracing::{debug, info};

use super::body::discard;
use super::certified::Certified;
use super::connections::{
    self, Accepted, Busy, InFlight, Limits, Listener, Requests, Stopping, TOO_MANY_REQUESTS, Visitors, protocol,
};
use super::forwarding;
use crate::metrics::{Front, Outcome, WaitOutcome};
use crate::network;
use crate::service::Service;
use crate::telemetry::{self, Described};
use download::{Download, Occupied};
use estimate::Estimate;
use framing::Strict;
use headers::{Hop, Origin};
use reply::Reply;
use target::Target;
use untaken::Untaken;
pub(crate) use upload::Pace;
use upload::Upload;
pub(crate) use upstream::{Address, Timeouts, Upstream, parse_upstream};
use upstream::{Answered, Taken};
use waiting::Claim;
pub(crate) use waiting::WaitingRoom;
use websocket::Sequel;

type Response = http::Response<Reply>;

/// The parts of the proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) service: Arc<Service>,
    pub(crate) upstream: Upstream,
    pub(crate) waiting: WaitingRoom,
    /// How long requests in flight may take when the proxy stops.
    pub(crate) drain: Duration,
}

/// The connection that a request came on, and all that its requests need: they share it, and count nothing that other threads
/// count too.
struct Client {
    proxy: Arc<Proxy>,
    visitors: Arc<Visitors>,
    peer: IpAddr,
    origin: Origin,
    /// The name in its certificate.
    certified: Option<Arc<str>>,
    busy: Busy,
    requests: Requests,
    sequel: Sequel,
    stopping: Stopping,
    /// The thread that serves it.
    thread: usize,
}

/// Serves until `shutdown`, then finishes the requests in flight.
pub(crate) async fn run(listener: Listener, proxy: Arc<Proxy>, shutdown: impl Future<Output = ()> + Send) {
    let limits = Limits { drain: proxy.drain, unread: proxy.upstream.timeouts.idle, ..Limits::of(&listener) };
    let visitors = proxy.service.visitors(&proxy.service.metrics.connections.proxy);
    proxy.service.metrics.proxy.begin();
    let here = visitors.clone();
    let mut builder = protocol(limits);
    // A client that closes its sending half has gone: otherwise clients that gave up would keep their places and the
    // upstream busy.
    builder.http1().half_close(false);
    let builder = Arc::new(builder);
    let scheme = if listener.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let serve = move |Accepted { stream, peer, certified, busy, requests, watcher, stopping, thread }| {
        let (builder, proxy, scheme, visitors) = (builder.clone(), proxy.clone(), scheme.clone(), here.clone());
        async move {
            let leaving = visitors.clone();
            let (from, sequel) = (peer.ip(), Sequel::default());
            let (origin, later) = (Origin::new(from, &scheme), sequel.clone());
            let metrics = proxy.service.metrics.clone();
            let client = Arc::new(Client {
                proxy,
                visitors,
                peer: from,
                origin,
                certified,
                busy,
                requests,
                sequel: later.clone(),
                stopping,
                thread,
            });
            let stream = match client.serve_plain(stream).await {
                Ok(Some(stream)) => stream,
                Ok(None) => return,
                Err(error) => return connections::log_broken(&leaving, peer, &error),
            };
            let is_http1 = stream.is_http1();
            let mut builder = connections::for_one(&builder);
            let mut strict = Strict::new(stream, later).counting(metrics);
            if is_http1 {
                (builder, strict) = (builder.http1_only(), strict.after_http1());
            }
            let io = TokioIo::new(strict);
            let requests = service_fn(move |request| {
                let client = client.clone();
                let version = request.version();
                // Each takes a connection to the upstream, so there are as many as files were reserved for.
                let begun = client.requests.begin().map(Arc::new);
                async move {
                    let response = match begun {
                        Some(in_flight) => client.proxy.answer_traced(&client, request, in_flight).await,
                        None => client.proxy.too_many(),
                    };
                    Ok::<_, Infallible>(connections::for_http1(response, version, &client.visitors))
                }
            });
            let connection = builder.serve_connection_with_upgrades(io, requests).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                connections::log_broken(&leaving, peer, &*error);
            }
            sequel.run().await;
        }
    };
    connections::serve(limits, visitors, listener, shutdown, serve).await;
    info!("the proxy has stopped");
}

/// An admitted request, with the slots it holds.
struct Admitted {
    verdict: Verdict,
    permit: Permit,
    /// An estimate that the response may settle.
    estimate: Option<Estimate>,
}

impl Proxy {
    /// Handles the request within its trace, until the head of the response has arrived.
    async fn answer_traced(&self, client: &Client, request: Request<Incoming>, in_flight: Arc<InFlight>) -> Response {
        if !self.service.tracer.is_on() {
            return self.answer(client, request, in_flight).await;
        }
        let begun = self.service.tracer.begin(request.headers());
        let method = request.method().clone();
        let describe = |response: &Response| Described::http(&method, "", response.status());
        self.service.tracer.within(begun, Box::pin(self.answer(client, request, in_flight)), describe).await
    }

    /// The response to a client that has too many requests in flight.
    fn too_many(&self) -> Response {
        self.service.metrics.count_outcome(Front::Proxy, Outcome::Shed);
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS);
        problem.header(RETRY_AFTER, HeaderValue::from_static("1")).into_response()
    }

    async fn answer(&self, client: &Client, mut request: Request<Incoming>, in_flight: Arc<InFlight>) -> Response {
        let under_way = client.busy.begin();
        let on_upgrade = hyper::upgrade::on(&mut request);
        let (mut parts, body) = request.into_parts();
        let (target, mut hop) = match self.understand(client, &mut parts) {
            Ok(understood) => understood,
            Err(problem) => return problem.into_response(),
        };
        let version = parts.version;
        // HTTP/2 starts a WebSocket in another way, and a body would be read as its first frames.
        hop.websocket &= version == Version::HTTP_11 && body.is_end_stream();
        let Admitted { verdict, permit, estimate } = match self.admit(client, &parts).await {
            Ok(admitted) => admitted,
            Err(refused) => {
                let denial = self.refusal(refused);
                // A client that waits for `100 Continue` has sent nothing yet.
                if !body.is_end_stream() && !parts.headers.contains_key(EXPECT) {
                    Box::pin(discard(body)).await;
                }
                return denial;
            }
        };
        let decided_at = self.service.limiter.store().now();
        parts.headers.extend(over_limit(&verdict).map(|value| (OVER_LIMIT, value)));
        let on_upgrade = hop.websocket.then_some(on_upgrade);
        let body = self.upload(body, client, &in_flight);
        let request = self.outgoing(parts, body, target, client, hop);
        let mut response = match self.forward(client, request, hop).await {
            Ok(answered) => {
                let estimate = estimate.and_then(|estimate| estimate.settle_by(answered.response.headers()));
                self.incoming(answered, client, version, on_upgrade, (permit, under_way, in_flight), estimate)
            }
            Err(problem) => problem.into_response(),
        };
        // The upstream's own limits under these names would contradict.
        self.service.answer.set_headers(response.headers_mut(), &verdict, decided_at);
        response
    }
}

/// Why a request is not forwarded.
enum Refused {
    /// By a rule.
    Denied(Verdict),
    /// For any other reason, with the answer to it.
    Otherwise(Box<Response>),
}

/// The path of one request, step by step. What seldom happens is boxed: every request's future is moved, with room for it.
impl Proxy {
    /// What a request is for, and what it asks of its connection; its headers are then as rules see them.
    fn understand(&self, client: &Client, parts: &mut Parts) -> Result<(Target, Hop), Problem> {
        let target = Target::of(parts).inspect_err(|_| self.service.refused(Front::Proxy, 1))?;
        if target.host.is_none() {
            // The host that the upstream gets, so that rules by host see it too.
            parts.headers.insert(HOST, self.upstream.host());
        }
        let hop = headers::take_hop(&mut parts.headers);
        headers::take_lookalikes(&mut parts.headers);
        // Only this proxy says so.
        parts.headers.remove(OVER_LIMIT);
        headers::join_cookies(&mut parts.headers);
        forwarding::watch(&self.service.identity, &parts.headers, client.peer, false);
        Ok((target, hop))
    }

    /// The answer to a request that is not forwarded.
    fn refusal(&self, refused: Refused) -> Response {
        match refused {
            Refused::Denied(verdict) => {
                self.service.answer.deny(&verdict, self.service.limiter.store().now()).into_response()
            }
            Refused::Otherwise(response) => *response,
        }
    }

    /// Admits the request, now or after its wait, or returns why it is refused.
    async fn admit(&self, client: &Client, parts: &Parts) -> Result<Admitted, Refused> {
        let Service { identity, answer, limiter, .. } = &*self.service;
        if let Some(place) = self.service.contradiction(&parts.uri, &parts.headers) {
            self.service.refused(Front::Proxy, 1);
            return Err(Refused::Otherwise(Box::new(Answer::contradiction(&place).into_response())));
        }
        let described = identity.describe(&parts.method, &parts.uri, &parts.headers, Some(client.peer));
        let described = Certified { request: described, client: client.certified.clone() };
        let mut visit = self.waiting.enter();
        loop {
            let decided = self.decide(&described).await;
            let admitted = decided.map_err(|error| {
                self.service.count(Front::Proxy, Err(&error));
                Refused::Otherwise(Box::new(undecided(&error).into_response()))
            })?;
            let verdict = &admitted.verdict;
            let claim = || {
                let address = network::of_client(identity.client_address(&parts.headers, client.peer));
                Claim { queue: self.waiting.queue_of(verdict), address }
            };
            if verdict.is_allowed() {
                let delay = verdict.delay().as_duration();
                if !delay.is_zero() && visit.turn(claim(), delay).await.is_err() {
                    visit.end(WaitOutcome::Denied);
                    Box::pin(self.take_back(verdict)).await;
                    self.service.metrics.count_outcome(Front::Proxy, Outcome::Shed);
                    let headers = answer.headers_for(verdict, limiter.store().now());
                    return Err(Refused::Otherwise(Box::new(full(headers, delay))));
                }
                visit.end(WaitOutcome::Passed);
                self.service.count(Front::Proxy, Ok(verdict));
                return Ok(admitted);
            }
            let again = match verdict.retry_after() {
                Some(wait) => visit.again(claim, wait.as_duration()).await,
                None => false,
            };
            if !again {
                visit.end(WaitOutcome::Denied);
                self.service.count(Front::Proxy, Ok(verdict));
                return Err(Refused::Denied(admitted.verdict));
            }
        }
    }

    /// Charges the request, as an estimate if the response will give the actual cost. Slots are held for as long as
    /// the response, or a WebSocket, lives.
    async fn decide(&self, request: &impl tollkeeper::Request) -> Result<Admitted, CheckError> {
        if !estimate::is_needed(self.service.limiter.policy().cost_attributes()) {
            let (verdict, permit) = self.service.acquire(request).await?;
            return Ok(Admitted { verdict, permit: permit.renewed(), estimate: None });
        }
        let (verdict, mut reservation) = Box::pin(self.service.reserve(request, estimate::HOLD)).await?;
        let permit = reservation.take_slots().renewed();
        Ok(Admitted { verdict, permit, estimate: Estimate::of(reservation) })
    }

    /// Refunds the charge of a request that is not forwarded.
    async fn take_back(&self, verdict: &Verdict) {
        let charged = verdict.rows().iter().filter(|row| row.decision.is_allowed() && row.decision.hold.is_none());
        let charges: Vec<Charge> = charged.map(|row| row.charge.clone()).collect();
        if let Err(error) = self.service.limiter.refund(&charges).await {
            debug!("the charge of a request that found no place to wait could not be refunded: {error}");
        }
    }

    fn upload(&self, body: Incoming, client: &Client, in_flight: &Arc<InFlight>) -> Upload {
        let Timeouts { idle, upload, .. } = self.upstream.timeouts;
        Upload::new(body, idle, upload, &client.stopping, in_flight)
    }

    /// The request for the upstream.
    fn outgoing(&self, mut parts: Parts, body: Upload, target: Target, client: &Client, hop: Hop) -> Request<Upload> {
        let host = target.host.unwrap_or_else(|| self.upstream.host());
        self.prepare(&mut parts, host, client, hop);
        let Parts { method, mut headers, .. } = parts;
        // Set from the body as it was parsed here.
        if headers.remove(CONTENT_LENGTH).is_some() && body.is_end_stream() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        // Otherwise hyper sends no body with methods that seldom have one.
        if body.size_hint().exact().is_none() {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(target.path);
        *request.headers_mut() = headers;
        request
    }

    /// Turns the headers of a request into those for the upstream, except those about the body.
    fn prepare(&self, parts: &mut Parts, host: HeaderValue, client: &Client, hop: Hop) {
        let Parts { headers, version, .. } = parts;
        // What is added below, and not bit by bit.
        headers.reserve(8);
        headers::add_forwarded(headers, &self.service.identity, &client.origin, &host);
        headers::add_via(headers, *version);
        telemetry::inject(headers);
        headers::put_hop(headers, hop);
        headers.insert(HOST, host);
        // Trailers are not passed on: rules have not seen them, and some servers add them to the headers.
        headers.remove(TRAILER);
    }

    async fn forward(&self, client: &Client, request: Request<Upload>, hop: Hop) -> Result<Answered, Problem> {
        let answered = self.upstream.send(client.thread, request, &self.service.metrics.proxy).await?;
        let asked = hop.websocket && headers::wants_websocket(answered.response.headers());
        if answered.response.status() == StatusCode::SWITCHING_PROTOCOLS && !asked {
            return Err(unasked_protocol());
        }
        Ok(answered)
    }

    /// The response for the client.
    fn incoming(
        &self,
        Answered { mut response, connection }: Answered,
        client: &Client,
        for_version: Version,
        on_upgrade: Option<OnUpgrade>,
        occupied: Occupied,
        estimate: Option<Estimate>,
    ) -> Response {
        let idle = self.upstream.timeouts.idle;
        let hop = prepare_response(&mut response);
        match on_upgrade {
            Some(on_client) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let on_upstream = hyper::upgrade::on(&mut response);
                headers::put_hop(response.headers_mut(), Hop { trailers: false, ..hop });
                // It hands the stream over when it ends.
                connection.into_iter().for_each(Taken::detach);
                client.sequel.carry(on_client, on_upstream, idle, occupied);
                response.map(|_| Reply::from(Vec::new()))
            }
            _ => {
                let in_flight = occupied.2.clone();
                let download = |body| Download::new(body, connection, idle, occupied, estimate);
                match for_version {
                    Version::HTTP_2 => {
                        response.map(|body| Reply::Untaken(Untaken::new(download(body), &client.busy, in_flight)))
                    }
                    _ => response.map(|body| Reply::Download(download(body))),
                }
            }
        }
    }
}

/// Turns the headers of a response into those for the client, and returns what they asked for.
fn prepare_response<B>(response: &mut http::Response<B>) -> Hop {
    let version = response.version();
    let chunked = response.headers().contains_key(TRANSFER_ENCODING);
    let hop = headers::take_hop(response.headers_mut());
    if chunked {
        // Its length was wrong.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    headers::add_via(response.headers_mut(), version);
    *response.version_mut() = Version::HTTP_11;
    hop
}

fn unasked_protocol() -> Problem {
    Problem::new(StatusCode::BAD_GATEWAY, "the upstream switched protocols without being asked")
}

/// A request that was not decided.
fn undecided(error: &CheckError) -> Answer {
    match error {
        CheckError::Cost(error) => Answer::bad_cost(error),
        CheckError::Overloaded(overloaded) => Answer::overloaded(overloaded),
        error => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into(),
    }
}

/// The response to a request that finds the waiting queue full.
fn full(limits: HeaderMap, delay: Duration) -> Response {
    let detail = "too many requests are waiting for their turn; try again later";
    let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
    response.headers_mut().extend(limits);
    // Rounded up: a client that retries early finds the queue still full.
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(delay.as_secs() + 1));
    response
}
