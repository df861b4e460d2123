//! Opens what a path names, beneath its root and nowhere else, and says which name that really was.
//!
//! Every open is one `openat2` that refuses links of every kind (`RESOLVE_NO_SYMLINKS`), so that the name that was
//! opened is the name that was asked about. Only when that says `ELOOP` is the path resolved by hand: name by name,
//! each link read through a descriptor that was itself opened beneath, each target mapped by its absolute path onto a
//! root. What comes out is a name without links in one of the zones, and that is opened by the same call. A link that
//! is swapped meanwhile makes that call fail; it cannot make it open something else.

use super::failure::SystemError;
use super::{Intent, Worker};
use broker_protocol::{Zone, ZonePath};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2, readlinkat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use thiserror::Error;

/// How a file is opened to be read: a FIFO does not make us wait (though a writer that waits there is let go), and a
/// terminal does not become ours.
pub(super) const READING: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);
/// How a directory is opened to be read.
pub(super) const LISTING: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);
/// How a directory is opened to do something in it.
pub(super) const ENTERING: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);
/// How something is opened to be looked at, whatever it is.
pub(super) const LOOKING: OFlag = OFlag::O_PATH;
/// The same, but a link at the end is the link itself.
const LOOKING_AT_LINKS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW);

/// Links followed for one path: what the kernel allows (`MAXSYMLINKS` in `linux/namei.h`).
const LINKS: usize = 40;
/// Attempts at an open that the kernel asks to repeat.
const ATTEMPTS: usize = 16;

/// One of the two roots, held open.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    path: PathBuf,
    writable: bool,
}

/// The two roots of a session, opened before the process is confined.
#[derive(Debug)]
pub struct Roots {
    /// The project root.
    pub project: Root,
    /// The central root.
    pub central: Root,
}

impl Root {
    /// Opens the directory `path`, which is absolute and has no links in it.
    pub fn open(path: &str, writable: bool) -> io::Result<Self> {
        let directory = open(path, ENTERING | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self::new(directory, path, writable))
    }

    /// A root that is open already. `path` is where it lies, as links inside the zones name it.
    pub fn new(directory: OwnedFd, path: &str, writable: bool) -> Self {
        Self { directory, path: path.into(), writable }
    }

    /// Whether it takes writes.
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Opens `path` below this root.
    pub(super) fn open_beneath(&self, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        open_beneath(&self.directory, path, flags, Mode::empty())
    }
}

/// Opens `path` below `directory`, without following any link on the way.
pub(super) fn open_beneath(
    directory: &OwnedFd,
    path: &Path,
    flags: OFlag,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve =
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).mode(mode).resolve(resolve);
    for _ in 1..ATTEMPTS {
        match openat2(directory, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            opened => return opened,
        }
    }
    openat2(directory, path, how)
}

/// A name in a zone, which may have bytes that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) zone: Zone,
    pub(super) path: PathBuf,
}

impl From<&ZonePath> for Place {
    fn from(path: &ZonePath) -> Self {
        Self { zone: path.zone(), path: path.relative().into() }
    }
}

impl Place {
    /// The same as text, where it is text.
    pub(super) fn to_zone_path(&self) -> Option<ZonePath> {
        ZonePath::new(self.zone, self.path.to_str()?).ok()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.zone.name(), self.path.display())
    }
}

/// Something open, and the name under which it was found once links were followed.
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) file: OwnedFd,
}

/// Why a path was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Nothing has that name, or a link on the way leads to nothing.
    #[error("file not found: {path}")]
    NotFound {
        /// The path.
        path: String,
    },
    /// A link leads out of both zones.
    #[error(
        "outside sandbox: {path} leads by a link to a place that is in neither the project nor the central root"
    )]
    Outside {
        /// The path.
        path: String,
    },
    /// The policy closes the name that was asked for.
    #[error("{path} must not be {}: {why}", .intent.verb())]
    Closed {
        /// The path.
        path: String,
        /// What was wanted.
        intent: Intent,
        /// The policy's reason.
        why: String,
    },
    /// The policy closes the name to which a link leads.
    #[error("{path} leads by a link to {real}, which must not be {}: {why}", .intent.verb())]
    ClosedByLink {
        /// The path.
        path: String,
        /// Where it leads.
        real: String,
        /// What was wanted.
        intent: Intent,
        /// The policy's reason.
        why: String,
    },
    /// The root takes no writes.
    #[error("the {} root is read-only in this session; {path} cannot be written", .zone.name())]
    ReadOnly {
        /// The path.
        path: String,
        /// Which root.
        zone: Zone,
    },
    /// It is something else than a regular file.
    #[error("{path} is {is}, not a regular file")]
    NotAFile {
        /// The path.
        path: String,
        /// What it is.
        is: &'static str,
    },
    /// It is something else than a directory.
    #[error("{path} is {is}, not a directory")]
    NotADirectory {
        /// The path.
        path: String,
        /// What it is.
        is: &'static str,
    },
    /// Links lead to links for ever.
    #[error("{path} goes through more than {LINKS} links")]
    Loop {
        /// The path.
        path: String,
    },
    /// A name became a link between two looks at it.
    #[error("{path} was replaced while it was opened; try again")]
    Moved {
        /// The path.
        path: String,
    },
    /// The system said no.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl Worker {
    /// The root of `zone`.
    pub(super) fn root(&self, zone: Zone) -> &Root {
        match zone {
            Zone::Project => &self.roots.project,
            Zone::Central => &self.roots.central,
        }
    }

    /// Opens what `path` names, following links inside the zones.
    pub(super) fn open(&self, path: &ZonePath, flags: OFlag, intent: Intent) -> Result<Found, OpenError> {
        let asked = Place::from(path);
        self.permit(path, &asked, intent)?;
        match self.root(asked.zone).open_beneath(&asked.path, flags) {
            Err(Errno::ELOOP) => self.open_followed(path, &asked, flags, intent),
            Err(errno) => Err(refused(path, errno)),
            Ok(file) => Ok(Found { place: asked, file }),
        }
    }

    fn open_followed(
        &self,
        path: &ZonePath,
        asked: &Place,
        flags: OFlag,
        intent: Intent,
    ) -> Result<Found, OpenError> {
        let place = self.follow(asked).map_err(|lost| lost.on(path))?;
        self.permit(path, &place, intent)?;
        let file = self.root(place.zone).open_beneath(&place.path, flags);
        Ok(Found { file: file.map_err(|errno| refused(path, errno))?, place })
    }

    /// Finds where a write to `path` goes, links followed, and what stands there now, if anything.
    pub(super) fn locate(&self, path: &ZonePath) -> Result<(Place, Option<FileStat>), OpenError> {
        let asked = Place::from(path);
        self.permit(path, &asked, Intent::Write)?;
        match self.look(&asked) {
            Err(Errno::ELOOP) => {}
            Ok(Some(stat)) if is(&stat, libc::S_IFLNK) => {}
            Ok(stat) => return Ok((asked, stat)),
            Err(errno) => return Err(unplaceable(path, errno)),
        }
        let place = self.follow(&asked).map_err(|lost| lost.on(path))?;
        self.permit(path, &place, Intent::Write)?;
        match self.look(&place) {
            Ok(Some(stat)) if is(&stat, libc::S_IFLNK) => Err(OpenError::Moved { path: path.to_string() }),
            Ok(stat) => Ok((place, stat)),
            Err(errno) => Err(unplaceable(path, errno)),
        }
    }

    /// What stands at `place`, if anything. A link at its end is seen as a link.
    pub(super) fn look(&self, place: &Place) -> Result<Option<FileStat>, Errno> {
        match self.root(place.zone).open_beneath(&place.path, LOOKING_AT_LINKS) {
            Ok(file) => fstat(file).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Asks the policy about `place`, to which `path` led.
    fn permit(&self, path: &ZonePath, place: &Place, intent: Intent) -> Result<(), OpenError> {
        if intent == Intent::Write && !self.root(place.zone).writable {
            return Err(OpenError::ReadOnly { path: path.to_string(), zone: place.zone });
        }
        let closed = self.protected.closed(place.zone, &place.path, intent).map(str::to_owned);
        let out_of_scope = || self.protected.out_of_scope(&self.tool.borrow(), place.zone, &place.path);
        let Some(why) = closed.or_else(out_of_scope) else { return Ok(()) };
        let (path, asked) = (path.to_string(), *place == Place::from(path));
        Err(match asked {
            true => OpenError::Closed { path, intent, why },
            false => OpenError::ClosedByLink { path, real: place.to_string(), intent, why },
        })
    }

    /// Resolves every link of `asked` that exists. The result is a name only; it is opened like any other.
    pub(super) fn follow(&self, asked: &Place) -> Result<Place, Lost> {
        let mut at = self.root(asked.zone).path.clone();
        let mut ahead = names(&asked.path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            let Some(target) = self.link_at(&at) else { continue };
            links += 1;
            if links > LINKS {
                return Err(Lost::Loop);
            }
            if target.is_absolute() {
                at = "/".into();
            } else {
                at.pop();
            }
            ahead.extend(names(&target));
        }
        self.place(&at).ok_or(Lost::Outside)
    }

    /// The target of the link at `absolute`, if that is a link in a zone.
    fn link_at(&self, absolute: &Path) -> Option<PathBuf> {
        let place = self.place(absolute)?;
        let link = self.root(place.zone).open_beneath(&place.path, LOOKING_AT_LINKS).ok()?;
        readlinkat(link, "").ok().map(PathBuf::from)
    }

    /// The zone in which `absolute` lies, and its path there. The deeper root first: one may lie inside the other.
    fn place(&self, absolute: &Path) -> Option<Place> {
        let mut zones = [Zone::Project, Zone::Central];
        zones.sort_by_key(|zone| std::cmp::Reverse(self.root(*zone).path.as_os_str().len()));
        zones.into_iter().find_map(|zone| {
            let path = absolute.strip_prefix(&self.root(zone).path).ok()?;
            Some(Place { zone, path: path.to_owned() })
        })
    }
}

/// Why links lead nowhere that may be opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lost {
    /// They leave the zones.
    Outside,
    /// They do not end.
    Loop,
}

impl Lost {
    fn on(self, path: &ZonePath) -> OpenError {
        let path = path.to_string();
        match self {
            Lost::Outside => OpenError::Outside { path },
            Lost::Loop => OpenError::Loop { path },
        }
    }
}

/// The names of a path, the last one first: a stack of what is still to be walked.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// What the kernel's refusal to open `path` means.
fn refused(path: &ZonePath, errno: Errno) -> OpenError {
    let path = path.to_string();
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => OpenError::NotFound { path },
        Errno::ELOOP | Errno::EXDEV => OpenError::Moved { path },
        Errno::ENXIO => OpenError::NotAFile { path, is: "a socket or a device" },
        errno => OpenError::System(SystemError::new("open", path, errno)),
    }
}

/// What the kernel's refusal to look for a place to write `path` means: that it is not there is no refusal.
fn unplaceable(path: &ZonePath, errno: Errno) -> OpenError {
    match errno {
        Errno::ENOTDIR => OpenError::System(SystemError::new("write", path, errno)),
        errno => refused(path, errno),
    }
}

/// The state of `file`, if it is a regular file.
pub(super) fn regular(path: &ZonePath, file: &OwnedFd) -> Result<FileStat, OpenError> {
    let stat = fstat(file).map_err(|errno| SystemError::new("look at", path, errno))?;
    regular_stat(path, stat)
}

/// `stat`, if it is that of a regular file.
pub(super) fn regular_stat(path: &ZonePath, stat: FileStat) -> Result<FileStat, OpenError> {
    match is(&stat, libc::S_IFREG) {
        true => Ok(stat),
        false => Err(OpenError::NotAFile { path: path.to_string(), is: kind(&stat) }),
    }
}

/// Whether `stat` is that of a `kind` of `S_IFMT`.
pub(super) fn is(stat: &FileStat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

/// What `stat` is the state of, in words.
pub(super) fn kind(stat: &FileStat) -> &'static str {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => "a regular file",
        libc::S_IFDIR => "a directory",
        libc::S_IFLNK => "a symbolic link",
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        _ => "a device",
    }
}
