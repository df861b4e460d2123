//! The process that runs the program of a source. It is a fork of the broker, which must not wait for the program: it ends what the
//! program has started, and reports how the program ended. The output goes to memory that neither of the two reads.

use crate::owner::SourceError;
use crate::source::CommandSource;
use broker_protocol::limit;
use executor_cell::end_all;
use executor_layers::descriptors;
use executor_sys::file::pipe_with;
use executor_sys::process::{self, Child, ChildState, Fork, exit_now};
use executor_sys::spawn::become_source;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Whence, ftruncate, lseek, pipe2, read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a program may run.
const PROGRAM_TIME: Duration = Duration::from_secs(10);
/// How long its reader may take, with what it ends after the program.
const READER_TIME: Duration = Duration::from_secs(13);
/// How long the processes that a program has left may take to end.
const LAST_KILL: Duration = Duration::from_secs(1);

/// Most bytes of output. More than a value may have, so that it is seen which program prints too much.
const OUTPUT_MAX: i64 = 1 << 20;

/// How a program ended: a kind, and a number that belongs to it.
type SourceProgramEnd = [u8; 5];

const EXITED: u8 = 0;
const KILLED: u8 = 1;
const HUNG: u8 = 2;
const UNSTARTED: u8 = 3;

/// A program that runs. Dropped, it is ended.
#[derive(Debug)]
pub(crate) struct SourceProgram {
    name: String,
    pub(crate) child: Child,
    /// The program's standard output. Its position is how much has been written.
    output: OwnedFd,
    report: OwnedFd,
    deadline: Instant,
}

impl SourceProgram {
    pub(crate) fn start(command: &CommandSource) -> Result<Self, SourceError> {
        let program = command.program()?;
        let output = memory().map_err(io::Error::from)?;
        let (report, theirs) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
        match process::fork(0)? {
            Fork::Parent(child) => Ok(Self {
                name: command.name(),
                child,
                output,
                report,
                deadline: Instant::now() + READER_TIME,
            }),
            Fork::Child => {
                let start = || {
                    become_source(
                        &program,
                        &command.arguments,
                        &command.environment,
                        output.as_fd(),
                    )
                };
                let _ = watch(start, output.as_fd(), theirs.as_fd());
                exit_now(0)
            }
        }
    }

    /// Readable when the program has ended.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The value as a pipe's content, if the program has succeeded.
    pub(crate) fn finish(self) -> Result<OwnedFd, SourceError> {
        let mut report = SourceProgramEnd::default();
        let length = read(&self.report, &mut report).map_err(io::Error::from)?;
        let [kind, number @ ..] = report;
        let (name, number) = (self.name.clone(), i32::from_le_bytes(number));
        match kind {
            EXITED if length == report.len() && number == 0 => {}
            EXITED if length == report.len() => return Err(SourceError::Exited(name, number)),
            KILLED => return Err(SourceError::Killed(name, number)),
            HUNG => return Err(SourceError::TooLong),
            UNSTARTED => {
                let error = io::Error::from_raw_os_error(number);
                return Err(SourceError::Unopened(name, error));
            }
            _ => return Err(SourceError::Unwatched(io::ErrorKind::UnexpectedEof.into())),
        }
        let written = lseek(&self.output, 0, Whence::SeekCur).map_err(io::Error::from)?;
        match usize::try_from(written).unwrap_or(usize::MAX) {
            0 => Err(SourceError::Silent(name)),
            written if written > limit::CREDENTIAL => Err(SourceError::TooLarge(name)),
            written => Ok(pipe_with(self.output.as_fd(), written)?),
        }
    }
}

impl Drop for SourceProgram {
    fn drop(&mut self) {
        // The program has a parent-death signal. If this fails, the reader has ended.
        let _ = process::pidfd_signal(self.child.pidfd.as_fd(), libc::SIGKILL);
        // It is killed, so this does not take long. A session may run many programs, and each would stay as a zombie.
        let _ = waitid(Id::PIDFd(self.child.pidfd.as_fd()), WaitPidFlag::WEXITED);
    }
}

/// Memory for the output, which nobody can make larger.
fn memory() -> nix::Result<OwnedFd> {
    let memory = memfd_create(
        "credential",
        MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING,
    )?;
    ftruncate(&memory, OUTPUT_MAX)?;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW))?;
    Ok(memory)
}

/// In a process of its own: starts the program by `start`, waits until it has ended, ends what it has left, and reports.
fn watch(
    start: impl FnOnce() -> io::Error,
    output: BorrowedFd,
    report: BorrowedFd,
) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    prctl::set_name(c"lazaret-source")?;
    // What the program leaves comes to this process.
    prctl::set_child_subreaper(true)?;
    nix::unistd::setsid()?;
    let kept = descriptors::keep_only(&[output, report], &[]);
    kept.map_err(|error| io::Error::other(error.to_string()))?;
    let child = match process::fork(0)? {
        Fork::Parent(child) => child,
        Fork::Child => {
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            send(
                report,
                UNSTARTED,
                start().raw_os_error().unwrap_or(libc::EIO),
            );
            exit_now(127)
        }
    };
    let mut fds = [PollFd::new(child.pidfd.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(PROGRAM_TIME).unwrap_or(PollTimeout::MAX);
    let has_ended = poll(&mut fds, limit)? > 0;
    let (kind, number) = match has_ended {
        true => end_of(child.pid)?,
        false => (HUNG, 0),
    };
    end_all(Instant::now() + LAST_KILL);
    send(report, kind, number);
    Ok(())
}

/// How the child `pid` ended. Others may have ended before it.
fn end_of(pid: i32) -> io::Result<(u8, i32)> {
    loop {
        let Some(change) = process::wait_any()? else {
            continue;
        };
        match change.state {
            ChildState::Exited(code) if change.pid == pid => return Ok((EXITED, code)),
            ChildState::Killed(signal) if change.pid == pid => return Ok((KILLED, signal)),
            ChildState::Exited(_) | ChildState::Killed(_) | ChildState::Stopped(_) => {}
        }
    }
}

/// A report of few bytes fits into the pipe. Of two, the first counts.
fn send(report: BorrowedFd, kind: u8, number: i32) {
    let [a, b, c, d] = number.to_le_bytes();
    let _ = write(report, &[kind, a, b, c, d]);
}
