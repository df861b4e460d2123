//! Bodies of requests and responses, each within its bounds.

use crate::fault::{FaultKind, SandboxFault};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a client may pause within a body.
const PAUSE: Duration = Duration::from_secs(30);
/// How long a body may take as a whole: a client that sends a byte now and then holds a connection no longer.
const WHOLE: Duration = Duration::from_secs(600);
/// Pieces of a response that wait for its client.
const PIECES_MAX: usize = 1;

/// A response's body that ends before it is complete: the connection ends, so that no client takes the part for the whole.
#[derive(Debug, Error)]
#[error("the response could not be completed")]
pub(crate) struct Incomplete;

/// The body of a response.
pub(crate) type ReplyBody = Pin<Box<dyn Body<Data = Bytes, Error = Incomplete>>>;

pub(crate) fn full(bytes: impl Into<Bytes>) -> ReplyBody {
    let never = |never: Infallible| match never {};
    Box::pin(Full::new(bytes.into()).map_err(never))
}

/// A response with `value` as JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<ReplyBody> {
    // Serialization fails for no type of ours: their keys are strings.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    reply(status, "application/json", full(bytes))
}

/// A response of this type.
pub(crate) fn reply(
    status: StatusCode,
    media_type: &'static str,
    body: ReplyBody,
) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// Announces the length of a body that is produced piece by piece.
pub(crate) fn with_length(mut response: Response<ReplyBody>, length: u64) -> Response<ReplyBody> {
    let length = HeaderValue::from(length);
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

/// A body that a task produces. Dropping it closes the channel.
pub(crate) struct Produced {
    frames: mpsc::Receiver<Result<Frame<Bytes>, Incomplete>>,
    /// The rest of its length, if that is known.
    left: Option<u64>,
}

impl Produced {
    /// What sends the frames, and the body; with the length of all data if that is known.
    pub(crate) fn channel(
        length: Option<u64>,
    ) -> (mpsc::Sender<Result<Frame<Bytes>, Incomplete>>, ReplyBody) {
        let (send, frames) = mpsc::channel(PIECES_MAX);
        let left = length;
        (send, Box::pin(Self { frames, left }))
    }
}

impl Body for Produced {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        let polled = self.frames.poll_recv(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(left)) = (&polled, self.left) {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.left = Some(left.saturating_sub(length));
        }
        polled
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Reads a body of at most `most` bytes.
///
/// # Errors
/// It is larger, breaks off, or takes too long.
pub(crate) async fn collect<B>(body: B, most: usize) -> Result<Vec<u8>, SandboxFault>
where
    B: Body<Data = Bytes> + Unpin,
{
    let too_large = || {
        let message = format!("a body has at most {most} bytes here");
        SandboxFault::new(FaultKind::TooLarge, message)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let read = async {
        let (mut body, mut bytes) = (body, Vec::new());
        while let Some(data) = piece(&mut body).await? {
            if bytes.len() + data.len() > most {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    timeout(WHOLE, read).await.map_err(|_| late())?
}

/// The next bytes of a body; `None` at its end.
///
/// # Errors
/// It breaks off, or pauses too long.
pub(crate) async fn piece<B>(body: &mut B) -> Result<Option<Bytes>, SandboxFault>
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = timeout(PAUSE, body.frame()).await.map_err(|_| late())? {
        let frame = frame.map_err(|_| SandboxFault::invalid("the body breaks off"))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn late() -> SandboxFault {
    SandboxFault::new(FaultKind::DeadlineExceeded, "the body takes too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_ends_at_its_limit() {
        for (length, fits) in [(0, true), (9, true), (10, true), (11, false)] {
            let announced = Full::new(Bytes::from(vec![b'x'; length]));
            let read = collect(announced, 10).await;
            assert_eq!(read.is_ok(), fits, "{length}");
            // A length that nobody has announced.
            let (send, body) = Produced::channel(None);
            let sending = async move {
                for _ in 0..length {
                    let frame = Frame::data(Bytes::from_static(b"x"));
                    if send.send(Ok(frame)).await.is_err() {
                        break;
                    }
                }
            };
            let (read, ()) = tokio::join!(collect(body, 10), sending);
            let fault = read.map(|read| read.len()).map_err(|fault| fault.kind);
            let want = if fits {
                Ok(length)
            } else {
                Err(FaultKind::TooLarge)
            };
            assert_eq!(fault, want);
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_none() {
        let (send, body) = Produced::channel(None);
        let sending = async {
            let frame = Frame::data(Bytes::from_static(b"x"));
            send.send(Ok(frame)).await.unwrap();
            send.send(Err(Incomplete)).await.unwrap();
        };
        let (read, ()) = tokio::join!(collect(body, 10), sending);
        let fault = read.unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidArgument);
    }
}
