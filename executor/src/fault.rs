//! Constructors of failures by kind: those of a connection, which end it, and those of a call.

use broker_protocol::{ErrorKind, Failed, Outcome, frame, limit};

/// The client broke the protocol.
pub(crate) fn protocol(message: impl Into<String>) -> Failed {
    Failed {
        kind: ErrorKind::Protocol,
        message: message.into(),
    }
}

/// The session cannot go on.
pub(crate) fn lost(message: &str) -> Failed {
    Failed {
        kind: ErrorKind::ExecutorLost,
        message: format!("the session cannot go on: {message}"),
    }
}

pub(crate) fn failed(kind: ErrorKind, message: impl Into<String>) -> Outcome {
    Outcome::Failed(Failed {
        kind,
        message: message.into(),
    })
}

/// Refuses frame data larger than a chunk.
pub(crate) fn check_chunk(bytes: &[u8], what: &str) -> Result<(), Failed> {
    let (got, max) = (bytes.len(), limit::CHUNK);
    if got <= max {
        return Ok(());
    }
    Err(protocol(format!(
        "{got} bytes of {what} in one frame, at most {max} are allowed"
    )))
}

/// The failure of a message that is too long for its frame: a bug of ours.
pub(crate) fn unencoded(error: frame::FrameError) -> Failed {
    Failed::internal(error.to_string())
}
