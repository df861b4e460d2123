//! What a supervised call may touch: areas, protected names, and which processes exist.

use super::Result;
use super::caller::status;
use super::find::{by_descriptor, is};
use super::made::{Made, Turn};
use crate::cell::plan::Walls;
use crate::cell::protected::{Closing, Pin};
use crate::cell::{At, LayerError};
use crate::warden::terminals::Asker;
use broker_protocol::{Layer, Zone};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlink};
use nix::sys::stat::{FileStat, Mode};
use policies::{Access, Matcher, Protection, WhenNew};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most entries below a directory that is renamed.
const ENTRIES_MAX: usize = 10_000;
/// Most processes between a program and one it started.
const GENERATIONS_MAX: usize = 4096;

/// A place whose files a cell may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The project root.
    Project,
    /// The central root.
    Central,
    /// The session's private storage.
    Scratch,
}

/// The rules of a session.
pub struct Rules {
    names: Matcher,
    areas: Vec<(PathBuf, Area, Access)>,
    /// What is meant by `/dev/shm`, if not that.
    shared: Option<PathBuf>,
    /// What may be read outside, where the tree is not the session's own.
    views: HashSet<PathBuf>,
    /// Protected files that have other names too: device, inode, and whether they may be read.
    linked: Vec<(u64, u64, Closing)>,
    file_size: Option<u64>,
    /// Whether the tree is the session's own, whose mounts say what is outside.
    own_root: bool,
    /// Whether protected names that existed when the session opened are mounts, which do not move.
    pinned: bool,
    /// What cells have made under protected names.
    made: Made,
    /// Where to ask for terminals, if they are not the session's own.
    asker: Option<Asker>,
}

impl Rules {
    /// The rules for these walls.
    pub fn new(walls: &Walls, asker: Option<Asker>) -> std::result::Result<Self, LayerError> {
        let step = || "make the supervisors' common memory".to_owned();
        let made = Made::new().at(Layer::ProtectedNames, step)?;
        let scratch = |path: &Path| (resolved(path), Area::Scratch, Access::Write);
        let area = |zone| match zone {
            Zone::Project => Area::Project,
            Zone::Central => Area::Central,
        };
        let held = walls.held().map(|directory| {
            let (root, access) = walls.zone(directory.zone());
            (root.join(directory.relative()), area(directory.zone()), access)
        });
        let zones = [Zone::Project, Zone::Central];
        let zones = zones.map(|zone| (walls.zone(zone).0.to_owned(), area(zone), walls.commands(zone)));
        // The first that holds a path counts.
        let mut areas: Vec<_> = held.chain(zones).collect();
        areas.extend([scratch(&walls.scratch.home), scratch(&walls.scratch.tmp)]);
        let shared = walls.scratch.shared().map(|shared| resolved(&shared));
        areas.extend(shared.as_deref().map(scratch));
        let own_root = walls.has(Layer::MountNamespace);
        // Elsewhere mounts say what is outside.
        let views = walls.views.iter().map(|view| &view.path).chain(&walls.policy.listed);
        let views = views.filter(|_| !own_root).map(|path| resolved(path)).collect();
        Ok(Self {
            names: walls.policy.matcher.clone(),
            areas,
            shared,
            views,
            linked: walls.pins.iter().filter_map(with_other_names).collect(),
            file_size: walls.policy.limits.file_size,
            own_root,
            pinned: own_root,
            made,
            asker,
        })
    }

    /// What a cell must keep open for its supervisor.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.asker.iter().map(Asker::descriptor).chain([self.made.descriptor()])
    }

    /// Where to ask for terminals.
    pub fn terminals(&self) -> Option<&Asker> {
        self.asker.as_ref()
    }

    /// Waits for this cell's turn to make or move a name: a name that was looked at stays what it was until it is used.
    /// The cell's own program cannot change it meanwhile, as its calls come here one after the other.
    pub fn turn(&self) -> Result<Turn<'_>> {
        self.made.turn()
    }

    /// The area a path is in, and what may be done there.
    pub fn area(&self, real: &Path) -> Option<(Area, Access)> {
        let mut areas = self.areas.iter().filter(|(root, ..)| real.starts_with(root));
        areas.next().map(|(_, area, access)| (*area, *access))
    }

    /// Whether a path may be looked at.
    pub fn seen(&self, real: &Path) -> bool {
        self.area(real).is_some() || real.ancestors().any(|path| self.views.contains(path))
    }

    /// The path that is meant by one: shared memory and semaphores have names in `/dev/shm`. Nothing is allowed by that, as
    /// what is found is asked about like any other file.
    pub fn meant<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        let below = path.strip_prefix(b"/dev/shm").filter(|rest| matches!(rest, [] | [b'/', ..]));
        match (&self.shared, below) {
            (Some(shared), Some(rest)) if !self.seen(Path::new(OsStr::from_bytes(path))) => {
                [shared.as_os_str().as_bytes(), rest].concat().into()
            }
            _ => path.into(),
        }
    }

    /// Whether a file may grow to this size.
    pub fn fits(&self, size: i64) -> bool {
        self.file_size.is_none_or(|limit| u64::try_from(size).is_ok_and(|size| size <= limit))
    }

    /// May this file be opened, to be changed or only read?
    pub fn may_open(&self, object: &OwnedFd, real: &Path, stat: &FileStat, write: bool) -> Result<()> {
        self.visible(real)?;
        self.reaches(real, stat, write)?;
        let closes = |protection: Option<Protection>| match protection {
            Some(Protection::All) => true,
            Some(Protection::Write) => write,
            None => false,
        };
        let closed = closes(self.protection_of_inode(stat))
            || write && self.says_where(real, stat)
            || closes(self.protection(real)) && !self.is_own(object)?;
        if closed { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// Whether this is a file where names below are protected: a file `.git` says which directory is the repository.
    fn says_where(&self, real: &Path, stat: &FileStat) -> bool {
        is(stat, libc::S_IFREG) && self.leads(real)
    }

    fn leads(&self, real: &Path) -> bool {
        self.in_zones(real).any(|(_, name)| self.names.leads_to(name).is_some())
    }

    /// What Landlock holds by the file, once more by its path: nothing outside the views is opened, and outside the areas
    /// nothing but devices to be changed.
    fn reaches(&self, real: &Path, stat: &FileStat, write: bool) -> Result<()> {
        // A pipe, or memory of its own: it came by a descriptor that the caller has.
        let unnamed = !real.is_absolute() || real.as_os_str().as_bytes().starts_with(b"/memfd:");
        let allowed = match self.area(real) {
            _ if self.own_root || unnamed || real.starts_with("/proc") => true,
            Some((_, access)) => access == Access::Write || !write,
            None => self.seen(real) && (!write || is(stat, libc::S_IFCHR)),
        };
        if allowed { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// May this name be made, replaced, moved or removed?
    pub fn may_change(&self, real: &Path) -> Result<()> {
        match self.area(real) {
            Some((_, Access::Write)) => self.may_use(real),
            _ if self.own_root => self.may_use(real),
            _ => Err(Errno::EACCES),
        }
    }

    /// Is this name not protected, or one that cells of this session have made and may use, or may make?
    fn may_use(&self, real: &Path) -> Result<()> {
        let made = |name: &Path| self.made.has_at(name) || self.made.has_room(name);
        let free = self.protection(real).is_none() || self.all_made(real, WhenNew::Open, made);
        if free { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// May an empty directory be made by this name? Nothing acts on one; so what makes a tree loses only the files.
    pub fn may_make(&self, real: &Path) -> Result<()> {
        let made = |name: &Path| self.made.has_at(name) || self.made.has_room(name);
        match self.area(real) {
            Some((_, Access::Write)) if self.all_made(real, WhenNew::Closed, made) => Ok(()),
            _ => self.may_change(real),
        }
    }

    /// May this name be removed? What a cell has made may go, though git made it and it is closed.
    pub fn may_remove(&self, real: &Path) -> Result<()> {
        let made = || self.all_made(real, WhenNew::Closed, |name| self.made.has_at(name));
        match self.area(real) {
            Some((_, Access::Write)) if self.protection(real).is_some() && made() => Ok(()),
            _ => self.may_change(real),
        }
    }

    /// Whether this file, which has a protected name, is the session's own and may be used.
    fn is_own(&self, object: &OwnedFd) -> Result<bool> {
        let _turn = self.turn()?;
        Ok(self.all_made(&real(object)?, WhenNew::Open, |_| self.made.has(object)))
    }

    /// Whether each protected name in a path is closed no more than this, when new, and is one that a cell of this session
    /// has made. Of the path's own name `last` says so. To be asked in the cell's turn.
    fn all_made(&self, real: &Path, most: WhenNew, last: impl Fn(&Path) -> bool) -> bool {
        self.in_zones(real).all(|(root, path)| {
            let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
            self.names.closings(path).into_iter().all(|(count, new)| {
                let name = root.join(OsStr::from_bytes(&names[..count].join(&b'/')));
                new <= most && if count == names.len() { last(&name) } else { self.made.has_at(&name) }
            })
        })
    }

    /// Remembers what a cell has made, where its name is protected.
    pub fn remember(&self, real: &Path, object: impl AsFd) -> Result<()> {
        let is_last = |path: &[u8]| {
            let count = path.split(|byte| *byte == b'/').count();
            self.names.closings(path).last().is_some_and(|(names, _)| *names == count)
        };
        let protected = self.in_zones(real).any(|(_, path)| is_last(path));
        if protected { self.made.add(object) } else { Ok(()) }
    }

    /// May something of this kind (`S_IF*`) that is not made here as an empty directory have this name?
    ///
    /// Of what is protected only files and directories are made.
    /// Neither a directory nor a link where names below are protected by their place: so no rename changes what is
    /// protected below a directory, and what was asked about a name in an open directory stays true.
    pub fn may_have(&self, real: &Path, kind: libc::mode_t) -> Result<()> {
        self.may_change(real)?;
        let protects = match kind {
            libc::S_IFDIR => self.reaches_below(real),
            libc::S_IFLNK => self.reaches_below(real) || self.protection(real).is_some(),
            libc::S_IFREG => self.leads(real),
            _ => self.leads(real) || self.protection(real).is_some(),
        };
        if protects { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// May the directory `name` of `parent` be moved away? It may hold no name that is protected there.
    pub fn may_move(&self, parent: &OwnedFd, name: &OsStr, from: &Path) -> Result<()> {
        // What existed when the session opened is a mount; what is newer is protected elsewhere too, by its own name.
        if self.pinned && !self.reaches_below(from) {
            return Ok(());
        }
        let mut left = vec![(Dir::openat(parent, name, DIRECTORY, Mode::empty())?, PathBuf::new())];
        let mut seen = 0;
        while let Some((mut directory, below)) = left.pop() {
            let entries: Vec<_> = directory.iter().collect::<Result<_>>()?;
            for entry in entries.iter().filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
            {
                seen += 1;
                if seen > ENTRIES_MAX {
                    return Err(Errno::EBUSY);
                }
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                let path = below.join(name);
                self.may_remove(&from.join(&path))?;
                match Dir::openat(&directory, name, DIRECTORY, Mode::empty()) {
                    Ok(directory) => left.push((directory, path)),
                    Err(Errno::ENOTDIR | Errno::ELOOP) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    /// Whether what lies below a directory is protected by where the directory is.
    fn reaches_below(&self, real: &Path) -> bool {
        self.in_zones(real).any(|(_, path)| self.names.reaches_below(path))
    }

    /// May this file be linked to another name?
    pub fn may_link(&self, real: &Path, stat: &FileStat) -> Result<()> {
        self.may_use(real)?;
        let closed = self.protection_of_inode(stat).is_some() || self.says_where(real, stat);
        if closed { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// May the metadata of this file be changed?
    pub fn may_mark(&self, object: &OwnedFd, real: &Path, stat: &FileStat) -> Result<()> {
        self.may_open(object, real, stat, true).map_err(|_| Errno::EPERM)?;
        match self.area(real) {
            Some((_, Access::Write)) => Ok(()),
            _ => Err(Errno::EPERM),
        }
    }

    /// Processes that are not below this one are not there, nor are the sockets of the machine.
    pub fn visible(&self, real: &Path) -> Result<()> {
        let Ok(below) = real.strip_prefix("/proc") else { return Ok(()) };
        let mut names = below.iter().map(OsStr::as_bytes);
        let first = names.next().unwrap_or_default();
        if !first.first().is_some_and(u8::is_ascii_digit) {
            return Ok(());
        }
        let number = std::str::from_utf8(first).ok().and_then(|text| text.parse().ok());
        let sockets = names.any(|name| name == b"net");
        let ours = number.is_some_and(is_ours);
        if ours && !sockets { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// How a name is protected.
    pub fn protection(&self, real: &Path) -> Option<Protection> {
        self.in_zones(real)
            .filter_map(|(_, name)| self.names.protection(name))
            .map(|name| name.protection)
            .max()
    }

    fn protection_of_inode(&self, stat: &FileStat) -> Option<Protection> {
        if !is(stat, libc::S_IFREG) {
            return None;
        }
        let linked = self.linked.iter().find(|(dev, ino, _)| (*dev, *ino) == (stat.st_dev, stat.st_ino));
        linked.map(|(_, _, closing)| match closing {
            Closing::Closed { .. } => Protection::All,
            Closing::Hold | Closing::ReadOnly => Protection::Write,
        })
    }

    /// A path as each zone that holds it names it, with the zone's root; the name a removed file had, too.
    fn in_zones<'p>(&'p self, real: &'p Path) -> impl Iterator<Item = (&'p Path, &'p [u8])> {
        let zones = self.areas.iter().filter(|(_, area, _)| *area != Area::Scratch);
        let relative = zones.filter_map(|(root, ..)| Some((root.as_path(), real.strip_prefix(root).ok()?)));
        relative.map(|(root, path)| (root, path.as_os_str().as_bytes())).flat_map(|(root, path)| {
            let removed = path.strip_suffix(b" (deleted)");
            [Some((root, path)), removed.map(|path| (root, path))].into_iter().flatten()
        })
    }
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// The path of the file behind a descriptor, as the kernel names it.
pub fn real(fd: &OwnedFd) -> Result<PathBuf> {
    readlink(by_descriptor(fd).as_str()).map(PathBuf::from)
}

fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn with_other_names(pin: &Pin) -> Option<(u64, u64, Closing)> {
    let file = fs::symlink_metadata(&pin.path).ok()?;
    let linked = file.is_file() && file.nlink() > 1 && pin.closing != Closing::Hold;
    linked.then(|| (file.dev(), file.ino(), pin.closing))
}

/// Whether a process is below this one: all that a program starts is, as this process is their subreaper.
fn is_ours(process: i32) -> bool {
    let us = std::process::id() as i32;
    let parent = |child: &i32| status(*child, "PPid:").and_then(|text| text.parse().ok());
    let mut above = std::iter::successors(parent(&process), parent).take(GENERATIONS_MAX);
    above.any(|above| above == us)
}
