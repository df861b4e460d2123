//! The broker's side of a session's warden.

use executor_cell::run_warden;
use executor_layers::namespaces;
use executor_spec::sandbox::SandboxSpec;
use executor_spec::warden_message::{MESSAGE_MAX, WardenMessage, WardenRequest};
use executor_sys::message;
use executor_sys::process::{self, Child, Fork};
use nix::unistd::{getgid, getuid};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a warden may take for a request, which needs some milliseconds: one that does not answer is stopped.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of pending requests of one kind. More would fill the warden's socket, which holds about 280 messages.
const IN_FLIGHT_MAX: usize = 32;

#[derive(Debug)]
pub struct Warden {
    /// Readable when the warden has sent a message.
    pub socket: OwnedFd,
    pub child: Child,
    /// Pending requests, in order.
    open: VecDeque<WardenRequest>,
    /// The time from which the oldest of them counts as pending.
    open_since: Instant,
}

impl Warden {
    /// Starts a warden. It sends [`WardenMessage::Ready`], or why it failed, by itself.
    ///
    /// # Errors
    /// The kernel's (`clone`, with the flags of the session's namespaces).
    pub fn start(spec: &SandboxSpec) -> io::Result<Self> {
        let (ours, theirs) = message::pair()?;
        let (uid, gid) = (getuid(), getgid());
        match process::fork(namespaces::session_flags(spec.layers))? {
            Fork::Parent(child) => Ok(Self {
                socket: ours,
                child,
                open: VecDeque::new(),
                open_since: Instant::now(),
            }),
            Fork::Child => run_warden(spec, &theirs, uid, gid),
        }
    }

    /// Number of pending requests of this kind.
    pub fn in_flight(&self, request: WardenRequest) -> usize {
        self.open.iter().filter(|open| **open == request).count()
    }

    /// How many more requests of this kind may be sent now.
    pub fn room(&self, request: WardenRequest) -> usize {
        IN_FLIGHT_MAX.saturating_sub(self.in_flight(request))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The warden is gone, or its socket is full.
    pub fn request(&mut self, request: WardenRequest) -> io::Result<()> {
        if self.open.is_empty() {
            self.open_since = Instant::now();
        }
        self.open.push_back(request);
        message::send(self.socket.as_fd(), &[request as u8], &[])
    }

    /// Requests a cell with leases, with the descriptors of a handover to it.
    ///
    /// # Errors
    /// The warden is gone, or its socket is full.
    pub fn request_leased(&mut self, leases: [BorrowedFd; 2]) -> io::Result<()> {
        if self.open.is_empty() {
            self.open_since = Instant::now();
        }
        self.open.push_back(WardenRequest::LeasedCell);
        message::send(
            self.socket.as_fd(),
            &[WardenRequest::LeasedCell as u8],
            &leases,
        )
    }

    /// Kills the warden. As the first process of a session's PID namespace it takes the session with it.
    pub fn kill(&self) {
        // If this fails, it has already exited.
        let _ = process::pidfd_signal(self.child.pidfd.as_fd(), libc::SIGKILL);
    }

    /// Counts the time of pending requests from now on: their answers may have come long ago, when nobody read them.
    pub fn count_from_now(&mut self) {
        self.open_since = Instant::now();
    }

    /// When a pending request exceeds its time limit.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.open.is_empty()).then(|| self.open_since + TIMEOUT)
    }

    /// Waits for one of the warden's first messages.
    ///
    /// # Errors
    /// `UnexpectedEof` if the warden is gone, `InvalidData` if the message is not a warden's.
    pub fn next_message(&mut self) -> io::Result<WardenMessage> {
        let mut buffer = [0; MESSAGE_MAX];
        let mut receive = || message::receive_waiting(self.socket.as_fd(), &mut buffer);
        // A warden that fails leaves the request for the first cell unread. The kernel reports that once, before its message.
        let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        let received = receive();
        let (length, fds) = if received.as_ref().is_err_and(reset) {
            receive()
        } else {
            received
        }?;
        WardenMessage::decode(&buffer[..length], fds)
    }

    /// Receives a message without blocking.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; otherwise as for [`Self::next_message`].
    pub fn receive(&mut self) -> io::Result<WardenMessage> {
        let mut buffer = [0; MESSAGE_MAX];
        let received = message::receive(self.socket.as_fd(), &mut buffer);
        let received =
            received.and_then(|(length, fds)| WardenMessage::decode(&buffer[..length], fds));
        let too_many = |error: &io::Error| error.raw_os_error() == Some(libc::EMSGSIZE);
        let carried_out = match &received {
            Ok(message) => matches!(
                message,
                WardenMessage::Cell(..)
                    | WardenMessage::LeasedCell(..)
                    | WardenMessage::Terminal(..)
            ),
            Err(error) => too_many(error),
        };
        if !carried_out {
            return received;
        }
        self.open_since = Instant::now();
        match (self.open.pop_front(), received) {
            (Some(request), Err(_)) => Ok(WardenMessage::Lost(request)),
            (_, received) => received,
        }
    }
}
