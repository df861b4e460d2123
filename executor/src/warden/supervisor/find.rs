//! Finds what a caller's path means, as a descriptor: links are followed here, and `/proc/self` is the caller's.

use super::Result;
use super::caller::{Caller, PLACE};
use super::rules::{self, Rules};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Most links in one path, as in the kernel.
const LINKS_MAX: usize = 40;
/// The inode of a `/proc`'s root.
const PROC_ROOT: u64 = 1;

/// A name in a directory, and what it stands for.
pub struct Found {
    /// The directory.
    pub parent: OwnedFd,
    /// The name, without a slash.
    pub name: Vec<u8>,
    /// Whether the path said with a slash at its end that it means a directory.
    pub slash: bool,
    /// The file, where it exists; a link itself where it was not to be followed.
    pub object: Option<OwnedFd>,
}

impl Found {
    /// The name as the kernel takes it for this path.
    pub fn last(&self) -> PathBuf {
        let mut name = self.name.clone();
        if self.slash {
            name.push(b'/');
        }
        std::ffi::OsString::from_vec(name).into()
    }

    /// Where it really is.
    pub fn real(&self) -> Result<PathBuf> {
        Ok(rules::real(&self.parent)?.join(OsStr::from_bytes(&self.name)))
    }
}

/// A way to be found.
pub struct Search<'a> {
    /// Whose.
    pub caller: Caller,
    /// What is visible.
    pub rules: &'a Rules,
    /// The device of `/proc`.
    pub proc: u64,
}

impl Search<'_> {
    /// The file at `path` and where it really is, by the kernel's own search: for the most frequent paths. `None` where it must be looked for
    /// name by name: what is missing, and everything that means something else to the caller than to this process.
    pub fn quickly(&self, from: i32, path: &[u8], follow: bool) -> Option<(OwnedFd, PathBuf)> {
        let mut flags = PLACE;
        flags.set(OFlag::O_NOFOLLOW, !follow);
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let path = self.rules.meant(path);
        let path = Path::new(OsStr::from_bytes(&path));
        let found = if path.is_absolute() {
            openat2(AT_FDCWD, path, how)
        } else {
            openat2(self.caller.place(from).ok()?, path, how)
        };
        let found = found.ok()?;
        let real = rules::real(&found).ok()?;
        (!real.starts_with("/proc")).then_some((found, real))
    }

    /// The directory that holds the last name of `path`, by the kernel's own search.
    fn directory_of(&self, from: i32, path: &[u8]) -> Option<OwnedFd> {
        let end = path.iter().rposition(|byte| *byte != b'/')?;
        let slash = path[..end].iter().rposition(|byte| *byte == b'/')?;
        // With its slash: what is not a directory is not found.
        let (directory, _) = self.quickly(from, &path[..=slash], true)?;
        Some(directory)
    }

    /// The file at `path`, or where it would be.
    pub fn find(&self, from: i32, path: &[u8], follow: bool) -> Result<Found> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let path = &*self.rules.meant(path);
        let slash = path.ends_with(b"/");
        let mut left = names(path);
        let mut at = match self.directory_of(from, path) {
            Some(directory) => {
                left.truncate(1);
                directory
            }
            None if path.starts_with(b"/") => root()?,
            None => self.caller.place(from)?,
        };
        let mut links = 0;
        loop {
            let name = left.pop().unwrap_or_else(|| b".".to_vec());
            let last = left.is_empty();
            let found = openat(&at, OsStr::from_bytes(&name), PLACE | OFlag::O_NOFOLLOW, Mode::empty());
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
                    Way::Names(text) => {
                        if text.starts_with(b"/") {
                            at = root()?;
                        }
                        left.extend(names(&text));
                        continue;
                    }
                    Way::There(object) if last => {
                        return Ok(Found { parent: at, name, slash, object: Some(object) });
                    }
                    Way::There(object) => at = object,
                }
                continue;
            }
            self.look(&at, &name, &stat)?;
            if last {
                return Ok(Found { parent: at, name, slash, object: Some(child) });
            }
            at = child;
        }
    }

    /// Where a link leads.
    fn follow(&self, at: &OwnedFd, name: &[u8], link: &OwnedFd) -> Result<Way> {
        if fstat(link)?.st_dev != self.proc {
            return Ok(Way::Names(readlinkat(link, "")?.into_vec()));
        }
        let root = fstat(at)?.st_ino == PROC_ROOT;
        match name {
            b"self" if root => Ok(Way::Names(self.caller.process()?.to_string().into_bytes())),
            b"thread-self" if root => {
                let (process, thread) = (self.caller.process()?, self.caller.thread);
                Ok(Way::Names(format!("{process}/task/{thread}").into_bytes()))
            }
            _ => {
                let how = OpenHow::new().flags(PLACE).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
                // ELOOP: the kernel goes to a file, and the text is for people. The way lies below a process that
                // `look` has let pass.
                match openat2(at, OsStr::from_bytes(name), how) {
                    Err(Errno::ELOOP) => {
                        Ok(Way::There(openat(at, OsStr::from_bytes(name), PLACE, Mode::empty())?))
                    }
                    _ => Ok(Way::Names(readlinkat(link, "")?.into_vec())),
                }
            }
        }
    }

    /// Other processes are not there.
    fn look(&self, at: &OwnedFd, name: &[u8], child: &FileStat) -> Result<()> {
        if child.st_dev != self.proc {
            return Ok(());
        }
        self.rules.visible(&rules::real(at)?.join(OsStr::from_bytes(name)))
    }
}

enum Way {
    Names(Vec<u8>),
    There(OwnedFd),
}

fn root() -> Result<OwnedFd> {
    open("/", PLACE, Mode::empty())
}

/// The names of a path, the first one last.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).rev().collect()
}

/// What kind a file is of (`S_IF*`).
pub fn kind(stat: &FileStat) -> libc::mode_t {
    stat.st_mode & libc::S_IFMT
}

/// Whether a file is of a kind (`S_IF*`).
pub fn is(stat: &FileStat, other: libc::mode_t) -> bool {
    kind(stat) == other
}

/// A path by which the kernel finds the file behind a descriptor of this process.
pub fn by_descriptor(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}
