//! The short way of plain requests through the proxy, without hyper on either side. It has the same steps as the long one, which
//! a connection takes from its first request on that is not plain.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use tollkeeper::Verdict;
use tollkeeper::http::{OVER_LIMIT, over_limit};

use super::download::Download;
use super::reply::Reply;
use super::{Admitted, Client, Proxy, Refused, Response, estimate, prepare_response, unasked_protocol};
use crate::front::connections::{self, InFlight};
use crate::front::plain::{After, Next, Plain, Rewound, cleared, write_field};

impl Client {
    /// Answers plain requests until there is one that has to go the long way. Returns the connection then, unless it has ended.
    pub(super) async fn serve_plain(
        &self,
        stream: connections::Stream,
    ) -> io::Result<Option<Rewound<connections::Stream>>> {
        let mut plain = Plain::new(stream, self.stopping.watch());
        let mut lines = Vec::new();
        loop {
            let mut request = match plain.next().await? {
                Next::Request(taken) if !self.proxy.is_plain(&taken.request) => {
                    return Ok(Some(plain.hand_over_with(&taken.bytes)));
                }
                Next::Request(taken) => taken.request.into_parts().0,
                Next::Other => return Ok(Some(plain.hand_over())),
                Next::End => return Ok(None),
            };
            let response = {
                lines.clear();
                let mut answering = pin!(self.answer_plain(&mut request, &mut lines));
                // A client that closes its half has gone, as with hyper.
                let response = poll_fn(|cx| match answering.as_mut().poll(cx) {
                    Poll::Pending => plain.poll_gone(cx).map(|()| None),
                    Poll::Ready(response) => Poll::Ready(Some(response)),
                });
                response.await
            };
            let Some(response) = response else { return Ok(None) };
            plain.reuse(std::mem::take(&mut request.headers));
            // The rest refers to the bytes that were read, and a response can take long.
            drop(request);
            if self.visitors.should_leave() {
                plain.end();
            }
            if plain.respond_with(response, &lines).await? == After::Close {
                return Ok(None);
            }
        }
    }

    /// The headers of a request that is not forwarded are left. `lines` are headers of the response that are not in it: see
    /// [`Plain::respond_with`].
    async fn answer_plain(&self, parts: &mut Parts, lines: &mut Vec<u8>) -> Response {
        match self.requests.begin() {
            Some(in_flight) => self.proxy.fetch(self, parts, Arc::new(in_flight), lines).await,
            None => self.proxy.too_many(),
        }
    }
}

impl Proxy {
    /// Whether a request can go the short way: it can be repeated, and nothing is wanted of it that only the long way has.
    fn is_plain(&self, request: &Request<Bytes>) -> bool {
        matches!(*request.method(), Method::GET | Method::OPTIONS)
            && request.body().is_empty()
            && !self.service.tracer.is_on()
            && !estimate::is_needed(self.service.limiter.policy().cost_attributes())
    }

    /// The same as [`Proxy::answer`] for plain requests.
    async fn fetch(
        &self,
        client: &Client,
        parts: &mut Parts,
        in_flight: Arc<InFlight>,
        lines: &mut Vec<u8>,
    ) -> Response {
        let under_way = client.busy.begin();
        let (target, hop) = match self.understand(client, parts) {
            Ok(understood) => understood,
            Err(problem) => return problem.into_response(),
        };
        let Admitted { verdict, permit, .. } = match self.admit(client, parts).await {
            Ok(admitted) => admitted,
            Err(Refused::Denied(verdict)) => return self.deny(&verdict, lines),
            Err(Refused::Otherwise(response)) => return *response,
        };
        let decided_at = self.service.limiter.store().now();
        parts.headers.extend(over_limit(&verdict).map(|value| (OVER_LIMIT, value)));
        let host = target.host.unwrap_or_else(|| self.upstream.host());
        self.prepare(parts, host, client, hop);
        if let Some(length) = parts.headers.get_mut(CONTENT_LENGTH) {
            // However the client writes it.
            *length = HeaderValue::from_static("0");
        }
        let request = written(&parts.method, target.path.as_str(), &parts.headers);
        let mut spare = cleared(std::mem::take(&mut parts.headers));
        let fetched = self.upstream.fetch(client.thread, &request, &mut spare, &self.service.metrics.proxy).await;
        let mut response = match fetched {
            Ok((response, _)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                unasked_protocol().into_response()
            }
            Ok((mut response, connection)) => {
                prepare_response(&mut response);
                let occupied = (permit, under_way, in_flight);
                let download = Download::fetched(connection, self.upstream.timeouts.idle, occupied);
                response.map(|()| Reply::Download(download))
            }
            Err(problem) => problem.into_response(),
        };
        let style = &self.service.answer;
        if has_any(response.headers(), style.headers.names()) {
            // The upstream's own limits under these names would contradict.
            style.set_headers(response.headers_mut(), &verdict, decided_at);
        } else {
            style.each_header(&verdict, decided_at, |name, value| write_field(lines, name, value.as_bytes()));
        }
        response
    }

    /// The answer to a denied request, as [`Proxy::refusal`] has it. All of its headers are lines: a header map costs more than
    /// the decision.
    fn deny(&self, verdict: &Verdict, lines: &mut Vec<u8>) -> Response {
        let now = self.service.limiter.store().now();
        let line = |name: &str, value: &str| write_field(lines, name, value.as_bytes());
        let (status, body) = self.service.answer.deny_in_pieces(verdict, now, line);
        let mut response = Response::new(Reply::from(body.into_bytes()));
        *response.status_mut() = status;
        response
    }
}

/// Whether there is one of these headers. There are few of both, so that comparing them is quicker than hashing.
fn has_any(headers: &HeaderMap, names: &[&str]) -> bool {
    headers.keys().any(|header| names.contains(&header.as_str()))
}

/// A request without a body, as bytes.
fn written(method: &Method, path: &str, headers: &HeaderMap) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in headers {
        write_field(&mut out, name.as_str(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}
