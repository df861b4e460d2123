//! The way to the executor: started by us over a socket pair, or found at a socket of its own.
//!
//! What comes from there is held to the protocol: a message out of turn, or output beyond its window, ends the
//! connection. When this process ends, however it ends, the socket closes and the executor ends by itself.

mod start;
mod socket;
mod greeting;
mod connection;
mod approvals;

pub use approvals::{Approvals, Heard};
pub use connection::{Connection, Control};
pub use greeting::Greeting;

use broker_protocol::{ErrorKind, Failed, FrameError, HelloError};
use start::Door;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

/// Where the executor is.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A program to start; looked for beside our own if absent.
    Program(Option<PathBuf>),
    /// The socket of one that listens.
    Socket(PathBuf),
    /// One that was started before, and serves again.
    Door(Rc<Door>),
}

impl Endpoint {
    /// The same for more than one session: what has to be started is started now.
    pub fn lasting(self) -> Result<Self, ExecutorError> {
        match self {
            Self::Program(program) => Door::open(program.as_deref()).map(|door| Self::Door(Rc::new(door))),
            Self::Socket(_) | Self::Door(_) => Ok(self),
        }
    }

    /// The path of the socket, where it is reached by one.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::Socket(path) => Some(path),
            Self::Program(_) | Self::Door(_) => None,
        }
    }
}

/// Why there is no connection to an executor, or none any more.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// It is not where it should be.
    #[error(
        "lazaret-executor is not installed: looked for {tried}; say where it is with --executor or LAZARET_EXECUTOR"
    )]
    NotFound {
        /// The places.
        tried: String,
    },
    /// It cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// Its path.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its socket cannot be used.
    #[error("cannot use the socket {}: {why}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// It is not of our version, or something else.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// What it sent is not a message.
    #[error("the executor broke the protocol: {0}")]
    Frame(#[from] FrameError),
    /// What it sent has no place here.
    #[error("the executor broke the protocol: {0}")]
    Protocol(&'static str),
    /// It said why it ends the connection.
    #[error("{}", .0.message)]
    Fault(Failed),
    /// It is gone.
    #[error("the executor has ended unexpectedly; its reason, if it gave one, is on standard error")]
    Lost,
    /// It is there and says nothing.
    #[error("the executor has not answered within {0} s")]
    Silent(u64),
    /// The socket failed.
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
        Failed { kind, message: error.to_string() }
    }
}
