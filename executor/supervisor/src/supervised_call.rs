//! One supervised call, and what the handling of each needs.

use crate::answer::errno_of;
use crate::caller::{CallerThread, KnownProcess};
use crate::copied_bytes::CopiedBytes;
use crate::empty_directories::EmptyDirectories;
use crate::find::{LastLink, PathSearch};
use crate::flat::ipc_objects::IpcObjects;
use crate::flat::loopback::Loopback;
use crate::flat::loopback_line::LoopbackLine;
use crate::flat::netlink_sockets::NetlinkSockets;
use crate::flat::shared_segments::SharedSegments;
use crate::flat::terminals::Terminals;
use crate::kept_sockets::KeptSockets;
use crate::object::{errno, is};
use crate::passed_over::PassedOver;
use crate::rules::AccessRules;
use crate::second_look::NewNames;
use crate::settings_locks::SettingsLocks;
use crate::socket_names::SocketNames;
use crate::worktrees::Worktrees;
use broker_protocol::AttemptKind;
use executor_spec::refusals::{Cause, Refusals};
use executor_sys::notify::{self, OnExec, Wake};
use nix::Result;
use nix::errno::Errno;
use nix::sys::stat::{FileStat, stat};
use policies_guard::{Rule, Verdict};
use std::cell::RefCell;
use std::ffi::{CString, OsStr};
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// State that the calls of one cell's program share.
pub(crate) struct CellState<'a> {
    pub rules: &'a AccessRules,
    /// The device of `/proc`.
    pub(crate) proc: u64,
    pub(crate) terminals: Terminals,
    /// Where git keeps the worktrees that the program has added.
    pub(crate) worktrees: Worktrees,
    /// The locks that its git has on settings.
    pub(crate) settings_locks: SettingsLocks,
    /// Names that its git operations leave as they are.
    pub(crate) passed_over: PassedOver,
    pub(crate) empty_directories: EmptyDirectories,
    /// The cell's sockets of TCP.
    pub(crate) loopback: RefCell<Loopback>,
    /// The way to the loopback of the session's other cells, if these have no network namespace.
    pub(crate) line: Option<&'a LoopbackLine>,
    /// The names of its Unix sockets.
    pub(crate) socket_names: RefCell<SocketNames>,
    /// Made for it, where nothing can be taken from it.
    pub(crate) kept: RefCell<KeptSockets>,
    /// The shared memory that it has made.
    pub(crate) segments: RefCell<SharedSegments>,
    /// The semaphores and message queues that it has made.
    pub(crate) objects: RefCell<IpcObjects>,
    /// The sockets by which it asks for interfaces.
    pub(crate) netlink: RefCell<NetlinkSockets>,
    pub refusals: RefCell<Refusals>,
    /// Entries that it may have misplaced by now.
    pub(crate) new_names: RefCell<NewNames>,
    /// How much it has copied.
    pub(crate) copied: CopiedBytes,
    pub(crate) known: KnownProcess,
    /// This process's `/proc/self/fd`, through which the kernel reports the paths of open files.
    pub(crate) own_descriptors: OwnedFd,
}

/// A call that is made on behalf of its caller.
pub(crate) struct SupervisedCall<'a> {
    cell: &'a CellState<'a>,
    pub(crate) caller: CallerThread,
    pub(crate) notified: Notified<'a>,
}

impl<'a> SupervisedCall<'a> {
    pub(crate) fn new(
        cell: &'a CellState<'a>,
        caller: CallerThread,
        notified: Notified<'a>,
    ) -> Self {
        Self {
            cell,
            caller,
            notified,
        }
    }
}

impl<'a> Deref for SupervisedCall<'a> {
    type Target = CellState<'a>;

    fn deref(&self) -> &CellState<'a> {
        self.cell
    }
}

/// The kernel's notification of a call.
#[derive(Clone, Copy)]
pub(crate) struct Notified<'a> {
    pub(crate) listener: BorrowedFd<'a>,
    pub(crate) id: u64,
}

impl Notified<'_> {
    /// Whether the caller still waits.
    fn is_waiting(self) -> bool {
        notify::is_valid(self.listener, self.id)
    }

    /// Gives the caller a copy of a descriptor, and returns its number there; the call is answered later.
    pub(crate) fn give(self, fd: BorrowedFd, on_exec: OnExec) -> Result<i64> {
        notify::give_fd(self.listener, self.id, fd, on_exec, Wake::Later).map_err(errno)
    }

    /// Puts a copy of a descriptor in the place of one of the caller's.
    pub(crate) fn replace(self, fd: BorrowedFd, number: i32, on_exec: OnExec) -> Result<()> {
        let number = u32::try_from(number).map_err(|_| Errno::EBADF)?;
        notify::replace_fd(self.listener, self.id, fd, number, on_exec).map_err(errno)
    }
}

impl SupervisedCall<'_> {
    /// Reads a string of the caller, and checks that the caller still waited when it was read.
    pub(crate) fn string(&self, address: u64) -> Result<CString> {
        let string = self.caller.string(address)?;
        self.check()?;
        Ok(string)
    }

    /// Checks that what was read came from the caller: another process may have its number by now.
    pub(crate) fn check(&self) -> Result<()> {
        if self.notified.is_waiting() {
            Ok(())
        } else {
            Err(Errno::ESRCH)
        }
    }

    /// Goes on with a call that the rules allow at a path, and notes and answers a refusal.
    pub(crate) fn admit(&self, kind: AttemptKind, real: &Path, verdict: Verdict) -> Result<()> {
        match verdict {
            Verdict::Allow => Ok(()),
            Verdict::Refuse(rule) => Err(self.refused(kind, real, rule)),
        }
    }

    /// Notes that a rule refused something at a path, and returns the answer. Where programs copy instead, nothing failed.
    pub(crate) fn refused(&self, kind: AttemptKind, real: &Path, rule: Rule) -> Errno {
        if let Some(cause) = self.rules.cause(kind, real, rule) {
            self.note(kind, cause, real.as_os_str().as_bytes());
        }
        errno_of(rule, kind)
    }

    /// Whether what is closed for reading is reported as missing: beside the roots, and in `/` a file.
    pub(crate) fn is_missing(&self, real: &Path, stat: &FileStat) -> bool {
        let in_root = real.parent() == Some(Path::new("/")) && !is(stat, libc::S_IFDIR);
        let outside = !self.rules.areas.own_root && !self.rules.areas.is_visible(real);
        self.rules.areas.is_missing(real) || in_root && outside
    }

    /// Notes that the kernel refused a change outside what a cell may change: what the kernel
    /// refuses inside, it would refuse anybody.
    pub(crate) fn refused_by_kernel(&self, real: &Path) -> impl Fn(Errno) -> Errno {
        move |errno| {
            let closed = matches!(errno, Errno::EACCES | Errno::EPERM | Errno::EROFS);
            if closed && self.rules.is_outside(AttemptKind::Write, real) {
                self.note(
                    AttemptKind::Write,
                    Cause::Outside,
                    real.as_os_str().as_bytes(),
                );
            }
            errno
        }
    }

    /// Notes an attempt to create or change something below a directory that the cell does not show and so appears missing; for
    /// `map_err`. Where the session has its own tree, the root's file system contains only the parents of what is shown.
    pub(crate) fn unseen(&self, path: &[u8]) -> impl Fn(Errno) -> Errno {
        let path = Path::new(OsStr::from_bytes(path));
        move |errno| {
            let plain = || {
                path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
            };
            let way = || {
                path.ancestors()
                    .skip(1)
                    .find_map(|directory| stat(directory).ok())
            };
            let blank = || {
                way()
                    .zip(stat("/").ok())
                    .is_some_and(|(way, root)| way.st_dev == root.st_dev)
            };
            if errno == Errno::ENOENT && self.rules.areas.own_root && plain() && blank() {
                self.note(
                    AttemptKind::Write,
                    Cause::Outside,
                    path.as_os_str().as_bytes(),
                );
            }
            errno
        }
    }

    pub(crate) fn note(&self, kind: AttemptKind, cause: Cause, target: &[u8]) {
        self.refusals.borrow_mut().note(kind, cause, target);
    }

    pub(crate) fn search(&self) -> PathSearch<'_> {
        PathSearch {
            caller: self.caller,
            rules: self.rules,
            proc: self.proc,
        }
    }

    /// The file at a path.
    pub(crate) fn object(&self, from: i32, path: u64, link: LastLink) -> Result<OwnedFd> {
        let path = self.string(path)?;
        let found = self.search().find(from, path.as_bytes(), link)?;
        found.object.ok_or(Errno::ENOENT)
    }
}
