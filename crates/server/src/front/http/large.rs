//! Large answers: how many bytes of them wait for clients to read them is bounded, and so is the time.
//!
//! A batch of some kilobytes has an answer of up to two megabytes, and a client that asks again and again and reads nothing
//! would fill the memory with them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use tollkeeper::http::Problem;

use crate::front::connections::{Owed, Reader};

/// Answers below this are not counted: each request in flight has one.
const LARGE: usize = 64 * 1024;
/// What the protocol takes at a time: a body that it took as a whole would be kept there, and not counted.
const PIECE: usize = 16 * 1024;

/// Room for an answer of so many bytes, if it is large. Only our own tests have no reader.
pub(super) fn reserve(reader: Option<&Reader>, bytes: usize) -> Result<Option<Owed>, Problem> {
    match reader {
        Some(reader) if bytes > LARGE => reader.owe(bytes).map(Some).ok_or_else(unread),
        _ => Ok(None),
    }
}

fn unread() -> Problem {
    let detail =
        "overloaded: too many large answers wait to be read; read them before asking for more, or split the batch";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).header(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// A large answer, sent in pieces.
#[derive(Debug)]
pub(super) struct Large {
    rest: Bytes,
    _owed: Owed,
}

impl Large {
    pub(super) fn new(answer: Bytes, owed: Owed) -> Large {
        Large { rest: answer, _owed: owed }
    }
}

impl Body for Large {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
