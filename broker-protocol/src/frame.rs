//! The codec: a `u32` length in little-endian order, then one bincode value that fills it exactly.
//!
//! Only this module uses bincode. The configuration is fixed: little-endian, integers at their full
//! width (so that each value has one encoding), and a byte limit. No type on the wire is recursive
//! and no list has elements of size zero: bincode checks neither.

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Maximum bytes of a frame, without its length.
pub const FRAME_MAX: usize = 1 << 20;
const _: () = assert!(crate::limit::REQUEST == crate::limit::WRITE + FRAME_MAX);

/// Bytes of the length in front of each frame.
pub const PREFIX: usize = 4;

fn config() -> bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<FRAME_MAX>,
> {
    bincode::config::standard()
        .with_fixed_int_encoding()
        .with_limit::<FRAME_MAX>()
}

/// Why bytes are not a frame, or a value does not fit in one.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The peer announced a frame of no bytes or of more than [`FRAME_MAX`].
    #[error("a frame of {0} bytes was announced; 1 to {FRAME_MAX} are allowed")]
    Length(u32),
    /// The value to send does not fit.
    #[error("a message of {0} bytes does not fit in a frame of {FRAME_MAX}")]
    TooLarge(usize),
    /// The value cannot be encoded.
    #[error("a message cannot be encoded")]
    Encode(#[source] bincode::error::EncodeError),
    /// The bytes are not a message.
    #[error("a frame does not hold a message")]
    Decode(#[source] bincode::error::DecodeError),
    /// The message ends before its frame does.
    #[error("a frame has {0} bytes after its message")]
    Trailing(usize),
}

/// Appends `message` to `out` as one frame. On error `out` is as it was.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    let written =
        bincode::serde::encode_into_std_write(message, out, config()).map_err(FrameError::Encode);
    let length = match written {
        Ok(length) if length <= FRAME_MAX => length as u32,
        Ok(length) => {
            out.truncate(start);
            return Err(FrameError::TooLarge(length));
        }
        Err(error) => {
            out.truncate(start);
            return Err(error);
        }
    };
    out[start..start + PREFIX].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Decodes a message that fills `bytes` exactly.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    decode_with(bytes, config())
}

/// Encodes a value that is sent in parts and may be larger than a frame.
pub fn encode_whole<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameError> {
    bincode::serde::encode_to_vec(value, config().with_limit::<{ crate::limit::ANSWER }>())
        .map_err(FrameError::Encode)
}

/// Decodes what [`encode_whole`] encoded; at most [`limit::ANSWER`](crate::limit::ANSWER) bytes.
pub fn decode_whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    decode_with(bytes, config().with_limit::<{ crate::limit::ANSWER }>())
}

/// Encodes a value with a request, whose content may have come in pieces.
pub fn encode_request<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameError> {
    bincode::serde::encode_to_vec(value, config().with_limit::<{ crate::limit::REQUEST }>())
        .map_err(FrameError::Encode)
}

/// Decodes what [`encode_request`] encoded; at most [`limit::REQUEST`](crate::limit::REQUEST) bytes.
pub fn decode_request<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    decode_with(bytes, config().with_limit::<{ crate::limit::REQUEST }>())
}

fn decode_with<T: DeserializeOwned, C: bincode::config::Config>(
    bytes: &[u8],
    config: C,
) -> Result<T, FrameError> {
    let (message, used) =
        bincode::serde::decode_from_slice(bytes, config).map_err(FrameError::Decode)?;
    if used != bytes.len() {
        return Err(FrameError::Trailing(bytes.len() - used));
    }
    Ok(message)
}

/// Splits a stream of bytes into frames. It never holds more than was received, whatever a length announces.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that are already decoded.
    used: usize,
}

impl Decoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes received and not yet decoded.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.used
    }

    /// The next complete frame, if it has arrived. After an error the rest of the stream is meaningless.
    #[expect(
        clippy::should_implement_trait,
        reason = "the type of the item is the caller's to choose"
    )]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let bytes = &self.buffer[self.used..];
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let announced = u32::from_le_bytes(*prefix);
        let length = announced as usize;
        if length == 0 || length > FRAME_MAX {
            return Err(FrameError::Length(announced));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let message = decode(frame)?;
        self.used += PREFIX + length;
        if self.used == self.buffer.len() {
            self.buffer.clear();
            self.used = 0;
            // One large frame must not cost memory for the rest of a session.
            self.buffer.shrink_to(64 * 1024);
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FromBroker, Hello, ToBroker};

    #[test]
    fn frame_cut_anywhere_reads_back() {
        let mut bytes = Vec::new();
        let sent = [
            ToBroker::Hello(Hello::ours(None)),
            ToBroker::Probe,
            ToBroker::Cancel { call: 7 },
        ];
        sent.iter()
            .for_each(|message| encode(message, &mut bytes).unwrap());
        for size in 1..bytes.len() {
            let mut decoder = Decoder::new();
            let mut got = Vec::new();
            for chunk in bytes.chunks(size) {
                decoder.push(chunk);
                while let Some(message) = decoder.next::<ToBroker>().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, sent, "cut every {size} bytes");
            assert_eq!(decoder.pending(), 0);
        }
    }

    #[test]
    fn hostile_lengths_are_refused_before_memory_is_taken() {
        for length in [0, FRAME_MAX as u32 + 1, u32::MAX] {
            let mut decoder = Decoder::new();
            decoder.push(&length.to_le_bytes());
            assert!(
                matches!(decoder.next::<ToBroker>(), Err(FrameError::Length(l)) if l == length)
            );
            assert!(decoder.buffer.capacity() < 64);
        }
        // A claimed length inside a frame: one Input message that says it holds 2^60 bytes.
        let mut frame = Vec::new();
        frame.extend_from_slice(&4u32.to_le_bytes());
        frame.extend_from_slice(&1u64.to_le_bytes());
        frame.extend_from_slice(&(1u64 << 60).to_le_bytes());
        assert!(matches!(
            decode::<ToBroker>(&frame),
            Err(FrameError::Decode(_))
        ));
    }

    #[test]
    fn trailing_and_missing_bytes_are_refused() {
        let mut bytes = Vec::new();
        encode(&ToBroker::Probe, &mut bytes).unwrap();
        assert!(decode::<ToBroker>(&bytes[4..]).is_ok());
        bytes.push(0);
        assert!(matches!(
            decode::<ToBroker>(&bytes[4..]),
            Err(FrameError::Trailing(1))
        ));
        assert!(matches!(
            decode::<ToBroker>(&bytes[4..6]),
            Err(FrameError::Decode(_))
        ));
        assert!(matches!(
            decode::<ToBroker>(&[0xff; 4]),
            Err(FrameError::Decode(_))
        ));
    }

    #[test]
    fn oversized_frame_is_not_encoded() {
        let mut out = vec![1, 2, 3];
        let large = FromBroker::Part {
            call: 1,
            bytes: vec![0; FRAME_MAX],
        };
        assert!(encode(&large, &mut out).is_err());
        assert_eq!(out, [1, 2, 3]);
    }
}
