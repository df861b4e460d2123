//! Asks a worker what the broker does not parse itself: what git has of files with names of secrets, and what
//! the user's git settings name. The worker is a separate process, confined like the file worker.

use crate::project_repository::ProjectRepository;
use broker_protocol::{LayerSet, Tier, frame, limit};
use executor_spec::worker::{
    CHUNK, FILES_MAX, InHead, LAST, MESSAGE_MAX, MORE, NameSpec, RepositoryAnswer, RepositoryQuery,
    RootSpec, Setting, WorkerQuestion, WorkerSpec, WorkerTask,
};
use executor_sys::process::{self, Child};
use executor_sys::{message, spawn};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an answer may take when a session opens, which waits for it; what is unknown by then stays closed, and without an answer
/// about settings none opens. Long enough for a worker that gets a tenth of a busy machine.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a failed worker has to exit by itself.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The file worker's program, and the layers that confine it.
#[derive(Clone, Copy, Debug)]
pub struct WorkerImage<'f> {
    pub file: BorrowedFd<'f>,
    /// The layers of the flat tier on this machine.
    pub layers: LayerSet,
    /// The Landlock ABI to use.
    pub landlock_abi: u32,
}

/// A worker that answers questions, one after the other, until this value is dropped. One that does not answer in time is
/// killed, so that a late answer is never taken for that of a later question.
#[derive(Debug)]
pub struct AnsweringWorker {
    socket: OwnedFd,
    child: Child,
    exchange: RefCell<QuestionExchange>,
}

/// Bytes that the worker has not taken yet, and what it has answered so far.
#[derive(Debug, Default)]
struct QuestionExchange {
    unsent: VecDeque<Vec<u8>>,
    answer: Vec<u8>,
}

impl AnsweringWorker {
    /// Starts a worker for a project and its repository, if it has one. It starts up while the caller continues.
    ///
    /// # Errors
    /// The program cannot be started, or a path is not UTF-8.
    pub fn start(
        project: &Path,
        repository: Option<&ProjectRepository>,
        names: Vec<NameSpec>,
        image: WorkerImage,
    ) -> io::Result<Self> {
        let root = |path: &Path| {
            Ok::<_, io::Error>(RootSpec {
                path: text(path)?,
                writable: false,
            })
        };
        let spec = WorkerSpec {
            tier: Tier::Flat,
            layers: image.layers,
            landlock_abi: image.landlock_abi,
            project: root(project)?,
            names,
            task: WorkerTask::Questions {
                repository: root(repository.map_or(project, |repository| &repository.common))?,
            },
        };
        // Reaps those that were killed and have exited by now.
        while let Ok(Some(_)) = process::reap_any() {}
        let (socket, theirs) = message::pair()?;
        let child = spawn::image(image.file, c"lazaret-worker", &[], theirs.as_fd())?;
        let answerer = Self {
            socket,
            child,
            exchange: RefCell::default(),
        };
        answerer.put(&spec)?;
        Ok(answerer)
    }

    /// The content that the repository has of `files`, absolute paths in the project, and which of the names
    /// are in its index. `None` if the worker fails: then it is unknown.
    pub fn repository(
        &self,
        repository: &ProjectRepository,
        files: &[PathBuf],
    ) -> Option<RepositoryAnswer> {
        self.put_repository(repository, files).ok()?;
        repository_answer(&self.wait_for_answer().ok()?, files.len()).ok()
    }

    /// Asks that without waiting for the answer.
    pub(super) fn put_repository(
        &self,
        repository: &ProjectRepository,
        files: &[PathBuf],
    ) -> io::Result<()> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let below = |path: &PathBuf| {
            let below = path.strip_prefix(&repository.project).map_err(invalid)?;
            Ok(below.as_os_str().as_bytes().to_vec())
        };
        let files: io::Result<_> = files.iter().take(FILES_MAX).map(below).collect();
        let own = repository.own.strip_prefix(&repository.common);
        let own = text(own.map_err(invalid)?)?;
        let files = files?;
        self.put(&WorkerQuestion::Repository(RepositoryQuery { own, files }))
    }

    /// The paths that git's settings name in each of these texts.
    ///
    /// # Errors
    /// The worker gives no valid answer in time.
    pub fn settings(&self, texts: Vec<Vec<u8>>) -> io::Result<Vec<Vec<Setting>>> {
        self.put_settings(texts)?;
        settings_answer(&self.wait_for_answer()?)
    }

    /// Asks that without waiting for the answer.
    pub(super) fn put_settings(&self, texts: Vec<Vec<u8>>) -> io::Result<()> {
        self.put(&WorkerQuestion::Settings(texts))
    }

    /// Waits for the answer, while a session opens or ends.
    fn wait_for_answer(&self) -> io::Result<Vec<u8>> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let waited = match self.advance() {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => self.wait(until),
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                // Gives it time to report the cause.
                let _ = wait(
                    (self.child.pidfd.as_fd(), PollFlags::POLLIN),
                    Instant::now() + LAST_WORDS,
                );
                self.kill();
                return Err(error);
            }
        }
    }

    /// Waits until the exchange can go on, or its time is over.
    pub(super) fn wait(&self, until: Instant) -> io::Result<()> {
        wait(self.waits_for(), until)
    }

    /// The descriptor that must become ready before the exchange can go on.
    pub(crate) fn waits_for(&self) -> (BorrowedFd<'_>, PollFlags) {
        let is_sent = self.exchange.borrow().unsent.is_empty();
        let flags = match is_sent {
            true => PollFlags::POLLIN,
            false => PollFlags::POLLOUT,
        };
        (self.socket.as_fd(), flags)
    }

    /// Sends as much as the worker takes now, and the rest later.
    fn put(&self, content: &impl Serialize) -> io::Result<()> {
        let bytes = frame::encode_whole(content).map_err(io::Error::other)?;
        let mut chunks = bytes.chunks(CHUNK).peekable();
        let mut exchange = self.exchange.borrow_mut();
        while let Some(chunk) = chunks.next() {
            let tag = if chunks.peek().is_some() { MORE } else { LAST };
            exchange.unsent.push_back([&[tag], chunk].concat());
        }
        exchange.send(self.socket.as_fd())?;
        Ok(())
    }

    /// Sends and receives what can be now. Returns the bytes of the answer once that is complete.
    pub(super) fn advance(&self) -> io::Result<Option<Vec<u8>>> {
        let mut exchange = self.exchange.borrow_mut();
        match exchange.send(self.socket.as_fd())? {
            true => exchange.receive(self.socket.as_fd()),
            false => Ok(None),
        }
    }

    /// Kills the worker; later questions have no answer.
    pub fn kill(&self) {
        // If this fails, it has already exited.
        let _ = process::pidfd_signal(self.child.pidfd.as_fd(), libc::SIGKILL);
    }
}

impl Drop for AnsweringWorker {
    fn drop(&mut self) {
        self.kill();
        // One that has not exited yet is reaped when the next one starts, or at the end of the session.
        let _ = waitpid(Pid::from_raw(self.child.pid), Some(WaitPidFlag::WNOHANG));
    }
}

impl QuestionExchange {
    /// Sends what is taken now; whether that is all.
    fn send(&mut self, socket: BorrowedFd) -> io::Result<bool> {
        while let Some(message) = self.unsent.front() {
            match message::send(socket, message, &[]) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, socket: BorrowedFd) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; MESSAGE_MAX];
        loop {
            let length = match message::receive(socket, &mut buffer) {
                Ok((length, _)) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            let (tag, part) = buffer[..length]
                .split_first()
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            self.answer.extend_from_slice(part);
            match *tag {
                LAST => return Ok(Some(std::mem::take(&mut self.answer))),
                MORE if self.answer.len() <= limit::ANSWER => {}
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// The answer about a repository that was asked about so many files.
pub(super) fn repository_answer(answer: &[u8], files: usize) -> io::Result<RepositoryAnswer> {
    let mut answer: RepositoryAnswer = frame::decode_whole(answer).map_err(io::Error::other)?;
    if answer.files.len() != files.min(FILES_MAX) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Of files beyond those in the question nothing is known: they stay closed.
    answer.files.resize(files, InHead::Unknown);
    Ok(answer)
}

/// The answer about texts of settings.
pub(super) fn settings_answer(answer: &[u8]) -> io::Result<Vec<Vec<Setting>>> {
    frame::decode_whole(answer).map_err(io::Error::other)
}

fn text(path: &Path) -> io::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or(io::ErrorKind::InvalidFilename.into())
}

fn wait((socket, flags): (BorrowedFd, PollFlags), until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let left = PollTimeout::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket, flags)], left)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
