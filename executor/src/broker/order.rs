//! From a command's request to the order that a cell gets: what to run, where, for how long, with which streams.

use super::background;
use super::capture::Capture;
use super::command::{CellHandle, Streams};
use super::connection::set_nonblocking;
use crate::cell::plan::{CellPlan, Task, Walls};
use crate::sys;
use broker_protocol::{Bash, CallId, Stdin, Zone, ZonePath, frame};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use policies::EffectivePolicy;
use serde_bytes::ByteBuf;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// A command's standard output and error, near end and far end. Making them takes as long as a tenth of a call's way to its
/// cell, so they are made before it comes.
#[derive(Debug)]
pub struct Pipes {
    stdout: (OwnedFd, OwnedFd),
    stderr: (OwnedFd, OwnedFd),
}

impl Pipes {
    /// New ones, with near ends that do not wait.
    pub fn new() -> io::Result<Self> {
        let pipe = || -> io::Result<(OwnedFd, OwnedFd)> {
            let (near, far) = pipe2(OFlag::O_CLOEXEC)?;
            set_nonblocking(&near)?;
            Ok((near, far))
        };
        Ok(Self { stdout: pipe()?, stderr: pipe()? })
    }
}

/// Sends a cell its order, with the far ends of the streams whose near ends are returned.
pub fn order(
    plan: &CellPlan,
    bash: &Bash,
    terminal: Option<(OwnedFd, OwnedFd)>,
    cell: &CellHandle,
    null: BorrowedFd,
    pipes: &mut Option<Pipes>,
) -> io::Result<Streams> {
    let mut bytes = Vec::new();
    frame::encode(plan, &mut bytes).map_err(io::Error::other)?;
    let order = &bytes[frame::PREFIX..];
    if let (Stdin::Terminal(size), Some((master, slave))) = (&bash.stdin, terminal) {
        set_nonblocking(&master)?;
        sys::terminal_size(master.as_fd(), size.rows, size.columns)?;
        sys::send(cell.socket.as_fd(), order, &[slave.as_fd(), slave.as_fd(), slave.as_fd()])?;
        let stdin = Some(master.try_clone()?);
        return Ok(Streams { stdout: master, stderr: None, stdin });
    }
    let Pipes { stdout: (stdout, out), stderr: (stderr, err) } = pipes.take().map_or_else(Pipes::new, Ok)?;
    let (stdin, input) = match bash.stdin {
        Stdin::Stream => {
            let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
            set_nonblocking(&write)?;
            (Some(read), Some(write))
        }
        Stdin::Null | Stdin::Terminal(_) => (None, None),
    };
    let stdin = stdin.as_ref().map_or(null, AsFd::as_fd);
    sys::send(cell.socket.as_fd(), order, &[stdin, out.as_fd(), err.as_fd()])?;
    Ok(Streams { stdout, stderr: Some(stderr), stdin: input })
}

/// One call's work as data.
pub fn plan(walls: &Walls, bash: &Bash) -> CellPlan {
    let arguments = match &bash.command {
        broker_protocol::Command::Shell(text) => {
            ["bash", "-c", text].map(|argument| ByteBuf::from(argument.as_bytes())).into()
        }
        broker_protocol::Command::Arguments(arguments) => arguments.clone(),
    };
    let terminal = match &bash.stdin {
        Stdin::Terminal(terminal) => Some(terminal.term.clone()),
        Stdin::Null | Stdin::Stream => None,
    };
    let directory = directory(walls, bash).display().to_string();
    CellPlan { task: Task::Program { arguments, terminal }, directory }
}

/// Where a command starts.
pub fn directory(walls: &Walls, bash: &Bash) -> PathBuf {
    let project = ZonePath::root(Zone::Project);
    let path = bash.directory.as_ref().unwrap_or(&project);
    let root = match path.zone() {
        Zone::Project => &walls.project,
        Zone::Central => &walls.central,
    };
    // `join` with an empty path would add a slash.
    if path.relative().is_empty() { root.clone() } else { root.join(path.relative()) }
}

/// The wall time of a command. One at a terminal has none unless it asks: a person is there to end it. Nor has one in the
/// background, which the session's end ends. What the scope gives commands holds for these too.
pub fn time_limit(policy: &EffectivePolicy, bash: &Bash) -> Option<u32> {
    let endless = bash.background || matches!(bash.stdin, Stdin::Terminal(_));
    match bash.timeout_s.or_else(|| policy.scope_timeout("bash")) {
        None if endless => None,
        asked => Some(policy.timeout(asked)),
    }
}

/// What is kept of a command's output.
pub fn capture(policy: &EffectivePolicy, kept: u64, bash: &Bash, call: CallId) -> Capture {
    let kept = if bash.background { background::KEPT } else { kept };
    Capture::new(kept, policy.limits.spill, spill_name(call))
}

/// Unique in a central root that many sessions share, one after the other and side by side.
pub fn spill_name(call: CallId) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{call}.log", now.as_micros(), std::process::id())
}
