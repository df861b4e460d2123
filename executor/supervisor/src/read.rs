//! A fast path for opening files that are only read: most calls of a program that reads much.
//!
//! A path without links and without `..` shows by itself where its file is, so the rules are checked before it is opened. Only
//! what they allow is handled here: everything else is resolved name by name (`find.rs`), decided and refused in `opened_files.rs`.

use crate::answer::{Pending, SyscallAnswer, set_flags};
use crate::object::{Handle, kind};
use crate::supervised_call::SupervisedCall;
use executor_sys::notify::OnExec;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::fstat;
use policies_guard::{Protection, Tree};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

impl SupervisedCall<'_> {
    /// Opens the file or directory at a path for reading, or returns that there is none. `None` if that is not decided here.
    pub(crate) fn read(
        &self,
        from: i32,
        path: &[u8],
        flags: OFlag,
    ) -> Option<Result<SyscallAnswer>> {
        let path = Path::new(OsStr::from_bytes(path));
        let (directory, above) = match path.is_absolute() {
            true => (None, PathBuf::from("/")),
            false => {
                let directory = self.caller.directory(from, &self.known).ok()?;
                let above = self
                    .path_of_own(&directory)
                    .filter(|above| above.is_absolute())?;
                (Some(directory), above)
            }
        };
        let real = below(above, path)?;
        if !self.is_open_for_reading(&real) {
            return None;
        }
        // With `O_NONBLOCK` this process blocks neither on a FIFO nor on a file lease.
        let at_once = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let how = OpenHow::new()
            .flags(at_once)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = match &directory {
            Some(directory) => openat2(directory, path, how),
            None => openat2(AT_FDCWD, path, how),
        };
        match opened {
            Ok(file) => self.opened(file, flags),
            Err(Errno::ENOENT) => Some(Err(Errno::ENOENT)),
            Err(_) => None,
        }
    }

    /// The path of the file behind a descriptor of this process, as the kernel reports it.
    fn path_of_own(&self, fd: &OwnedFd) -> Option<PathBuf> {
        readlinkat(&self.own_descriptors, fd.as_raw_fd().to_string().as_str())
            .ok()
            .map(PathBuf::from)
    }

    /// Whether nothing closes this path for reading, and the caller means the same file by it.
    fn is_open_for_reading(&self, real: &Path) -> bool {
        let areas = &self.rules.areas;
        let own =
            ["/proc", "/dev"].iter().any(|own| real.starts_with(own)) || areas.is_hidden_tmp(real);
        let hosts_file = self.rules.hosts_file.as_ref();
        let own = own || hosts_file.is_some_and(|file| file.is_at(real));
        !own && areas.is_visible(real) && self.rules.judge().is_open_for_reading(real)
    }

    /// The answer for a file that was opened.
    fn opened(&self, file: OwnedFd, flags: OFlag) -> Option<Result<SyscallAnswer>> {
        let stat = fstat(&file).ok()?;
        if self.rules.protection_of_object(Handle::with(&file, &stat)) == Some(Protection::All) {
            return None;
        }
        let on_exec = OnExec::close_if(flags.contains(OFlag::O_CLOEXEC));
        match kind(&stat) {
            libc::S_IFREG | libc::S_IFDIR if flags.contains(OFlag::O_NONBLOCK) => {
                Some(Ok(SyscallAnswer::Readable(file, on_exec)))
            }
            libc::S_IFREG | libc::S_IFDIR => {
                Some(set_flags(&file, flags).map(|()| SyscallAnswer::Readable(file, on_exec)))
            }
            libc::S_IFIFO => Some(Pending::reader(file, flags, on_exec)),
            // A terminal may belong to another session.
            _ => None,
        }
    }
}

/// A path in the directory `above`, if it does not lead out of it.
fn below(mut above: PathBuf, path: &Path) -> Option<PathBuf> {
    path.components().next()?;
    for part in path.components() {
        match part {
            Component::Normal(name) => above.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(above)
}
