//! Reads the body of a request, with bounds on its size and time. [`crate::strict`] parses it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use futures_util::future::poll_immediate;
use http::header::EXPECT;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tollkeeper::http::Problem;

use super::connections::Stopping;

/// The largest body that is read.
const MAX_BODY: usize = 64 * 1024;

/// How much of an oversized body is read and discarded before it is refused, and for how long: a client that is cut
/// off while it sends may never see the response.
const DISCARD: usize = 8 * 1024 * 1024;
const DISCARD_FOR: Duration = Duration::from_secs(2);

/// How long after its head the first piece of a short body may come.
const MOMENT: Duration = Duration::from_millis(10);

/// The whole body, which must arrive within `within`.
pub(super) async fn read(request: Request<Body>, within: Duration) -> Result<Bytes, Problem> {
    let waits = request.headers().contains_key(EXPECT);
    let stopping = request.extensions().get::<Stopping>().cloned();
    let mut body = request.into_body();
    if body.size_hint().lower() > MAX_BODY as u64 {
        // A client that waits for `100 Continue` has sent nothing yet.
        if !waits {
            discard(body).await;
        }
        return Err(too_large());
    }
    let whole = Limited::new(&mut body, MAX_BODY).collect();
    let arrived = tokio::select! {
        arrived = tokio::time::timeout(within, whole) => arrived,
        () = too_late(stopping) => {
            let detail = "the service is stopping and the body is not complete; send the request again";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).closing());
        }
    };
    match arrived {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(too_large())
        }
        Ok(Err(error)) => {
            Err(Problem::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")).closing())
        }
        Err(_) => {
            let detail = format!("the body did not arrive within {within:?}; send it faster");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail).closing())
        }
    }
}

/// What has arrived of a body.
pub(super) enum Arrived {
    /// All of it, within the limit.
    Whole(Bytes),
    /// Not all of it yet.
    InPieces(Resumed),
}

/// Takes what has arrived. A short body arrives with its head or, from clients that send the two apart, right after it: then this
/// waits for the first piece, for a moment.
pub(super) async fn arrived(mut rest: Incoming) -> Arrived {
    let (mut taken, mut has_waited) = (Taken::default(), false);
    loop {
        let mut next = poll_immediate(rest.frame()).await;
        if next.is_none() && taken.len() == 0 && !std::mem::replace(&mut has_waited, true) {
            // Boxed, because most requests do not need it, and would be moved with it.
            next = Box::pin(tokio::time::timeout(MOMENT, rest.frame())).await.ok();
        }
        let failed = match next {
            Some(Some(Ok(frame))) => {
                // Trailers say nothing here.
                frame.into_data().into_iter().for_each(|data| taken.add(data));
                None
            }
            Some(Some(Err(error))) => Some(error),
            Some(None) => return Arrived::Whole(taken.whole()),
            None => return Arrived::InPieces(Resumed { taken: taken.part(), failed: None, rest }),
        };
        if failed.is_some() || taken.len() > MAX_BODY {
            return Arrived::InPieces(Resumed { taken: taken.part(), failed, rest });
        }
        if rest.is_end_stream() {
            return Arrived::Whole(taken.whole());
        }
    }
}

/// Pieces of a body, joined when there is a second one. Each byte is copied a few times at most, however many pieces a
/// client makes of them.
#[derive(Default)]
struct Taken {
    first: Bytes,
    joined: BytesMut,
}

impl Taken {
    fn add(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&data);
    }

    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// If there is anything.
    fn part(self) -> Option<Bytes> {
        Some(self.whole()).filter(|part| !part.is_empty())
    }

    fn whole(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

/// A body of which a part was taken before.
pub(super) struct Resumed {
    taken: Option<Bytes>,
    failed: Option<hyper::Error>,
    rest: Incoming,
}

impl hyper::body::Body for Resumed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(taken) = self.taken.take() {
            return Poll::Ready(Some(Ok(Frame::data(taken))));
        }
        match self.failed.take() {
            Some(error) => Poll::Ready(Some(Err(error))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.taken.is_none() && self.failed.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let taken = self.taken.as_ref().map_or(0, |taken| taken.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + taken);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + taken);
        }
        hint
    }
}

/// Resolves when a stopping service has waited long enough: a client that sends half a body must not delay the stop.
async fn too_late(stopping: Option<Stopping>) {
    match stopping {
        Some(mut stopping) => {
            stopping.begun().await;
            tokio::time::sleep(Stopping::PATIENCE).await;
        }
        None => std::future::pending().await,
    }
}

/// Reads what is left of a body and discards it, within bounds.
pub(crate) async fn discard<B>(body: B)
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut rest = Box::pin(Limited::new(body, DISCARD));
    let all = async { while let Some(Ok(_)) = rest.frame().await {} };
    let _ = tokio::time::timeout(DISCARD_FOR, all).await;
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {MAX_BODY} bytes; split the batch");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).closing()
}
