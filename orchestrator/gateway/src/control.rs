//! Frames from the broker, with their descriptors.

use broker_protocol::gateway::ToGateway;
use broker_protocol::{Decoder, FrameError, limit};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use thiserror::Error;

/// Most descriptors with one frame: the relay's four sockets, and two listeners for each published port.
const DESCRIPTORS_MAX: usize = 4 + 2 * limit::PUBLISHED;
const READ: usize = 64 * 1024;

/// Why nothing more can be heard from the broker.
#[derive(Debug, Error)]
pub enum ControlError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("the broker sent {0}")]
    OutOfTurn(&'static str),
}

/// A frame of the broker with the descriptors that it carries.
#[derive(Debug)]
pub(crate) struct ReceivedFrame {
    pub frame: ToGateway,
    pub descriptors: Vec<OwnedFd>,
}

/// The receiving side of the control socket.
pub(crate) struct ControlSocket {
    socket: UnixStream,
    decoder: Decoder,
    /// Descriptors of frames that are not complete yet. The kernel returns those of one message at a time.
    descriptors: VecDeque<Vec<OwnedFd>>,
    buffer: Vec<u8>,
}

impl ControlSocket {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            decoder: Decoder::new(),
            descriptors: VecDeque::new(),
            buffer: vec![0; READ],
        }
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The next complete frame of those received.
    ///
    /// # Errors
    /// It is no frame, or lacks its descriptors.
    pub(crate) fn frame(&mut self) -> Result<Option<ReceivedFrame>, ControlError> {
        let Some(frame) = self.decoder.next()? else {
            return Ok(None);
        };
        let descriptors = match &frame {
            // How many there have to be depends on whom it is for.
            ToGateway::Serve(_) => self.descriptors.pop_front().unwrap_or_default(),
            ToGateway::Value { .. } | ToGateway::Agent => self
                .descriptors
                .pop_front()
                .ok_or(ControlError::OutOfTurn("a frame without its descriptors"))?,
            ToGateway::Leases(_)
            | ToGateway::NoValue { .. }
            | ToGateway::NoAgent(_)
            | ToGateway::Answered { .. }
            | ToGateway::Recorded => Vec::new(),
        };
        Ok(Some(ReceivedFrame { frame, descriptors }))
    }

    /// Receives once; false if the broker is gone.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing, on a socket that does not block.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(self.socket.as_fd(), &mut parts, &mut control, flags) {
            Err(Errno::INTR) => return Ok(true),
            received => received?,
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(new) = message {
                descriptors.extend(new);
            }
        }
        if !descriptors.is_empty() {
            self.descriptors.push_back(descriptors);
        }
        self.decoder.push(&self.buffer[..received.bytes]);
        Ok(received.bytes > 0)
    }
}
