//! The content of a write that does not fit in one frame: pieces come first, in order, then the request without its content.
//! The receiver joins them before anything is decided, so a decision, a digest and a record are always of the whole content.

use crate::limit::{self, TooLarge, at_most};
use crate::request::{CallId, Request};
use thiserror::Error;

/// Takes the content out of a request that does not fit in one frame, in pieces; none if it fits.
///
/// # Errors
/// The content is larger than [`limit::WRITE`].
pub fn split(request: &mut Request) -> Result<Vec<Vec<u8>>, TooLarge> {
    let Request::FileWrite(write) = request else {
        return Ok(Vec::new());
    };
    at_most("content", write.content.len(), limit::WRITE, "bytes")?;
    if write.content.len() <= limit::CONTENT {
        return Ok(Vec::new());
    }
    let content = std::mem::take(&mut write.content);
    Ok(content.chunks(limit::PIECE).map(<[u8]>::to_vec).collect())
}

/// Why pieces of content are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ContentError {
    /// A piece is empty or too large.
    #[error("a piece of content of {0} bytes; 1 to {max} are allowed", max = limit::PIECE)]
    Piece(usize),
    /// All pieces together are too large.
    #[error("the pieces of content have more than {max} bytes", max = limit::WRITE)]
    TooLarge,
    /// The pieces of one call come without a frame of another call between them.
    #[error("content for the call {0} is incomplete: its request comes next")]
    Incomplete(CallId),
    /// Only a write without content of its own has pieces.
    #[error("the call {0} has pieces of content and is no write without content")]
    Unexpected(CallId),
}

/// The pieces received of one request.
#[derive(Debug, Default)]
pub struct Pieces {
    call: CallId,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Adds a piece for `call`.
    ///
    /// # Errors
    /// A limit is exceeded, or the pieces of another call are incomplete.
    pub fn add(&mut self, call: CallId, piece: &[u8]) -> Result<(), ContentError> {
        if !(1..=limit::PIECE).contains(&piece.len()) {
            return Err(ContentError::Piece(piece.len()));
        }
        if !self.bytes.is_empty() && self.call != call {
            return Err(ContentError::Incomplete(self.call));
        }
        if self.bytes.len() + piece.len() > limit::WRITE {
            return Err(ContentError::TooLarge);
        }
        self.call = call;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Puts the pieces, if there are any, into the request of `call`.
    ///
    /// # Errors
    /// They belong to another call, or the request takes none.
    pub fn join(&mut self, call: CallId, mut request: Request) -> Result<Request, ContentError> {
        if self.bytes.is_empty() {
            return Ok(request);
        }
        if self.call != call {
            return Err(ContentError::Incomplete(self.call));
        }
        if let Request::FileWrite(write) = &mut request
            && write.content.is_empty()
        {
            write.content = std::mem::take(&mut self.bytes);
            return Ok(request);
        }
        Err(ContentError::Unexpected(call))
    }

    /// Drops the pieces of a call that its sender has given up.
    pub fn discard(&mut self, call: CallId) {
        if self.call == call {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Zone, ZonePath};
    use crate::request::FileWrite;

    fn write(content: Vec<u8>) -> Request {
        Request::FileWrite(FileWrite {
            path: ZonePath::root(Zone::Project),
            content,
            overwrite: true,
            expected_sha256: None,
        })
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn split_content_joins_to_the_same_request() {
        for length in [0, limit::CONTENT, limit::CONTENT + 1, limit::WRITE] {
            let whole = write(content(length));
            let mut rest = whole.clone();
            let pieces = split(&mut rest).unwrap();
            assert_eq!(pieces.is_empty(), length <= limit::CONTENT);
            let mut received = Pieces::default();
            for piece in &pieces {
                received.add(3, piece).unwrap();
            }
            assert!(received.join(3, rest).unwrap() == whole, "{length}");
            assert!(received.bytes.is_empty());
        }
        assert!(split(&mut write(content(limit::WRITE + 1))).is_err());
    }

    #[test]
    fn pieces_are_bounded_and_belong_to_one_call() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.add(1, &[]), Err(ContentError::Piece(0)));
        let long = vec![0; limit::PIECE + 1];
        assert_eq!(pieces.add(1, &long), Err(ContentError::Piece(long.len())));
        for piece in content(limit::WRITE).chunks(limit::PIECE) {
            pieces.add(1, piece).unwrap();
        }
        assert_eq!(pieces.add(1, &[0]), Err(ContentError::TooLarge));
        assert_eq!(pieces.add(2, &[0]), Err(ContentError::Incomplete(1)));
        let other = pieces.join(2, Request::BackgroundList);
        assert_eq!(other, Err(ContentError::Incomplete(1)));
        let no_write = pieces.join(1, Request::BackgroundList);
        assert_eq!(no_write, Err(ContentError::Unexpected(1)));
        let own = pieces.join(1, write(vec![1]));
        assert_eq!(own, Err(ContentError::Unexpected(1)));
        pieces.discard(2);
        assert_eq!(pieces.add(2, &[0]), Err(ContentError::Incomplete(1)));
        pieces.discard(1);
        assert_eq!(pieces.add(2, &[0]), Ok(()));
    }
}
