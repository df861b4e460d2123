//! Responses: JSON, or a stream of events.

use crate::incoming::RequestError;
use crate::outbox::{PacketQueue, WaitingPacket};
use crate::packet::Packet;
use crate::runs::RunResult;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::{Response, StatusCode, header};
use orchestrator_mcp_server::AnswerBody;
use orchestrator_text::redact::Redactor;
use orchestrator_wire::error::{ErrorBody, ErrorCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often a stream of events sends a sign of life: proxies may close a silent connection.
const ALIVE: Duration = Duration::from_secs(15);

/// The body of a response.
pub(crate) enum ResponseBody {
    /// The whole body; `None` once it has been taken.
    Whole(Option<Bytes>),
    /// Events of a run as they happen.
    Events(Box<EventStream>),
    /// The answer to an MCP client.
    Mcp(AnswerBody),
}

impl ResponseBody {
    /// Removes known secrets: an error may quote the request, and a provider may choose any names for its models. Events were
    /// already sanitized.
    pub(crate) fn redacted(self, redactor: &Redactor) -> Self {
        let Self::Whole(Some(bytes)) = self else {
            return self;
        };
        let clear = match redactor.bytes(&bytes) {
            Cow::Borrowed(_) => bytes,
            Cow::Owned(clear) => match serde_json::from_slice::<Value>(&bytes) {
                // A number that is a secret becomes a text.
                Ok(value) => redactor.value(&value).to_string().into(),
                Err(_) => clear.into(),
            },
        };
        Self::Whole(Some(clear))
    }
}

/// The events of a run, as server-sent events.
pub(crate) struct EventStream {
    queue: PacketQueue,
    ended: Option<oneshot::Receiver<RunResult>>,
    alive: Interval,
    step: u64,
}

impl EventStream {
    /// The events in `queue`, and finally the result of the run.
    pub(crate) fn new(queue: PacketQueue, ended: oneshot::Receiver<RunResult>) -> Self {
        let mut alive = interval(ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        alive.reset();
        Self {
            queue,
            ended: Some(ended),
            alive,
            step: 0,
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // When the queue has ended, the result of the run is still to come.
        if let Poll::Ready(Some(WaitingPacket { packet, .. })) = self.queue.poll_next(context) {
            return Poll::Ready(Some(self.event(&packet)));
        }
        if let Some(ended) = &mut self.ended
            && let Poll::Ready(result) = Pin::new(ended).poll(context)
        {
            self.ended = None;
            return Poll::Ready(Some(self.last(result.ok())));
        }
        if self.ended.is_none() {
            return Poll::Ready(None);
        }
        self.alive
            .poll_tick(context)
            .map(|_| Some(Bytes::from_static(b": alive\n\n")))
    }

    fn event(&mut self, packet: &Packet) -> Bytes {
        if packet.kind == "chat:turn-end" {
            self.step += 1;
        }
        line(&packet.kind, &packet.payload, self.step)
    }

    fn last(&self, result: Option<RunResult>) -> Bytes {
        let kind = match &result {
            Some(result) if result.meta.error.is_none() => "_run_done_",
            Some(_) | None => "_run_error_",
        };
        line(kind, &json!(result).to_string(), self.step)
    }
}

fn line(kind: &str, payload: &str, step: u64) -> Bytes {
    format!(
        "data: {{\"kind\":{},\"step\":{step},\"data\":{payload}}}\n\n",
        json!(kind)
    )
    .into()
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            ResponseBody::Whole(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            ResponseBody::Events(events) => events
                .poll_next(context)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
            ResponseBody::Mcp(answer) => Pin::new(answer).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Whole(bytes) => bytes.is_none(),
            ResponseBody::Events(_) => false,
            ResponseBody::Mcp(answer) => answer.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ResponseBody::Events(_) => SizeHint::default(),
            ResponseBody::Mcp(answer) => answer.size_hint(),
        }
    }
}

/// A JSON response that must not be cached.
pub(crate) fn json_reply(status: StatusCode, value: &impl Serialize) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Some(json!(value).to_string().into())));
    *response.status_mut() = status;
    uncached(response, "application/json")
}

fn uncached(mut response: Response<ResponseBody>, kind: &'static str) -> Response<ResponseBody> {
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response
            .headers_mut()
            .insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// Seconds to wait before a retry if there is no room until another client ends something: a guess, but never zero.
const ROOM_AFTER_S: u64 = 5;

/// The body of an error response.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorReply {
    error: ErrorBody,
}

/// An error response; if a limit was reached, it also tells when to retry.
pub(crate) fn error_reply(
    status: StatusCode,
    code: ErrorCode,
    message: &str,
) -> Response<ResponseBody> {
    let error = ErrorBody::new(code, message);
    let mut response = json_reply(status, &ErrorReply { error });
    response.extensions_mut().insert(code);
    if status == StatusCode::TOO_MANY_REQUESTS {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, ROOM_AFTER_S.into());
    }
    response
}

/// The response to a request that is not carried out.
pub(crate) fn refused(error: &RequestError) -> Response<ResponseBody> {
    error_reply(status(error), error.code(), &error.to_string())
}

/// The response to a request that exceeds the rate; the next one may come `after`.
pub(crate) fn too_often(after: Duration) -> Response<ResponseBody> {
    let mut response = refused(&RequestError::TooOften);
    let seconds = after.as_secs_f64().ceil().max(1.0) as u64;
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, seconds.into());
    response
}

/// A response of events that must not be cached.
pub(crate) fn events_reply(events: EventStream) -> Response<ResponseBody> {
    let response = Response::new(ResponseBody::Events(Box::new(events)));
    uncached(response, "text/event-stream")
}

fn status(error: &RequestError) -> StatusCode {
    match error {
        RequestError::Invalid(_)
        | RequestError::Field { .. }
        | RequestError::UnknownType(_)
        | RequestError::Id
        | RequestError::Ambiguous { .. }
        | RequestError::Tool(_)
        | RequestError::UnknownProvider(_) => StatusCode::BAD_REQUEST,
        RequestError::UnknownConversation(_)
        | RequestError::UnknownRun(_)
        | RequestError::NotPending(_)
        | RequestError::NotExecuting(_) => StatusCode::NOT_FOUND,
        RequestError::NotRunning(_)
        | RequestError::Busy
        | RequestError::NotShown(_)
        | RequestError::OtherDigest(_) => StatusCode::CONFLICT,
        RequestError::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        RequestError::TooManyRuns(_) | RequestError::TooOften => StatusCode::TOO_MANY_REQUESTS,
        RequestError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
