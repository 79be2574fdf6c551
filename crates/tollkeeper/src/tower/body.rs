//! The body of a limited response. Its end releases the request's slots.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use crate::permit::Permit;

pin_project! {
    /// The service's own body, or the response that replaces it. Slots of `concurrency` rules are released when it
    /// has ended or is dropped.
    ///
    /// The body of an upgrade (101) ends at once: a WebSocket holds its slot only until it is open.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        content: Content<B>,
        permit: Option<Permit>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = ContentProjection]
    enum Content<B> {
        Inner { #[pin] body: B },
        Answer { #[pin] body: Full<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn inner(body: B, permit: Option<Permit>) -> Self {
        ResponseBody { content: Content::Inner { body }, permit }
    }

    pub(super) fn answer(body: Bytes) -> Self {
        ResponseBody { content: Content::Answer { body: Full::new(body) }, permit: None }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = match this.content.project() {
            ContentProjection::Inner { body } => body.poll_frame(context),
            ContentProjection::Answer { body } => {
                body.poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
            }
        };
        if let Poll::Ready(None | Some(Err(_))) = frame {
            // The response has ended, though the server may keep the body for a while.
            this.permit.take();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Inner { body } => body.is_end_stream(),
            Content::Answer { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Inner { body } => body.size_hint(),
            Content::Answer { body } => body.size_hint(),
        }
    }
}
