//! Handles a supervised call, from the kernel's notification to the answer.

use crate::answer::{Pending, SyscallAnswer};
use crate::caller::{CallerThread, KnownProcess, PATH_ONLY};
use crate::copied_bytes::CopiedBytes;
use crate::empty_directories::EmptyDirectories;
use crate::flat::ipc_objects::{IpcObjects, IpcRecord};
use crate::flat::loopback::Loopback;
use crate::flat::loopback_line::LoopbackLine;
use crate::flat::terminals::Terminals;
use crate::passed_over::PassedOver;
use crate::rules::AccessRules;
use crate::settings_locks::SettingsLocks;
use crate::supervised_call::{CellState, Notified, SupervisedCall};
use crate::worktrees::Worktrees;
use broker_protocol::AttemptKind;
use executor_spec::refusals::{Cause, Refusals};
use executor_sys::notify::{self, Wake};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, stat};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Maximum number of calls that wait for another process at one time.
const PENDING_MAX: usize = 64;

/// Supervises the calls of one cell's program.
pub struct Supervisor<'a> {
    cell: CellState<'a>,
    listener: OwnedFd,
    /// Calls that wait for another process, each with its notification ID.
    pending: Vec<(u64, Pending)>,
}

impl<'a> Supervisor<'a> {
    /// A supervisor for the program whose calls arrive at `listener`, in a cell that already has its own `/proc`.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn new(
        rules: &'a AccessRules,
        line: Option<&'a LoopbackLine>,
        record: Option<Rc<IpcRecord>>,
        listener: OwnedFd,
    ) -> io::Result<Self> {
        notify::prefer_caller(listener.as_fd());
        let proc = stat("/proc")?.st_dev;
        let own_descriptors = open("/proc/self/fd", PATH_ONLY, Mode::empty())?;
        let (terminals, worktrees) = (Terminals::default(), Worktrees::default());
        let loopback = RefCell::new(Loopback::new(rules.loopback_addresses()));
        let (refusals, empty_directories) = (RefCell::default(), EmptyDirectories::default());
        let cell = CellState {
            rules,
            proc,
            terminals,
            worktrees,
            settings_locks: SettingsLocks::default(),
            passed_over: PassedOver::default(),
            empty_directories,
            loopback,
            line,
            socket_names: RefCell::default(),
            kept: RefCell::default(),
            segments: RefCell::default(),
            objects: RefCell::new(IpcObjects::new(record)),
            netlink: RefCell::default(),
            refusals,
            new_names: RefCell::default(),
            copied: CopiedBytes::default(),
            known: KnownProcess::default(),
            own_descriptors,
        };
        Ok(Self {
            cell,
            listener,
            pending: Vec::new(),
        })
    }

    /// Records that the program is given a terminal.
    pub fn note_terminal(&self) {
        self.cell.terminals.any.set(true);
    }

    /// Readable when a call is pending.
    pub fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// Readable when another cell of the session wants to connect to a listener of this one.
    pub fn line(&self) -> Option<BorrowedFd<'_>> {
        let open = self.cell.line.filter(|line| line.is_open());
        open.map(LoopbackLine::descriptor)
    }

    /// Connects other cells of the session to listeners of this one.
    pub fn connect_others(&mut self) {
        let loopback = self.cell.loopback.get_mut();
        self.cell.line.iter().for_each(|line| line.serve(loopback));
    }

    /// Ends what the program has left and adds what that shows to its refusals, when all of it is dead.
    pub fn finish_program(&self) {
        self.cell.line.iter().for_each(|line| line.end());
        self.cell.objects.borrow_mut().remove_all();
        self.cell.empty_directories.remove();
        for name in self.cell.loopback.borrow_mut().take_unanswered() {
            let target = SocketAddr::new(name.ip, name.port).to_string();
            let (kind, cause) = (AttemptKind::Connect, Cause::Network);
            self.cell
                .refusals
                .borrow_mut()
                .note(kind, cause, target.as_bytes());
        }
        let passed_over = self.cell.passed_over.report(self.cell.rules);
        self.cell.refusals.borrow_mut().lead_with(passed_over);
        let misplaced = self.cell.new_names.borrow_mut().examine(self.cell.rules);
        self.cell.refusals.borrow_mut().lead_with(misplaced);
    }

    /// Takes the refusals noted so far.
    pub fn take_refusals(&self) -> Refusals {
        self.cell.refusals.take()
    }

    /// Ends the supervisor when no process can call any more.
    pub fn into_listener(self) -> OwnedFd {
        self.listener
    }

    /// Whether calls or handshakes wait for another process, so that [`Self::retry`] must be called soon.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.cell.loopback.borrow().waits()
    }

    /// Receives the next call, decides it, makes it where it is allowed, and answers it now or, if it waits for another process, later.
    pub fn serve_next(&mut self) {
        // The caller may have been killed meanwhile.
        let Ok(notification) = notify::next(self.listener.as_fd()) else {
            return;
        };
        let caller = CallerThread {
            thread: notification.thread,
            access: self.cell.rules.caller_access(),
        };
        let notified = Notified {
            listener: self.listener.as_fd(),
            id: notification.id,
        };
        let answer = SupervisedCall::new(&self.cell, caller, notified).make(&notification);
        match answer {
            Ok(SyscallAnswer::Pending(_)) if self.pending.len() >= PENDING_MAX => {
                self.reply(notification.id, Err(Errno::EAGAIN));
            }
            Ok(SyscallAnswer::Pending(pending)) => self.pending.push((notification.id, pending)),
            answer => self.reply(notification.id, answer),
        }
        self.retry();
    }

    /// Tries again what waits for another process.
    pub fn retry(&mut self) {
        self.cell.loopback.get_mut().check_pending();
        self.cell.kept.get_mut().drop_connected();
        for (id, pending) in std::mem::take(&mut self.pending) {
            if !notify::is_valid(self.listener.as_fd(), id) {
                continue;
            }
            let name = pending.loopback();
            match pending.retry() {
                Ok(SyscallAnswer::Pending(pending)) => self.pending.push((id, pending)),
                answer => {
                    if matches!(answer, Err(Errno::ECONNREFUSED)) {
                        name.into_iter()
                            .for_each(|name| self.cell.loopback.get_mut().unanswered(name));
                    }
                    self.reply(id, answer);
                }
            }
        }
        self.cell.kept.get_mut().drop_connected();
    }

    fn reply(&self, id: u64, answer: Result<SyscallAnswer>) {
        let listener = self.listener.as_fd();
        let answer = match answer {
            Ok(SyscallAnswer::Value(value)) => Ok(value),
            Ok(SyscallAnswer::Readable(fd, on_exec)) => {
                match notify::give_fd(listener, id, fd.as_fd(), on_exec, Wake::Now) {
                    Ok(_) => return,
                    Err(error) => Err(error.raw_os_error().unwrap_or(libc::EMFILE)),
                }
            }
            Ok(SyscallAnswer::Descriptor(fd, on_exec)) => {
                let wake = if may_write(&fd) {
                    Wake::Later
                } else {
                    Wake::Now
                };
                match notify::give_fd(listener, id, fd.as_fd(), on_exec, wake) {
                    Ok(_) if wake == Wake::Now => return,
                    Ok(number) => {
                        // The caller may close the file and execute the program it has written:
                        // while the file is open for writing here, that fails (`ETXTBSY`).
                        drop(fd);
                        Ok(number)
                    }
                    // The caller has too many descriptors, or is gone.
                    Err(error) => Err(error.raw_os_error().unwrap_or(libc::EMFILE)),
                }
            }
            Ok(SyscallAnswer::GoOn) => {
                // An error means that the caller is gone, and needs no answer.
                let _ = notify::go_on(listener, id);
                return;
            }
            Ok(SyscallAnswer::Pending(_)) => Err(libc::EAGAIN),
            Err(errno) => Err(errno as i32),
        };
        // An error means that the caller is gone, and needs no answer.
        let _ = notify::answer(listener, id, answer);
    }
}

fn may_write(fd: &OwnedFd) -> bool {
    let access =
        fcntl(fd, FcntlArg::F_GETFL).map(|flags| OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE);
    access != Ok(OFlag::O_RDONLY)
}
