//! The body of a request that was held: what was read of it, and then the rest.

use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body whose beginning was read.
pub(super) struct HeldBody {
    pub first: Option<Bytes>,
    pub rest: Option<Incoming>,
    pub trailers: Option<HeaderMap>,
}

impl HeldBody {
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(self.trailers.take().map(|all| Ok(Frame::trailers(all)))),
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.first.is_none()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    pub(super) fn size(&self) -> SizeHint {
        let held = self.first.as_ref().map_or(0, Bytes::len) as u64;
        let rest = self.rest.as_ref().map(Body::size_hint);
        let rest = rest.unwrap_or_else(|| SizeHint::with_exact(0));
        let mut sum = SizeHint::new();
        sum.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            sum.set_upper(upper.saturating_add(held));
        }
        sum
    }
}
