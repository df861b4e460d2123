//! Makes one HTTP request by way of the gateway, and reads its answer within bounds. It follows and remembers nothing: no redirects, no
//! cookies.

use crate::error::HttpError;
use ::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use flate2::write::MultiGzDecoder;
use orchestrator_http::ask::{By, PACKED};
use orchestrator_http::{ClientGateway, HostClient, HttpFailure, Response};
use orchestrator_reach::target::Target;
use std::io::{self, Write};

/// Maximum bytes of a response to read, after decompression.
pub(crate) const BODY_MAX: usize = 2 << 20;

/// Requests `target`, which `by` named; returns the head of the response.
pub(crate) async fn get(
    gateway: &ClientGateway,
    by: By,
    target: &Target,
    headers: HeaderMap,
) -> Result<Response, HttpFailure> {
    let client = HostClient::new(gateway.clone(), by, target.url());
    client.get(target).headers(headers).send().await
}

/// The body of a response, decompressed.
pub(crate) struct DecompressedBody {
    pub bytes: Vec<u8>,
    /// Whether the body is complete.
    pub complete: bool,
}

/// Reads at most `max` bytes of `response`, decompressed as they arrive, and no more than `max` compressed bytes, which may
/// decompress to nothing at all.
pub(crate) async fn read(
    mut response: Response,
    max: usize,
) -> Result<DecompressedBody, HttpError> {
    let mut unpacker = Unpacker::of(&response, max)?;
    let mut room = max;
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|failure| HttpError::Broken(broken(failure)))?
    {
        let taken = &chunk[..chunk.len().min(room)];
        room -= taken.len();
        if !unpacker.write(taken)? || taken.len() < chunk.len() {
            return Ok(DecompressedBody {
                bytes: unpacker.into_bytes(),
                complete: false,
            });
        }
    }
    let complete = unpacker.finish()?;
    Ok(DecompressedBody {
        bytes: unpacker.into_bytes(),
        complete,
    })
}

/// Whether a body is compressed. It may be compressed once, in the one way that was requested.
fn is_packed(response: &Response) -> Result<bool, HttpError> {
    let encodings: Vec<&[u8]> = response
        .headers()
        .get_all(CONTENT_ENCODING)
        .iter()
        .map(|value| value.as_bytes())
        .collect();
    match encodings.as_slice() {
        [] => Ok(false),
        [one] if one.eq_ignore_ascii_case(b"identity") => Ok(false),
        [one] if one.eq_ignore_ascii_case(b"gzip") => Ok(true),
        several => {
            let text = String::from_utf8_lossy(&several.join(&b", "[..])).into_owned();
            Err(HttpError::Compressed(text.chars().take(40).collect()))
        }
    }
}

/// Receives a body, compressed or not.
enum Unpacker {
    Plain(Bounded),
    Packed {
        decoder: Box<MultiGzDecoder<Bounded>>,
        began: bool,
    },
}

/// A buffer for a limited number of bytes.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
    is_full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.max - self.bytes.len();
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_full |= bytes.len() > room;
        if self.is_full {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            Ok(bytes.len())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Unpacker {
    /// One for the body of `response`.
    fn of(response: &Response, max: usize) -> Result<Self, HttpError> {
        let bounded = Bounded {
            bytes: Vec::new(),
            max,
            is_full: false,
        };
        Ok(if is_packed(response)? {
            Self::Packed {
                decoder: Box::new(MultiGzDecoder::new(bounded)),
                began: false,
            }
        } else {
            Self::Plain(bounded)
        })
    }

    /// Takes more of the body; returns whether all of it fitted.
    fn write(&mut self, chunk: &[u8]) -> Result<bool, HttpError> {
        let written = match self {
            Self::Plain(bounded) => bounded.write_all(chunk),
            Self::Packed { decoder, began } => {
                *began |= !chunk.is_empty();
                decoder.write_all(chunk)
            }
        };
        self.has_room(written)
    }

    fn finish(&mut self) -> Result<bool, HttpError> {
        match self {
            Self::Packed {
                decoder,
                began: true,
            } => {
                let finished = decoder.try_finish();
                self.has_room(finished)
            }
            Self::Packed { began: false, .. } | Self::Plain(_) => Ok(true),
        }
    }

    fn has_room(&mut self, written: io::Result<()>) -> Result<bool, HttpError> {
        match written {
            Err(_) if self.bounded().is_full => Ok(false),
            Err(error) => Err(HttpError::Broken(error.to_string())),
            Ok(()) => Ok(true),
        }
    }

    fn bounded(&mut self) -> &mut Bounded {
        match self {
            Self::Plain(bounded) => bounded,
            Self::Packed { decoder, .. } => decoder.get_mut(),
        }
    }

    fn into_bytes(mut self) -> Vec<u8> {
        let bounded = self.bounded();
        // Output that the decoder still holds when it is dropped is discarded.
        bounded.max = 0;
        std::mem::take(&mut bounded.bytes)
    }
}

/// Request headers that accept this media type and the one kind of compression.
pub(crate) fn accepting(media: &'static str) -> HeaderMap {
    let headers = [(ACCEPT, media), (ACCEPT_ENCODING, PACKED)];
    headers
        .into_iter()
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .collect()
}

/// Why an answer broke off.
fn broken(failure: HttpFailure) -> String {
    match failure {
        HttpFailure::Broken(why) => why,
        HttpFailure::Fault(_)
        | HttpFailure::Gateway(_)
        | HttpFailure::Malformed(_)
        | HttpFailure::Elsewhere => failure.to_string(),
    }
}
