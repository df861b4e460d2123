//! The broker's side of the file worker: one job at a time, answers passed on unparsed. The first job starts the worker.

use crate::authorise::{Granted, GrantedPreview, PreviewParts};
use crate::fault::failed;
use crate::poll::{ClientQueue, Token, Waited};
use crate::user::OwnProgram;
use broker_protocol::{Broken, CallId, ErrorKind, Outcome, Request, Usage, ZonePath, frame, limit};
use executor_layers::cgroup::Cgroup;
use executor_spec::worker::{
    CHUNK, ELSEWHERE, LAST, MESSAGE_MAX, MORE, STARTED, USAGE_LEN, WorkerContext, WorkerPurpose,
};
use executor_sys::process::{self, Child};
use executor_sys::{message, spawn};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes of requests queued for the worker at which no more are taken from the client.
const WAITING_FULL: usize = 8 << 20;
/// Time limit for one file call; the tools themselves stop well before it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A job for the file worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerJob {
    Call(CallId),
    /// Reads, for an approver or, without one, for the client, the file that a waiting call would change. `followed`: a link has already
    /// led elsewhere.
    Preview {
        approver: Option<u64>,
        call: CallId,
        followed: bool,
    },
}

impl WorkerJob {
    /// The purpose that the worker gets for this job.
    fn purpose(self) -> WorkerPurpose {
        match self {
            WorkerJob::Call(call) => WorkerPurpose::Call(call),
            WorkerJob::Preview { .. } => WorkerPurpose::Preview,
        }
    }
}

/// The result of a job, or part of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WorkerEvent {
    /// Part of an answer.
    Part(WorkerJob, Vec<u8>),
    Ended(WorkerJob, Box<Outcome>, Usage),
    /// Links on the path lead there. The worker did nothing: the broker decides again.
    Elsewhere(WorkerJob, ZonePath),
}

/// The parts that every worker of a session starts with.
#[derive(Debug)]
pub(crate) struct WorkerStart {
    pub program: Rc<OwnProgram>,
    /// A [`WorkerSpec`](executor_spec::worker::WorkerSpec), encoded for the worker.
    pub spec: Vec<u8>,
    /// Descriptors of the session's namespaces, of the undo directory, and of the memory of directories that calls have made.
    pub fds: Vec<OwnedFd>,
    /// Whether the started process forks the one that answers, a member of the session's PID namespace.
    pub forks: bool,
    pub cgroup: Option<Rc<Cgroup>>,
    /// The session's ID in the audit.
    pub session: String,
}

impl WorkerStart {
    fn start(&self) -> io::Result<WorkerProcess> {
        let (socket, theirs) = message::pair()?;
        let Child { pid, pidfd } =
            spawn::image(self.program.file()?, c"lazaret-worker", &[], theirs.as_fd())?;
        let process = WorkerProcess {
            socket,
            pidfd,
            spec_sent: 0,
            forks: self.forks,
        };
        // Before it has received any work.
        self.cgroup
            .as_ref()
            .map_or(Ok(()), |cgroup| cgroup.add(pid))?;
        Ok(process)
    }
}

/// The file worker and its queue.
#[derive(Debug)]
pub(crate) struct FileWorker {
    start: WorkerStart,
    worker: Option<WorkerProcess>,
    waiting: VecDeque<WaitingJob>,
    current: Option<CurrentJob>,
    events: Vec<WorkerEvent>,
}

#[derive(Debug)]
struct WorkerProcess {
    socket: OwnedFd,
    /// First of the process that was started, then of the one that answers.
    pidfd: OwnedFd,
    /// Bytes of the spec sent so far.
    spec_sent: usize,
    /// Whether the process that answers has not been forked yet.
    forks: bool,
}

/// The file that a lease opens to a call.
#[derive(Debug)]
pub(crate) struct LeasedTarget {
    pub path: ZonePath,
    pub file: OwnedFd,
}

/// A job that the worker has not begun.
#[derive(Debug)]
struct WaitingJob {
    job: WorkerJob,
    request: Vec<u8>,
    leased: Option<LeasedTarget>,
}

/// The job that the worker is processing.
#[derive(Debug)]
struct CurrentJob {
    job: WorkerJob,
    request: Vec<u8>,
    leased: Option<LeasedTarget>,
    sent: usize,
    answered: usize,
    deadline: Instant,
}

impl FileWorker {
    /// No worker is started yet.
    pub(crate) fn new(start: WorkerStart) -> Self {
        Self {
            start,
            worker: None,
            waiting: VecDeque::new(),
            current: None,
            events: Vec::new(),
        }
    }

    /// Queues a granted request whose links may lead to the places in `real`, and which may change `leased`.
    ///
    /// # Errors
    /// It is too large.
    pub(crate) fn submit(
        &mut self,
        granted: &Granted,
        real: &[ZonePath],
        leased: Option<LeasedTarget>,
    ) -> Result<(), frame::FrameError> {
        let job = WorkerJob::Call(granted.call());
        self.queue(job, granted.work(), real.to_vec(), leased)
    }

    /// Queues a preview.
    ///
    /// # Errors
    /// It is too large.
    pub(crate) fn preview(&mut self, preview: GrantedPreview) -> Result<(), frame::FrameError> {
        let PreviewParts {
            approver,
            call,
            read,
            real,
            followed,
        } = preview.into_parts();
        let job = WorkerJob::Preview {
            approver,
            call,
            followed,
        };
        self.queue(job, &read, real, None)
    }

    fn queue(
        &mut self,
        job: WorkerJob,
        request: &Request,
        permitted: Vec<ZonePath>,
        leased: Option<LeasedTarget>,
    ) -> Result<(), frame::FrameError> {
        let context = WorkerContext {
            session: self.start.session.clone(),
            purpose: job.purpose(),
            permitted,
            leased: leased.as_ref().map(|leased| leased.path.clone()),
        };
        let request = frame::encode_request(&(context, request))?;
        self.waiting.push_back(WaitingJob {
            job,
            request,
            leased,
        });
        self.advance();
        Ok(())
    }

    /// Whether enough waits for the worker.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting
            .iter()
            .map(|waiting| waiting.request.len())
            .sum::<usize>()
            > WAITING_FULL
    }

    /// Whether there are events since the last call of [`take_events`](Self::take_events).
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The events since the last call of this.
    pub(crate) fn take_events(&mut self) -> Vec<WorkerEvent> {
        std::mem::take(&mut self.events)
    }

    /// Adds the worker's socket: for reading unless the client's queue is full, for writing while something is unsent.
    pub(crate) fn wait_for<'s>(&'s self, waited: &mut Waited<'s>, client: ClientQueue) {
        let Some(worker) = &self.worker else { return };
        let unsent = self
            .current
            .as_ref()
            .is_some_and(|current| current.sent < current.request.len());
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, client == ClientQueue::HasRoom);
        flags.set(PollFlags::POLLOUT, unsent);
        waited.add(Token::Worker, worker.socket.as_fd(), flags);
    }

    /// When the current job exceeds its time limit.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.deadline)
    }

    /// Cancels `job`. If the worker is processing it, the worker is killed and the next job gets a new one.
    pub(crate) fn cancel(&mut self, job: WorkerJob) {
        self.waiting.retain(|waiting| waiting.job != job);
        if self.current.take_if(|current| current.job == job).is_some() {
            self.worker = None;
            self.advance();
        }
    }

    /// Cancels the current job if its time is over.
    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some(late) = self
            .current
            .as_ref()
            .filter(|current| current.deadline <= now)
            .map(|late| late.job)
        {
            let outcome = failed(
                ErrorKind::Timeout,
                "the file tool took too long and was ended",
            );
            self.events.push(WorkerEvent::Ended(
                late,
                Box::new(outcome),
                Usage::default(),
            ));
            self.cancel(late);
        }
    }

    /// Lets the worker finish its current job, for at most `timeout`, so that a running write completes.
    pub(crate) fn finish_current(&mut self, timeout: Duration) {
        let (until, mut buffer) = (Instant::now() + timeout, Vec::new());
        self.waiting.clear();
        while let (Some(_), Some(worker)) = (&self.current, &self.worker) {
            let mut ready = [PollFd::new(worker.socket.as_fd(), PollFlags::POLLIN)];
            let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now()));
            match poll(&mut ready, left.unwrap_or(PollTimeout::ZERO)) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.receive(&mut buffer),
            }
        }
    }

    /// Kills the worker, and takes no more jobs.
    pub(crate) fn kill(&mut self) {
        (self.worker, self.current) = (None, None);
        self.waiting.clear();
    }

    /// Sends the worker as much as it accepts now, and starts one if something is queued and none is running.
    fn advance(&mut self) {
        if self.current.is_none() {
            let Some(WaitingJob {
                job,
                request,
                leased,
            }) = self.waiting.pop_front()
            else {
                return;
            };
            let deadline = Instant::now() + TIMEOUT;
            self.current = Some(CurrentJob {
                job,
                request,
                leased,
                sent: 0,
                answered: 0,
                deadline,
            });
        }
        if self.worker.is_none() {
            // Reaps the workers that have exited by now.
            while let Ok(Some(_)) = process::reap_any() {}
            match self.start.start() {
                Ok(worker) => self.worker = Some(worker),
                Err(error) => {
                    return self.lose(&format!("the file worker cannot be started: {error}"));
                }
            }
        }
        let (Some(worker), Some(current)) = (&mut self.worker, &mut self.current) else {
            return;
        };
        let fds: Vec<BorrowedFd> = self.start.fds.iter().map(AsFd::as_fd).collect();
        let socket = worker.socket.as_fd();
        if send(socket, &self.start.spec, &mut worker.spec_sent, &fds) {
            let leased: Vec<BorrowedFd> = current
                .leased
                .iter()
                .map(|leased| leased.file.as_fd())
                .collect();
            send(socket, &current.request, &mut current.sent, &leased);
        }
    }

    /// Sends what the worker accepts, and receives one message. An answer is not parsed, only bounded and
    /// matched to its job. The target of a link is a path, decoded and checked like those of clients.
    pub(crate) fn receive(&mut self, buffer: &mut Vec<u8>) {
        self.advance();
        let Some(worker) = &mut self.worker else {
            return;
        };
        buffer.resize(MESSAGE_MAX, 0);
        let (length, fds) = match message::receive(worker.socket.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            received => received.unwrap_or_default(),
        };
        if let ([STARTED], Ok([pidfd]), true) = (
            &buffer[..length],
            <[OwnedFd; 1]>::try_from(fds),
            worker.forks,
        ) {
            (worker.pidfd, worker.forks) = (pidfd, false);
            return;
        }
        const MESSAGE: &str = "the file worker ended during the call; the next call gets a new one";
        let Some(current) = &mut self.current else {
            return self.lose(MESSAGE);
        };
        if let ([ELSEWHERE, real @ ..], 0) = (&buffer[..length], current.answered) {
            let Ok(real) = frame::decode::<ZonePath>(real) else {
                return self.lose(MESSAGE);
            };
            self.events.push(WorkerEvent::Elsewhere(current.job, real));
            self.current = None;
            return self.advance();
        }
        let (part, usage) = match &buffer[..length] {
            [MORE, part @ ..] => (part, None),
            [LAST, rest @ ..] if rest.len() >= USAGE_LEN => (&rest[USAGE_LEN..], Some(usage(rest))),
            _ => return self.lose(MESSAGE),
        };
        current.answered += part.len();
        if current.answered > limit::ANSWER {
            return self.lose(MESSAGE);
        }
        self.events
            .push(WorkerEvent::Part(current.job, part.to_vec()));
        if let Some(usage) = usage {
            let usage = Usage {
                stdout_bytes: current.answered as u64,
                ..usage
            };
            self.events.push(WorkerEvent::Ended(
                current.job,
                Box::new(Outcome::Answered),
                usage,
            ));
            self.current = None;
            self.advance();
        }
    }

    /// Kills the worker, and fails its current job.
    fn lose(&mut self, reason: &str) {
        self.worker = None;
        if let Some(CurrentJob { job, .. }) = self.current.take() {
            let outcome = Outcome::Broken(Broken {
                message: reason.to_owned(),
            });
            self.events
                .push(WorkerEvent::Ended(job, Box::new(outcome), Usage::default()));
        }
        self.advance();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // If this fails, it has already exited.
        let _ = process::pidfd_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

/// Sends as many chunks of `bytes` as the worker accepts now; true if all are sent. A worker that
/// is gone is noticed when its socket is read.
fn send(socket: BorrowedFd, bytes: &[u8], sent: &mut usize, fds: &[BorrowedFd]) -> bool {
    while *sent < bytes.len() {
        let rest = &bytes[*sent..];
        let chunk = &rest[..rest.len().min(CHUNK)];
        let mut part = vec![if chunk.len() == rest.len() {
            LAST
        } else {
            MORE
        }];
        part.extend_from_slice(chunk);
        let fds = if *sent == 0 { fds } else { &[] };
        if message::send(socket, &part, fds).is_err() {
            return false;
        }
        *sent += chunk.len();
    }
    true
}

/// Decodes the fixed numbers at the start of a last message, which is long enough.
fn usage(bytes: &[u8]) -> Usage {
    let number = |i: usize| {
        bytes[8 * i..]
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    Usage {
        user_us: number(0),
        system_us: number(1),
        peak_kib: number(2),
        ..Usage::default()
    }
}
