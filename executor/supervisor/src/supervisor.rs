//! Handles a supervised call, from the kernel's notification to the answer.

use crate::answer::{Pending, SyscallAnswer};
use crate::call::{Notified, SupervisedCall};
use crate::caller::{CallerThread, KnownProcess, PATH_ONLY};
use crate::copied_bytes::CopiedBytes;
use crate::empty_directories::EmptyDirectories;
use crate::ipc_objects::{IpcObjects, IpcRecord};
use crate::kept_sockets::KeptSockets;
use crate::loopback::Loopback;
use crate::loopback_line::LoopbackLine;
use crate::netlink_sockets::NetlinkSockets;
use crate::new_names::NewNames;
use crate::passed_over::PassedOver;
use crate::rules::AccessRules;
use crate::settings_locks::SettingsLocks;
use crate::shared_segments::SharedSegments;
use crate::socket_names::SocketNames;
use crate::terminals::Terminals;
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
    rules: &'a AccessRules,
    /// The device of `/proc`.
    proc: u64,
    listener: OwnedFd,
    terminals: Terminals,
    /// Where git keeps the worktrees that the program has added.
    worktrees: Worktrees,
    /// The locks that its git has on settings.
    settings_locks: SettingsLocks,
    /// Names that its git operations leave as they are.
    passed_over: PassedOver,
    empty_directories: EmptyDirectories,
    /// The cell's sockets of TCP.
    loopback: RefCell<Loopback>,
    line: Option<&'a LoopbackLine>,
    /// The names of its Unix sockets.
    socket_names: RefCell<SocketNames>,
    /// What was made for it, where nothing can be taken from it.
    kept: RefCell<KeptSockets>,
    /// The shared memory that it has made.
    segments: RefCell<SharedSegments>,
    /// The semaphores and message queues that it has made.
    objects: RefCell<IpcObjects>,
    /// The sockets by which it asks for interfaces.
    netlink: RefCell<NetlinkSockets>,
    refusals: RefCell<Refusals>,
    /// What it may have misplaced.
    new_names: RefCell<NewNames>,
    /// How much it has copied.
    copied: CopiedBytes,
    known: KnownProcess,
    /// This process's `/proc/self/fd`, through which the kernel reports the paths of open files.
    own_descriptors: OwnedFd,
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
        Ok(Self {
            rules,
            proc,
            listener,
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
            pending: Vec::new(),
        })
    }

    fn call<'c>(&'c self, caller: CallerThread, notified: Notified<'c>) -> SupervisedCall<'c> {
        let Self {
            rules,
            proc,
            terminals,
            worktrees,
            settings_locks,
            passed_over,
            empty_directories,
            loopback,
            line,
            socket_names,
            kept,
            segments,
            objects,
            netlink,
            refusals,
            new_names,
            copied,
            known,
            own_descriptors,
            ..
        } = self;
        let (proc, line) = (*proc, *line);
        SupervisedCall {
            rules,
            proc,
            caller,
            known,
            own_descriptors,
            terminals,
            worktrees,
            settings_locks,
            passed_over,
            empty_directories,
            loopback,
            line,
            socket_names,
            kept,
            segments,
            objects,
            netlink,
            refusals,
            new_names,
            copied,
            notified,
        }
    }

    /// Records that the program is given a terminal.
    pub fn note_terminal(&self) {
        self.terminals.any.set(true);
    }

    /// Readable when a call is pending.
    pub fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// Readable when another cell of the session wants to connect to a listener of this one.
    pub fn line(&self) -> Option<BorrowedFd<'_>> {
        let open = self.line.filter(|line| line.is_open());
        open.map(LoopbackLine::descriptor)
    }

    /// Connects other cells of the session to listeners of this one.
    pub fn connect_others(&mut self) {
        let loopback = self.loopback.get_mut();
        self.line.iter().for_each(|line| line.serve(loopback));
    }

    /// Looks after what the program has left, when all of it is dead.
    pub fn tidy(&self) {
        self.line.iter().for_each(|line| line.end());
        self.objects.borrow_mut().remove_all();
        self.empty_directories.remove();
        for name in self.loopback.borrow_mut().take_unanswered() {
            let target = SocketAddr::new(name.ip, name.port).to_string();
            let (kind, cause) = (AttemptKind::Connect, Cause::Network);
            self.refusals
                .borrow_mut()
                .note(kind, cause, target.as_bytes());
        }
        let passed_over = self.passed_over.report(self.rules);
        self.refusals.borrow_mut().lead_with(passed_over);
        let misplaced = self.new_names.borrow_mut().examine(self.rules);
        self.refusals.borrow_mut().lead_with(misplaced);
    }

    /// Takes the refusals noted so far.
    pub fn take_refusals(&self) -> Refusals {
        self.refusals.take()
    }

    /// Ends the supervisor when no process can call any more.
    pub fn into_listener(self) -> OwnedFd {
        self.listener
    }

    /// Whether calls or handshakes wait for another process, so that [`Self::retry`] must be called soon.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.loopback.borrow().waits()
    }

    pub fn answer(&mut self) {
        // The caller may have been killed meanwhile.
        let Ok(notification) = notify::next(self.listener.as_fd()) else {
            return;
        };
        let caller = CallerThread {
            thread: notification.thread,
            access: self.rules.caller_access(),
        };
        let notified = Notified {
            listener: self.listener.as_fd(),
            id: notification.id,
        };
        let answer = self.call(caller, notified).make(&notification);
        match answer {
            Ok(SyscallAnswer::Pending(_)) if self.pending.len() >= PENDING_MAX => {
                self.reply(notification.id, Err(Errno::EAGAIN));
            }
            Ok(SyscallAnswer::Pending(pending)) => self.pending.push((notification.id, pending)),
            answer => self.reply(notification.id, answer),
        }
        self.retry();
    }

    pub fn retry(&mut self) {
        self.loopback.get_mut().check_pending();
        self.kept.get_mut().drop_connected();
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
                            .for_each(|name| self.loopback.get_mut().unanswered(name));
                    }
                    self.reply(id, answer);
                }
            }
        }
        self.kept.get_mut().drop_connected();
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
