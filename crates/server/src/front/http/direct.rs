//! The short way of the busiest requests: checks and forward auth are routed and answered here, without the framework, whose
//! layers cost as much as a decision.
//!
//! Only plain requests take it. Those that need a token or a trace, come from a browser's page, or arrive in pieces go through the
//! router. Both ways end in the same functions, so they give the same answers.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use http::header::{EXPECT, ORIGIN};
use http::{Method, Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tower::ServiceExt as _;

use super::origin::SEC_FETCH_SITE;
use super::problem::Refused;
use super::shared::Shared;
use super::{authorize, check, observe};
use crate::front::body::{Arrived, arrived};
use crate::front::connections::Connected;
use crate::route::Route;
use crate::tokens::{Purpose, Without};

/// A body that is known as a whole, or one of the router.
pub(super) type Answered = Either<Full<Bytes>, Body>;

/// Both ways.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) shared: Arc<Shared>,
    pub(super) router: Router,
}

impl Api {
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        from: Arc<Connected>,
    ) -> Response<Answered> {
        match self.plain(&request) {
            Some(Route::Authorize) => {
                let (parts, _) = request.into_parts();
                self.counted(Route::Authorize, authorize::decide(&self.shared, Some(&from.peer), parts)).await
            }
            Some(route) => {
                let (parts, body) = request.into_parts();
                match arrived(body).await {
                    Arrived::Whole(body) => self.counted(route, check::decide(&self.shared, &body)).await,
                    Arrived::InPieces(body) => self.routed(Request::from_parts(parts, Body::new(body)), &from).await,
                }
            }
            None => self.routed(request.map(Body::new), &from).await,
        }
    }

    /// The route of a request that needs nothing else of the framework: `/v1/check` or `/v1/authorize`.
    fn plain(&self, request: &Request<Incoming>) -> Option<Route> {
        let service = &self.shared.service;
        if service.tokens.without(Purpose::Decide) != Without::Fine || service.tracer.is_on() {
            return None;
        }
        let headers = request.headers();
        let asks =
            || headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(EXPECT);
        match request.uri().path().strip_prefix("/v1/")? {
            "check" if request.method() == Method::POST && !asks() => Some(Route::Check),
            path => {
                let below = path.strip_prefix("authorize")?;
                (below.is_empty() || below.starts_with('/')).then_some(Route::Authorize)
            }
        }
    }

    /// Answers, and counts the response, as the router's layers do.
    async fn counted(
        &self,
        route: Route,
        work: impl Future<Output = Result<Response<Full<Bytes>>, Refused>>,
    ) -> Response<Answered> {
        let answered = observe::in_time(self.shared.backstop(), observe::surviving(work)).await;
        let response = match answered.and_then(|survived| survived) {
            Ok(Ok(response)) => response.map(Either::Left),
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
