//! The answer of a host on its way to the program: searched for the values of the host's credentials, as it streams.

use super::host::CalledHost;
use super::limits::PAUSE;
use super::refusal::RequestRefusal;
use super::search::{StreamSearch, ValueFound};
use broker_protocol::gateway::CredentialVerdict;
use hyper::Response;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use thiserror::Error;
use tokio::time::{Sleep, sleep};

/// Why an answer ends early.
#[derive(Debug, Error)]
pub(super) enum Cut {
    #[error("the answer contained the value of a credential")]
    Echoed,
    #[error(transparent)]
    Host(#[from] hyper::Error),
}

/// The body of an answer.
pub(super) enum DecryptedAnswer {
    Host(Searched),
    Text(Option<Bytes>),
}

/// A body of the host, searched.
pub(super) struct Searched {
    body: Incoming,
    host: Rc<CalledHost>,
    /// Whose use and by which method, for the report of an echo.
    of: (Option<u16>, String),
    search: StreamSearch,
    pause: Option<Pin<Box<Sleep>>>,
    trailers: Option<HeaderMap>,
    is_end: bool,
}

impl Searched {
    pub(super) fn new(body: Incoming, host: Rc<CalledHost>, of: (Option<u16>, String)) -> Self {
        Self {
            body,
            host,
            of,
            search: StreamSearch::default(),
            pause: None,
            trailers: None,
            is_end: false,
        }
    }

    fn cut(&mut self) -> Cut {
        self.is_end = true;
        let credential = self.of.0.or(self.host.credentials.first().copied());
        if let Some(credential) = credential {
            self.host
                .count(credential, &self.of.1, CredentialVerdict::Echoed);
        }
        Cut::Echoed
    }

    /// The host says no more at present: after a moment, what is held is passed on.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.search.held() == 0 {
            return Poll::Pending;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
        ready!(pause.as_mut().poll(cx));
        Poll::Ready(Some(Ok(Frame::data(self.search.release()))))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        loop {
            if self.is_end {
                return Poll::Ready(self.trailers.take().map(|all| Ok(Frame::trailers(all))));
            }
            let arrived = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(arrived) => arrived,
                Poll::Pending => return self.poll_pause(cx),
            };
            self.pause = None;
            let frame = match arrived {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    self.is_end = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => {
                    self.is_end = true;
                    let held = self.search.release();
                    if held.is_empty() {
                        return Poll::Ready(None);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(held))));
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let needles = self.host.needles();
                    match self.search.pass(&needles, data) {
                        Ok(passed) if passed.is_empty() => {}
                        Ok(passed) => return Poll::Ready(Some(Ok(Frame::data(passed)))),
                        Err(ValueFound) => return Poll::Ready(Some(Err(self.cut()))),
                    }
                }
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        self.host.needles().clean(&mut trailers);
                        self.trailers = Some(trailers);
                        self.is_end = true;
                        let held = self.search.release();
                        if !held.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::data(held))));
                        }
                    }
                }
            }
        }
    }
}

impl Body for DecryptedAnswer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Host(body) => body.poll(cx),
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Host(body) => {
                body.search.held() == 0
                    && body.trailers.is_none()
                    && (body.is_end || body.body.is_end_stream())
            }
            Self::Text(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let add = |hint: SizeHint, held: u64| {
            let mut sum = SizeHint::new();
            sum.set_lower(hint.lower().saturating_add(held));
            if let Some(upper) = hint.upper() {
                sum.set_upper(upper.saturating_add(held));
            }
            sum
        };
        match self {
            Self::Host(body) => add(body.body.size_hint(), body.search.held() as u64),
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

/// Our answer to a request that goes no further.
pub(super) fn refused(refusal: &RequestRefusal) -> Response<DecryptedAnswer> {
    let (kind, text) = match refusal.oauth_error() {
        None => ("text/plain; charset=utf-8", refusal.text()),
        Some(error) => {
            let why = refusal.text();
            let object = json!({ "error": error, "error_description": why.trim_end() });
            ("application/json", object.to_string())
        }
    };
    let mut response = Response::new(DecryptedAnswer::Text(Some(text.into())));
    *response.status_mut() = refusal.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
