//! A connection to the session bus, and calls over it.

use crate::bus_socket::{BusSocket, RECEIVED_MAX};
use crate::error::KeyringError;
use nix::unistd::Uid;
use serde::Serialize;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::sleep;
use zbus::connection::Builder;
use zbus::wire::DynamicDeserialize;
use zbus::{Connection, DBusError, DynamicType, Message};

/// The bus itself, as a destination and as a sender.
pub(crate) const BUS: &str = "org.freedesktop.DBus";
/// How long to wait when a bus is too busy to accept a connection.
const PAUSE: Duration = Duration::from_millis(20);

/// An object of a process on the bus.
pub(crate) struct BusObject<'a> {
    /// The unique name of its process, which no other process can take.
    pub(crate) owner: &'a str,
    pub path: &'a str,
    pub(crate) interface: &'a str,
}

/// Connects to the first of `places` where somebody listens, and authenticates; `None` if nobody listens. The library gets a
/// socket, not an address: with an address it would do more than we want.
pub(crate) async fn connect(places: &[PathBuf]) -> Result<Option<Connection>, KeyringError> {
    for place in places {
        let Some(stream) = reach(place).await? else {
            continue;
        };
        let peer = stream.peer_cred().map_err(io_error)?.uid();
        if !is_believed(peer, Uid::effective().as_raw()) {
            return Err(KeyringError::ForeignBus(peer));
        }
        return Builder::socket(BusSocket(stream))
            .build()
            .await
            .map(Some)
            .map_err(KeyringError::from);
    }
    Ok(None)
}

/// Whether a bus owned by `peer` may give us a key: ours, or root's, which can do anything anyway.
fn is_believed(peer: u32, ours: u32) -> bool {
    peer == ours || peer == 0
}

/// A connected socket; `None` if nobody listens.
async fn reach(place: &Path) -> Result<Option<UnixStream>, KeyringError> {
    loop {
        let error = match UnixStream::connect(place).await {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) => error.kind(),
        };
        match error {
            // A path that is too long for a socket has no listener.
            ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidInput => return Ok(None),
            // The connection queue of the bus is full.
            ErrorKind::WouldBlock | ErrorKind::Interrupted => sleep(PAUSE).await,
            kind => return Err(KeyringError::Io(kind)),
        }
    }
}

/// Calls a method. Accepts an answer only from the called process: the bus sets the sender, but the library compares only the
/// serial number of the call.
pub(crate) async fn call<T: for<'d> DynamicDeserialize<'d>>(
    connection: &Connection,
    to: &BusObject<'_>,
    member: &str,
    body: &(impl Serialize + DynamicType),
) -> Result<T, KeyringError> {
    let answer = connection
        .call_method(Some(to.owner), to.path, Some(to.interface), member, body)
        .await?;
    if !is_from(&answer, to.owner) {
        return Err(KeyringError::Malformed("an answer of another process"));
    }
    Ok(answer.body().deserialize()?)
}

fn is_from(message: &Message, owner: &str) -> bool {
    message
        .header()
        .sender()
        .is_some_and(|sender| sender.as_str() == owner)
}

fn io_error(error: io::Error) -> KeyringError {
    KeyringError::Io(error.kind())
}

/// The library's error may quote a message, so its text is left out.
impl From<zbus::Error> for KeyringError {
    fn from(error: zbus::Error) -> Self {
        match error {
            zbus::Error::MethodError(name, ..) => Self::of_name(&name),
            zbus::Error::FDO(error) => Self::of_name(&error.name()),
            zbus::Error::Handshake(_) => Self::Unauthenticated,
            zbus::Error::InputOutput(error) if error.kind() == ErrorKind::FileTooLarge => {
                Self::TooLarge {
                    what: "what the bus sends",
                    max: RECEIVED_MAX,
                }
            }
            zbus::Error::InputOutput(error) => Self::Io(error.kind()),
            _ => Self::Malformed("no message of the interface"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_of_another_user_is_not_believed() {
        assert!(is_believed(1000, 1000) && is_believed(0, 1000) && is_believed(0, 0));
        assert!(!is_believed(1001, 1000) && !is_believed(1000, 0));
    }
}
