//! Resolves a caller's path to a descriptor: links are followed here, and `/proc/self` is the caller's.

use crate::answer::unnoted;
use crate::areas::Areas;
use crate::caller::{CallerThread, KnownProcess, PATH_ONLY};
use crate::object::{Handle, is, real};
use crate::rules::AccessRules;
use broker_protocol::AttemptKind;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};
use policies_guard::DirectoryName;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Maximum number of links in one path, as in the kernel.
const LINKS_MAX: usize = 40;
/// The inode number of the root of a procfs.
const PROC_ROOT: u64 = 1;

/// A name in a directory, and the object it refers to.
pub(crate) struct FoundName {
    pub(crate) parent: OwnedFd,
    /// The name, without a slash.
    pub name: Vec<u8>,
    /// Whether the path ends with a slash, and so requires a directory.
    pub(crate) slash: bool,
    /// The file, if it exists; for a link that was not to be followed, the link itself.
    pub(crate) object: Option<OwnedFd>,
}

impl FoundName {
    /// The name in the form that keeps the path's meaning for the kernel.
    pub(crate) fn name_for_kernel(&self) -> PathBuf {
        let mut name = self.name.clone();
        if self.slash {
            name.push(b'/');
        }
        std::ffi::OsString::from_vec(name).into()
    }

    /// The name at its real path.
    pub(crate) fn at<'n>(&'n self, path: &'n Path) -> DirectoryName<'n, Handle<'n>> {
        let (parent, name) = (Handle::new(&self.parent), OsStr::from_bytes(&self.name));
        DirectoryName { parent, name, path }
    }

    /// Checks that nothing has the name, before any rule: the kernel reports this first too, and programs go on if a name is there.
    ///
    /// # Errors
    /// `EEXIST` if something has it.
    pub(crate) fn require_free(&self) -> Result<()> {
        match self.object {
            Some(_) => Err(Errno::EEXIST),
            None => Ok(()),
        }
    }

    /// Its real path, for creating, moving or removing it.
    pub(crate) fn real(&self, areas: &Areas) -> Result<PathBuf> {
        let directory = real(&self.parent)?;
        unnoted(
            areas.check_private(&self.parent, &directory)?,
            AttemptKind::Write,
        )?;
        Ok(directory.join(OsStr::from_bytes(&self.name)))
    }
}

/// Resolution of a path of `caller`.
pub(crate) struct PathSearch<'a> {
    pub(crate) caller: CallerThread,
    pub rules: &'a AccessRules,
    /// The device of `/proc`.
    pub(crate) proc: u64,
}

/// Whether a link that is the last name of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
}

impl LastLink {
    pub(crate) fn follow_if(follows: bool) -> Self {
        match follows {
            true => Self::Follow,
            false => Self::Keep,
        }
    }
}

/// Reads this from the flags of `fstatat` and its relatives.
pub(crate) fn last_link(flags: i32) -> LastLink {
    LastLink::follow_if(flags & libc::AT_SYMLINK_NOFOLLOW == 0)
}

impl PathSearch<'_> {
    /// The file at `path` and its real path, resolved by the kernel: a fast way for the most frequent paths. `None` if
    /// it must be resolved name by name: if it is missing, or means something else to the caller than to this process.
    pub(crate) fn by_kernel(
        &self,
        from: i32,
        path: &[u8],
        link: LastLink,
    ) -> Option<(OwnedFd, PathBuf)> {
        let mut flags = PATH_ONLY;
        flags.set(OFlag::O_NOFOLLOW, link == LastLink::Keep);
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let path = Path::new(OsStr::from_bytes(path));
        // Links there are other people's.
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

    /// The directory that contains the last name of `path`, resolved by the kernel.
    fn directory_of(&self, from: i32, path: &[u8]) -> Option<OwnedFd> {
        let end = path.iter().rposition(|byte| *byte != b'/')?;
        let slash = path[..end].iter().rposition(|byte| *byte == b'/')?;
        // Includes the slash, so that anything but a directory is an error.
        let (directory, _) = self.by_kernel(from, &path[..=slash], LastLink::Follow)?;
        Some(directory)
    }

    /// The directory of the last name of `path`, and that name, where cells see a tree of their own and neither needs another look.
    pub(crate) fn parent_of<'p>(
        &self,
        from: i32,
        path: &'p [u8],
        known: &KnownProcess,
    ) -> Option<(OwnedFd, &'p [u8])> {
        let start = path.iter().rposition(|byte| *byte == b'/');
        let name = &path[start.map_or(0, |start| start + 1)..];
        if !self.rules.areas.own_root || matches!(name, b"" | b"." | b"..") {
            return None;
        }
        let parent = match start {
            Some(_) => self.directory_of(from, path)?,
            None => self.caller.directory(from, known).ok()?,
        };
        Some((parent, name))
    }

    /// The file at `path`, or the place where it would be created.
    pub(crate) fn find(&self, from: i32, path: &[u8], link: LastLink) -> Result<FoundName> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let slash = path.ends_with(b"/");
        let place = |parent, name, object| FoundName {
            parent,
            name,
            slash,
            object,
        };
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
            let child = match itself(&at, &name) {
                Err(Errno::ENOENT) if last => return Ok(place(at, name, None)),
                child => child?,
            };
            let stat = fstat(&child)?;
            if is(&stat, libc::S_IFLNK) && (!last || link == LastLink::Follow || slash) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP);
                }
                match self.follow(&at, &name, &child)? {
                    StepTarget::Names(text) => {
                        if text.starts_with(b"/") {
                            at = root()?;
                        }
                        left.extend(names(&text));
                        continue;
                    }
                    StepTarget::Object(object) if last => {
                        let object = self.own_tmp(object, b".")?;
                        return Ok(place(at, name, Some(object)));
                    }
                    StepTarget::Object(object) => at = object,
                }
                continue;
            }
            self.check_process(&at, &name, &stat)?;
            if last {
                let object = self.own_tmp(child, b".")?;
                return Ok(place(at, name, Some(object)));
            }
            at = child;
        }
    }

    /// The directory in which `name`, looked up in `at`, is to be found: the caller's own in place of the machine's `/tmp`.
    fn own_tmp(&self, at: OwnedFd, name: &[u8]) -> Result<OwnedFd> {
        if self.rules.areas.own_root {
            return Ok(at);
        }
        match self.rules.areas.private_tmp(&real(&at)?, name) {
            Some(private) => open(
                private,
                PATH_ONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW,
                Mode::empty(),
            ),
            None => Ok(at),
        }
    }

    fn follow(&self, at: &OwnedFd, name: &[u8], link: &OwnedFd) -> Result<StepTarget> {
        if fstat(link)?.st_dev != self.proc {
            return Ok(StepTarget::Names(readlinkat(link, "")?.into_vec()));
        }
        let root = fstat(at)?.st_ino == PROC_ROOT;
        match name {
            b"self" if root => Ok(StepTarget::Names(
                self.caller.process()?.to_string().into_bytes(),
            )),
            b"thread-self" if root => {
                let (process, thread) = (self.caller.process()?, self.caller.thread);
                Ok(StepTarget::Names(
                    format!("{process}/task/{thread}").into_bytes(),
                ))
            }
            _ => {
                let how = OpenHow::new()
                    .flags(PATH_ONLY)
                    .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
                // ELOOP: it is a magic link, which the kernel resolves to a file, and its text is only for
                // display. The path goes through a process that `check_process` has allowed.
                match openat2(at, OsStr::from_bytes(name), how) {
                    Err(Errno::ELOOP) => Ok(StepTarget::Object(openat(
                        at,
                        OsStr::from_bytes(name),
                        PATH_ONLY,
                        Mode::empty(),
                    )?)),
                    _ => Ok(StepTarget::Names(readlinkat(link, "")?.into_vec())),
                }
            }
        }
    }

    /// Makes other processes appear not to exist.
    fn check_process(&self, at: &OwnedFd, name: &[u8], child: &FileStat) -> Result<()> {
        if child.st_dev != self.proc {
            return Ok(());
        }
        self.rules
            .check_process(&real(at)?.join(OsStr::from_bytes(name)))
    }
}

enum StepTarget {
    Names(Vec<u8>),
    Object(OwnedFd),
}

fn root() -> Result<OwnedFd> {
    open("/", PATH_ONLY, Mode::empty())
}

/// The components of a path in reverse order.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).rev().collect()
}

/// The object with this name in a directory; a link is not followed.
fn itself(directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    let flags = PATH_ONLY | OFlag::O_NOFOLLOW;
    openat(directory, OsStr::from_bytes(name), flags, Mode::empty())
}
