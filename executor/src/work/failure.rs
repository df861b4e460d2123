//! Every way in which a file tool fails, and the one place where that becomes the wire's [`Failed`].
//!
//! The kind is for programs, the message for people and models: what happened, why, what to do.

use super::Intent;
use super::beneath::OpenError;
use super::edit::EditError;
use super::glob::PatternError;
use super::read::ReadError;
use super::undo::UndoError;
use super::write::WriteError;
use broker_protocol::{ErrorKind, Failed, TooLarge};
use nix::errno::Errno;
use std::io;
use thiserror::Error;

/// Why a request was not done.
#[derive(Debug, Error)]
pub enum WorkError {
    /// It is over a limit of the protocol.
    #[error(transparent)]
    Request(#[from] TooLarge),
    /// It is not for the file worker.
    #[error("a command was sent to the file worker; commands run in cells")]
    Misdirected,
    /// Its path could not be opened, or must not be.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An edit does not fit the file.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// A change cannot be undone.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// A pattern is not one.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The system said no.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// A system call failed.
#[derive(Debug, Error)]
#[error("cannot {doing} {path}: {error}")]
pub struct SystemError {
    /// What was being done.
    doing: &'static str,
    /// To which path.
    path: String,
    /// What the system said; part of the message, so no source.
    error: io::Error,
}

impl SystemError {
    /// `error`, while `doing` something to `path`.
    pub(super) fn new(doing: &'static str, path: impl ToString, error: impl Into<io::Error>) -> Self {
        Self { doing, path: path.to_string(), error: error.into() }
    }
}

/// The system's number for an error of the standard library; `EIO` where it has none.
pub(super) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

impl From<WorkError> for Failed {
    fn from(error: WorkError) -> Self {
        Failed { kind: error.kind(), message: error.to_string() }
    }
}

impl WorkError {
    fn kind(&self) -> ErrorKind {
        match self {
            WorkError::Request(_) | WorkError::Pattern(_) => ErrorKind::InvalidInput,
            WorkError::Misdirected => ErrorKind::Internal,
            WorkError::Open(error) => error.kind(),
            WorkError::Read(ReadError::PastEnd { .. }) => ErrorKind::InvalidInput,
            WorkError::Read(ReadError::TooFar { .. }) => ErrorKind::ResourceLimit,
            WorkError::Write(error) => error.kind(),
            WorkError::Edit(EditError::TooLarge { .. }) => ErrorKind::ResourceLimit,
            WorkError::Edit(_) => ErrorKind::InvalidInput,
            WorkError::Undo(UndoError::Unknown(_) | UndoError::Lost(_)) => ErrorKind::NotFound,
            WorkError::Undo(_) => ErrorKind::InvalidInput,
            WorkError::System(_) => ErrorKind::Io,
        }
    }
}

impl OpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            OpenError::NotFound { .. } => ErrorKind::NotFound,
            OpenError::Outside { .. } | OpenError::ClosedByLink { .. } => ErrorKind::Violation,
            OpenError::Closed { .. } | OpenError::ReadOnly { .. } => ErrorKind::DeniedPolicy,
            OpenError::NotAFile { .. } | OpenError::NotADirectory { .. } => ErrorKind::InvalidInput,
            OpenError::Loop { .. } | OpenError::Moved { .. } | OpenError::System(_) => ErrorKind::Io,
        }
    }
}

impl WriteError {
    fn kind(&self) -> ErrorKind {
        match self {
            WriteError::Exists { .. }
            | WriteError::Unread { .. }
            | WriteError::Modified { .. }
            | WriteError::Changed { .. } => ErrorKind::InvalidInput,
            WriteError::TooLarge { .. } => ErrorKind::ResourceLimit,
            WriteError::Unwritable { .. } | WriteError::System(_) => ErrorKind::Io,
        }
    }
}

impl Intent {
    /// The word for it in messages.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Intent::Read => "read",
            Intent::Write => "written",
        }
    }
}

/// `1 line`, `2 lines`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
