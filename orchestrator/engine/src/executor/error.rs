//! Why there is no connection to an executor, or no longer one.

use broker_protocol::{ErrorKind, Failed, FrameError, HelloError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why there is no connection to an executor, or no longer one.
#[derive(Debug, Error)]
pub enum ExecutorError {
    #[error(
        "lazaret-executor is not installed: looked for {tried}; give its path with --executor or LAZARET_EXECUTOR"
    )]
    NotFound { tried: String },
    #[error("cannot start {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("cannot use the socket {}: {why}", path.display())]
    Socket { path: PathBuf, why: String },
    /// The peer has another version, or is no executor.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The peer sent bytes that are no message.
    #[error("the executor broke the protocol: {0}")]
    Frame(#[from] FrameError),
    /// The peer sent a message out of turn.
    #[error("the executor broke the protocol: {0}")]
    Protocol(&'static str),
    /// The executor ended the connection and gave this reason.
    #[error("{}", .0.message)]
    Fault(Failed),
    #[error(
        "the executor has ended unexpectedly; its reason, if it gave one, is on standard error"
    )]
    Lost,
    #[error(
        "the executor has not answered within {0} s. When a session opens it looks through both roots; thousands of files of secrets or \
         worktrees (`git worktree prune`), which a command may have made, take long. Remove them, or choose a smaller root with --project"
    )]
    Silent(u64),
    #[error("the connection to the executor failed: {0}")]
    Io(#[from] io::Error),
}

impl From<ExecutorError> for Failed {
    fn from(error: ExecutorError) -> Self {
        let kind = match error {
            ExecutorError::Fault(failed) => return failed,
            ExecutorError::Hello(_) | ExecutorError::Frame(_) | ExecutorError::Protocol(_) => {
                ErrorKind::Protocol
            }
            ExecutorError::NotFound { .. }
            | ExecutorError::Start { .. }
            | ExecutorError::Socket { .. }
            | ExecutorError::Silent(_)
            | ExecutorError::Lost
            | ExecutorError::Io(_) => ErrorKind::ExecutorLost,
        };
        Failed {
            kind,
            message: error.to_string(),
        }
    }
}
