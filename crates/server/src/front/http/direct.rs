//! The short way of the busiest requests: checks and forward auth are routed and answered here, without the framework, whose
//! layers cost as much as a decision.
//!
//! Only plain requests take it. Those that need a token or a trace, come from a browser's page, or arrive in pieces go through the
//! router. Both ways end in the same functions, so they give the same answers.

use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use http::header::{EXPECT, ORIGIN, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::Incoming;
use tollkeeper::http::Problem;
use tower::ServiceExt as _;

use super::origin::SEC_FETCH_SITE;
use super::problem::Refused;
use super::shared::{Answered, Shared};
use super::{authorize, check, observe};
use crate::front::body::{Arrived, arrived};
use crate::front::connections::{Connected, TOO_MANY_REQUESTS};
use crate::front::requests::AnswersPlain;
use crate::metrics::{Front, Outcome};
use crate::route::Route;
use crate::tokens::{Purpose, Without};

/// The requests that take the short way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Check,
    Authorize,
}

/// Both ways.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) shared: Arc<Shared>,
    pub(super) router: Router,
}

/// A connection that brings only such requests does without hyper, too.
impl AnswersPlain for Api {
    type Body = Answered;
    type Route = Plain;

    fn route<B>(&self, request: &Request<B>) -> Option<Plain> {
        self.plain(request)
    }

    async fn answer(&self, route: Plain, request: &mut Request<Bytes>, from: &Connected) -> Response<Answered> {
        match route {
            Plain::Authorize => self.authorize(std::mem::take(request).into_parts().0, from).await,
            Plain::Check => self.check(request.body(), from).await,
        }
    }
}

impl Api {
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        from: Arc<Connected>,
    ) -> Response<Answered> {
        match self.plain(&request) {
            Some(Plain::Authorize) => self.authorize(request.into_parts().0, &from).await,
            Some(Plain::Check) => {
                let (parts, body) = request.into_parts();
                match arrived(body).await {
                    Arrived::Whole(body) => self.check(&body, &from).await,
                    Arrived::InPieces(body) => self.routed(Request::from_parts(parts, Body::new(body)), &from).await,
                }
            }
            None => self.routed(request.map(Body::new), &from).await,
        }
    }

    async fn authorize(&self, parts: Parts, from: &Connected) -> Response<Answered> {
        let decided = pin!(async {
            let decided = authorize::decide(&self.shared, Some(&from.peer), parts).await;
            decided.map(|response| response.map(Either::Left))
        });
        self.counted(Route::Authorize, decided).await
    }

    async fn check(&self, body: &[u8], from: &Connected) -> Response<Answered> {
        let decided = pin!(check::decide(&self.shared, Some(&from.reader), body));
        self.counted(Route::Check, decided).await
    }

    /// The answer to a client that has too many requests in flight.
    pub(super) fn refuse(&self) -> Response<Answered> {
        self.shared.service.metrics.count_outcome(Front::Http, Outcome::Shed);
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS);
        problem.header(RETRY_AFTER, HeaderValue::from_static("1")).into_response().map(Either::Right)
    }

    /// The route of a request that needs nothing else of the framework: `/v1/check` or `/v1/authorize`.
    fn plain<B>(&self, request: &Request<B>) -> Option<Plain> {
        let service = &self.shared.service;
        if service.tokens.without(Purpose::Decide) != Without::Fine || service.tracer.is_on() {
            return None;
        }
        let headers = request.headers();
        let asks =
            || headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(EXPECT);
        match request.uri().path().strip_prefix("/v1/")? {
            "check" if request.method() == Method::POST && !asks() => Some(Plain::Check),
            path => {
                let below = path.strip_prefix("authorize")?;
                (below.is_empty() || below.starts_with('/')).then_some(Plain::Authorize)
            }
        }
    }

    /// Answers, and counts the response, as the router's layers do. The work is pinned already: each of the functions that it passes
    /// through would have room for it twice, and all of that is moved with every request.
    async fn counted(
        &self,
        route: Route,
        work: Pin<&mut (impl Future<Output = Result<Response<Answered>, Refused>> + Send)>,
    ) -> Response<Answered> {
        let answered = observe::in_time(self.shared.backstop(), observe::surviving(work)).await;
        let response = match answered.and_then(|survived| survived) {
            Ok(Ok(response)) => response,
            Ok(Err(refused)) => refused.into_problem().into_response().map(Either::Right),
            Err(problem) => problem.into_response().map(Either::Right),
        };
        self.shared.service.metrics.count_request(route.name(), response.status().as_u16());
        response
    }

    async fn routed(&self, mut request: Request<Body>, from: &Connected) -> Response<Answered> {
        from.attach(&mut request);
        // Boxed, because it is large, and would be moved with every request that takes the other way.
        match Box::pin(self.router.clone().oneshot(request)).await {
            Ok(response) => response.map(Either::Right),
            Err(never) => match never {},
        }
    }
}
