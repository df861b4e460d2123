//! Asks a worker what the broker does not read by itself: what git has of files with names of secrets, and what the
//! settings of the user's git name. It is a process of its own, confined like the file worker, that answers and ends.

use broker_protocol::{LayerSet, Tier, frame, limit};
use executor_layers::worker::{
    CHUNK, FILES_MAX, InHead, LAST, MESSAGE_MAX, MORE, NameSpec, ObjectSpec, Question, RepositoryAnswer,
    RepositoryQuery, RootSpec, Setting, WorkerSpec,
};
use executor_supervisor::ProjectRepository;
use executor_sys::process::{self, Child};
use executor_sys::{message, spawn};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long it may take. A session waits for it; what is not known by then stays closed.
const TIMEOUT: Duration = Duration::from_secs(3);

/// How long one that has failed may take to end by itself.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The program of the file worker, and what closes it.
#[derive(Clone, Copy, Debug)]
pub struct WorkerImage<'f> {
    /// Its file.
    pub file: BorrowedFd<'f>,
    /// The layers of the flat tier on this machine.
    pub layers: LayerSet,
    /// The Landlock ABI to use.
    pub landlock_abi: u32,
}

/// What the repository has of `files`, absolute paths in the project, and which of `names` its index has. `None` where the worker
/// fails: then nobody knows.
pub fn repository(
    repository: &ProjectRepository,
    files: &[PathBuf],
    names: Vec<NameSpec>,
    image: WorkerImage,
) -> Option<RepositoryAnswer> {
    let below =
        |path: &PathBuf| Some(path.strip_prefix(&repository.project).ok()?.as_os_str().as_bytes().to_vec());
    let asked: Option<Vec<Vec<u8>>> = files.iter().take(FILES_MAX).map(below).collect();
    let asked = asked?;
    let count = asked.len();
    let root = |path: &Path| Some(RootSpec { path: text(path).ok()?, writable: false });
    let own = text(repository.own.strip_prefix(&repository.common).ok()?).ok()?;
    let question = Question::Repository(RepositoryQuery { own, files: asked });
    let roots = [root(&repository.project)?, root(&repository.common)?];
    let spec = WorkerSpec { names, ..one_question(roots, question, image) };
    let answer: RepositoryAnswer = frame::decode_whole(&ask(&spec, image.file).ok()?).ok()?;
    let mut answer = Some(answer).filter(|answer| answer.files.len() == count)?;
    // Of more files than are asked about nothing is found.
    answer.files.resize(files.len(), InHead::Nothing);
    Some(answer)
}

/// What git's settings in each of these texts name.
///
/// # Errors
/// The worker gives no such answer in time.
pub fn settings(root: &Path, texts: Vec<Vec<u8>>, image: WorkerImage) -> io::Result<Vec<Vec<Setting>>> {
    let root = RootSpec { path: text(root)?, writable: false };
    let spec = one_question([root.clone(), root], Question::Settings(texts), image);
    frame::decode_whole(&ask(&spec, image.file)?).map_err(io::Error::other)
}

fn text(path: &Path) -> io::Result<String> {
    path.to_str().map(str::to_owned).ok_or(io::ErrorKind::InvalidFilename.into())
}

fn one_question([project, central]: [RootSpec; 2], question: Question, image: WorkerImage) -> WorkerSpec {
    WorkerSpec {
        tier: Tier::Flat,
        layers: image.layers,
        landlock_abi: image.landlock_abi,
        project,
        central,
        granted: Vec::new(),
        names: Vec::new(),
        objects: ObjectSpec::default(),
        scope: None,
        undo: 0,
        question: Some(question),
    }
}

/// The bytes of its answer.
fn ask(spec: &WorkerSpec, program: BorrowedFd) -> io::Result<Vec<u8>> {
    let bytes = frame::encode_whole(spec).map_err(io::Error::other)?;
    let (socket, theirs) = message::pair()?;
    let Child { pid, pidfd } = spawn::image(program, c"lazaret-worker", theirs.as_fd())?;
    drop(theirs);
    let answer = exchange(&socket, &bytes);
    if answer.is_err() {
        // It may be saying why.
        let _ = wait(&pidfd, PollFlags::POLLIN, Instant::now() + LAST_WORDS);
    }
    // It is gone already if this fails.
    let _ = process::pidfd_signal(pidfd.as_fd(), libc::SIGKILL);
    waitpid(Pid::from_raw(pid), None)?;
    answer
}

fn exchange(socket: &OwnedFd, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let until = Instant::now() + TIMEOUT;
    let mut chunks = bytes.chunks(CHUNK).peekable();
    while let Some(chunk) = chunks.next() {
        let tag = if chunks.peek().is_some() { MORE } else { LAST };
        let message = [&[tag], chunk].concat();
        wait(socket, PollFlags::POLLOUT, until)?;
        while let Err(error) = message::send(socket.as_fd(), &message, &[]) {
            Some(()).filter(|()| error.kind() == io::ErrorKind::WouldBlock).ok_or(error)?;
            wait(socket, PollFlags::POLLOUT, until)?;
        }
    }
    let (mut answer, mut buffer) = (Vec::new(), vec![0; MESSAGE_MAX]);
    loop {
        wait(socket, PollFlags::POLLIN, until)?;
        let (length, _) = message::receive(socket.as_fd(), &mut buffer)?;
        let (tag, part) = buffer[..length].split_first().ok_or(io::ErrorKind::UnexpectedEof)?;
        answer.extend_from_slice(part);
        match *tag {
            LAST => return Ok(answer),
            MORE if answer.len() <= limit::ANSWER => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Waits for the worker, which has some time for all that it is asked.
fn wait(socket: &OwnedFd, flags: PollFlags, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let left = PollTimeout::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket.as_fd(), flags)], left)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
