//! gRPC over HTTP/2, as far as a server without compression needs it: one message in a request, any number in a response.

use crate::body::{self, ReplyBody, collect, full};
use crate::fault::{FaultKind, SandboxFault};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;
use std::convert::Infallible;
use std::time::Duration;

/// Bytes of a request's message: what clients and servers of gRPC have as their own default.
pub(crate) const MESSAGE_MAX: usize = 4 << 20;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Digits of a time limit.
const TIMEOUT_DIGITS_MAX: usize = 8;
/// Bytes of an error's message.
const STATUS_TEXT_MAX: usize = 1024;

const TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const STATUS_TEXT: HeaderName = HeaderName::from_static("grpc-message");

/// What a status's text must not have in it.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The message of a request.
///
/// # Errors
/// It is none, is compressed, or is too large.
pub(crate) async fn message<M: Message + Default>(
    request: Request<Incoming>,
) -> Result<M, SandboxFault> {
    let encoding = request.headers().get("grpc-encoding");
    if encoding.is_some_and(|encoding| encoding != "identity") {
        let message = "messages are not compressed here";
        return Err(SandboxFault::new(FaultKind::Unimplemented, message));
    }
    let body = collect(request.into_body(), PREFIX + MESSAGE_MAX).await?;
    decoded(&body)
}

fn decoded<M: Message + Default>(body: &[u8]) -> Result<M, SandboxFault> {
    let broken = || SandboxFault::invalid("the request is not one message");
    let (prefix, message) = body.split_first_chunk().ok_or_else(broken)?;
    if prefix[0] != 0 || length(prefix) != message.len() {
        return Err(broken());
    }
    M::decode(message)
        .map_err(|error| SandboxFault::invalid(format!("the message is broken: {error}")))
}

/// Reads the messages of a request that streams them.
pub(crate) struct GrpcReader<B> {
    body: B,
    bytes: Vec<u8>,
    /// Bytes that a message may have.
    most: usize,
}

impl<B: Body<Data = Bytes> + Unpin> GrpcReader<B> {
    pub(crate) fn new(body: B, most: usize) -> Self {
        let bytes = Vec::new();
        Self { body, bytes, most }
    }

    /// The next message; `None` if the client sends no more.
    ///
    /// # Errors
    /// It is larger, is none, breaks off, or takes too long.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, SandboxFault> {
        loop {
            if let Some(prefix) = self.bytes.first_chunk::<PREFIX>() {
                let end = PREFIX + length(prefix);
                if end > PREFIX + self.most {
                    let message = format!("a message has at most {} bytes here", self.most);
                    return Err(SandboxFault::new(FaultKind::TooLarge, message));
                }
                if self.bytes.len() >= end {
                    let message = decoded(&self.bytes[..end])?;
                    self.bytes.drain(..end);
                    return Ok(Some(message));
                }
            }
            // A frame has at most what HTTP/2 lets it have, so no more than that is read ahead.
            match body::piece(&mut self.body).await? {
                Some(piece) => self.bytes.extend_from_slice(&piece),
                None if self.bytes.is_empty() => return Ok(None),
                None => return Err(SandboxFault::invalid("the last message breaks off")),
            }
        }
    }
}

/// The length in a message's prefix.
fn length(prefix: &[u8; PREFIX]) -> usize {
    let digits = prefix[1..].iter();
    digits.fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// A message with its prefix.
pub(crate) fn encoded(message: &impl Message) -> Bytes {
    let length = message.encoded_len() as u32;
    let mut bytes = Vec::with_capacity(PREFIX + message.encoded_len());
    bytes.push(0);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes.into()
}

/// The time that a request may take.
///
/// # Errors
/// It is not written as gRPC has it.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, SandboxFault> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(|text| {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        if digits.is_empty() || digits.len() > TIMEOUT_DIGITS_MAX || !is_number {
            return None;
        }
        let number: u64 = digits.parse().ok()?;
        match unit {
            "H" => Some(Duration::from_secs(number * 3600)),
            "M" => Some(Duration::from_secs(number * 60)),
            "S" => Some(Duration::from_secs(number)),
            "m" => Some(Duration::from_millis(number)),
            "u" => Some(Duration::from_micros(number)),
            "n" => Some(Duration::from_nanos(number)),
            _ => None,
        }
    });
    let wrong = || SandboxFault::invalid("grpc-timeout is at most eight digits and a unit");
    parsed.map(Some).ok_or_else(wrong)
}

pub(crate) fn trailers(result: &Result<(), SandboxFault>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let number = result.as_ref().err().map_or(0, |fault| fault.kind.grpc());
    trailers.insert(STATUS, HeaderValue::from(u16::from(number)));
    if let Err(fault) = result {
        let message = &fault.message;
        let end = (0..=message.len().min(STATUS_TEXT_MAX))
            .rev()
            .find(|at| message.is_char_boundary(*at));
        let text = utf8_percent_encode(&message[..end.unwrap_or(0)], ESCAPED).to_string();
        // It is ASCII without control characters.
        if let Ok(text) = HeaderValue::from_str(&text) {
            trailers.insert(STATUS_TEXT, text);
        }
    }
    trailers
}

/// A response whose messages and end come as `body` has them.
pub(crate) fn streamed(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, TYPE);
    response
}

/// A response with one message, or with an error alone.
pub(crate) fn unary(result: Result<Bytes, SandboxFault>) -> Response<ReplyBody> {
    match result {
        Ok(message) => {
            let never = |never: Infallible| match never {};
            let end = std::future::ready(Some(Ok(trailers(&Ok(())))));
            streamed(Box::pin(
                Full::new(message).map_err(never).with_trailers(end),
            ))
        }
        Err(fault) => {
            let mut response = streamed(full(Bytes::new()));
            response.headers_mut().extend(trailers(&Err(fault)));
            response
        }
    }
}

/// A request that is none of gRPC.
pub(crate) fn other_protocol() -> Response<ReplyBody> {
    let mut response = Response::new(full(Bytes::from_static(b"this port speaks gRPC\n")));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// Whether a request is one of gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE);
    media_type.is_some_and(|value| value.as_bytes().starts_with(TYPE.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{InitEvent, ProcessConfig};

    #[test]
    fn a_request_is_exactly_one_message() {
        let message = InitEvent { process_id: 7 };
        let bytes = encoded(&message);
        assert_eq!(bytes[..], [0, 0, 0, 0, 2, 8, 7]);
        assert_eq!(decoded::<InitEvent>(&bytes), Ok(message));
        assert_eq!(decoded(&[0; 5]), Ok(InitEvent::default()));
        for broken in [
            &[][..],
            &[0, 0, 0, 0],
            // Compressed, too short, too long, two messages, and no message at all.
            &[1, 0, 0, 0, 2, 8, 7],
            &[0, 0, 0, 0, 3, 8, 7],
            &[0, 0, 0, 0, 1, 8, 7],
            &[0, 0, 0, 0, 2, 8, 7, 0, 0, 0, 0, 0],
            &[0, 255, 255, 255, 255],
        ] {
            let fault = decoded::<InitEvent>(broken).unwrap_err();
            assert_eq!(fault.kind, FaultKind::InvalidArgument, "{broken:?}");
        }
        let text = [&[0, 0, 0, 0, 3, 0x0a, 1][..], &[0xff]].concat();
        assert!(decoded::<ProcessConfig>(&text).is_err(), "not UTF-8");
    }

    #[tokio::test]
    async fn messages_of_a_stream_are_read_one_by_one() {
        let message = |process_id| encoded(&InitEvent { process_id });
        let all = [message(1), message(300)].concat();
        let reader = |bytes: &[u8]| {
            // Frames end wherever they do.
            let (send, body) = body::Produced::channel(None);
            let pieces: Vec<_> = bytes.chunks(3).map(Bytes::copy_from_slice).collect();
            tokio::spawn(async move {
                for piece in pieces {
                    let _ = send.send(Ok(hyper::body::Frame::data(piece))).await;
                }
            });
            GrpcReader::new(body, 3)
        };
        let mut both = reader(&all);
        for process_id in [1, 300] {
            assert_eq!(both.next().await, Ok(Some(InitEvent { process_id })));
        }
        assert_eq!(both.next::<InitEvent>().await, Ok(None));
        for (broken, kind) in [
            (&all[..all.len() - 1], FaultKind::InvalidArgument),
            (&[0, 0, 0, 0, 4, 8, 7, 8, 7], FaultKind::TooLarge),
            (&[0, 255, 255, 255, 255], FaultKind::TooLarge),
            (&[1, 0, 0, 0, 2, 8, 7], FaultKind::InvalidArgument),
        ] {
            let mut reader = reader(broken);
            let fault = loop {
                match reader.next::<InitEvent>().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{broken:?}"),
                    Err(fault) => break fault,
                }
            };
            assert_eq!(fault.kind, kind, "{broken:?}");
        }
    }

    #[test]
    fn a_time_limit_is_at_most_eight_digits_and_a_unit() {
        let parsed = |text: &'static str| {
            let headers = [("grpc-timeout", text)].map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            timeout(&headers.into_iter().collect()).map_err(|fault| fault.kind)
        };
        for (text, millis) in [("500m", 500), ("1S", 1000), ("2M", 120_000), ("99u", 0)] {
            let parsed = parsed(text).unwrap().unwrap();
            assert_eq!(parsed.as_millis(), millis, "{text}");
        }
        assert!(parsed("99999999H").is_ok());
        for text in ["", "S", "1", "-1S", "+1S", "1s", "999999999S", "1 S"] {
            assert_eq!(parsed(text), Err(FaultKind::InvalidArgument), "{text}");
        }
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn the_text_of_a_status_is_short_and_escaped() {
        let text = |message: &str| {
            let fault = SandboxFault::new(FaultKind::NotFound, message);
            let trailers = trailers(&Err(fault));
            assert_eq!(trailers[STATUS], "5");
            trailers[STATUS_TEXT].to_str().unwrap().to_owned()
        };
        assert_eq!(text("100%\né"), "100%25%0A%C3%A9");
        assert_eq!(
            text(&"x".repeat(STATUS_TEXT_MAX + 1)).len(),
            STATUS_TEXT_MAX
        );
        assert_eq!(trailers(&Ok(()))[STATUS], "0");
    }
}
