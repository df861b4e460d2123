//! Messages between the broker and a session's warden: requests of one byte; replies of a tag, with descriptors or a reason.

use crate::error::{Privilege, SetupError, SetupPart};
use std::io;
use std::os::fd::OwnedFd;

/// Requests of the broker to the warden, one byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WardenRequest {
    Cell = b'c',
    Terminal = b't',
    /// A cell with leases of paths. With descriptors: see `LeaseHandover` of `executor-leases`.
    LeasedCell = b'l',
}

/// Messages of the warden.
#[derive(Debug)]
pub enum WardenMessage {
    /// The session's layers are in force. With descriptors of its namespaces and, last, of the undo directory if there is one.
    Ready(Vec<OwnedFd>),
    /// The sockets of the session's relay, for the client; sent before the session is ready.
    Relay(Vec<OwnedFd>),
    /// A cell: its socket, and the pidfd of its first process.
    Cell(OwnedFd, OwnedFd),
    /// A cell with leases: the same two descriptors.
    LeasedCell(OwnedFd, OwnedFd),
    /// A terminal: its master and its slave.
    Terminal(OwnedFd, OwnedFd),
    /// The requested object arrived, but this process could not receive its descriptors.
    Lost(WardenRequest),
    /// A step failed. The session is over.
    Failed {
        /// The part that the message belongs to.
        part: SetupPart,
        errno: i32,
        /// The privilege that the machine denies this user, if that is the cause.
        refused: Option<Privilege>,
        /// The step that failed, for people. Bounded, and displayed only escaped.
        step: String,
    },
}

/// Tag of [`WardenMessage::Ready`].
pub const READY: u8 = b'r';
/// Tag of [`WardenMessage::Relay`].
pub const RELAY: u8 = b'n';
/// Tag of [`WardenMessage::Failed`].
pub(crate) const FAILED: u8 = b'f';
/// In the place of a privilege's index: none was refused.
const NOT_REFUSED: u8 = u8::MAX;
/// Maximum bytes of a warden's message.
pub const MESSAGE_MAX: usize = 512;

impl WardenMessage {
    /// Encodes that a step of setting up the session failed.
    pub fn encode_failure(error: &SetupError) -> Vec<u8> {
        let refused = |refused| {
            Privilege::ALL
                .iter()
                .position(|privilege| *privilege == refused)
        };
        let refused = error
            .refused
            .and_then(refused)
            .map_or(NOT_REFUSED, |index| index as u8);
        let mut bytes = vec![FAILED, error.part.number(), refused];
        bytes.extend_from_slice(&error.source.raw_os_error().unwrap_or(0).to_le_bytes());
        let text = match error.source.raw_os_error() {
            Some(_) => error.step.clone(),
            None => format!("{}: {}", error.step, error.source),
        };
        bytes.extend(text.bytes().take(MESSAGE_MAX - bytes.len()));
        bytes
    }

    /// Decodes a message with its descriptors.
    ///
    /// # Errors
    /// `UnexpectedEof` if it is empty, `InvalidData` if it is not a warden's.
    pub fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let two = |fds| <[OwnedFd; 2]>::try_from(fds).map_err(|_: Vec<OwnedFd>| invalid());
        match bytes {
            [] => Err(io::ErrorKind::UnexpectedEof.into()),
            [READY] => Ok(Self::Ready(fds)),
            [RELAY] => Ok(Self::Relay(fds)),
            [b'c'] => two(fds).map(|[socket, pidfd]| Self::Cell(socket, pidfd)),
            [b'l'] => two(fds).map(|[socket, pidfd]| Self::LeasedCell(socket, pidfd)),
            [b't'] => two(fds).map(|[master, slave]| Self::Terminal(master, slave)),
            [FAILED, part, refused, e0, e1, e2, e3, step @ ..] => Ok(Self::Failed {
                part: SetupPart::of_number(*part).ok_or_else(invalid)?,
                errno: i32::from_le_bytes([*e0, *e1, *e2, *e3]),
                refused: Privilege::ALL.get(usize::from(*refused)).copied(),
                step: String::from_utf8_lossy(step).into_owned(),
            }),
            _ => Err(invalid()),
        }
    }
}
