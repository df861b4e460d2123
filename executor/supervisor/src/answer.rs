//! How a call is answered: now, or when another process has done its part. Nothing here blocks:
//! what would block is retried until it succeeds or the caller is gone.

use crate::object::by_descriptor;
use crate::tcp::{SocketName, is_over};
use broker_protocol::AttemptKind;
use executor_sys::notify::OnExec;
use executor_sys::{file, message};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{UnixAddr, connect, getsockopt};
use nix::sys::stat::Mode;
use nix::unistd::pipe2;
use policies_guard::{Rule, Verdict};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How a call is answered.
pub enum SyscallAnswer {
    /// With the call's result.
    Value(i64),
    /// With a descriptor; the flag is close-on-exec.
    Descriptor(OwnedFd, OnExec),
    /// The same, for a descriptor that cannot be written to.
    Readable(OwnedFd, OnExec),
    Pending(Pending),
    /// The kernel continues the call: nothing is decided about it here.
    GoOn,
}

/// The error with which a refusal of ours is answered: the only place where it becomes one of the kernel's. Programs expect `EPERM` for
/// metadata; across file systems they copy.
pub(crate) fn errno_of(rule: Rule, kind: AttemptKind) -> Errno {
    if rule.leads_to_a_copy() {
        Errno::EXDEV
    } else if kind == AttemptKind::Metadata {
        Errno::EPERM
    } else {
        Errno::EACCES
    }
}

/// The same for a verdict, where nothing is noted for the result.
pub(crate) fn unnoted(verdict: Verdict, kind: AttemptKind) -> Result<()> {
    match verdict {
        Verdict::Allow => Ok(()),
        Verdict::Refuse(rule) => Err(errno_of(rule, kind)),
    }
}

fn open_nonblocking(object: &OwnedFd, flags: OFlag) -> Result<OwnedFd> {
    let flags = flags | OFlag::O_NONBLOCK;
    open(by_descriptor(object).as_str(), flags, Mode::empty())
}

/// A call that waits for another process.
pub enum Pending {
    /// The reading end of a FIFO, until there is a writer.
    Reader {
        fd: OwnedFd,
        /// The status flags that the caller requested.
        flags: OFlag,
        on_exec: OnExec,
    },
    /// The writing end of a FIFO, until there is a reader.
    Writer {
        object: OwnedFd,
        /// The status flags that the caller requested.
        flags: OFlag,
        on_exec: OnExec,
    },
    /// A Unix socket, until the listener's queue has room.
    Connection {
        socket: OwnedFd,
        /// The socket file to which `address` refers.
        object: OwnedFd,
        address: UnixAddr,
    },
    /// A TCP socket, until its handshake is over.
    Handshake(OwnedFd),
    Elsewhere(Elsewhere),
}

/// A TCP socket that the supervisor of another cell connects.
pub struct Elsewhere {
    socket: OwnedFd,
    /// Where the other supervisor's result arrives.
    result: OwnedFd,
    /// The address that the program has named.
    name: SocketName,
    /// Whether the caller waits for the handshake too.
    waits: bool,
    until: Instant,
}

impl Elsewhere {
    pub fn begin(socket: OwnedFd, result: OwnedFd, name: SocketName) -> Result<SyscallAnswer> {
        /// How long the other supervisor may take, which may be answering calls of its own.
        const TIMEOUT: Duration = Duration::from_secs(2);
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        Self {
            socket,
            result,
            name,
            waits: !flags.contains(OFlag::O_NONBLOCK),
            until: Instant::now() + TIMEOUT,
        }
        .retry()
    }

    fn retry(self) -> Result<SyscallAnswer> {
        let mut errno = [0; 4];
        match message::receive(self.result.as_fd(), &mut errno) {
            Ok((4, _)) => match i32::from_le_bytes(errno) {
                0 => Ok(SyscallAnswer::Value(0)),
                libc::EINPROGRESS | libc::EALREADY if self.waits => Pending::handshake(self.socket),
                errno => Err(Errno::from_raw(errno)),
            },
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < self.until =>
            {
                Ok(SyscallAnswer::Pending(Pending::Elsewhere(self)))
            }
            // Nobody listens there any more.
            Ok(_) | Err(_) => Err(Errno::ECONNREFUSED),
        }
    }
}

impl Pending {
    /// The address of the session's loopback to which it connects, where another cell decides.
    pub fn loopback(&self) -> Option<SocketName> {
        match self {
            Pending::Elsewhere(elsewhere) => Some(elsewhere.name),
            Pending::Reader { .. }
            | Pending::Writer { .. }
            | Pending::Connection { .. }
            | Pending::Handshake(_) => None,
        }
    }

    /// Opens a FIFO, and waits for its other end.
    pub fn fifo(object: OwnedFd, flags: OFlag, on_exec: OnExec) -> Result<SyscallAnswer> {
        match flags & OFlag::O_ACCMODE {
            _ if flags.contains(OFlag::O_NONBLOCK) => Self::open_now(&object, flags, on_exec),
            OFlag::O_WRONLY => Pending::Writer {
                object,
                flags,
                on_exec,
            }
            .retry(),
            OFlag::O_RDONLY => Pending::reader(open_nonblocking(&object, flags)?, flags, on_exec),
            _ => Self::open_now(&object, flags, on_exec),
        }
    }

    /// Opens a FIFO, whoever has its other end.
    pub fn open_now(object: &OwnedFd, flags: OFlag, on_exec: OnExec) -> Result<SyscallAnswer> {
        let fd = open_nonblocking(object, flags)?;
        set_flags(&fd, flags)?;
        Ok(SyscallAnswer::Descriptor(fd, on_exec))
    }

    /// The reading end of a FIFO with a name, not waiting yet.
    pub fn reader(fd: OwnedFd, flags: OFlag, on_exec: OnExec) -> Result<SyscallAnswer> {
        if flags.contains(OFlag::O_NONBLOCK) {
            return Ok(SyscallAnswer::Descriptor(fd, on_exec));
        }
        Pending::Reader { fd, flags, on_exec }.retry()
    }

    /// Connects a socket of the caller.
    pub fn connect(socket: OwnedFd, object: OwnedFd, address: UnixAddr) -> Result<SyscallAnswer> {
        Pending::Connection {
            socket,
            object,
            address,
        }
        .retry()
    }

    /// Waits until the connection that a socket of the caller has begun is established.
    pub fn handshake(socket: OwnedFd) -> Result<SyscallAnswer> {
        Pending::Handshake(socket).retry()
    }

    pub fn retry(self) -> Result<SyscallAnswer> {
        match self {
            Pending::Reader { fd, flags, on_exec } => {
                if !has_writer(&fd)? {
                    return Ok(SyscallAnswer::Pending(Pending::Reader {
                        fd,
                        flags,
                        on_exec,
                    }));
                }
                set_flags(&fd, flags)?;
                Ok(SyscallAnswer::Descriptor(fd, on_exec))
            }
            Pending::Writer {
                object,
                flags,
                on_exec,
            } => match open_nonblocking(&object, flags) {
                Err(Errno::ENXIO) => Ok(SyscallAnswer::Pending(Pending::Writer {
                    object,
                    flags,
                    on_exec,
                })),
                opened => {
                    let fd = opened?;
                    set_flags(&fd, flags)?;
                    Ok(SyscallAnswer::Descriptor(fd, on_exec))
                }
            },
            Pending::Elsewhere(elsewhere) => elsewhere.retry(),
            Pending::Handshake(socket) if !is_over(&socket) => {
                Ok(SyscallAnswer::Pending(Pending::Handshake(socket)))
            }
            Pending::Handshake(socket) => match getsockopt(&socket, SocketError)? {
                0 => Ok(SyscallAnswer::Value(0)),
                errno => Err(Errno::from_raw(errno)),
            },
            Pending::Connection {
                socket,
                object,
                address,
            } => connect_or_wait(socket, object, address),
        }
    }
}

/// Connects a socket to the server at `object`, or waits while that one's queue of connections is full.
fn connect_or_wait(socket: OwnedFd, object: OwnedFd, address: UnixAddr) -> Result<SyscallAnswer> {
    let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
    let waits = !flags.contains(OFlag::O_NONBLOCK);
    if waits {
        set_flags(&socket, flags | OFlag::O_NONBLOCK)?;
    }
    let connected = connect(socket.as_raw_fd(), &address);
    if waits {
        set_flags(&socket, flags)?;
    }
    match connected {
        Err(Errno::EAGAIN) if waits => Ok(SyscallAnswer::Pending(Pending::Connection {
            socket,
            object,
            address,
        })),
        connected => connected.map(|()| SyscallAnswer::Value(0)),
    }
}

/// Whether a FIFO has a writer, or has had one since it was opened. Consumes no byte: `tee` copies.
fn has_writer(fd: &OwnedFd) -> Result<bool> {
    let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    if poll(&mut ready, PollTimeout::ZERO)? > 0 {
        return Ok(true);
    }
    let (_out, into) = pipe2(OFlag::O_CLOEXEC)?;
    // Zero bytes mean that there is no writer (end of file); EAGAIN means that there is no data yet.
    Ok(!matches!(file::tee(fd.as_fd(), into.as_fd()), Ok(0)))
}

/// Sets the status flags that the caller requested on a descriptor.
pub(crate) fn set_flags(fd: &OwnedFd, flags: OFlag) -> Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(flags)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_answered_as_programs_expect() {
        for (rule, kind, errno) in [
            (Rule::Name, AttemptKind::Write, Errno::EACCES),
            (Rule::Outside, AttemptKind::Read, Errno::EACCES),
            (Rule::Outside, AttemptKind::Metadata, Errno::EPERM),
            (Rule::SecondName, AttemptKind::Write, Errno::EXDEV),
            (Rule::OtherArea, AttemptKind::Write, Errno::EXDEV),
        ] {
            assert_eq!(errno_of(rule, kind), errno, "{rule:?}");
            assert_eq!(unnoted(Verdict::Refuse(rule), kind), Err(errno), "{rule:?}");
        }
        assert_eq!(unnoted(Verdict::Allow, AttemptKind::Write), Ok(()));
    }
}
