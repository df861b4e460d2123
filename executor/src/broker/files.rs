//! The way to the file worker and back: one call at a time, answers passed on unread.

use super::connection::set_nonblocking;
use crate::sys;
use crate::warden::worker::{CHUNK, LAST, MESSAGE_MAX, MORE, USAGE};
use crate::work::LOOK;
use broker_protocol::{CallId, Request, Usage, frame, limit};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of requests that may wait for the worker before the client is not listened to.
const WAITING_FULL: usize = 8 << 20;
/// How long one file call may take; the tools bound themselves well below it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who asked the file worker for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// A tool call.
    Call(CallId),
    /// An approver that looks at the file which a waiting call would change.
    Look {
        /// Which approver.
        approver: u64,
        /// Which call.
        call: CallId,
    },
}

impl Errand {
    /// The call it is for, as the worker knows it.
    fn call(self) -> CallId {
        match self {
            Errand::Call(call) => call,
            Errand::Look { .. } => LOOK,
        }
    }
}

/// The file worker and what waits for it.
#[derive(Debug, Default)]
pub struct Files {
    /// The session's id, as the audit has it.
    session: String,
    worker: Option<Process>,
    /// Whether the warden has been asked for a worker that has not come yet.
    asked: bool,
    waiting: VecDeque<(Errand, Vec<u8>)>,
    current: Option<Current>,
}

#[derive(Debug)]
struct Process {
    socket: OwnedFd,
    pidfd: OwnedFd,
}

/// The call that the worker has.
#[derive(Debug)]
struct Current {
    errand: Errand,
    request: Vec<u8>,
    sent: usize,
    answered: usize,
    deadline: Instant,
}

/// What came of a worker's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing yet.
    Nothing,
    /// A piece of an answer.
    Part(Errand, Vec<u8>),
    /// The last piece, and what the call used.
    Last(Errand, Vec<u8>, Usage),
    /// The worker is gone; what it was at, if anything, is lost.
    Gone(Option<Errand>),
}

impl Files {
    /// No worker yet, for the session with this id.
    pub fn new(session: String) -> Self {
        Self { session, ..Self::default() }
    }

    /// Queues a request.
    pub fn push(&mut self, errand: Errand, request: &Request) -> Result<(), frame::FrameError> {
        let mut bytes = errand.call().to_le_bytes().to_vec();
        bytes.extend(self.session.as_bytes());
        bytes.extend(frame::encode_whole(request)?);
        self.waiting.push_back((errand, bytes));
        self.advance();
        Ok(())
    }

    /// Whether enough waits for the worker.
    pub fn is_full(&self) -> bool {
        self.waiting.iter().map(|(_, request)| request.len()).sum::<usize>() > WAITING_FULL
    }

    /// Whether a worker is needed and has not been asked for. Counts as asking.
    pub fn ask(&mut self) -> bool {
        let ask = self.worker.is_none() && !self.asked && !self.waiting.is_empty();
        self.asked |= ask;
        ask
    }

    /// A worker has come.
    pub fn attach(&mut self, socket: OwnedFd, pidfd: OwnedFd) -> io::Result<()> {
        set_nonblocking(&socket)?;
        self.asked = false;
        self.worker = Some(Process { socket, pidfd });
        self.advance();
        Ok(())
    }

    /// The worker's socket, and whether it should also be waited for to take more.
    pub fn fd(&self) -> Option<(BorrowedFd<'_>, bool)> {
        let sending = self.current.as_ref().is_some_and(|current| current.sent < current.request.len());
        self.worker.as_ref().map(|worker| (worker.socket.as_fd(), sending))
    }

    /// When the current call has taken too long.
    pub fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.deadline)
    }

    /// Gives up on `errand`: returns true if it was here. A worker at work on it is ended; the next one gets a new one.
    pub fn cancel(&mut self, errand: Errand) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != errand);
        if self.waiting.len() < before {
            return true;
        }
        let current = self.current.take_if(|current| current.errand == errand).is_some();
        if current {
            self.end_worker();
        }
        current
    }

    /// Gives up on the current errand if its time is over.
    pub fn tick(&mut self, now: Instant) -> Option<Errand> {
        let late = self.current.as_ref().filter(|current| current.deadline <= now)?.errand;
        self.cancel(late).then_some(late)
    }

    /// Waits until the worker is done with the call it has, at most `patience`: a write that is under way ends whole.
    pub fn settle(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut buffer = Vec::new();
        while self.current.is_some() && Instant::now() < until {
            let Some((fd, _)) = self.fd() else { return };
            let mut ready = [PollFd::new(fd, PollFlags::POLLIN)];
            let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now()));
            if poll(&mut ready, left.unwrap_or(PollTimeout::ZERO)).is_err() {
                return;
            }
            self.hear(&mut buffer);
        }
    }

    fn end_worker(&mut self) {
        if let Some(worker) = self.worker.take() {
            // It is gone already if this fails.
            let _ = sys::pidfd_signal(worker.pidfd.as_fd(), libc::SIGKILL);
        }
    }

    /// Sends what the worker takes now.
    pub fn advance(&mut self) {
        let Some(worker) = &self.worker else { return };
        if self.current.is_none() {
            let Some((errand, request)) = self.waiting.pop_front() else { return };
            let deadline = Instant::now() + PATIENCE;
            self.current = Some(Current { errand, request, sent: 0, answered: 0, deadline });
        }
        let Some(current) = &mut self.current else { return };
        while current.sent < current.request.len() {
            let rest = &current.request[current.sent..];
            let chunk = &rest[..rest.len().min(CHUNK)];
            let mut message = vec![if chunk.len() == rest.len() { LAST } else { MORE }];
            message.extend_from_slice(chunk);
            // A worker that is gone is met when its socket is read.
            if sys::send(worker.socket.as_fd(), &message, &[]).is_err() {
                return;
            }
            current.sent += chunk.len();
        }
    }

    /// Receives one message. Nothing in it is parsed: it is bounded, and joined to its call.
    pub fn hear(&mut self, buffer: &mut Vec<u8>) -> Heard {
        let Some(worker) = &self.worker else { return Heard::Nothing };
        buffer.resize(MESSAGE_MAX, 0);
        let length = match sys::receive(worker.socket.as_fd(), buffer, libc::MSG_DONTWAIT) {
            Ok((length, _)) if length > 0 => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
            _ => return self.gone(),
        };
        let Some(current) = &mut self.current else { return self.gone() };
        let errand = current.errand;
        let (part, usage) = match &buffer[..length] {
            [MORE, part @ ..] => (part, None),
            [LAST, rest @ ..] if rest.len() >= USAGE => (&rest[USAGE..], Some(usage(rest))),
            _ => return self.gone(),
        };
        current.answered += part.len();
        if current.answered > limit::ANSWER {
            return self.gone();
        }
        let part = part.to_vec();
        let Some(usage) = usage else { return Heard::Part(errand, part) };
        let usage = Usage { stdout_bytes: current.answered as u64, ..usage };
        self.current = None;
        Heard::Last(errand, part, usage)
    }

    fn gone(&mut self) -> Heard {
        self.end_worker();
        Heard::Gone(self.current.take().map(|current| current.errand))
    }
}

/// The fixed figures at the start of a last message, which is long enough.
fn usage(bytes: &[u8]) -> Usage {
    let number = |i: usize| bytes[8 * i..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Usage { user_us: number(0), system_us: number(1), peak_kib: number(2), ..Usage::default() }
}
