//! One supervised call, and what all of them need.

use crate::caller::{Caller, KnownProcess};
use crate::empty_directories::EmptyDirectories;
use crate::find::Search;
use crate::loopback::Loopback;
use crate::refusals::{Cause, Refusals};
use crate::rules::AccessRules;
use crate::socket_names::SocketNames;
use crate::terminals::Terminals;
use crate::worktrees::Worktrees;
use broker_protocol::AttemptKind;
use nix::Result;
use nix::errno::Errno;
use nix::sys::stat::stat;
use std::cell::RefCell;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// A call that is being made in its caller's place.
pub struct Call<'a> {
    pub rules: &'a AccessRules,
    /// The device of `/proc`.
    pub proc: u64,
    pub caller: Caller,
    pub known: &'a KnownProcess,
    /// `/proc/self/fd`, where the supervisor names its own by number.
    pub own_descriptors: &'a OwnedFd,
    pub terminals: &'a Terminals,
    pub worktrees: &'a Worktrees,
    pub empty_directories: &'a EmptyDirectories,
    pub loopback: &'a RefCell<Loopback>,
    pub socket_names: &'a RefCell<SocketNames>,
    pub refusals: &'a RefCell<Refusals>,
    /// Whether the caller still waits.
    pub is_waiting: &'a dyn Fn() -> bool,
}

impl Call<'_> {
    /// A string of the caller, which was waiting when it was read.
    pub fn string(&self, address: u64) -> Result<CString> {
        let string = self.caller.string(address)?;
        self.check()?;
        Ok(string)
    }

    /// Whether what was read of the caller was the caller's: its number may be another's by now.
    pub fn check(&self) -> Result<()> {
        if (self.is_waiting)() { Ok(()) } else { Err(Errno::ESRCH) }
    }

    /// Notes that the rules have refused something at a path; for `map_err`.
    pub fn refused(&self, kind: AttemptKind, real: &Path) -> impl Fn(Errno) -> Errno {
        move |errno| {
            if matches!(errno, Errno::EACCES | Errno::EPERM) {
                self.note(kind, self.rules.cause(kind, real), real.as_os_str().as_bytes());
            }
            errno
        }
    }

    /// Notes that the kernel has refused to change something, where it is not what a cell may change: what it refuses inside, it
    /// would refuse anybody.
    pub fn refused_by_kernel(&self, real: &Path) -> impl Fn(Errno) -> Errno {
        move |errno| {
            let closed = matches!(errno, Errno::EACCES | Errno::EPERM | Errno::EROFS);
            if closed && self.rules.cause(AttemptKind::Write, real) == Cause::Outside {
                self.note(AttemptKind::Write, Cause::Outside, real.as_os_str().as_bytes());
            }
            errno
        }
    }

    /// Notes that something was to be made or changed below a directory that the cell does not show, and which is missing to it; for
    /// `map_err`. In a tree of the session's own, the file system of the root holds nothing but the ways to what is shown.
    pub fn unseen(&self, path: &[u8]) -> impl Fn(Errno) -> Errno {
        let path = Path::new(OsStr::from_bytes(path));
        move |errno| {
            let plain = || path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
            let way = || path.ancestors().skip(1).find_map(|directory| stat(directory).ok());
            let blank = || way().zip(stat("/").ok()).is_some_and(|(way, root)| way.st_dev == root.st_dev);
            if errno == Errno::ENOENT && self.rules.areas.own_root && plain() && blank() {
                self.note(AttemptKind::Write, Cause::Outside, path.as_os_str().as_bytes());
            }
            errno
        }
    }

    /// Notes a refusal.
    pub fn note(&self, kind: AttemptKind, cause: Cause, target: &[u8]) {
        self.refusals.borrow_mut().note(kind, cause, target);
    }

    pub fn search(&self) -> Search<'_> {
        Search { caller: self.caller, rules: self.rules, proc: self.proc }
    }

    /// The file at a path.
    pub fn object(&self, from: i32, path: u64, follow: bool) -> Result<OwnedFd> {
        let path = self.string(path)?;
        let found = self.search().find(from, path.as_bytes(), follow)?;
        found.object.ok_or(Errno::ENOENT)
    }
}
