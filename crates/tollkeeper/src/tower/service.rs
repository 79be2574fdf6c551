//! The path of every request.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use tokio::time::{Instant, sleep};
use tollkeeper_core::{HeaderStyle, Verdict};
use tower_service::Service;

use super::body::ResponseBody;
use super::protocol::Protocol;
use super::settings::{Described, Settings};
use crate::http::OverLimit;
use crate::limiter::CheckError;
use crate::permit::Permit;

/// A service whose requests are limited; made by [`TollkeeperLayer`](super::TollkeeperLayer).
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollkeeper::{Limiter, MemoryStore, Policy, RuleSpec, tower::TollkeeperLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let rule = RuleSpec { name: "all".into(), key: "global".into(), limit: "1/h".into(), ..RuleSpec::default() };
/// let limiter = Limiter::new(Policy::new([rule]).expect("valid"), MemoryStore::new());
/// let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(axum::body::Body::from("hello"))));
/// let service = TollkeeperLayer::new(limiter).layer(hello);
///
/// assert_eq!(service.clone().oneshot(Request::new(())).await?.status(), 200);
/// assert_eq!(service.oneshot(Request::new(())).await?.status(), 429);
/// # Ok::<(), Infallible>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct TollkeeperService<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> TollkeeperService<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        TollkeeperService { inner, settings }
    }
}

impl<S, B, R> Service<Request<B>> for TollkeeperService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled is ready; its clone may not be.
        let fresh = self.inner.clone();
        let ready = mem::replace(&mut self.inner, fresh);
        Box::pin(serve(self.settings.clone(), ready, request))
    }
}

async fn serve<S, B, R>(
    settings: Arc<Settings>,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    let (mut parts, body) = request.into_parts();
    if settings.skips(&parts) {
        let response = inner.call(Request::from_parts(parts, body)).await?;
        return Ok(response.map(|body| ResponseBody::inner(body, None)));
    }
    let protocol = Protocol::of(&parts.headers);
    if let Some(place) = settings.identity.contradiction(&parts.uri, &parts.headers) {
        return Ok(protocol.contradiction(place).map(ResponseBody::answer));
    }
    let described = settings.describe(&parts);
    if let Some(rule) = settings.rule_without_address(&described) {
        return Ok(protocol.no_address(&rule).map(ResponseBody::answer));
    }
    let (verdict, permit) = match settings.decide(&described).await {
        Ok(decided) => decided,
        Err(error) => return Ok(protocol.undecided(&error).map(ResponseBody::answer)),
    };
    let now = settings.limiter.store().now();
    if !verdict.is_allowed() {
        return Ok(protocol.deny(&settings.style, &verdict, now).map(ResponseBody::answer));
    }
    // A response may take longer than a rule's hold.
    let permit = permit.renewed();
    let limits = settings.style.headers_for(&verdict, now);
    let delay = verdict.delay().as_duration();
    if !delay.is_zero() {
        sleep(delay).await;
    }
    if let Some(over) = OverLimit::of(&verdict) {
        parts.extensions.insert(over);
    }
    let mut response = inner.call(Request::from_parts(parts, body)).await?;
    add_limits(response.headers_mut(), limits, settings.style.headers);
    Ok(response.map(|body| ResponseBody::inner(body, Some(permit))))
}

impl Settings {
    /// The verdict, after waiting as long as configured.
    async fn decide(&self, request: &Described<'_>) -> Result<(Verdict, Permit), CheckError> {
        // The bound is in the runtime's time, which sleeps use; limits are in the store's time.
        let began = Instant::now();
        loop {
            let (verdict, permit) = self.limiter.acquire(request).await?;
            let left = self.patience.saturating_sub(began.elapsed());
            match verdict.retry_after() {
                Some(wait) if !verdict.is_allowed() && !left.is_zero() && wait.as_duration() <= left => {
                    sleep(wait.as_duration()).await;
                }
                _ => return Ok((verdict, permit)),
            }
        }
    }
}

/// With several layers, or a service that has limits of its own, styles that can list several limits show all of
/// them. Otherwise the innermost one, which knows most about the request, wins.
fn add_limits(headers: &mut HeaderMap, limits: HeaderMap, style: HeaderStyle) {
    let listed = style == HeaderStyle::Draft11;
    for (name, value) in limits {
        // Every name comes once: limits were made with one value each.
        let Some(name) = name else { continue };
        if listed || !headers.contains_key(&name) {
            headers.append(name, value);
        }
    }
}

#[cfg(test)]
mod tests;
