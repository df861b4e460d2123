//! Why a request is not answered as its client wishes, and the words of each protocol for it.

use broker_protocol::{ErrorKind, Failed, PathError};
use hyper::StatusCode;
use thiserror::Error;

/// The kind of fault: the only part on which a decision depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    InvalidArgument,
    PermissionDenied,
    NotFound,
    Conflict,
    /// A body or an answer exceeds its limit.
    TooLarge,
    /// There is no room for another one now.
    Exhausted,
    DeadlineExceeded,
    FailedPrecondition,
    Unimplemented,
    Unavailable,
    Internal,
}

/// The answer to a request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub(crate) struct SandboxFault {
    pub kind: FaultKind,
    pub message: String,
}

impl SandboxFault {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The address is none of the protocol's.
    pub(crate) fn no_route() -> Self {
        Self::new(FaultKind::NotFound, "there is no such route")
    }

    /// The client requested something impossible.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultKind::InvalidArgument, message)
    }
}

impl FaultKind {
    /// The code in the body of a REST error: those that the protocol names, and gRPC's for the others.
    pub(crate) fn code(self) -> &'static str {
        match self {
            FaultKind::InvalidArgument | FaultKind::TooLarge => "INVALID_ARGUMENT",
            FaultKind::PermissionDenied => "PERMISSION_DENIED",
            FaultKind::NotFound => "NOT_FOUND",
            FaultKind::Conflict => "CONFLICT",
            FaultKind::Exhausted => "RESOURCE_EXHAUSTED",
            FaultKind::DeadlineExceeded => "DEADLINE_EXCEEDED",
            FaultKind::FailedPrecondition => "FAILED_PRECONDITION",
            FaultKind::Unimplemented => "UNIMPLEMENTED",
            FaultKind::Unavailable => "UNAVAILABLE",
            FaultKind::Internal => "INTERNAL",
        }
    }

    /// The status of an HTTP response.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            FaultKind::InvalidArgument => StatusCode::BAD_REQUEST,
            FaultKind::PermissionDenied => StatusCode::FORBIDDEN,
            FaultKind::NotFound => StatusCode::NOT_FOUND,
            FaultKind::Conflict => StatusCode::CONFLICT,
            FaultKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FaultKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            FaultKind::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            FaultKind::FailedPrecondition => StatusCode::PRECONDITION_FAILED,
            FaultKind::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            FaultKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            FaultKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The number of a gRPC status.
    pub(crate) fn grpc(self) -> u8 {
        match self {
            FaultKind::InvalidArgument => 3,
            FaultKind::DeadlineExceeded => 4,
            FaultKind::NotFound => 5,
            FaultKind::PermissionDenied => 7,
            FaultKind::TooLarge | FaultKind::Exhausted => 8,
            FaultKind::Conflict | FaultKind::FailedPrecondition => 9,
            FaultKind::Unimplemented => 12,
            FaultKind::Internal => 13,
            FaultKind::Unavailable => 14,
        }
    }
}

impl From<&Failed> for SandboxFault {
    fn from(failed: &Failed) -> Self {
        let kind = match failed.kind {
            ErrorKind::InvalidInput | ErrorKind::UnknownTool => FaultKind::InvalidArgument,
            ErrorKind::DeniedPolicy
            | ErrorKind::DeniedUser
            | ErrorKind::ApprovalTimeout
            | ErrorKind::Violation => FaultKind::PermissionDenied,
            ErrorKind::NotFound => FaultKind::NotFound,
            ErrorKind::Timeout | ErrorKind::IdleTimeout => FaultKind::DeadlineExceeded,
            ErrorKind::ResourceLimit => FaultKind::Exhausted,
            ErrorKind::Cancelled | ErrorKind::ExecutorLost => FaultKind::Unavailable,
            ErrorKind::Io | ErrorKind::ExitNonzero | ErrorKind::Protocol | ErrorKind::Internal => {
                FaultKind::Internal
            }
        };
        Self::new(kind, failed.message.as_str())
    }
}

impl From<PathError> for SandboxFault {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Outside(_) => Self::new(
                FaultKind::PermissionDenied,
                "the path leads out of the project",
            ),
            PathError::Nul | PathError::TooLong => Self::invalid(error.to_string()),
        }
    }
}
