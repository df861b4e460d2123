//! The broker's connection to a client, an approver or a gateway: frames in both directions, both bounded.

use broker_protocol::{Decoder, FrameError, encode};
use executor_sys::{fd, message};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, recv, send, sendmsg, shutdown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes queued for a slow client at which the broker stops taking more from any source.
const QUEUE_FULL: usize = 512 * 1024;
const READ: usize = 64 * 1024;

#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    decoder: Decoder,
    buffer: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    /// Descriptors to send, in order, each with the offset in `out` of the byte they are sent with.
    attached: VecDeque<(usize, Vec<OwnedFd>)>,
    expected: Expected,
}

/// Kinds of content that a peer may send.
#[derive(Debug)]
enum Expected {
    Bytes,
    /// One descriptor, which may have come.
    Descriptor(Option<OwnedFd>),
}

impl Connection {
    /// Takes over a connected stream socket.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        fd::set_nonblocking(&socket)?;
        let decoder = Decoder::new();
        Ok(Self {
            socket,
            decoder,
            buffer: Vec::new(),
            out: Vec::new(),
            sent: 0,
            attached: VecDeque::new(),
            expected: Expected::Bytes,
        })
    }

    /// Takes a descriptor with what is read from now on.
    pub fn expect_descriptor(&mut self) {
        self.expected = Expected::Descriptor(None);
    }

    /// The descriptor that has come since [`Connection::expect_descriptor`]. No more is taken.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        match std::mem::replace(&mut self.expected, Expected::Bytes) {
            Expected::Bytes => None,
            Expected::Descriptor(came) => came,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether there is output to send.
    pub fn has_output(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Whether so much is queued that no more should be produced.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Bytes that may be queued before it is full.
    pub fn room(&self) -> usize {
        QUEUE_FULL.saturating_sub(self.waiting())
    }

    /// Bytes queued to be sent.
    pub fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Bytes received of an incomplete frame.
    pub fn pending(&self) -> usize {
        self.decoder.pending()
    }

    /// Sends nothing any more: the peer reads to the end of what was sent.
    pub fn shut_output(&self) -> io::Result<()> {
        Ok(shutdown(self.socket.as_raw_fd(), Shutdown::Write)?)
    }

    /// Reads what has arrived; false when the peer has closed the connection.
    pub fn read(&mut self) -> io::Result<bool> {
        Ok(self.read_once()? != Some(0))
    }

    /// Reads once: how many bytes have arrived, none when the peer has closed the connection; `None` if there is nothing now.
    pub(crate) fn read_once(&mut self) -> io::Result<Option<usize>> {
        self.buffer.resize(READ, 0);
        let read = match &mut self.expected {
            Expected::Bytes => recv(
                self.socket.as_raw_fd(),
                &mut self.buffer,
                MsgFlags::MSG_DONTWAIT,
            )
            .map_err(io::Error::from),
            Expected::Descriptor(came) => message::receive(self.socket.as_fd(), &mut self.buffer)
                .map(|(length, descriptors)| {
                    *came = came.take().or(descriptors.into_iter().next());
                    length
                }),
        };
        match read {
            Ok(length) => {
                self.decoder.push(&self.buffer[..length]);
                Ok(Some(length))
            }
            Err(error) if is_for_later(error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the next complete frame.
    pub fn next_frame<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        self.decoder.next()
    }

    /// Queues a frame. A frame over the limit is a bug of ours.
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        encode(message, &mut self.out)
    }

    /// Sends descriptors with the next frame, which must follow; with none, nothing changes.
    pub(crate) fn attach(&mut self, descriptors: Vec<OwnedFd>) {
        if !descriptors.is_empty() {
            self.attached.push_back((self.out.len(), descriptors));
        }
    }

    /// Writes as much as the socket accepts now.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.has_output() {
            match self.write() {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.drain(..self.sent);
        for (at, _) in &mut self.attached {
            *at -= self.sent;
        }
        self.sent = 0;
        if self.out.is_empty() {
            self.out.shrink_to(READ);
        }
        Ok(())
    }

    /// Writes once: up to the byte that carries descriptors, or from there on with them.
    fn write(&mut self) -> io::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let next = |place: usize| {
            self.attached
                .get(place)
                .map_or(self.out.len(), |(at, _)| *at)
        };
        let end = match self.attached.front() {
            Some((at, descriptors)) if *at == self.sent => {
                let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
                let (parts, rights) = (
                    [io::IoSlice::new(&self.out[self.sent..next(1)])],
                    [ControlMessage::ScmRights(&raw)],
                );
                let length = sendmsg::<()>(self.socket.as_raw_fd(), &parts, &rights, flags, None)?;
                self.attached.pop_front();
                return Ok(length);
            }
            Some(_) | None => next(0),
        };
        Ok(send(
            self.socket.as_raw_fd(),
            &self.out[self.sent..end],
            flags,
        )?)
    }

    /// Sends everything queued before the connection ends; blocks for at most `timeout`.
    pub fn drain(&mut self, timeout: Duration) {
        let until = Instant::now() + timeout;
        while self.flush().is_ok() && self.has_output() {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            if left.is_zero()
                || poll(&mut [PollFd::new(self.fd(), PollFlags::POLLOUT)], timeout).is_err()
            {
                return;
            }
        }
    }
}

/// Whether the same may succeed when the socket is ready.
fn is_for_later(error: io::ErrorKind) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error)
}

/// `false` where a peer that has ended early is no fault; other errors stay.
///
/// # Errors
/// The error is of another kind.
pub fn unless_ended(error: io::Error) -> io::Result<bool> {
    let ends = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    if ends.contains(&error.kind()) {
        Ok(false)
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_is_taken_where_one_is_expected_and_only_there() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours.into()).unwrap();
        let (sent, mut other) = UnixStream::pair().unwrap();
        let send = |count: usize| {
            let descriptors = vec![sent.as_fd(); count];
            message::send(theirs.as_fd(), &[0], &descriptors).unwrap();
        };
        send(1);
        assert!(connection.read().unwrap());
        assert!(connection.take_descriptor().is_none(), "none was expected");
        connection.expect_descriptor();
        send(2);
        assert!(connection.read().unwrap());
        let taken = connection.take_descriptor().unwrap();
        nix::unistd::write(&taken, b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
        send(1);
        assert!(connection.read().unwrap());
        assert!(connection.take_descriptor().is_none(), "one is taken");
        connection.expect_descriptor();
        // More than a message may carry.
        send(20);
        assert!(connection.read().is_err());
    }

    #[test]
    fn a_peer_that_has_ended_before_it_has_read_is_no_fault() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours.into()).unwrap();
        connection.send(&1_u8).unwrap();
        connection.flush().unwrap();
        drop(theirs);
        let reset = connection.read().unwrap_err();
        assert!(!unless_ended(reset).unwrap());
        connection.send(&1_u8).unwrap();
        assert!(!unless_ended(connection.flush().unwrap_err()).unwrap());
        let mut null = std::fs::File::open("/").unwrap();
        let other = null.read(&mut [0]).unwrap_err();
        assert!(unless_ended(other).is_err());
    }
}
