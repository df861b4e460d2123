//! The body of a request that was held: what was read of it, and then the rest.

use super::questions::{Counted, Questions};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use orchestrator_effects::{BodyBytes, UnreadBody};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The beginning of a body that is being read.
#[derive(Default)]
pub(super) struct BodyBeginning<'q> {
    pub bytes: Vec<u8>,
    /// Its bytes among those of all held bodies.
    counted: Vec<Counted<'q>>,
    trailers: Option<HeaderMap>,
    pub(crate) is_whole: bool,
}

impl<'q> BodyBeginning<'q> {
    /// The bytes that have come.
    pub(super) fn read(&self) -> BodyBytes<'_> {
        if self.is_whole {
            BodyBytes::Whole(&self.bytes)
        } else {
            BodyBytes::Beginning(&self.bytes)
        }
    }

    /// The next data; none if the body's end or its trailers came.
    ///
    /// # Errors
    /// The body breaks off.
    pub(super) async fn more<B>(&mut self, body: &mut B) -> Result<Option<Bytes>, B::Error>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        match body.frame().await.transpose()?.map(Frame::into_data) {
            None => self.is_whole = true,
            Some(Ok(data)) => return Ok(Some(data)),
            Some(Err(frame)) => {
                self.trailers = frame.into_trailers().ok();
                self.is_whole = true;
            }
        }
        Ok(None)
    }

    /// Takes data to what is held.
    ///
    /// # Errors
    /// As much as may be is held already.
    pub(super) fn hold(&mut self, all: &'q Questions, data: &Bytes) -> Result<(), UnreadBody> {
        self.counted.push(all.hold(data.len())?);
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The whole body, with its share of what is held.
    pub(super) fn into_body(self, rest: Option<Incoming>) -> (HeldBody, Vec<Counted<'q>>) {
        let body = HeldBody {
            first: Some(Bytes::from(self.bytes)).filter(|bytes| !bytes.is_empty()),
            rest: rest.filter(|_| !self.is_whole),
            trailers: self.trailers,
        };
        (body, self.counted)
    }
}

/// A body whose beginning was read.
pub(super) struct HeldBody {
    first: Option<Bytes>,
    rest: Option<Incoming>,
    trailers: Option<HeaderMap>,
}

impl HeldBody {
    /// One that is there as a whole.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self {
            first: Some(bytes).filter(|bytes| !bytes.is_empty()),
            rest: None,
            trailers: None,
        }
    }

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
