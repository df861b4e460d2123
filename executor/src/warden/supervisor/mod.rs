//! The supervisor of a cell: it makes calls in its caller's place, and never lets one go on. In the flat tier those are all
//! that take paths (`policies/seccomp/supervised.json`), in the namespaced tier those that make or move a name or open a
//! file to change it (`names.json`).
//!
//! It is the cell's own first process, under the cell's own Landlock rules and filters: what it could be talked into, the
//! program could have done but for protected names and, in the flat tier, metadata, other processes, socket files and TCP. It
//! comes from `warden/cell.rs`, which polls its listener; calls come up from the kernel, answers and descriptors go down.
//! It does not believe the caller: a path is read once from the caller's memory, found once as a descriptor, and it is the
//! file behind that descriptor that is asked about and then used. Of the cells of a session one at a time makes or moves
//! names, and no rename changes what is protected below a directory: what was asked stays true until it is used. What
//! Landlock holds by the file is asked here by the path where no mounts say what is outside: neither is alone in front of
//! files outside.

mod call;
mod caller;
mod find;
mod rules;
mod made;
mod open;
mod names;
mod repository;
mod metadata;
mod sockets;
mod tcp;
mod loopback;
mod terminals;
mod waiting;

pub use rules::Rules;

use crate::cell::{capabilities, seccomp};
use crate::sys::{self, Before, Child, Fork, Stage};
use broker_protocol::Tier;
use caller::Caller;
use loopback::Loopback;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::stat::{Mode, stat, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use repository::Worktrees;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use terminals::Terminals;
use waiting::Waiting;

type Result<T> = std::result::Result<T, Errno>;

/// A look whether a process of ours can be supervised on this machine, made beside what else a warden does at first.
pub struct TryOut(Child);

impl TryOut {
    /// Begins it, in a process of its own.
    ///
    /// # Errors
    /// The fork's.
    pub fn begin(tier: Tier) -> io::Result<Self> {
        match sys::fork(0)? {
            Fork::Child => {
                let refusal =
                    supervise_one(tier).err().map(|error| error.raw_os_error().unwrap_or(libc::EPERM));
                sys::leave(refusal.unwrap_or(0))
            }
            Fork::Parent(child) => Ok(Self(child)),
        }
    }

    /// Waits for what comes of it.
    ///
    /// # Errors
    /// What was refused.
    pub fn finish(self) -> io::Result<()> {
        match waitpid(Pid::from_raw(self.0.pid), None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

/// Does once to a process what a supervisor does to its callers, with no more rights than one has.
fn supervise_one(tier: Tier) -> io::Result<()> {
    prctl::set_no_new_privs()?;
    capabilities::drop_all().map_err(|error| error.source)?;
    prctl::set_dumpable(true)?;
    let before = Before { limits: &[], ruleset: None, trapped: Some(seccomp::supervised(tier)) };
    let mut stage = Stage::new();
    let (starter, listener) = stage.starter(&before)?;
    let word = [0u8; 1];
    // Their memory and their descriptors are common.
    sys::read_memory(starter.process(), word.as_ptr() as u64, &mut [0; 1])?;
    let listener = listener.ok_or(io::ErrorKind::InvalidData)?;
    sys::descriptor_of(starter.process(), listener.as_raw_fd())?;
    // No call waits that could be answered: who knows this kind of answer says so.
    match sys::notice_descriptor(listener.as_fd(), 0, listener.as_fd(), true) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        answered => answered,
    }
}

/// How the caller is answered.
enum Answer {
    /// The call's result.
    Value(i64),
    /// A descriptor, closed on exec or not.
    Descriptor(OwnedFd, bool),
    /// Not yet.
    Later(Waiting),
}

/// Calls that may wait for another process at one time.
const WAITING_MAX: usize = 64;

/// What a supervisor knows while its cell lives.
pub struct Supervisor<'a> {
    rules: &'a Rules,
    /// The device of `/proc`.
    proc: u64,
    listener: OwnedFd,
    terminals: Terminals,
    /// Where git keeps the worktrees that the program has linked.
    worktrees: Worktrees,
    /// The cell's sockets of TCP.
    loopback: RefCell<Loopback>,
    /// Calls that wait for another process, with the kernel's name for each.
    waiting: Vec<(u64, Waiting)>,
}

impl<'a> Supervisor<'a> {
    /// One for the program whose calls come to `listener`, in a cell that has its own `/proc` by now.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn new(rules: &'a Rules, listener: OwnedFd) -> io::Result<Self> {
        sys::notice_switch(listener.as_fd());
        let proc = stat("/proc")?.st_dev;
        let (terminals, worktrees) = (Terminals::default(), Worktrees::default());
        let loopback = RefCell::default();
        Ok(Self { rules, proc, listener, terminals, worktrees, loopback, waiting: Vec::new() })
    }

    fn call<'c>(&'c self, caller: Caller, still: &'c dyn Fn() -> bool) -> call::Call<'c> {
        let Self { rules, proc, terminals, worktrees, loopback, .. } = self;
        call::Call { rules, proc: *proc, caller, terminals, worktrees, loopback, still }
    }

    /// The program is given a terminal.
    pub fn has_terminal(&self) {
        self.terminals.any.set(true);
    }

    /// Readable when a call waits.
    pub fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// What is left of one that nobody calls any more.
    pub fn into_listener(self) -> OwnedFd {
        self.listener
    }

    /// Whether calls or handshakes wait for another process, so that [`Self::look_again`] must be called soon.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty() || self.loopback.borrow().waits()
    }

    /// Answers one call.
    pub fn answer(&mut self) {
        // Its caller may have been killed meanwhile.
        let Ok(notice) = sys::notice_receive(self.listener.as_fd()) else { return };
        let caller = Caller { thread: notice.thread };
        let still = || sys::notice_waits(self.listener.as_fd(), notice.id);
        let answer = self.call(caller, &still).make(&notice);
        match answer {
            Ok(Answer::Later(_)) if self.waiting.len() >= WAITING_MAX => {
                self.reply(notice.id, Err(Errno::EAGAIN));
            }
            Ok(Answer::Later(waiting)) => self.waiting.push((notice.id, waiting)),
            answer => self.reply(notice.id, answer),
        }
        self.look_again();
    }

    /// Tries the calls that wait once more.
    pub fn look_again(&mut self) {
        self.loopback.get_mut().look();
        for (id, waiting) in std::mem::take(&mut self.waiting) {
            if !sys::notice_waits(self.listener.as_fd(), id) {
                continue;
            }
            match waiting.look() {
                Ok(Answer::Later(waiting)) => self.waiting.push((id, waiting)),
                answer => self.reply(id, answer),
            }
        }
    }

    fn reply(&self, id: u64, answer: Result<Answer>) {
        let listener = self.listener.as_fd();
        let answer = match answer {
            Ok(Answer::Value(value)) => Ok(value),
            Ok(Answer::Descriptor(fd, on_exec)) => {
                match sys::notice_descriptor(listener, id, fd.as_fd(), on_exec) {
                    Ok(()) => return,
                    // The caller has too many descriptors, or is gone.
                    Err(error) => Err(error.raw_os_error().unwrap_or(libc::EMFILE)),
                }
            }
            Ok(Answer::Later(_)) => Err(libc::EAGAIN),
            Err(errno) => Err(errno as i32),
        };
        // A caller that is gone needs no answer.
        let _ = sys::notice_answer(listener, id, answer);
    }
}

/// Runs `make` with the file mode mask of a caller.
fn with_mask<T>(mask: Mode, make: impl FnOnce() -> T) -> T {
    let before = umask(mask);
    let made = make();
    umask(before);
    made
}
