//! A broker that is started before its client comes, for `lazaret warm`: it builds a sandbox for the session that is described to it,
//! waits for a client, and serves that one as every broker does.
//!
//! The line to the process that has started it carries one description, then octets, one a message: from there `c`, with a client's
//! connected socket, and `k`, to look whether the sandbox still is what would be built now; from here `r` it stands ready, `t` the
//! client was taken, `n` the client was not, `s` it still stands, `o` it was outdated, and `x` with a reason why none can stand ready.
//! The client hears one octet, before all else, when it is taken.

use crate::listen;
use crate::ready::StandingSandbox;
use crate::serve;
use crate::user::User;
use broker_protocol::{Open, frame};
use executor_peers::surroundings::Surroundings;
use executor_sys::idle::IdleTrim;
use executor_sys::message;
use nix::sys::socket::{MsgFlags, send};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Maximum bytes of a description. A longer request is not made ready.
const DESCRIPTION_MAX: usize = 64 << 10;
/// Maximum bytes of a reason.
const REASON_MAX: usize = 1024;

/// Serves the client that comes over `line`, if one does before that closes.
///
/// # Errors
/// The line breaks its rules, or the client's socket cannot be used.
pub(crate) fn serve(line: OwnedFd, user: User, surroundings: &Surroundings) -> io::Result<()> {
    listen::leave_callers_terminal()?;
    let mut description = vec![0; DESCRIPTION_MAX];
    let (length, _) = message::receive_waiting(line.as_fd(), &mut description)?;
    let request: Open = frame::decode_whole(&description[..length]).map_err(io::Error::other)?;
    let mut ready = match StandingSandbox::prepare(request, &user) {
        Ok(ready) => ready,
        Err(why) => {
            return say(&line, &reason(b'x', &why));
        }
    };
    say(&line, b"r")?;
    let mut idle = IdleTrim::default();
    loop {
        idle.wait_readable(&line);
        let mut order = [0];
        let (length, mut fds) = message::receive_waiting(line.as_fd(), &mut order)?;
        match (length, order, fds.pop()) {
            (0, ..) => return Ok(()),
            (1, [b'c'], Some(client)) => {
                listen::check_peer(&client)?;
                match surroundings.check_peer(client.as_fd()) {
                    Ok(()) if answer(&client) => {
                        // A client that was told so is served, also if nobody is left to hear it.
                        let _ = say(&line, b"t");
                        // The line closes with this process: so its starter hears of the end.
                        return serve::serve(client, user, Some(ready));
                    }
                    // It has left.
                    Ok(()) => say(&line, b"n")?,
                    Err(why) => say(&line, &reason(b'n', &why))?,
                }
            }
            (1, [b'k'], None) => match ready.still_holds(&user) {
                Ok(()) => say(&line, b"s")?,
                Err(_) => return say(&line, b"o"),
            },
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A message with a reason.
fn reason(octet: u8, why: &dyn std::error::Error) -> Vec<u8> {
    let mut message = vec![octet];
    message.extend(why.to_string().bytes().take(REASON_MAX));
    message
}

/// Tells the client that it is served. It is a new connection, so there is room.
fn answer(client: &OwnedFd) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    send(client.as_raw_fd(), b"y", flags) == Ok(1)
}

fn say(line: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    message::send_waiting(line.as_fd(), bytes, &[])
}
