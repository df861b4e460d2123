//! Opens what is only read, at one look: most calls of a program that reads much.
//!
//! A path without links and without `..` says itself where its file is, so the rules are asked before that is opened. Here is only
//! what they leave open: all else is looked for name by name (`find.rs`), decided and refused in `open.rs`.

use crate::answer::{Answer, Pending, set_flags};
use crate::call::Call;
use crate::object::kind;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::fstat;
use policies::Protection;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

impl Call<'_> {
    /// Opens the file or directory at a path to read it, or says that there is none. `None` where that is not decided here.
    pub fn read(&self, from: i32, path: &[u8], flags: OFlag) -> Option<Result<Answer>> {
        let path = Path::new(OsStr::from_bytes(path));
        let (directory, above) = match path.is_absolute() {
            true => (None, PathBuf::from("/")),
            false => {
                let directory = self.caller.directory(from, self.known).ok()?;
                let above = self.path_of_own(&directory).filter(|above| above.is_absolute())?;
                (Some(directory), above)
            }
        };
        let real = below(above, path)?;
        if !self.is_open_for_reading(&real) {
            return None;
        }
        // With `O_NONBLOCK` neither a FIFO nor a lease has this process wait.
        let at_once = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(at_once).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
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

    /// The path of the file behind a descriptor of this process, as the kernel names it.
    fn path_of_own(&self, fd: &OwnedFd) -> Option<PathBuf> {
        readlinkat(self.own_descriptors, fd.as_raw_fd().to_string().as_str()).ok().map(PathBuf::from)
    }

    /// Whether nothing closes this path to reading, and it means to the caller what it means here.
    fn is_open_for_reading(&self, real: &Path) -> bool {
        let areas = &self.rules.areas;
        let own = ["/proc", "/dev"].iter().any(|own| real.starts_with(own)) || areas.is_hidden_tmp(real);
        !own && areas.is_visible(real) && self.rules.is_open_for_reading(real)
    }

    /// What is handed over of a file that was opened.
    fn opened(&self, file: OwnedFd, flags: OFlag) -> Option<Result<Answer>> {
        let stat = fstat(&file).ok()?;
        if self.rules.protection_of_object(&file, &stat) == Some(Protection::All) {
            return None;
        }
        let close_on_exec = flags.contains(OFlag::O_CLOEXEC);
        match kind(&stat) {
            libc::S_IFREG | libc::S_IFDIR if flags.contains(OFlag::O_NONBLOCK) => {
                Some(Ok(Answer::Readable(file, close_on_exec)))
            }
            libc::S_IFREG | libc::S_IFDIR => {
                Some(set_flags(&file, flags).map(|()| Answer::Readable(file, close_on_exec)))
            }
            libc::S_IFIFO => Some(Pending::reader(file, flags, close_on_exec)),
            // A terminal may be another's.
            _ => None,
        }
    }
}

/// A path in the directory `above`, where it leads nowhere else.
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
