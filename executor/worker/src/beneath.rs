//! Opens what a path names, beneath its root and nowhere else, and returns the resulting name without links.
//!
//! Every open is one `openat2` that refuses links of every kind (`RESOLVE_NO_SYMLINKS`), so that the name that was
//! opened is the name that was asked about. Only when that fails with `ELOOP` is the path resolved by hand: name by name,
//! each link read through a descriptor that was itself opened beneath, each target mapped by its absolute path onto a
//! root, or onto what is granted beside them. What results is a name without links in one of the zones, and that is opened by the same call. A link that
//! is swapped meanwhile makes that call fail; it cannot make it open something else.

use crate::bounds::LINKS;
use crate::error::{OpenError, SystemError};
use crate::root::{LOOKING_AT_LINKS, Location, is, kind};
use crate::worker::FileCall;
use crate::zone_names::Intent;
use broker_protocol::{Zone, ZonePath};
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{FileStat, fstat};
use policies_guard::Verdict;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// An open file, and the name under which it was found after following links.
pub(crate) struct OpenFile {
    pub location: Location,
    pub file: OwnedFd,
}

impl FileCall<'_> {
    /// Opens what `path` names, following links inside the zones.
    pub(crate) fn open(
        &self,
        path: &ZonePath,
        flags: OFlag,
        intent: Intent,
    ) -> Result<OpenFile, OpenError> {
        let asked = Location::from(path);
        self.permit(path, &asked, intent)?;
        match self.root(asked.zone).open_beneath(&asked.path, flags) {
            Err(Errno::ELOOP) => self.open_followed(path, &asked, flags, intent),
            Err(errno) => Err(refused(path, errno)),
            Ok(file) => Ok(OpenFile {
                location: asked,
                file,
            }),
        }
    }

    fn open_followed(
        &self,
        path: &ZonePath,
        asked: &Location,
        flags: OFlag,
        intent: Intent,
    ) -> Result<OpenFile, OpenError> {
        let location = self.follow(asked).map_err(|error| error.on(path))?;
        self.permit(path, &location, intent)?;
        self.permit_followed(path, &location)?;
        let file = self.root(location.zone).open_beneath(&location.path, flags);
        Ok(OpenFile {
            file: file.map_err(|errno| refused(path, errno))?,
            location,
        })
    }

    /// Resolves the target of a write to `path`, following links, and returns the state of the file there, if any.
    pub(crate) fn locate(
        &self,
        path: &ZonePath,
    ) -> Result<(Location, Option<FileStat>), OpenError> {
        let asked = Location::from(path);
        self.permit(path, &asked, Intent::Write)?;
        match self.stat(&asked) {
            Err(Errno::ELOOP) => {}
            Ok(Some(stat)) if is(&stat, libc::S_IFLNK) => {}
            Ok(stat) => return Ok((asked, stat)),
            Err(errno) => return Err(cannot_locate(path, errno)),
        }
        let location = self.follow(&asked).map_err(|error| error.on(path))?;
        self.permit(path, &location, Intent::Write)?;
        self.permit_followed(path, &location)?;
        match self.stat(&location) {
            Ok(Some(stat)) if is(&stat, libc::S_IFLNK) => Err(OpenError::Moved {
                path: path.to_string(),
            }),
            Ok(stat) => Ok((location, stat)),
            Err(errno) => Err(cannot_locate(path, errno)),
        }
    }

    /// The state of the object at `location`, if any. A link at the end is not followed.
    pub(crate) fn stat(&self, location: &Location) -> Result<Option<FileStat>, Errno> {
        match self
            .root(location.zone)
            .open_beneath(&location.path, LOOKING_AT_LINKS)
        {
            Ok(file) => fstat(file).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Checks the policy for `location`, to which `path` led.
    fn permit(
        &self,
        path: &ZonePath,
        location: &Location,
        intent: Intent,
    ) -> Result<(), OpenError> {
        if intent == Intent::Write && location.zone == Zone::Granted {
            return Err(OpenError::Outside {
                path: path.to_string(),
            });
        }
        if intent == Intent::Write && !self.root(location.zone).writable {
            return Err(OpenError::ReadOnly {
                path: path.to_string(),
                zone: location.zone,
            });
        }
        let verdict = match self.leased_at(location) {
            Some(_) if intent == Intent::Read => Verdict::Allow,
            Some(_) => self.verdict_on_leased(location),
            None => self
                .verdict_on(location, intent)
                .map_err(|error| SystemError::new("look at", path, error))?,
        };
        let why = match verdict {
            Verdict::Refuse(rule) => self.why(rule, location, intent).to_owned(),
            Verdict::Allow => match self.names().out_of_scope(self.tool(), location) {
                Some(why) => why,
                None => return Ok(()),
            },
        };
        let (path, asked) = (path.to_string(), *location == Location::from(path));
        Err(match asked {
            true => OpenError::Closed { path, intent, why },
            false => OpenError::ClosedByLink {
                path,
                real: location.to_string(),
                intent,
                why,
            },
        })
    }

    /// Checks that the broker has decided on `location`, to which links of `path` led: rules are about names, and this
    /// is another one. The broker decides on names as text, and on a name that is not text by its replacement.
    fn permit_followed(&self, path: &ZonePath, location: &Location) -> Result<(), OpenError> {
        if *location == Location::from(path) {
            return Ok(());
        }
        let real = ZonePath::new(location.zone, &location.path.to_string_lossy());
        let real = real.map_err(|_| OpenError::Outside {
            path: path.to_string(),
        })?;
        match self.context().permitted.contains(&real) {
            true => Ok(()),
            false => Err(OpenError::Elsewhere {
                path: path.to_string(),
                real,
            }),
        }
    }

    /// Resolves all existing links of `asked`. The result is only a name; it is opened like any other.
    pub(crate) fn follow(&self, asked: &Location) -> Result<Location, FollowError> {
        let mut at = self.root(asked.zone).path.clone();
        let mut ahead = names(&asked.path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            let Some(target) = self.link_at(&at) else {
                continue;
            };
            links += 1;
            if links > LINKS {
                return Err(FollowError::Loop);
            }
            if target.is_absolute() {
                at = "/".into();
            } else {
                at.pop();
            }
            ahead.extend(names(&target));
        }
        self.location(&at).ok_or(FollowError::Outside)
    }

    /// The target of the link at `absolute`, if that is a link in a zone.
    fn link_at(&self, absolute: &Path) -> Option<PathBuf> {
        let on_the_way = || {
            self.names()
                .leads_to_granted(absolute)
                .then(|| granted(absolute))
                .flatten()
        };
        let location = self.location(absolute).or_else(on_the_way)?;
        let link = self
            .root(location.zone)
            .open_beneath(&location.path, LOOKING_AT_LINKS)
            .ok()?;
        readlinkat(link, "").ok().map(PathBuf::from)
    }

    /// The zone that contains `absolute`, and the path in it. The deeper root comes first, as one
    /// may lie inside the other. Outside the zones, only granted paths.
    fn location(&self, absolute: &Path) -> Option<Location> {
        let mut zones = [Zone::Project, Zone::Central];
        zones.sort_by_key(|zone| std::cmp::Reverse(self.root(*zone).path.as_os_str().len()));
        let found = zones.into_iter().find_map(|zone| {
            let path = absolute.strip_prefix(&self.root(zone).path).ok()?;
            Some(Location {
                zone,
                path: path.to_owned(),
            })
        });
        found.or_else(|| {
            self.names()
                .is_granted(absolute)
                .then(|| granted(absolute))
                .flatten()
        })
    }
}

/// The location of `absolute` outside both roots.
fn granted(absolute: &Path) -> Option<Location> {
    Some(Location {
        zone: Zone::Granted,
        path: absolute.strip_prefix("/").ok()?.to_owned(),
    })
}

/// Why links lead to nothing that may be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FollowError {
    /// They leave the zones.
    Outside,
    /// They refer to each other without end.
    Loop,
}

impl FollowError {
    fn on(self, path: &ZonePath) -> OpenError {
        let path = path.to_string();
        match self {
            FollowError::Outside => OpenError::Outside { path },
            FollowError::Loop => OpenError::Loop { path },
        }
    }
}

/// The components of a path in reverse order: a stack of what is still to be resolved.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// The error for a kernel refusal to open `path`.
fn refused(path: &ZonePath, errno: Errno) -> OpenError {
    let path = path.to_string();
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => OpenError::NotFound { path },
        Errno::ELOOP | Errno::EXDEV => OpenError::Moved { path },
        Errno::ENXIO => OpenError::NotAFile {
            path,
            is: "a socket or a device",
        },
        errno => OpenError::System(SystemError::new("open", path, errno)),
    }
}

/// The error for a kernel refusal to resolve the target of a write to `path`: a missing file is no error.
fn cannot_locate(path: &ZonePath, errno: Errno) -> OpenError {
    match errno {
        Errno::ENOTDIR => OpenError::System(SystemError::new("write", path, errno)),
        errno => refused(path, errno),
    }
}

/// The state of `file`, if it is a regular file.
pub(crate) fn regular(path: &ZonePath, file: &OwnedFd) -> Result<FileStat, OpenError> {
    let stat = fstat(file).map_err(|errno| SystemError::new("look at", path, errno))?;
    regular_stat(path, stat)
}

/// `stat`, if it is that of a regular file.
pub(crate) fn regular_stat(path: &ZonePath, stat: FileStat) -> Result<FileStat, OpenError> {
    if is(&stat, libc::S_IFREG) {
        return Ok(stat);
    }
    let path = path.to_string();
    match is(&stat, libc::S_IFDIR) {
        true => Err(OpenError::ADirectory { path }),
        false => Err(OpenError::NotAFile {
            path,
            is: kind(&stat),
        }),
    }
}
