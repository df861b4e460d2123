//! Finds what a caller's path means, as a descriptor: links are followed here, and `/proc/self` is the caller's.

use crate::areas::Areas;
use crate::caller::{Caller, PATH_ONLY};
use crate::object::{is, real};
use crate::rules::AccessRules;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Most links in one path, as in the kernel.
const LINKS_MAX: usize = 40;
/// The inode of a `/proc`'s root.
const PROC_ROOT: u64 = 1;

/// A name in a directory, and what it stands for.
pub struct Found {
    pub parent: OwnedFd,
    /// The name, without a slash.
    pub name: Vec<u8>,
    /// Whether the path ends with a slash, and so means a directory.
    pub slash: bool,
    /// The file, where it exists; a link itself where it was not to be followed.
    pub object: Option<OwnedFd>,
}

impl Found {
    /// The name as the kernel takes it for this path.
    pub fn name_for_kernel(&self) -> PathBuf {
        let mut name = self.name.clone();
        if self.slash {
            name.push(b'/');
        }
        std::ffi::OsString::from_vec(name).into()
    }

    /// Its real path, where it is to be made, moved or removed.
    pub fn real(&self, areas: &Areas) -> Result<PathBuf> {
        let directory = real(&self.parent)?;
        areas.check_private(&self.parent, &directory)?;
        Ok(directory.join(OsStr::from_bytes(&self.name)))
    }
}

/// A search for what a path of `caller` means.
pub struct Search<'a> {
    pub caller: Caller,
    pub rules: &'a AccessRules,
    /// The device of `/proc`.
    pub proc: u64,
}

impl Search<'_> {
    /// The file at `path` and where it really is, by the kernel's own search: for the most frequent paths. `None` where it must be looked for
    /// name by name: what is missing, and everything that means something else to the caller than to this process.
    pub fn by_kernel(&self, from: i32, path: &[u8], follow: bool) -> Option<(OwnedFd, PathBuf)> {
        let mut flags = PATH_ONLY;
        flags.set(OFlag::O_NOFOLLOW, !follow);
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let path = self.rules.areas.map_shared_memory(path);
        let path = Path::new(OsStr::from_bytes(&path));
        // Links in the machine's `/tmp` are other people's.
        if self.rules.areas.is_hidden_tmp(path) {
            return None;
        }
        let found = if path.is_absolute() {
            openat2(AT_FDCWD, path, how)
        } else {
            openat2(self.caller.path_of(from).ok()?, path, how)
        };
        let found = found.ok()?;
        let real = real(&found).ok()?;
        let other = real.starts_with("/proc") || self.rules.areas.is_hidden_tmp(&real);
        (!other).then_some((found, real))
    }

    /// The directory that holds the last name of `path`, by the kernel's own search.
    fn directory_of(&self, from: i32, path: &[u8]) -> Option<OwnedFd> {
        let end = path.iter().rposition(|byte| *byte != b'/')?;
        let slash = path[..end].iter().rposition(|byte| *byte == b'/')?;
        // With its slash: what is not a directory is not found.
        let (directory, _) = self.by_kernel(from, &path[..=slash], true)?;
        Some(directory)
    }

    /// The file at `path`, or where it would be.
    pub fn find(&self, from: i32, path: &[u8], follow: bool) -> Result<Found> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let path = &*self.rules.areas.map_shared_memory(path);
        let slash = path.ends_with(b"/");
        let mut left = names(path);
        let mut at = match self.directory_of(from, path) {
            Some(directory) => {
                left.truncate(1);
                directory
            }
            None if path.starts_with(b"/") => root()?,
            None => self.caller.path_of(from)?,
        };
        let mut links = 0;
        loop {
            let name = left.pop().unwrap_or_else(|| b".".to_vec());
            let last = left.is_empty();
            at = self.own_tmp(at, &name)?;
            let found = openat(&at, OsStr::from_bytes(&name), PATH_ONLY | OFlag::O_NOFOLLOW, Mode::empty());
            let child = match found {
                Err(Errno::ENOENT) if last => {
                    return Ok(Found { parent: at, name, slash, object: None });
                }
                found => found?,
            };
            let stat = fstat(&child)?;
            if is(&stat, libc::S_IFLNK) && (!last || follow || slash) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP);
                }
                match self.follow(&at, &name, &child)? {
                    Target::Names(text) => {
                        if text.starts_with(b"/") {
                            at = root()?;
                        }
                        left.extend(names(&text));
                        continue;
                    }
                    Target::Object(object) if last => {
                        let object = Some(self.own_tmp(object, b".")?);
                        return Ok(Found { parent: at, name, slash, object });
                    }
                    Target::Object(object) => at = object,
                }
                continue;
            }
            self.check_process(&at, &name, &stat)?;
            if last {
                let object = Some(self.own_tmp(child, b".")?);
                return Ok(Found { parent: at, name, slash, object });
            }
            at = child;
        }
    }

    /// The directory in which a program means `name` that is on its way through `at`: its own instead of the machine's `/tmp`.
    fn own_tmp(&self, at: OwnedFd, name: &[u8]) -> Result<OwnedFd> {
        if self.rules.areas.own_root {
            return Ok(at);
        }
        match self.rules.areas.private_tmp(&real(&at)?, name) {
            Some(private) => open(private, PATH_ONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty()),
            None => Ok(at),
        }
    }

    fn follow(&self, at: &OwnedFd, name: &[u8], link: &OwnedFd) -> Result<Target> {
        if fstat(link)?.st_dev != self.proc {
            return Ok(Target::Names(readlinkat(link, "")?.into_vec()));
        }
        let root = fstat(at)?.st_ino == PROC_ROOT;
        match name {
            b"self" if root => Ok(Target::Names(self.caller.process()?.to_string().into_bytes())),
            b"thread-self" if root => {
                let (process, thread) = (self.caller.process()?, self.caller.thread);
                Ok(Target::Names(format!("{process}/task/{thread}").into_bytes()))
            }
            _ => {
                let how = OpenHow::new().flags(PATH_ONLY).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
                // ELOOP: the kernel goes to a file, and the text is for people. The way lies below a process that
                // `check_process` has let pass.
                match openat2(at, OsStr::from_bytes(name), how) {
                    Err(Errno::ELOOP) => {
                        Ok(Target::Object(openat(at, OsStr::from_bytes(name), PATH_ONLY, Mode::empty())?))
                    }
                    _ => Ok(Target::Names(readlinkat(link, "")?.into_vec())),
                }
            }
        }
    }

    /// Other processes are not there.
    fn check_process(&self, at: &OwnedFd, name: &[u8], child: &FileStat) -> Result<()> {
        if child.st_dev != self.proc {
            return Ok(());
        }
        self.rules.check_process(&real(at)?.join(OsStr::from_bytes(name)))
    }
}

enum Target {
    Names(Vec<u8>),
    Object(OwnedFd),
}

fn root() -> Result<OwnedFd> {
    open("/", PATH_ONLY, Mode::empty())
}

/// The names of a path, the first one last.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).rev().collect()
}
