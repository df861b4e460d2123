//! Calls that wait for another process: the other end of a FIFO, or room in a listener's queue.
//!
//! Nothing here blocks: what would is tried again until it succeeds or its caller is gone.

use super::find::by_descriptor;
use super::open::unblock;
use super::tcp::is_over;
use super::{Answer, Result};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{UnixAddr, connect, getsockopt};
use nix::sys::stat::Mode;
use nix::unistd::pipe2;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A call that has been begun.
pub enum Waiting {
    /// The reading end of a FIFO, until somebody writes.
    Reader {
        /// The open end.
        fd: OwnedFd,
        /// Its flags, as the caller wants them.
        flags: OFlag,
        /// Whether the caller's is closed on exec.
        on_exec: bool,
    },
    /// The writing end of a FIFO, until somebody reads.
    Writer {
        /// The FIFO.
        object: OwnedFd,
        /// Flags, as the caller wants them.
        flags: OFlag,
        /// Whether the caller's is closed on exec.
        on_exec: bool,
    },
    /// A socket, until the listener has room.
    Connection {
        /// The caller's.
        socket: OwnedFd,
        /// The socket file, which `address` names.
        object: OwnedFd,
        /// Where to.
        address: UnixAddr,
    },
    /// A socket of TCP, until its handshake is over.
    Handshake(OwnedFd),
}

impl Waiting {
    /// Opens a FIFO. Only one with a `named` file waits for its other end.
    pub fn fifo(object: OwnedFd, flags: OFlag, on_exec: bool, named: bool) -> Result<Answer> {
        let waits = named && !flags.contains(OFlag::O_NONBLOCK);
        match flags & OFlag::O_ACCMODE {
            OFlag::O_WRONLY if waits => Waiting::Writer { object, flags, on_exec }.look(),
            access => {
                let path = by_descriptor(&object);
                let fd = open(path.as_str(), flags | OFlag::O_NONBLOCK, Mode::empty())?;
                if waits && access == OFlag::O_RDONLY {
                    return Waiting::Reader { fd, flags, on_exec }.look();
                }
                unblock(&fd, flags)?;
                Ok(Answer::Descriptor(fd, on_exec))
            }
        }
    }

    /// Connects a socket of the caller.
    pub fn connect(socket: OwnedFd, object: OwnedFd, address: UnixAddr) -> Result<Answer> {
        Waiting::Connection { socket, object, address }.look()
    }

    /// Waits for what a socket of the caller has begun.
    pub fn handshake(socket: OwnedFd) -> Result<Answer> {
        Waiting::Handshake(socket).look()
    }

    /// Tries once.
    pub fn look(self) -> Result<Answer> {
        match self {
            Waiting::Reader { fd, flags, on_exec } => {
                if !has_writer(&fd)? {
                    return Ok(Answer::Later(Waiting::Reader { fd, flags, on_exec }));
                }
                unblock(&fd, flags)?;
                Ok(Answer::Descriptor(fd, on_exec))
            }
            Waiting::Writer { object, flags, on_exec } => {
                match open(by_descriptor(&object).as_str(), flags | OFlag::O_NONBLOCK, Mode::empty()) {
                    Err(Errno::ENXIO) => Ok(Answer::Later(Waiting::Writer { object, flags, on_exec })),
                    opened => {
                        let fd = opened?;
                        unblock(&fd, flags)?;
                        Ok(Answer::Descriptor(fd, on_exec))
                    }
                }
            }
            Waiting::Handshake(socket) if !is_over(&socket) => Ok(Answer::Later(Waiting::Handshake(socket))),
            Waiting::Handshake(socket) => match getsockopt(&socket, SocketError)? {
                0 => Ok(Answer::Value(0)),
                errno => Err(Errno::from_raw(errno)),
            },
            Waiting::Connection { socket, object, address } => {
                let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
                let waits = !flags.contains(OFlag::O_NONBLOCK);
                if waits {
                    unblock(&socket, flags | OFlag::O_NONBLOCK)?;
                }
                let connected = connect(socket.as_raw_fd(), &address);
                if waits {
                    unblock(&socket, flags)?;
                }
                match connected {
                    Err(Errno::EAGAIN) if waits => {
                        Ok(Answer::Later(Waiting::Connection { socket, object, address }))
                    }
                    connected => connected.map(|()| Answer::Value(0)),
                }
            }
        }
    }
}

/// Whether a FIFO has, or since it was opened has had, a writer. Takes no byte out of it: `tee` copies.
fn has_writer(fd: &OwnedFd) -> Result<bool> {
    let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    if poll(&mut ready, PollTimeout::ZERO)? > 0 {
        return Ok(true);
    }
    let (_out, into) = pipe2(OFlag::O_CLOEXEC)?;
    // Nothing and no writer is the end of the file; nothing yet is EAGAIN.
    Ok(!matches!(sys::tee(fd.as_fd(), into.as_fd()), Ok(0)))
}
