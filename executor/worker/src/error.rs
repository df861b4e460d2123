//! All errors of file tools, and the one place where they become the protocol's [`Failed`].
//!
//! The kind is for programs, the message for people and models: what happened, why, and what to do.

use crate::bounds::{EDITED, HASHED, LINKS, SKIPPED};
use crate::zone_names::Intent;
use broker_protocol::{ErrorKind, Failed, TooLarge, Zone, ZonePath};
use std::io;
use thiserror::Error;

/// Why a request failed.
#[derive(Debug, Error)]
pub enum WorkError {
    /// It exceeds a limit of the protocol.
    #[error(transparent)]
    Request(#[from] TooLarge),
    /// It is not a request for the file worker.
    #[error("a command was sent to the file worker; commands run in cells")]
    Misdirected,
    /// Its path could not be opened, or must not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An edit does not match the file.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// A change cannot be undone.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// A pattern is invalid.
    #[error(transparent)]
    Pattern(#[from] SearchPatternError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why a path was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Nothing has this name, or a link on the way has no target.
    #[error("file not found: {path}")]
    NotFound { path: String },
    /// A link leads out of both zones, to a path that is not granted.
    #[error(
        "outside sandbox: {path} leads by a link to a place that is in neither the project nor the central root"
    )]
    Outside { path: String },
    /// A link leads to another place, on which the broker must decide.
    #[error("{path} leads by a link to {real}")]
    Elsewhere { path: String, real: ZonePath },
    /// The policy closes the requested name.
    #[error("{path} must not be {}: {why}", .intent.verb())]
    Closed {
        path: String,
        intent: Intent,
        why: String,
    },
    /// The policy closes the name to which a link leads.
    #[error("{path} leads by a link to {real}, which must not be {}: {why}", .intent.verb())]
    ClosedByLink {
        path: String,
        real: String,
        intent: Intent,
        why: String,
    },
    /// The root may not be written.
    #[error("the {} root is read-only in this session; {path} cannot be written", .zone.name())]
    ReadOnly { path: String, zone: Zone },
    /// It is not a regular file.
    #[error("{path} is {is}, not a regular file")]
    NotAFile { path: String, is: &'static str },
    /// It is a directory, and a file is needed.
    #[error("{path} is a directory, not a regular file; `file_list` lists what is in it")]
    ADirectory { path: String },
    /// It is not a directory.
    #[error("{path} is {is}, not a directory")]
    NotADirectory { path: String, is: &'static str },
    /// Links refer to each other without end.
    #[error("{path} goes through more than {LINKS} links")]
    Loop { path: String },
    /// A name became a link between two checks.
    #[error("{path} was replaced while it was opened; try again")]
    Moved { path: String },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why the requested lines cannot be returned.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file ends before them.
    #[error("line {first} is past the end of {path}, which has {}", counted(*.lines, "line"))]
    PastEnd {
        path: String,
        first: u64,
        lines: u64,
    },
    /// They are too far into the file.
    #[error(
        "line {first} of {path} lies behind more than {SKIPPED} bytes; look for it with grep, or cut the file with bash"
    )]
    TooFar { path: String, first: u64 },
}

/// Why a file was not written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// It exists, and was not to be replaced.
    #[error("{path} exists; write with overwrite, or choose another name")]
    Exists { path: String },
    /// The session has not read its content.
    #[error(
        "{path} has not been read in this session; read it first: its content may be unexpected"
    )]
    Unread { path: String },
    /// It differs from what the session has read or written.
    #[error("{path} was modified since the last read; read it again")]
    Modified { path: String },
    /// It differs from what the caller expects, or has changed at this moment.
    #[error("{path} has changed since it was read; read it again")]
    Changed { path: String },
    /// It is too large for a comparison with a digest.
    #[error(
        "{path} has more than {HASHED} bytes and is not compared with a digest; write without one"
    )]
    TooLarge { path: String },
    /// Its permissions do not allow changing it.
    #[error("{path} is not writable by its permissions; to replace it, change them first")]
    Unwritable { path: String },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why an edit does not match the file. Edits are counted from 1.
#[derive(Debug, Error)]
pub enum EditError {
    /// The text does not occur in the file.
    #[error(
        "edit {edit}: the text is not found in {path}; read the file again and copy the text exactly"
    )]
    Missing { edit: usize, path: String },
    /// The text occurs more than once.
    #[error(
        "edit {edit}: the text occurs {found} times in {path}; include more of the text around it, name the line of one, or replace all"
    )]
    Ambiguous {
        edit: usize,
        path: String,
        found: usize,
    },
    /// The text does not occur as often as the edit states.
    #[error("edit {edit}: the text occurs {} in {path}, not {wanted}", counted(*.found as u64, "time"))]
    Count {
        edit: usize,
        path: String,
        found: usize,
        wanted: u32,
    },
    /// The file is too large, or would become too large.
    #[error("{path} has more than {EDITED} bytes, or would have; edit it with bash")]
    TooLarge { path: String },
}

/// Why a change cannot be undone.
#[derive(Debug, Error)]
pub enum UndoError {
    /// There is no such change.
    #[error(
        "there is no change {0}, or it is no longer kept; `lazaret history` lists the kept ones"
    )]
    Unknown(u64),
    /// It changed another file.
    #[error("change {change} was made to {path}")]
    Elsewhere { change: u64, path: String },
    /// The file has been changed since by others.
    #[error("{path} is no longer what change {change} left; look at it first, then force the undo")]
    Since { change: u64, path: String },
    /// There is nothing to undo.
    #[error("{path} is as it was before change {change} already")]
    Already { change: u64, path: String },
    /// The replaced content is missing, or was tampered with.
    #[error("what change {0} replaced is no longer kept")]
    Lost(u64),
}

/// Why a pattern is invalid.
#[derive(Debug, Error)]
pub enum SearchPatternError {
    #[error("the glob {pattern:?} is not valid: {why}")]
    Glob { pattern: String, why: String },
    /// Not a regular expression that can be searched for line by line.
    #[error("the regular expression is not valid: {why}")]
    Regex { why: String },
}

/// A system call failed.
#[derive(Debug, Error)]
#[error("cannot {doing} {path}: {error}")]
pub struct SystemError {
    doing: &'static str,
    path: String,
    /// The error of the system call; part of the message, so no source.
    error: io::Error,
}

impl SystemError {
    /// `error`, which occurred while `doing` something to `path`.
    pub fn new(doing: &'static str, path: impl ToString, error: impl Into<io::Error>) -> Self {
        Self {
            doing,
            path: path.to_string(),
            error: error.into(),
        }
    }
}

impl From<WorkError> for Failed {
    fn from(error: WorkError) -> Self {
        Failed {
            kind: error.kind(),
            message: error.to_string(),
        }
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
            OpenError::Outside { .. } => ErrorKind::Violation,
            OpenError::Elsewhere { .. }
            | OpenError::Closed { .. }
            | OpenError::ClosedByLink { .. }
            | OpenError::ReadOnly { .. } => ErrorKind::DeniedPolicy,
            OpenError::NotAFile { .. }
            | OpenError::ADirectory { .. }
            | OpenError::NotADirectory { .. } => ErrorKind::InvalidInput,
            OpenError::Loop { .. } | OpenError::Moved { .. } | OpenError::System(_) => {
                ErrorKind::Io
            }
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
    /// The verb for it in messages.
    pub fn verb(self) -> &'static str {
        match self {
            Intent::Read => "read",
            Intent::Write => "written",
        }
    }
}

/// `1 line`, `2 lines`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
