//! Asks a worker what the broker does not parse itself: what git has of files with names of secrets, and what
//! the user's git settings name. The worker is a separate process, confined like the file worker.

use crate::tracked_secrets::ProjectRepository;
use broker_protocol::{LayerSet, Tier, frame, limit};
use executor_spec::worker::{
    CHUNK, FILES_MAX, InHead, LAST, MESSAGE_MAX, MORE, NameSpec, ObjectSpec, Question,
    RepositoryAnswer, RepositoryQuery, RootSpec, Setting, WorkerSpec,
};
use executor_sys::process::{self, Child};
use executor_sys::{message, spawn};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde::Serialize;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for all questions. A session waits for them; what is unknown by then stays closed, and without an answer about settings
/// none opens. Long enough for a worker that gets a tenth of a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);

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

/// A worker that answers questions until this value is dropped. One that does not answer in time is
/// killed, so that a late answer is never taken for that of a later question.
#[derive(Debug)]
pub struct Answerer {
    socket: OwnedFd,
    child: Child,
}

impl Answerer {
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
            central: root(repository.map_or(project, |repository| &repository.common))?,
            granted: Vec::new(),
            names,
            transit: Vec::new(),
            objects: ObjectSpec::default(),
            scope: None,
            undo: 0,
            answers: true,
            records: false,
        };
        let (socket, theirs) = message::pair()?;
        let child = spawn::image(image.file, c"lazaret-worker", &[], theirs.as_fd())?;
        let answerer = Self { socket, child };
        answerer.send(&spec, Instant::now() + TIMEOUT)?;
        Ok(answerer)
    }

    /// What the repository has of `files`, absolute paths in the project, and which of the names
    /// are in its index. `None` if the worker fails: then it is unknown.
    pub fn repository(
        &self,
        repository: &ProjectRepository,
        files: &[PathBuf],
    ) -> Option<RepositoryAnswer> {
        let below = |path: &PathBuf| {
            Some(
                path.strip_prefix(&repository.project)
                    .ok()?
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            )
        };
        let asked: Option<Vec<Vec<u8>>> = files.iter().take(FILES_MAX).map(below).collect();
        let asked = asked?;
        let count = asked.len();
        let own = text(repository.own.strip_prefix(&repository.common).ok()?).ok()?;
        let answer = self
            .ask(&Question::Repository(RepositoryQuery { own, files: asked }))
            .ok()?;
        let answer: RepositoryAnswer = frame::decode_whole(&answer).ok()?;
        let mut answer = Some(answer).filter(|answer| answer.files.len() == count)?;
        // Of files beyond those in the question nothing is known: they stay closed.
        answer.files.resize(files.len(), InHead::Unknown);
        Some(answer)
    }

    /// What git's settings name in each of these texts.
    ///
    /// # Errors
    /// The worker gives no valid answer in time.
    pub fn settings(&self, texts: Vec<Vec<u8>>) -> io::Result<Vec<Vec<Setting>>> {
        frame::decode_whole(&self.ask(&Question::Settings(texts))?).map_err(io::Error::other)
    }

    /// Sends a question and returns the bytes of the answer.
    fn ask(&self, question: &Question) -> io::Result<Vec<u8>> {
        let until = Instant::now() + TIMEOUT;
        let answer = self
            .send(question, until)
            .and_then(|()| self.receive(until));
        if answer.is_err() {
            // Gives it time to report the cause.
            let _ = wait(
                &self.child.pidfd,
                PollFlags::POLLIN,
                Instant::now() + LAST_WORDS,
            );
            self.kill();
        }
        answer
    }

    fn send(&self, content: &impl Serialize, until: Instant) -> io::Result<()> {
        let bytes = frame::encode_whole(content).map_err(io::Error::other)?;
        let mut chunks = bytes.chunks(CHUNK).peekable();
        while let Some(chunk) = chunks.next() {
            let tag = if chunks.peek().is_some() { MORE } else { LAST };
            let message = [&[tag], chunk].concat();
            wait(&self.socket, PollFlags::POLLOUT, until)?;
            while let Err(error) = message::send(self.socket.as_fd(), &message, &[]) {
                Some(())
                    .filter(|()| error.kind() == io::ErrorKind::WouldBlock)
                    .ok_or(error)?;
                wait(&self.socket, PollFlags::POLLOUT, until)?;
            }
        }
        Ok(())
    }

    fn receive(&self, until: Instant) -> io::Result<Vec<u8>> {
        let (mut answer, mut buffer) = (Vec::new(), vec![0; MESSAGE_MAX]);
        loop {
            wait(&self.socket, PollFlags::POLLIN, until)?;
            let (length, _) = message::receive(self.socket.as_fd(), &mut buffer)?;
            let (tag, part) = buffer[..length]
                .split_first()
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            answer.extend_from_slice(part);
            match *tag {
                LAST => return Ok(answer),
                MORE if answer.len() <= limit::ANSWER => {}
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Kills the worker; later questions have no answer.
    pub fn kill(&self) {
        // If this fails, it has already exited.
        let _ = process::pidfd_signal(self.child.pidfd.as_fd(), libc::SIGKILL);
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.kill();
        let _ = waitpid(Pid::from_raw(self.child.pid), None);
    }
}

fn text(path: &Path) -> io::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or(io::ErrorKind::InvalidFilename.into())
}

/// Waits for the worker, which has one time limit for all questions.
fn wait(socket: &OwnedFd, flags: PollFlags, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let left = PollTimeout::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket.as_fd(), flags)], left)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
