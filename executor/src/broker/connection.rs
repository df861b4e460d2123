//! A client's or an approver's side of a broker: frames in, frames out, both bounded.

use broker_protocol::{Decoder, FrameError, encode};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{MsgFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that wait for a slow client before the broker stops taking more from anywhere.
const QUEUE_FULL: usize = 512 * 1024;
/// Bytes read at once.
const READ: usize = 64 * 1024;

/// The socket of a client, or of an approver.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    decoder: Decoder,
    buffer: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
}

impl Connection {
    /// Takes over a connected stream socket.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&socket)?;
        Ok(Self { socket, decoder: Decoder::new(), buffer: Vec::new(), out: Vec::new(), sent: 0 })
    }

    /// The socket, to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether something waits to be sent.
    pub fn has_output(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Whether so much waits that nothing more should be made.
    pub fn is_full(&self) -> bool {
        self.waiting() >= QUEUE_FULL
    }

    /// Bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Bytes of a frame that has not come whole.
    pub fn pending(&self) -> usize {
        self.decoder.pending()
    }

    /// Reads what has come; false when the client has closed.
    pub fn read(&mut self) -> io::Result<bool> {
        self.buffer.resize(READ, 0);
        let read = recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT);
        match read {
            Ok(0) => Ok(false),
            Ok(length) => {
                self.decoder.push(&self.buffer[..length]);
                Ok(true)
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The next whole frame.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        self.decoder.next()
    }

    /// Queues a frame. One that does not fit is our mistake; it is said in its place.
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        encode(message, &mut self.out)
    }

    /// Writes what the socket takes now.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.has_output() {
            match send(
                self.socket.as_raw_fd(),
                &self.out[self.sent..],
                MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            ) {
                Ok(length) => self.sent += length,
                Err(nix::errno::Errno::EAGAIN) => break,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.drain(..self.sent);
        self.sent = 0;
        if self.out.is_empty() {
            self.out.shrink_to(READ);
        }
        Ok(())
    }

    /// Waits until all is sent, at most `patience`: the last words before the connection ends.
    pub fn drain(&mut self, patience: std::time::Duration) {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let until = std::time::Instant::now() + patience;
        while self.flush().is_ok() && self.has_output() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            if left.is_zero() || poll(&mut [PollFd::new(self.fd(), PollFlags::POLLOUT)], timeout).is_err() {
                return;
            }
        }
    }
}

/// Makes reads and writes on `fd` return at once.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
