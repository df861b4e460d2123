//! The open roots, and names below them.

use broker_protocol::{Zone, ZonePath};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode};
use policies_guard::Access;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Flags to open a file for reading: a FIFO does not make us block (though a waiting writer is
/// released), and a terminal does not become our controlling one.
pub(crate) const READING: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY);
/// Flags to open a directory for reading.
pub(crate) const LISTING: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);
/// Flags to open a directory in order to act on its entries.
pub(crate) const ENTERING: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);
/// Flags to open any object for its metadata only.
pub(crate) const LOOKING: OFlag = OFlag::O_PATH;
/// The same, but a link at the end is the link itself.
pub(crate) const LOOKING_AT_LINKS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW);

/// Maximum attempts at an open that the kernel asks to repeat.
const ATTEMPTS: usize = 16;

#[derive(Debug)]
pub(crate) struct OpenRoot {
    directory: OwnedFd,
    pub path: PathBuf,
    pub writable: bool,
}

#[derive(Debug)]
pub(crate) struct OpenRoots {
    pub project: OpenRoot,
    pub central: OpenRoot,
    /// The machine's tree as the worker sees it: `/`.
    pub granted: OpenRoot,
}

impl OpenRoot {
    /// Opens the directory `path`, which is absolute and has no links in it.
    pub(crate) fn open(path: &str, access: Access) -> io::Result<Self> {
        let directory = open(
            path,
            ENTERING | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            directory,
            path: path.into(),
            writable: access == Access::Write,
        })
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.directory
    }

    /// Opens `path` below this root.
    pub(crate) fn open_beneath(&self, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        open_beneath(&self.directory, path, flags, Mode::empty())
    }
}

/// Opens `path` below `directory`, without following any link on the way.
pub(crate) fn open_beneath(
    directory: &OwnedFd,
    path: &Path,
    flags: OFlag,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .mode(mode)
        .resolve(resolve);
    for _ in 1..ATTEMPTS {
        match openat2(directory, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            opened => return opened,
        }
    }
    openat2(directory, path, how)
}

/// A name in a zone, which may contain bytes that are not UTF-8. `path` is relative to the zone's root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    pub zone: Zone,
    pub path: PathBuf,
}

impl From<&ZonePath> for Location {
    fn from(path: &ZonePath) -> Self {
        Self {
            zone: path.zone(),
            path: path.relative().into(),
        }
    }
}

impl Location {
    /// The location as text, if it is valid text.
    pub(crate) fn to_zone_path(&self) -> Option<ZonePath> {
        ZonePath::new(self.zone, self.path.to_str()?).ok()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zone {
            Zone::Project | Zone::Central => {
                write!(f, "{}:{}", self.zone.name(), self.path.display())
            }
            Zone::Granted => write!(f, "/{}", self.path.display()),
        }
    }
}

/// Whether `stat` is of this `kind` (`S_IFMT`).
pub(crate) fn is(stat: &FileStat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

/// The kind of file with this state, in words.
pub(crate) fn kind(stat: &FileStat) -> &'static str {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => "a regular file",
        libc::S_IFDIR => "a directory",
        libc::S_IFLNK => "a symbolic link",
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        _ => "a device",
    }
}
